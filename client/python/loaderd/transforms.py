# SPDX-License-Identifier: Apache-2.0
"""The image transforms that the daemon applies, with torchvision's names, parameters, defaults and meaning.

They describe work and do none: a DataLoader sends them to the daemon. Results equal torchvision's on PIL images bit for
bit. Without a tensor conversion a sample is uint8, height x width x channels; PILToTensor and ToTensor put channels first.
torchvision's own transform objects of the same names are accepted in their place. MixUp and CutMix, torchvision.transforms.v2's,
work on batches: a DataLoader takes them, or a RandomChoice of them, as batch_transform.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ._augment import (
    ColorJitter,
    GaussianBlur,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomPerspective,
    RandomRotation,
    RandomVerticalFlip,
)
from ._batch_steps import CutMix, MixUp, batch_step_of
from ._policies import (
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    RandomAdjustSharpness,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomEqualize,
    RandomInvert,
    RandomOrder,
    RandomPosterize,
    RandomSolarize,
    TrivialAugmentWide,
)
from ._steps import _PROTO_DTYPES, InterpolationMode, Transform, _mode_of, _number, _numbers, _proto_mode, _two

__all__ = [
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "InterpolationMode",
    "MixUp",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "batch_step_of",
    "steps_of",
]


class Compose(Transform):
    """Steps in order. Compose may stand in Compose."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = list(transforms)

    def __repr__(self) -> str:
        return "\n".join(["Compose(", *(f"    {step}" for step in self.transforms), ")"])


class Resize(Transform):
    """Resizes to [height, width], or the shorter edge to `size` and the other in proportion, at most `max_size` long."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if not isinstance(size, (int, Sequence)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        if max_size is not None and isinstance(size, Sequence) and len(size) == 2:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge, "
                "i.e. size should be an int or a sequence of length 1"
            )
        self.size = size
        self.interpolation = _mode_of(interpolation)
        self.max_size = max_size
        self.antialias = antialias  # PIL images are always filtered, in torchvision too

    def to_json(self) -> dict[str, Any]:
        size = [self.size] if isinstance(self.size, int) else self.size
        step: dict[str, Any] = {
            "size": [int(edge) for edge in size],
            "interpolation": _proto_mode(self.interpolation),
        }
        if self.max_size is not None:
            step["max_size"] = int(self.max_size)
        return {"resize": step}

    def __repr__(self) -> str:
        return (
            f"Resize(size={self.size}, interpolation={self.interpolation.value}, "
            f"max_size={self.max_size}, antialias={self.antialias})"
        )


class CenterCrop(Transform):
    """Cuts the middle out; a smaller image is padded with zeros."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _two(size)

    def to_json(self) -> dict[str, Any]:
        return {"center_crop": {"size": list(self.size)}}

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"


