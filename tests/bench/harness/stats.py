# SPDX-License-Identifier: Apache-2.0
"""Medians with their spread, over rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    median: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 0) -> str:
        """ "1,234 (1,200 to 1,250)"; the median alone where there is one value."""
        shown = [f"{value:,.{digits}f}" for value in self[:3]]
        return shown[0] if self.count == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def spread(values: Iterable[float]) -> Spread | None:
    """None where there is no value."""
    known = sorted(values)
    return Spread(statistics.median(known), known[0], known[-1], len(known)) if known else None


def of_key(accounts: Iterable[Mapping[str, float]], key: str) -> Spread | None:
    """The spread of one number of all accounts that have it."""
    return spread(account[key] for account in accounts if key in account)


def paired_ratio(values: Mapping[int, float], bases: Mapping[int, float]) -> Spread | None:
    """The spread of value / base, both of the same round: the machine drifts, and with it both."""
    return spread(values[turn] / bases[turn] for turn in values if bases.get(turn))


def by_round(results: Sequence[Mapping], key: str) -> dict[int, float]:
    """One number of each round's account, by the number of the round."""
    return {result["round"]: result["account"][key] for result in results if key in result.get("account", {})}
