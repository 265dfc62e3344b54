# SPDX-License-Identifier: Apache-2.0
"""What MixUp and CutMix did to a batch: every function is the daemon's own rule, in plain Python.

Arguments are (seed, epoch, step): the loader's seed, and where the batch stands, as the batch tells. `rank` is the loader's: 0 where
it has none, or a sampler. `number` is the step's: 0, or in a RandomChoice, which is 0 itself, from 1 on.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ._philox import below, draw
from ._random_params import random_choice

_PLACES = 32768  # those of batch steps begin here
_ATTEMPTS = 128


class Cut(NamedTuple):
    """The box of CutMix, x0 <= x < x1 and y0 <= y < y1 in pixels, and the lam of its labels: the part of the image that stays."""

    x0: int
    y0: int
    x1: int
    y1: int
    lam: float


def _key(seed: int, epoch: int, step: int, number: int, rank: int) -> tuple[int, int, int, int]:
    return seed, epoch, operator.index(rank) << 40 | operator.index(step), _PLACES + operator.index(number)


def _open(word: int) -> float:
    return (word + 0.5) * 2.0**-32


def _cheng(u: float, v: float, alpha: float) -> float | None:
    root = math.sqrt(alpha)
    logit = math.log(u / (1.0 - u)) / root
    odds = alpha * math.exp(logit)
    r = (alpha + root) * logit - math.log(4.0)
    total = 2.0 * alpha
    if r + total * math.log(total / (alpha + odds)) < math.log(u * u * v):
        return None
    return odds / (alpha + odds)


def _joehnk(u: float, v: float, alpha: float) -> float | None:
    x = math.log(u) / alpha
    y = math.log(v) / alpha
    if math.exp(x) + math.exp(y) > 1.0:
        return None
    most = max(x, y)
    a = math.exp(x - most)
    b = math.exp(y - most)
    return a / (a + b)


def mix_up_lam(seed: int, epoch: int, step: int, number: int = 0, alpha: float = 1.0, rank: int = 0) -> float:
    """The lam of MixUp, from Beta(alpha, alpha), as torch draws it: a float32's value, 2**-126 to 1 - 2**-24.

    alpha >= 1: algorithm BB of Cheng, "Generating beta variates with nonintegral shape parameters", CACM 21 (1978); below: Joehnk,
    "Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", Metrika 8 (1964), on logarithms.
    """
    key = _key(seed, epoch, step, number, rank)
    for attempt in range(1, _ATTEMPTS + 1):
        words = draw(*key, attempt)
        u, v = _open(words[0]), _open(words[1])
        taken = _joehnk(u, v, alpha) if alpha < 1.0 else _cheng(u, v, alpha)
        if taken is not None:
            return min(max(struct.unpack("f", struct.pack("f", taken))[0], 2.0**-126), 1 - 2.0**-24)
    return 0.5


def cut_mix(
    seed: int, epoch: int, step: int, height: int, width: int, number: int = 0, alpha: float = 1.0, rank: int = 0
) -> Cut:
    """What CutMix does to images of `height` x `width`."""
    words = draw(*_key(seed, epoch, step, number, rank))
    x, y = below(words[0], width), below(words[1], height)
    r = 0.5 * math.sqrt(1.0 - mix_up_lam(seed, epoch, step, number, alpha, rank))
    half_width, half_height = int(r * width), int(r * height)
    x0, y0 = max(x - half_width, 0), max(y - half_height, 0)
    x1, y1 = min(x + half_width, width), min(y + half_height, height)
    return Cut(x0, y0, x1, y1, 1.0 - (x1 - x0) * (y1 - y0) / (width * height))


def batch_choice(
    seed: int, epoch: int, step: int, count: int, p: Sequence[float] | None = None, rank: int = 0
) -> int:
    """Which of the `count` transforms of a RandomChoice a batch got; its `number` in the functions above is that + 1."""
    return random_choice(*_key(seed, epoch, step, 0, rank), count, p)
