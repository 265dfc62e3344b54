# SPDX-License-Identifier: Apache-2.0
"""Compares what the trainers of a chaos run got with what came in peace. Pure: lines in, counts out."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Line = dict[str, Any]


@dataclass
class Account:
    """Of one trainer and its successors."""

    batches: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    refused: int = 0  # opened where no daemon was, and came again
    faults: list[str] = field(default_factory=list)
    longest_pause_s: float = 0.0


def answers_of(lines: Iterable[Line]) -> list[list[Any]]:
    """What each step of each epoch has, from the log of a run in peace."""
    epochs: list[list[Any]] = []
    for line in lines:
        if "what" not in line:
            continue
        if line["n"] == len(epochs):
            epochs.append([])
        if line["n"] != len(epochs) - 1 or line["step"] != len(epochs[-1]):
            raise ValueError(f"a run in peace left its order at epoch {line['n']}, step {line['step']}")
        epochs[-1].append(line["what"])
    return epochs


def twice(epoch: Sequence[Any]) -> list[int]:
    """Samples that an epoch has more than once, padding and stand-ins apart."""
    seen: set[int] = set()
    again = []
    for step in epoch:
        stand_ins = [substitute for _, substitute in step.get("bad", ())]
        for index, pad in zip(step.get("index", ()), step.get("pad", ()), strict=True):
            if index in stand_ins:
                stand_ins.remove(index)
            elif not pad:
                again += [index] * (index in seen)
                seen.add(index)
    return again


def overlap(begin: float, end: float, stops: Sequence[tuple[float, float]]) -> float:
    """How much of a time the process was stopped. stops: in order, apart."""
    first = max(0, bisect.bisect_right(stops, (begin, begin)) - 1)
    total = 0.0
    for stopped, went_on in itertools.islice(stops, first, None):
        if stopped >= end:
            break
        total += max(0.0, min(end, went_on) - max(begin, stopped))
    return total


def judge(
    lines: Iterable[Line], answers: Sequence[Sequence[Any]], stops: Sequence[tuple[float, float]] = ()
) -> Account:
    """Walks one log. Each epoch is to be there from its first step to its last, in order, with the contents of the answers."""
    account = Account()
    lengths = [len(epoch) for epoch in answers]
    begins = [sum(lengths[:k]) for k in range(len(lengths))]
    expected = 0  # place among all steps of the run

    def place(n: int, step: int) -> int:
        return n // len(lengths) * sum(lengths) + begins[n % len(lengths)] + step

    last = -1
    for line in lines:
        if "error" in line:
            account.errors[line["error"]] = account.errors.get(line["error"], 0) + 1
        account.refused += "refused" in line
        if "fault" in line:
            account.faults.append(line["fault"])
        if "what" not in line:
            continue
        n, step = line["n"], line["step"]
        account.batches += 1
        account.longest_pause_s = max(
            account.longest_pause_s, line["wait"] - overlap(line["end"] - line["wait"], line["end"], stops)
        )
        here = place(n, step)
        account.lost += max(0, here - expected)
        account.repeated += here < expected
        expected = max(expected, here + 1)
        right = answers[n % len(answers)]
        if step >= len(right) or line["what"] != right[step]:
            account.wrong.append(f"epoch {n}, step {step}")
        last = max(last, n)
    account.lost += place(last + 1, 0) - expected  # the last epoch was to be ended
    return account