class RandomResizedCrop(Transform):
    """Cuts a random box out and resizes it; `loaderd.random.random_resized_crop_box` tells which box a sample got."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size = _two(size)
        if not isinstance(scale, Sequence):
            raise TypeError("Scale should be a sequence")
        if not isinstance(ratio, Sequence):
            raise TypeError("Ratio should be a sequence")
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warnings.warn("Scale and ratio should be of kind (min, max)", stacklevel=2)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = _mode_of(interpolation)
        self.antialias = antialias

    def to_json(self) -> dict[str, Any]:
        step = {
            "size": list(self.size),
            "scale": _numbers(self.scale),
            "ratio": _numbers(self.ratio),
            "interpolation": _proto_mode(self.interpolation),
        }
        return {"random_resized_crop": step}

    def __repr__(self) -> str:
        scale, ratio = (tuple(round(v, 4) for v in pair) for pair in (self.scale, self.ratio))
        return (
            f"RandomResizedCrop(size={self.size}, scale={scale}, ratio={ratio}, "
            f"interpolation={self.interpolation.value}, antialias={self.antialias})"
        )


class RandomHorizontalFlip(Transform):
    """Mirrors with probability `p`; `loaderd.random.random_horizontal_flip` tells whether a sample was."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_horizontal_flip": {"p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomHorizontalFlip(p={self.p})"


class Grayscale(Transform):
    """Grey by ITU-R 601, as Pillow's convert("L"), in 1 or 3 equal channels."""

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError("num_output_channels should be either 1 or 3")
        self.num_output_channels = num_output_channels

    def to_json(self) -> dict[str, Any]:
        return {"grayscale": {"num_output_channels": self.num_output_channels}}

    def __repr__(self) -> str:
        return f"Grayscale(num_output_channels={self.num_output_channels})"


class PILToTensor(Transform):
    """uint8, channels first."""

    def to_json(self) -> dict[str, Any]:
        return {"pil_to_tensor": {}}

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToTensor(Transform):
    """float32 in 0..1, channels first."""

    def to_json(self) -> dict[str, Any]:
        return {"to_tensor": {}}

    def __repr__(self) -> str:
        return "ToTensor()"


class ConvertImageDtype(Transform):
    """To another number type, scaled; `dtype` is a name ("float16", "bfloat16" …), a numpy or a torch dtype."""

    def __init__(self, dtype: Any) -> None:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
        self.dtype = name.removeprefix("torch.")
        if self.dtype not in _PROTO_DTYPES:
            raise ValueError(f"dtype should be one of {', '.join(_PROTO_DTYPES)}, not {dtype!r}")

    def to_json(self) -> dict[str, Any]:
        return {"convert_image_dtype": {"dtype": self.dtype}}

    def __repr__(self) -> str:
        return f"ConvertImageDtype(dtype={self.dtype})"


class Normalize(Transform):
    """(value - mean) / std for each channel of a float tensor."""

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace  # has no meaning here: the daemon writes each sample once

    def to_json(self) -> dict[str, Any]:
        return {"normalize": {"mean": _numbers(self.mean), "std": _numbers(self.std)}}

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


_SUPPORTED = (
    Resize,
    CenterCrop,
    RandomResizedCrop,
    RandomHorizontalFlip,
    Grayscale,
    PILToTensor,
    ToTensor,
    ConvertImageDtype,
    Normalize,
    Pad,
    RandomCrop,
    RandomVerticalFlip,
    RandomRotation,
    RandomAffine,
    RandomPerspective,
    ColorJitter,
    RandomGrayscale,
    GaussianBlur,
    RandomErasing,
    RandAugment,
    TrivialAugmentWide,
    AutoAugment,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomApply,
    RandomChoice,
    RandomOrder,
)
_TORCHVISION_MODULE = "torchvision.transforms.transforms"
_TORCHVISION_MODULES = (_TORCHVISION_MODULE, "torchvision.transforms.autoaugment")


def _from_torchvision(step: Any) -> Transform | None:
    """Our step for torchvision's object of the same name, read by its attributes; torchvision is not imported."""
    if type(step).__module__ not in _TORCHVISION_MODULES:
        return None
    for ours in _SUPPORTED:
        if ours.__name__ == type(step).__name__:
            code = getattr(ours.__init__, "__code__", None)  # none: the step has no parameters
            names = code.co_varnames[1 : code.co_argcount] if code else ()
            return ours(**{name: getattr(step, name) for name in names if hasattr(step, name)})
    return None


def steps_of(transform: Any) -> list[Transform]:
    """The steps of a transform, Compose undone: ours, torchvision's own of the same names, or a list of them.

    TypeError for anything else, naming it and what is supported.
    """
    if transform is None:
        return []
    if isinstance(transform, (list, tuple)):
        return [step for part in transform for step in steps_of(part)]
    if isinstance(transform, Compose) or (
        type(transform).__name__ == "Compose" and type(transform).__module__ == _TORCHVISION_MODULE
    ):
        return steps_of(list(transform.transforms))
    if isinstance(transform, _SUPPORTED):
        return [transform]
    if isinstance(transform, (MixUp, CutMix)):
        raise TypeError(f"{transform!r} works on batches: give it to the DataLoader as batch_transform=, not as transform=")
    step = _from_torchvision(transform)
    if step is None:
        raise TypeError(
            f"transform {transform!r} ({type(transform).__module__}.{type(transform).__qualname__}) cannot run in the daemon; "
            f"supported are {', '.join(cls.__name__ for cls in _SUPPORTED)} and Compose, of loaderd.transforms or of "
            "torchvision.transforms (not v2)"
        )
    return [step]
