# SPDX-License-Identifier: Apache-2.0
"""What the random transforms did to a sample: every function is the daemon's own rule, in plain Python.

Arguments are (seed, epoch, index, place), then the image's height and width where they count, then the transform's parameters. Use
the results with torchvision's functional module or Pillow to make the sample again. `place` is the step's number in the recipe,
from 0: each step counts before the steps that it holds (RandomApply, RandomChoice, RandomOrder), those before the step that follows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ._philox import Box, below, draw, philox4x32, unit

_POLICIES = {
    "imagenet": (
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
        (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
        (("Color", 0.4, 0), ("Equalize", 0.6, None)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    ),
    "cifar10": (
        (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
        (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
        (("Color", 0.9, 9), ("Equalize", 0.6, None)),
        (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, None), ("Invert", 0.1, None)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
    ),
    "svhn": (
        (("ShearX", 0.9, 4), ("Invert", 0.2, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.6, None), ("Solarize", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
        (("ShearY", 0.9, 8), ("Invert", 0.4, None)),
        (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
        (("Invert", 0.9, None), ("AutoContrast", 0.8, None)),
        (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
        (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
        (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
        (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)),
        (("Invert", 0.9, None), ("Equalize", 0.6, None)),
        (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
        (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
        (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
        (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
        (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
        (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
        (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
        (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
        (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
        (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
        (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
    ),
}
_KINDS = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)


class AffineParams(NamedTuple):
    """The arguments of torchvision.transforms.functional.affine."""

    angle: float
    translate: tuple[int, int]
    scale: float
    shear: tuple[float, float]


class Jitter(NamedTuple):
    """`order` of 0 brightness, 1 contrast, 2 saturation, 3 hue, and the factor of each; None leaves it as it is."""

    order: tuple[int, ...]
    factors: tuple[float | None, ...]


class AugmentOp(NamedTuple):
    """An operation by torchvision's name, and its magnitude."""

    name: str
    magnitude: float


def _between(word: int, low: float, high: float) -> float:
    return low + unit(word) * (high - low)


def _float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def happens(seed: int, epoch: int, index: int, place: int, p: float = 0.5) -> bool:
    """Whether a step with probability `p` happens: all the flips, RandomInvert and its like, and RandomApply."""
    return unit(draw(seed, epoch, index, place)[0]) < p


def random_crop_box(
    seed: int, epoch: int, index: int, place: int, height: int, width: int, size: tuple[int, int]
) -> Box:
    """The box of RandomCrop in the padded image of `height` x `width`."""
    words = draw(seed, epoch, index, place)
    return Box(below(words[0], height - size[0] + 1), below(words[1], width - size[1] + 1), *size)


def random_rotation_angle(seed: int, epoch: int, index: int, place: int, degrees: Sequence[float]) -> float:
    """The angle of RandomRotation with [min, max] degrees."""
    return _between(draw(seed, epoch, index, place)[0], degrees[0], degrees[1])


def random_affine(
    seed: int,
    epoch: int,
    index: int,
    place: int,
    height: int,
    width: int,
    degrees: Sequence[float],
    translate: Sequence[float] | None = None,
    scale: Sequence[float] | None = None,
    shear: Sequence[float] | None = None,
) -> AffineParams:
    """What RandomAffine does: intervals are [min, max], `shear` also [min x, max x, min y, max y]."""
    words = draw(seed, epoch, index, place)
    shears = draw(seed, epoch, index, place, 1)
    moved = (0, 0)
    if translate is not None:
        most = (translate[0] * width, translate[1] * height)
        moved = (round(_between(words[1], -most[0], most[0])), round(_between(words[2], -most[1], most[1])))
    return AffineParams(
        _between(words[0], degrees[0], degrees[1]),
        moved,
        1.0 if scale is None else _between(words[3], scale[0], scale[1]),
        (
            0.0 if shear is None else _between(shears[0], shear[0], shear[1]),
            0.0 if shear is None or len(shear) < 4 else _between(shears[1], shear[2], shear[3]),
        ),
    )


