# SPDX-License-Identifier: Apache-2.0
"""The random choices of the daemon's augmentations, in plain Python: what box and flip a sample got.

Every choice is a function of (seed, epoch, sample index, place): `seed` is the DataLoader's, `epoch` and `index` are in the
batch, and `place` is the step's position in the transform list, counted from 0 (in `Compose([RandomResizedCrop(224),
RandomHorizontalFlip()])` the flip has place 1). The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
random numbers: as easy as 1, 2, 3", SC 2011). Only integers and IEEE doubles are used; all functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Box(NamedTuple):
    """A crop, in pixels of the decoded image."""

    top: int
    left: int
    height: int
    width: int


def philox4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox4x32-10: four 32-bit words for a counter of four and a key of two 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def draw(seed: int, epoch: int, index: int, place: int, block: int = 0) -> tuple[int, int, int, int]:
    """Block `block` of four 32-bit draws for one step on one sample.

    The counter is {index low, index high, epoch low, place << 16 | block}, the key {seed low, seed high}.
    ValueError when place or block is not in 0..65535.
    """
    if not (0 <= place < 65536 and 0 <= block < 65536):
        raise ValueError(f"place and block are 0 to 65535, not {place} and {block}")
    counter = (index & _MASK, (index >> 32) & _MASK, epoch & _MASK, place << 16 | block)
    return philox4x32(counter, (seed & _MASK, (seed >> 32) & _MASK))


def unit(word: int) -> float:
    """A draw as a number in [0, 1): word / 2**32, exact."""
    return word * 2.0**-32


def below(word: int, n: int) -> int:
    """A draw as an integer in [0, n): word * n >> 32."""
    return (word * n) >> 32


def random_resized_crop_box(
    seed: int,
    epoch: int,
    index: int,
    place: int,
    height: int,
    width: int,
    scale: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
) -> Box:
    """The box that RandomResizedCrop cuts from a `width` x `height` image before it resizes it.

    torchvision's rule (RandomResizedCrop.get_params) over `draw`: up to ten attempts, attempt t with block t:
    target area = height * width * (scale[0] + u0 * (scale[1] - scale[0])), aspect = exp(log(ratio[0]) + u1 *
    (log(ratio[1]) - log(ratio[0]))), w = round(sqrt(target * aspect)), h = round(sqrt(target / aspect)), half to even;
    taken when it fits, at a place chosen with u2 and u3. Otherwise the central crop of the nearest allowed aspect.
    """
    area = float(height * width)
    log_low, log_high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(10):
        u0, u1, u2, u3 = draw(seed, epoch, index, place, attempt)
        target = area * (scale[0] + unit(u0) * (scale[1] - scale[0]))
        aspect = math.exp(log_low + unit(u1) * (log_high - log_low))
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return Box(below(u2, height - h + 1), below(u3, width - w + 1), h, w)
    w, h = width, height
    if width / height < min(ratio):
        h = round(width / min(ratio))
    elif width / height > max(ratio):
        w = round(height * max(ratio))
    return Box((height - h) // 2, (width - w) // 2, h, w)


def random_horizontal_flip(seed: int, epoch: int, index: int, place: int, p: float = 0.5) -> bool:
    """Whether RandomHorizontalFlip mirrors the sample: the first draw of block 0, as a number in [0, 1), is below p."""
    return unit(draw(seed, epoch, index, place)[0]) < p
