# SPDX-License-Identifier: Apache-2.0
"""torchvision's geometric and colour transforms with parameters, as steps for the daemon; loaderd.random tells what each sample got."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

from ._steps import InterpolationMode, Transform, _mode_of, _number, _numbers, _proto_mode, _two

_PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


def _padding(padding: Any) -> list[int]:
    if not isinstance(padding, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate padding arg")
    sides = [padding] if isinstance(padding, numbers.Number) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element tuple")
    return [int(side) for side in sides]


def _padding_mode(mode: str) -> str:
    if mode not in _PADDING_MODES:
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    return f"PADDING_MODE_{mode.upper()}"


def _fill(fill: Any) -> list[float | str]:
    if fill is None:
        return [0.0]
    if not isinstance(fill, (Sequence, numbers.Number)):
        raise TypeError("Fill should be either a sequence or a number.")
    return _numbers(fill)


def _angles(value: Any, name: str, sizes: tuple[int, ...] = (2,)) -> list[float]:
    if isinstance(value, numbers.Number):
        if value < 0:  # type: ignore[operator]
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]  # type: ignore[arg-type]
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length {' or '.join(map(str, sizes))}.")
    if len(value) not in sizes:
        raise ValueError(f"{name} should be a sequence of length {' or '.join(map(str, sizes))}.")
    return [float(v) for v in value]


def _pair(value: Any, name: str) -> Any:
    if value is None:
        return None
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length 2.")
    if len(value) != 2:
        raise ValueError(f"{name} should be a sequence of length 2.")
    return value


class Pad(Transform):
    """Adds a border: `padding` on all sides, (left and right, top and bottom), or (left, top, right, bottom)."""

    def __init__(self, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> None:
        _padding(padding)
        if not isinstance(fill, (numbers.Number, tuple, list)):
            raise TypeError("Got inappropriate fill arg")
        _padding_mode(padding_mode)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def to_json(self) -> dict[str, Any]:
        step = {"padding": _padding(self.padding), "fill": _fill(self.fill), "padding_mode": _padding_mode(self.padding_mode)}
        return {"pad": step}

    def __repr__(self) -> str:
        return f"Pad(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class RandomCrop(Transform):
    """Cuts a box of `size` out at a random place, of the image or of the padded image."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _two(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def to_json(self) -> dict[str, Any]:
        step: dict[str, Any] = {
            "size": list(self.size),
            "pad_if_needed": bool(self.pad_if_needed),
            "fill": _fill(self.fill),
            "padding_mode": _padding_mode(self.padding_mode),
        }
        if self.padding is not None:
            step["padding"] = _padding(self.padding)
        return {"random_crop": step}

    def __repr__(self) -> str:
        return f"RandomCrop(size={self.size}, padding={self.padding})"


class RandomVerticalFlip(Transform):
    """Turns the image upside down as in a mirror, with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_vertical_flip": {"p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomVerticalFlip(p={self.p})"


class RandomRotation(Transform):
    """Turns by a random angle in degrees, counter-clockwise."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        self.degrees = _angles(degrees, "degrees")
        self.interpolation = _mode_of(interpolation)
        self.expand = expand
        self.center = _pair(center, "center")
        _fill(fill)
        self.fill = 0 if fill is None else fill

    def to_json(self) -> dict[str, Any]:
        step: dict[str, Any] = {
            "degrees": _numbers(self.degrees),
            "interpolation": _proto_mode(self.interpolation),
            "expand": bool(self.expand),
            "fill": _fill(self.fill),
        }
        if self.center is not None:
            step["center"] = _numbers(self.center)
        return {"random_rotation": step}

    def __repr__(self) -> str:
        center = f", center={self.center}" if self.center is not None else ""
        return (
            f"RandomRotation(degrees={self.degrees}, interpolation={self.interpolation.value}, expand={self.expand}"
            f"{center}, fill={self.fill})"
        )