def random_perspective_corners(
    seed: int,
    epoch: int,
    index: int,
    place: int,
    height: int,
    width: int,
    distortion_scale: float = 0.5,
    p: float = 0.5,
) -> list[list[int]] | None:
    """The endpoints of RandomPerspective (top left, top right, bottom right, bottom left; x, y), or None."""
    if not happens(seed, epoch, index, place, p):
        return None
    dx = int(distortion_scale * (width // 2))
    dy = int(distortion_scale * (height // 2))
    upper = draw(seed, epoch, index, place, 1)
    lower = draw(seed, epoch, index, place, 2)
    return [
        [below(upper[0], dx + 1), below(upper[1], dy + 1)],
        [width - dx - 1 + below(upper[2], dx + 1), below(upper[3], dy + 1)],
        [width - dx - 1 + below(lower[0], dx + 1), height - dy - 1 + below(lower[1], dy + 1)],
        [below(lower[2], dx + 1), height - dy - 1 + below(lower[3], dy + 1)],
    ]


def random_order(seed: int, epoch: int, index: int, place: int, count: int) -> list[int]:
    """The order in which RandomOrder applies its `count` transforms."""
    order = list(range(count))
    for i in range(count - 1):
        j = i + below(draw(seed, epoch, index, place, i // 4)[i % 4], count - i)
        order[i], order[j] = order[j], order[i]
    return order


def random_choice(
    seed: int, epoch: int, index: int, place: int, count: int, p: Sequence[float] | None = None
) -> int:
    """Which of RandomChoice's `count` transforms is applied."""
    word = draw(seed, epoch, index, place)[0]
    if p is None:
        return below(word, count)
    total = 0.0
    for weight in p:
        total += weight
    aim = unit(word) * total
    so_far = 0.0
    for i in range(count - 1):
        so_far += p[i]
        if aim < so_far:
            return i
    return count - 1


def color_jitter(
    seed: int,
    epoch: int,
    index: int,
    place: int,
    brightness: Sequence[float] | None = None,
    contrast: Sequence[float] | None = None,
    saturation: Sequence[float] | None = None,
    hue: Sequence[float] | None = None,
) -> Jitter:
    """What ColorJitter does, by its attributes: each [min, max] or None."""
    words = draw(seed, epoch, index, place, 1)
    intervals = (brightness, contrast, saturation, hue)
    factors = tuple(
        None if interval is None else _between(word, interval[0], interval[1])
        for word, interval in zip(words, intervals, strict=True)
    )
    return Jitter(tuple(random_order(seed, epoch, index, place, 4)), factors)


def gaussian_blur_sigma(
    seed: int, epoch: int, index: int, place: int, sigma: Sequence[float] = (0.1, 2.0)
) -> float:
    """The sigma of GaussianBlur with [min, max]."""
    return _between(draw(seed, epoch, index, place)[0], sigma[0], sigma[1])


def random_erasing_box(
    seed: int,
    epoch: int,
    index: int,
    place: int,
    height: int,
    width: int,
    p: float = 0.5,
    scale: Sequence[float] = (0.02, 0.33),
    ratio: Sequence[float] = (0.3, 3.3),
) -> Box | None:
    """The box that RandomErasing erases, or None."""
    if not happens(seed, epoch, index, place, p):
        return None
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(1, 11):
        words = draw(seed, epoch, index, place, attempt)
        area = float(height * width) * _between(words[0], scale[0], scale[1])
        aspect = math.exp(_between(words[1], low, high))
        h = round(math.sqrt(area * aspect))
        w = round(math.sqrt(area / aspect))
        if h < height and w < width:
            return Box(below(words[2], height - h + 1), below(words[3], width - w + 1), h, w)
    return None


def random_erasing_noise(seed: int, epoch: int, index: int, place: int, count: int) -> Iterator[float]:
    """The noise of RandomErasing(value="random"): `count` numbers for the box, channel by channel, row by row."""
    key = draw(seed, epoch, index, place, 11)[:2]
    for block in range((count + 3) // 4):
        words = philox4x32((block & 0xFFFFFFFF, 0, 0, 0), key)
        values = []
        for pair in (0, 2):
            r = math.sqrt(-2 * math.log((words[pair] + 1.0) * 2.0**-32))
            turn = 2 * math.pi * unit(words[pair + 1])
            values += [_float32(r * math.cos(turn)), _float32(r * math.sin(turn))]
        yield from values[: count - 4 * block]


def _linear(low: float, high: float, bins: int, at: int) -> float:
    """torch.linspace(low, high, bins)[at], in float32."""
    low, high = _float32(low), _float32(high)
    step = _float32(_float32(high - low) / (bins - 1))
    if at < bins // 2:
        return _float32(low + _float32(step * at))
    return _float32(high - _float32(step * (bins - 1 - at)))


def _magnitude(name: str, most: Sequence[float], bins: int, at: int) -> float:
    shear, translate_x, translate_y, rotate, colour, posterize = most
    strengths = {"ShearX": shear, "ShearY": shear, "TranslateX": translate_x, "TranslateY": translate_y, "Rotate": rotate}
    strengths.update(dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), colour))
    if name in strengths:
        return _linear(0.0, strengths[name], bins, at)
    if name == "Posterize":
        return 8.0 - round(_float32(at / _float32((bins - 1) / posterize)))
    return _linear(255.0, 0.0, bins, at) if name == "Solarize" else 0.0


def _narrow(height: int, width: int) -> tuple[float, ...]:
    return (0.3, 150.0 / 331.0 * width, 150.0 / 331.0 * height, 30.0, 0.9, 4)


def _op(name: str, magnitude: float, is_negative: bool) -> AugmentOp:
    is_signed = name in _KINDS[1:10]
    return AugmentOp(name, -magnitude if is_negative and is_signed else magnitude)


def rand_augment_ops(
    seed: int,
    epoch: int,
    index: int,
    place: int,
    height: int,
    width: int,
    num_ops: int = 2,
    magnitude: int = 9,
    num_magnitude_bins: int = 31,
) -> list[AugmentOp]:
    """The operations of RandAugment on a `height` x `width` image."""
    ops = []
    for number in range(num_ops):
        words = draw(seed, epoch, index, place, number)
        name = _KINDS[below(words[0], len(_KINDS))]
        strength = _magnitude(name, _narrow(height, width), num_magnitude_bins, magnitude)
        ops.append(_op(name, strength, below(words[1], 2) == 1))
    return ops


def trivial_augment_op(seed: int, epoch: int, index: int, place: int, num_magnitude_bins: int = 31) -> AugmentOp:
    """The operation of TrivialAugmentWide."""
    words = draw(seed, epoch, index, place)
    name = _KINDS[below(words[0], len(_KINDS))]
    strength = _magnitude(name, (0.99, 32.0, 32.0, 135.0, 0.99, 6), num_magnitude_bins, below(words[1], num_magnitude_bins))
    return _op(name, strength, below(words[2], 2) == 1)


def auto_augment_ops(
    seed: int, epoch: int, index: int, place: int, height: int, width: int, policy: str = "imagenet"
) -> list[AugmentOp]:
    """The operations of AutoAugment, those that happen: `policy` is "imagenet", "cifar10" or "svhn"."""
    words = draw(seed, epoch, index, place)
    signs = draw(seed, epoch, index, place, 1)
    ops = []
    for i, (name, p, at) in enumerate(_POLICIES[policy][below(words[0], 25)]):
        if unit(words[i + 1]) < p:
            strength = 0.0 if at is None else _magnitude(name, _narrow(height, width), 10, at)
            ops.append(_op(name, strength, below(signs[i], 2) == 0))
    return ops
