# SPDX-License-Identifier: Apache-2.0
"""What a loader yields."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class BadSample(NamedTuple):
    """A planned sample that could not be read. `substitute`: the index whose data stands in for it, or None."""

    index: int
    reason: str
    substitute: int | None


class Facts(NamedTuple):
    """What is known of a batch besides its fields. Keeping it pins no batch memory."""

    index: np.ndarray | None = None
    pad: np.ndarray | None = None
    bad: tuple[BadSample, ...] = ()
    epoch: int | None = None
    step: int | None = None


class Batch(tuple):
    """A tuple of the dataset's fields, for an image folder (images, labels), also as attributes by name.

    images: uint8 [n, height, width, channels], or with a tensor conversion [n, channels, height, width] of its dtype
    (bfloat16 as ml_dtypes.bfloat16 where that package is installed, else as the same bits in uint16).
    labels: int64 [n], or with a batch_transform float32 [n, num_classes]. Both are writable views of the batch's slot in memory shared with the daemon, without a copy;
    a change is seen in this batch alone. The slot goes back to the daemon when the last view is gone.

    index: int64 [n], which samples these are; pad: bool [n], which of them repeat others only to give every rank as many;
    bad: the samples that could not be read; epoch and step: where the batch stands. They are copies and pin no slot. A
    batch remade from its fields (`type(b)(iter(b))`) keeps the names and has no such facts (None, and () for bad).
    """

    _names: tuple[str, ...] = ()
    facts: Facts

    def __new__(cls, fields: Iterable[Any] = (), facts: Facts | None = None) -> Batch:
        self = super().__new__(cls, fields)
        self.facts = facts if facts is not None else Facts()
        return self

    @property
    def index(self) -> np.ndarray | None:  # type: ignore[override]
        return self.facts.index

    @property
    def pad(self) -> np.ndarray | None:
        return self.facts.pad

    @property
    def bad(self) -> tuple[BadSample, ...]:
        return self.facts.bad

    @property
    def epoch(self) -> int | None:
        return self.facts.epoch

    @property
    def step(self) -> int | None:
        return self.facts.step

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            place = self._names.index(name)
            if place < len(self):
                return self[place]
        raise AttributeError(f"this batch has no {name!r}; its fields are {', '.join(self._names) or 'unnamed'}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._names]

    def __reduce__(self):
        return _rebuild, (self._names, tuple(self), self.facts)

    def __repr__(self) -> str:
        names = self._names if len(self._names) == len(self) else [str(k) for k in range(len(self))]
        shown = [
            f"{name}={field.dtype}{list(field.shape)}" if hasattr(field, "dtype") else f"{name}={field!r}"
            for name, field in zip(names, self, strict=True)
        ]
        return f"Batch({', '.join(shown)}, epoch={self.epoch}, step={self.step})"


@functools.cache
def batch_type(names: tuple[str, ...]) -> type[Batch]:
    """The Batch whose fields have these names: a class of its own, so that the names survive `type(b)(iter(b))`."""
    return type("Batch", (Batch,), {"_names": names, "__module__": Batch.__module__, "__doc__": Batch.__doc__})


def _rebuild(names: tuple[str, ...], fields: tuple[Any, ...], facts: Facts) -> Batch:
    return batch_type(names)(fields, facts)
