# SPDX-License-Identifier: Apache-2.0
"""What the transforms share: their base, and how parameters are checked and written."""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Sequence
from typing import Any


class InterpolationMode(enum.Enum):
    """Pillow's filters, by torchvision's names. On PIL images nearest-exact is nearest."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PILLOW_NUMBERS = {
    0: InterpolationMode.NEAREST,
    2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC,
    4: InterpolationMode.BOX,
    5: InterpolationMode.HAMMING,
    1: InterpolationMode.LANCZOS,
}
_PROTO_DTYPES = ("uint8", "float32", "float16", "bfloat16")


def _mode_of(interpolation: Any) -> InterpolationMode:
    """An InterpolationMode of ours or torchvision's, its value, or Pillow's number."""
    value = getattr(interpolation, "value", interpolation)
    if isinstance(value, int) and value in _PILLOW_NUMBERS:
        return _PILLOW_NUMBERS[value]
    try:
        return InterpolationMode(value)
    except ValueError:
        raise TypeError(
            "Argument interpolation should be a InterpolationMode or a corresponding Pillow integer constant, "
            f"not {interpolation!r}"
        ) from None


def _proto_mode(mode: InterpolationMode) -> str:
    name = "NEAREST" if mode is InterpolationMode.NEAREST_EXACT else mode.name
    return f"INTERPOLATION_{name}"


def _two(size: Any) -> tuple[int, int]:
    if isinstance(size, numbers.Number):
        return int(size), int(size)  # type: ignore[call-overload]
    if isinstance(size, Sequence) and len(size) == 1:
        return int(size[0]), int(size[0])
    if not isinstance(size, Sequence) or len(size) != 2:
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return int(size[0]), int(size[1])


def _number(value: Any) -> float | str:
    """A double in proto3's JSON, which spells what JSON has no number for."""
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _numbers(values: Any) -> list[float | str]:
    if isinstance(values, numbers.Number):
        return [_number(values)]
    return [_number(v) for v in values]


class Transform:
    """Base of the steps; immutable after construction."""

    def to_json(self) -> dict[str, Any]:
        """This step as a loaderd.v1.TransformStep in JSON form."""
        raise NotImplementedError

    def __call__(self, *_: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} of loaderd.transforms runs in the daemon: give it to a DataLoader as transform="
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))
