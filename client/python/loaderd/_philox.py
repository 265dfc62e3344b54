# SPDX-License-Identifier: Apache-2.0
"""Philox4x32-10, and how the daemon draws from it; loaderd.random is what to import."""

from __future__ import annotations

import operator
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
    c0, c1, c2, c3 = map(operator.index, counter)  # numpy's integers would overflow
    k0, k1 = map(operator.index, key)
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
    seed, epoch, index, place, block = map(operator.index, (seed, epoch, index, place, block))
    if not (0 <= place < 65536 and 0 <= block < 65536):
        raise ValueError(f"place and block are 0 to 65535, not {place} and {block}")
    counter = (index & _MASK, (index >> 32) & _MASK, epoch & _MASK, place << 16 | block)
    return philox4x32(counter, (seed & _MASK, (seed >> 32) & _MASK))


def unit(word: int) -> float:
    """A draw as a number in [0, 1): word / 2**32, exact."""
    return word * 2.0**-32


def below(word: int, n: int) -> int:
    """A draw as an integer in [0, n): word * n >> 32."""
    return (word * operator.index(n)) >> 32
