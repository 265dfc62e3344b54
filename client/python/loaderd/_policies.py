# SPDX-License-Identifier: Apache-2.0
"""torchvision's augmentation policies, the steps they are made of, and the steps that hold others."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ._augment import _fill
from ._steps import InterpolationMode, Transform, _mode_of, _number, _numbers, _proto_mode


class RandAugment(Transform):
    """`num_ops` random operations of one strength, one after the other."""

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation = _mode_of(interpolation)
        self.fill = fill

    def to_json(self) -> dict[str, Any]:
        step = {
            "num_ops": int(self.num_ops),
            "magnitude": int(self.magnitude),
            "num_magnitude_bins": int(self.num_magnitude_bins),
            "interpolation": _proto_mode(self.interpolation),
            "fill": _fill(self.fill),
        }
        return {"rand_augment": step}

    def __repr__(self) -> str:
        return (
            f"RandAugment(num_ops={self.num_ops}, magnitude={self.magnitude}, num_magnitude_bins={self.num_magnitude_bins}, "
            f"interpolation={self.interpolation}, fill={self.fill})"
        )


class TrivialAugmentWide(Transform):
    """One random operation of random strength."""

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None
    ) -> None:
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation = _mode_of(interpolation)
        self.fill = fill

    def to_json(self) -> dict[str, Any]:
        step = {
            "num_magnitude_bins": int(self.num_magnitude_bins),
            "interpolation": _proto_mode(self.interpolation),
            "fill": _fill(self.fill),
        }
        return {"trivial_augment_wide": step}

    def __repr__(self) -> str:
        return (
            f"TrivialAugmentWide(num_magnitude_bins={self.num_magnitude_bins}, interpolation={self.interpolation}, "
            f"fill={self.fill})"
        )


class AutoAugmentPolicy(enum.Enum):
    """The learned policies of AutoAugment."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


class AutoAugment(Transform):
    """One of a policy's 25 pairs of operations."""

    def __init__(
        self,
        policy: Any = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        self.policy = AutoAugmentPolicy(getattr(policy, "value", policy))
        self.interpolation = _mode_of(interpolation)
        self.fill = fill

    def to_json(self) -> dict[str, Any]:
        step = {
            "policy": f"AUTO_AUGMENT_POLICY_{self.policy.name}",
            "interpolation": _proto_mode(self.interpolation),
            "fill": _fill(self.fill),
        }
        return {"auto_augment": step}

    def __repr__(self) -> str:
        return f"AutoAugment(policy={self.policy}, fill={self.fill})"


class RandomInvert(Transform):
    """Inverts the colours with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_invert": {"p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomInvert(p={self.p})"


class RandomPosterize(Transform):
    """Keeps the upper `bits` of each value, with probability `p`."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = bits
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_posterize": {"bits": int(self.bits), "p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomPosterize(bits={self.bits},p={self.p})"


class RandomSolarize(Transform):
    """Inverts the values from `threshold` on, with probability `p`."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold = threshold
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_solarize": {"threshold": _number(self.threshold), "p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomSolarize(threshold={self.threshold},p={self.p})"


class RandomAdjustSharpness(Transform):
    """Blurs (below 1) or sharpens (above 1), with probability `p`."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        self.sharpness_factor = sharpness_factor
        self.p = p

    def to_json(self) -> dict[str, Any]:
        step = {"sharpness_factor": _number(self.sharpness_factor), "p": _number(self.p)}
        return {"random_adjust_sharpness": step}

    def __repr__(self) -> str:
        return f"RandomAdjustSharpness(sharpness_factor={self.sharpness_factor},p={self.p})"


class RandomAutocontrast(Transform):
    """Stretches each channel to 0..255, with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_autocontrast": {"p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomAutocontrast(p={self.p})"


class RandomEqualize(Transform):
    """Makes each channel's histogram even, with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_equalize": {"p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomEqualize(p={self.p})"


def _held(transforms: Sequence[Any]) -> list[dict[str, Any]]:
    from .transforms import steps_of  # it knows these classes

    return [step.to_json() for step in steps_of(list(transforms))]


def _each(transforms: Sequence[Any]) -> list[dict[str, Any]]:
    """One step a transform; a Compose, or a list, is held by a RandomApply that always happens."""
    from .transforms import steps_of

    each = []
    for transform in transforms:
        steps = [step.to_json() for step in steps_of(transform)]
        each.append(steps[0] if len(steps) == 1 else {"random_apply": {"transforms": steps, "p": 1.0}})
    return each


def _lines(name: str, transforms: Sequence[Any]) -> str:
    return "\n".join([f"{name}(", *(f"    {step}" for step in transforms), ")"])


class RandomApply(Transform):
    """All of `transforms` in order, with probability `p`; else none."""

    def __init__(self, transforms: Sequence[Any], p: float = 0.5) -> None:
        self.transforms = transforms
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_apply": {"transforms": _held(self.transforms), "p": _number(self.p)}}

    def __repr__(self) -> str:
        return "\n".join(["RandomApply(", f"    p={self.p}", *(f"    {step}" for step in self.transforms), ")"])


class RandomOrder(Transform):
    """All of `transforms`, in random order."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    def to_json(self) -> dict[str, Any]:
        return {"random_order": {"transforms": _each(self.transforms)}}

    def __repr__(self) -> str:
        return _lines("RandomOrder", self.transforms)


class RandomChoice(Transform):
    """One of `transforms`, by the weights `p`."""

    def __init__(self, transforms: Sequence[Any], p: Sequence[float] | None = None) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.transforms = transforms
        self.p = p

    def to_json(self) -> dict[str, Any]:
        step: dict[str, Any] = {"transforms": _each(self.transforms)}
        if self.p is not None:
            step["p"] = _numbers(self.p)
        return {"random_choice": step}

    def __repr__(self) -> str:
        return f"{_lines('RandomChoice', self.transforms)}(p={self.p})"