class RandomAffine(Transform):
    """Turns, moves, scales and shears at random, about the center."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = _angles(degrees, "degrees")
        self.translate = _pair(translate, "translate")
        if translate is not None and not all(0.0 <= t <= 1.0 for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        self.scale = _pair(scale, "scale")
        if scale is not None and not all(s > 0 for s in scale):
            raise ValueError("scale values should be positive")
        self.shear = None if shear is None else _angles(shear, "shear", (2, 4))
        self.interpolation = _mode_of(interpolation)
        _fill(fill)
        self.fill = 0 if fill is None else fill
        self.center = _pair(center, "center")

    def to_json(self) -> dict[str, Any]:
        step: dict[str, Any] = {
            "degrees": _numbers(self.degrees),
            "interpolation": _proto_mode(self.interpolation),
            "fill": _fill(self.fill),
        }
        for name in ("translate", "scale", "shear", "center"):
            if getattr(self, name) is not None:
                step[name] = _numbers(getattr(self, name))
        return {"random_affine": step}

    def __repr__(self) -> str:
        s = f"RandomAffine(degrees={self.degrees}"
        s += f", translate={self.translate}" if self.translate is not None else ""
        s += f", scale={self.scale}" if self.scale is not None else ""
        s += f", shear={self.shear}" if self.shear is not None else ""
        s += f", interpolation={self.interpolation.value}" if self.interpolation != InterpolationMode.NEAREST else ""
        s += f", fill={self.fill}" if self.fill != 0 else ""
        s += f", center={self.center}" if self.center is not None else ""
        return s + ")"


class RandomPerspective(Transform):
    """Looks at the image from aside, with probability `p`: its corners move inwards."""

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ) -> None:
        self.distortion_scale = distortion_scale
        self.p = p
        self.interpolation = _mode_of(interpolation)
        _fill(fill)
        self.fill = 0 if fill is None else fill

    def to_json(self) -> dict[str, Any]:
        step = {
            "distortion_scale": _number(self.distortion_scale),
            "p": _number(self.p),
            "interpolation": _proto_mode(self.interpolation),
            "fill": _fill(self.fill),
        }
        return {"random_perspective": step}

    def __repr__(self) -> str:
        return f"RandomPerspective(p={self.p})"


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue at random, in random order."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        self.brightness = self._interval(brightness, "brightness")
        self.contrast = self._interval(contrast, "contrast")
        self.saturation = self._interval(saturation, "saturation")
        self.hue = self._interval(hue, "hue", 0.0, (-0.5, 0.5))

    @staticmethod
    def _interval(
        value: Any, name: str, center: float = 1.0, bound: tuple[float, float] = (0.0, float("inf"))
    ) -> tuple[float, float] | None:
        if value is None:  # torchvision's objects keep None where nothing changes
            return None
        if isinstance(value, numbers.Number):
            if value < 0:  # type: ignore[operator]
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            low, high = center - float(value), center + float(value)  # type: ignore[arg-type]
            low = max(low, 0.0) if name != "hue" else low
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            low, high = float(value[0]), float(value[1])
        else:
            raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
        if not bound[0] <= low <= high <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {[low, high]}.")
        return None if low == high == center else (low, high)

    def to_json(self) -> dict[str, Any]:
        names = ("brightness", "contrast", "saturation", "hue")
        return {"color_jitter": {n: _numbers(getattr(self, n)) for n in names if getattr(self, n) is not None}}

    def __repr__(self) -> str:
        return (
            f"ColorJitter(brightness={self.brightness}, contrast={self.contrast}, saturation={self.saturation}, hue={self.hue})"
        )


class RandomGrayscale(Transform):
    """Grey with probability `p`, in as many channels as before."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = p

    def to_json(self) -> dict[str, Any]:
        return {"random_grayscale": {"p": _number(self.p)}}

    def __repr__(self) -> str:
        return f"RandomGrayscale(p={self.p})"


class GaussianBlur(Transform):
    """Blurs with a random sigma."""

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        self.kernel_size = _two(kernel_size)
        if any(edge <= 0 or edge % 2 == 0 for edge in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, numbers.Number):
            if sigma <= 0:  # type: ignore[operator]
                raise ValueError("If sigma is a single number, it must be positive.")
            sigma = (sigma, sigma)  # type: ignore[assignment]
        elif isinstance(sigma, Sequence) and len(sigma) == 2:
            if not 0.0 < sigma[0] <= sigma[1]:
                raise ValueError("sigma values should be positive and of the form (min, max).")
        else:
            raise ValueError("sigma should be a single number or a list/tuple with length 2.")
        self.sigma = sigma

    def to_json(self) -> dict[str, Any]:
        return {"gaussian_blur": {"kernel_size": list(self.kernel_size), "sigma": _numbers(self.sigma)}}

    def __repr__(self) -> str:
        return f"GaussianBlur(kernel_size={self.kernel_size}, sigma={self.sigma})"


class RandomErasing(Transform):
    """Sets a random box of a tensor to `value`, with probability `p`; "random" is normal noise."""

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        if not isinstance(value, (numbers.Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not isinstance(scale, Sequence):
            raise TypeError("Scale should be a sequence")
        if not isinstance(ratio, Sequence):
            raise TypeError("Ratio should be a sequence")
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if p < 0 or p > 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace  # has no meaning here: the daemon writes each sample once

    def to_json(self) -> dict[str, Any]:
        step: dict[str, Any] = {"p": _number(self.p), "scale": _numbers(self.scale), "ratio": _numbers(self.ratio)}
        if self.value == "random":
            step["random"] = True
        else:
            step["value"] = _numbers(self.value)
        return {"random_erasing": step}

    def __repr__(self) -> str:
        return (
            f"RandomErasing(p={self.p}, scale={self.scale}, ratio={self.ratio}, value={self.value}, inplace={self.inplace})"
        )
