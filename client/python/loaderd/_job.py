# SPDX-License-Identifier: Apache-2.0
"""Checks a loader's arguments and writes the JobSpec (proto/loaderd/v1/job.proto) in JSON form."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import transforms

SHARDS = {"pad": "SHARD_RULE_PAD", "drop": "SHARD_RULE_DROP", "uneven": "SHARD_RULE_UNEVEN"}
POLICIES = {
    "fail": "BAD_SAMPLE_POLICY_FAIL",
    "skip": "BAD_SAMPLE_POLICY_SKIP",
    "substitute": "BAD_SAMPLE_POLICY_SUBSTITUTE",
}
FIDELITIES = {"exact": "FIDELITY_EXACT", "fast": "FIDELITY_FAST"}
REFERENCES = {"pillow13": "REFERENCE_PILLOW13", "pillow12": "REFERENCE_PILLOW12"}


def whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """An integer argument within its limits; TypeError or ValueError name it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} should be an integer, not {value!r}") from None
    if number < low or (high is not None and number > high):
        limits = f"at least {low}" if high is None else f"{low} to {high}"
        raise ValueError(f"{name} should be {limits}, but got {name}={number}")
    return number


def choice(name: str, value: Any, among: dict[str, str]) -> str:
    if value not in among:
        raise ValueError(f"{name} should be one of {', '.join(map(repr, among))}, but got {name}={value!r}")
    return among[value]


@dataclass(frozen=True)
class Order:
    """Which samples an epoch has on this rank, and in what order."""

    kind: str  # SEQUENTIAL, TORCH_SHUFFLE, EXPLICIT
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    shard: str = "pad"

    def num_samples(self, n: int) -> int:
        """Samples of this rank in an epoch of n."""
        if self.shard == "uneven":
            return len(range(self.rank, n, self.world_size))
        return n // self.world_size if self.shard == "drop" else -(-n // self.world_size)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": f"ORDER_KIND_{self.kind}",
            "seed": str(self.seed),  # JSON's numbers end at 2**53
            "rank": self.rank,
            "world_size": self.world_size,
            "shard": choice("shard", self.shard, SHARDS),
        }


def num_batches(samples: int, batch_size: int, drop_last: bool) -> int:
    return samples // batch_size if drop_last else -(-samples // batch_size)


def job(
    dataset: dict[str, Any],
    steps: Sequence[transforms.Transform],
    order: Order,
    *,
    batch_size: int,
    drop_last: bool,
    prefetch_factor: int,
    on_bad_sample: str,
    reference: str,
    fidelity: str = "exact",
    batch_transform: Any = None,
) -> dict[str, Any]:
    """The JobSpec. What the daemon checks better (sizes, combinations of steps) is left to it."""
    batch_step = transforms.batch_step_of(batch_transform)
    return {
        "dataset": dataset,
        "transform": [step.to_json() for step in steps],
        "order": order.to_json(),
        "batch_size": batch_size,
        "drop_last": drop_last,
        "prefetch_factor": prefetch_factor,
        "on_bad_sample": choice("on_bad_sample", on_bad_sample, POLICIES),
        "reference": choice("reference", reference, REFERENCES),
        **({} if fidelity == "exact" else {"fidelity": choice("fidelity", fidelity, FIDELITIES)}),
        **({} if batch_step is None else {"batch_transform": batch_step}),
    }
