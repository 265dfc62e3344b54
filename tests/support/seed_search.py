# SPDX-License-Identifier: Apache-2.0
"""Seeds by which a random crop cuts a given box: so that a fixed crop's right answer can be asked of a daemon."""

from __future__ import annotations

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_AT_ONCE = 1 << 18


def _draws(seeds: np.ndarray, counter: tuple[int, int, int, int]) -> list[np.ndarray]:
    """Philox4x32-10 of one counter under many seeds."""
    c = [np.full(len(seeds), word, np.uint64) for word in counter]
    k0, k1 = seeds & _MASK, seeds >> _HALF
    for _ in range(10):
        p0, p1 = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        c = [(p1 >> _HALF) ^ c[1] ^ k0, p1 & _MASK, (p0 >> _HALF) ^ c[3] ^ k1, p0 & _MASK]
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & _MASK, (k1 + np.uint64(_WEYL[1])) & _MASK
    return c


def resized_crop_seed(height: int, width: int, top: int, left: int, box_height: int, box_width: int) -> int:
    """With which seed sample 0 of epoch 0 gets its box at top and left, in step 0, RandomResizedCrop, whose box has that size."""
    tops, lefts = np.uint64(height - box_height + 1), np.uint64(width - box_width + 1)
    for begin in range(0, 1 << 32, _AT_ONCE):
        seeds = np.arange(begin, begin + _AT_ONCE, dtype=np.uint64)
        w = _draws(seeds, (0, 0, 0, 0))
        found = (w[2] * tops >> _HALF == np.uint64(top)) & (w[3] * lefts >> _HALF == np.uint64(left))
        if found.any():
            return int(seeds[np.argmax(found)])
    raise LookupError(f"no seed gives the box {top}, {left}, {box_height}, {box_width} in {height} x {width}")
