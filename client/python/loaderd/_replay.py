# SPDX-License-Identifier: Apache-2.0
"""A whole transform undone into what it did to one sample; loaderd.random.replay is what to import."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _random_params as params
from ._philox import Box
from ._steps import _PILLOW_NUMBERS

_FILTERS = {f"INTERPOLATION_{mode.name}": number for number, mode in _PILLOW_NUMBERS.items()}
_COLOURS = ("brightness", "contrast", "saturation", "hue")


class Call(NamedTuple):
    """A function of torchvision.transforms.functional, by name, and its arguments after the image, by name.

    Interpolations are Pillow's numbers. `erase` works on tensors; its `v` is the value of each channel or, of
    RandomErasing(value="random"), the noise: h * w numbers a channel, channel by channel, row by row.
    """

    function: str
    arguments: dict[str, Any]


class Replay:
    """Walks the steps of one sample: `calls` grows, and the image's size follows."""

    def __init__(self, key: tuple[int, int, int], height: int, width: int, channels: int) -> None:
        self.key = key
        self.height = height
        self.width = width
        self.channels = channels
        self.calls: list[Call] = []
        self._place = 0

    def run(self, steps: Sequence[dict[str, Any]]) -> None:
        """Steps in JSON form, in order."""
        for step in steps:
            self._step(step, happens=True)

    def _step(self, step: dict[str, Any], happens: bool) -> None:
        ((name, fields),) = step.items()
        place = self._place
        self._place += 1
        held = fields.get("transforms")
        if held is not None:
            self._held(name, fields, held, place, happens)
        elif happens:
            getattr(self, f"_{name}")(fields, (*self.key, place))

    def _held(self, name: str, fields: dict[str, Any], held: list, place: int, happens: bool) -> None:
        # Each has its place, by its position, whether and whenever it is applied.
        places = []
        for step in held:
            places.append(self._place)
            self._step(step, happens=False)
        after = self._place
        if not happens:
            return
        key = (*self.key, place)
        if name == "random_apply":
            order = list(range(len(held))) if params.happens(*key, float(fields["p"])) else []
        elif name == "random_choice":
            weights = fields.get("p")
            order = [params.random_choice(*key, len(held), weights)]
        else:
            order = params.random_order(*key, len(held))
        for which in order:
            self._place = places[which]
            self._step(held[which], happens=True)
        self._place = after

    def _call(self, function: str, **arguments: Any) -> None:
        self.calls.append(Call(function, arguments))

    # ---- sizes and boxes

    def _resize(self, fields: dict[str, Any], _: tuple) -> None:
        size, most = fields["size"], fields.get("max_size")
        self._call("resize", size=size, interpolation=_FILTERS[fields["interpolation"]], max_size=most)
        if len(size) == 2:
            self.height, self.width = size
            return
        short, long = sorted((self.height, self.width))
        new_short, new_long = size[0], int(size[0] * long / short)
        if most is not None and new_long > most:
            new_short, new_long = int(most * new_short / new_long), most
        is_tall = self.height > self.width
        self.height, self.width = (new_long, new_short) if is_tall else (new_short, new_long)

    def _center_crop(self, fields: dict[str, Any], _: tuple) -> None:
        self._call("center_crop", output_size=fields["size"])
        self.height, self.width = fields["size"]

    def _random_resized_crop(self, fields: dict[str, Any], key: tuple) -> None:
        from .random import random_resized_crop_box  # it imports this module

        box = random_resized_crop_box(*key, self.height, self.width, fields["scale"], fields["ratio"])
        filter_ = _FILTERS[fields["interpolation"]]
        self._call("resized_crop", **box._asdict(), size=fields["size"], interpolation=filter_)
        self.height, self.width = fields["size"]

    def _pad(self, fields: dict[str, Any], _: tuple) -> None:
        sides = list(fields["padding"])
        left, top, right, bottom = sides * (4 // len(sides))
        mode = fields["padding_mode"].removeprefix("PADDING_MODE_").lower()
        if any((left, top, right, bottom)):
            self._call("pad", padding=[left, top, right, bottom], fill=_fill(fields), padding_mode=mode)
        self.height += top + bottom
        self.width += left + right

    def _random_crop(self, fields: dict[str, Any], key: tuple) -> None:
        height, width = fields["size"]
        if "padding" in fields:
            self._pad(fields, key)
        if fields["pad_if_needed"]:
            self._pad({**fields, "padding": [max(width - self.width, 0), 0]}, key)
            self._pad({**fields, "padding": [0, max(height - self.height, 0)]}, key)
        box = params.random_crop_box(*key, self.height, self.width, (height, width))
        self._call("crop", **box._asdict())
        self.height, self.width = height, width

    def _random_horizontal_flip(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "hflip")

    def _random_vertical_flip(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "vflip")

    def _perhaps(self, fields: dict[str, Any], key: tuple, function: str, **arguments: Any) -> None:
        if params.happens(*key, float(fields["p"])):
            self._call(function, **arguments)

    # ---- geometry

    def _random_rotation(self, fields: dict[str, Any], key: tuple) -> None:
        angle = params.random_rotation_angle(*key, fields["degrees"])
        center, expand = fields.get("center"), fields["expand"]
        filter_ = _FILTERS[fields["interpolation"]]
        self._call("rotate", angle=angle, interpolation=filter_, expand=expand, center=center, fill=_fill(fields))
        if expand:
            self.height, self.width = _turned(angle, self.height, self.width, center)

    def _random_affine(self, fields: dict[str, Any], key: tuple) -> None:
        intervals = [fields.get(name) for name in ("translate", "scale", "shear")]
        found = params.random_affine(*key, self.height, self.width, fields["degrees"], *intervals)
        self._affine(found.angle, found.translate, found.scale, found.shear, fields, fields.get("center"))

    def _affine(
        self, angle: float, translate: Sequence, scale: float, shear: Sequence, fields: dict, center: Any = None
    ) -> None:
        arguments = {"angle": angle, "translate": list(translate), "scale": scale, "shear": list(shear)}
        filter_ = _FILTERS[fields["interpolation"]]
        self._call("affine", **arguments, interpolation=filter_, fill=_fill(fields), center=center)

    def _random_perspective(self, fields: dict[str, Any], key: tuple) -> None:
        p, distortion = float(fields["p"]), float(fields["distortion_scale"])
        ends = params.random_perspective_corners(*key, self.height, self.width, distortion, p)
        if ends is None:
            return
        right, bottom = self.width - 1, self.height - 1
        starts = [[0, 0], [right, 0], [right, bottom], [0, bottom]]
        filter_ = _FILTERS[fields["interpolation"]]
        self._call("perspective", startpoints=starts, endpoints=ends, interpolation=filter_, fill=_fill(fields))

    # ---- colours

    def _grayscale(self, fields: dict[str, Any], _: tuple) -> None:
        self.channels = fields["num_output_channels"]
        self._call("rgb_to_grayscale", num_output_channels=self.channels)

    def _random_grayscale(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "rgb_to_grayscale", num_output_channels=self.channels)

    def _color_jitter(self, fields: dict[str, Any], key: tuple) -> None:
        jitter = params.color_jitter(*key, *(fields.get(name) for name in _COLOURS))
        for which in jitter.order:
            factor = jitter.factors[which]
            if factor is not None:
                self._adjust(_COLOURS[which], factor)

    def _adjust(self, what: str, factor: float) -> None:
        self._call(f"adjust_{what}", **{f"{what}_factor": factor})

    def _gaussian_blur(self, fields: dict[str, Any], key: tuple) -> None:
        sigma = params.gaussian_blur_sigma(*key, fields["sigma"])
        self._call("gaussian_blur", kernel_size=fields["kernel_size"], sigma=[sigma, sigma])

    def _random_invert(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "invert")

    def _random_posterize(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "posterize", bits=fields["bits"])

    def _random_solarize(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "solarize", threshold=fields["threshold"])

    def _random_adjust_sharpness(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "adjust_sharpness", sharpness_factor=fields["sharpness_factor"])

    def _random_autocontrast(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "autocontrast")

    def _random_equalize(self, fields: dict[str, Any], key: tuple) -> None:
        self._perhaps(fields, key, "equalize")

    # ---- policies

    def _rand_augment(self, fields: dict[str, Any], key: tuple) -> None:
        numbers = [fields[name] for name in ("num_ops", "magnitude", "num_magnitude_bins")]
        for op in params.rand_augment_ops(*key, self.height, self.width, *numbers):
            self._augment(op, fields)

    def _trivial_augment_wide(self, fields: dict[str, Any], key: tuple) -> None:
        self._augment(params.trivial_augment_op(*key, fields["num_magnitude_bins"]), fields)

    def _auto_augment(self, fields: dict[str, Any], key: tuple) -> None:
        policy = fields["policy"].removeprefix("AUTO_AUGMENT_POLICY_").lower()
        for op in params.auto_augment_ops(*key, self.height, self.width, policy):
            self._augment(op, fields)

    def _augment(self, op: params.AugmentOp, fields: dict[str, Any]) -> None:
        name, m = op
        lean = math.degrees(math.atan(m))
        geometry: dict[str, Callable[[], None]] = {
            "ShearX": lambda: self._affine(0.0, [0, 0], 1.0, [lean, 0.0], fields, [0, 0]),
            "ShearY": lambda: self._affine(0.0, [0, 0], 1.0, [0.0, lean], fields, [0, 0]),
            "TranslateX": lambda: self._affine(0.0, [int(m), 0], 1.0, [0.0, 0.0], fields),
            "TranslateY": lambda: self._affine(0.0, [0, int(m)], 1.0, [0.0, 0.0], fields),
            "Rotate": lambda: self._call(
                "rotate", angle=m, interpolation=_FILTERS[fields["interpolation"]], fill=_fill(fields)
            ),
        }
        adjusted = {"Brightness": "brightness", "Color": "saturation", "Contrast": "contrast", "Sharpness": "sharpness"}
        if name in geometry:
            geometry[name]()
        elif name in adjusted:
            self._adjust(adjusted[name], 1.0 + m)
        elif name == "Posterize":
            self._call("posterize", bits=int(m))
        elif name == "Solarize":
            self._call("solarize", threshold=m)
        elif name != "Identity":
            self._call(name.lower())

    # ---- tensors

    def _pil_to_tensor(self, *_: Any) -> None:
        self._call("pil_to_tensor")

    def _to_tensor(self, *_: Any) -> None:
        self._call("to_tensor")

    def _convert_image_dtype(self, fields: dict[str, Any], _: tuple) -> None:
        self._call("convert_image_dtype", dtype=fields["dtype"])

    def _normalize(self, fields: dict[str, Any], _: tuple) -> None:
        self._call("normalize", mean=fields["mean"], std=fields["std"])

    def _random_erasing(self, fields: dict[str, Any], key: tuple) -> None:
        shape = (float(fields["p"]), fields["scale"], fields["ratio"])
        box: Box | None = params.random_erasing_box(*key, self.height, self.width, *shape)
        if box is None:
            return
        if fields.get("random"):
            v = list(params.random_erasing_noise(*key, self.channels * box.height * box.width))
        else:
            v = list(fields["value"]) * (self.channels if len(fields["value"]) == 1 else 1)
        self._call("erase", i=box.top, j=box.left, h=box.height, w=box.width, v=v)


def _fill(fields: dict[str, Any]) -> list[int]:
    return [int(value) for value in fields["fill"]]


def _turned(angle: float, height: int, width: int, center: Sequence[float] | None) -> tuple[int, int]:
    """Height and width of Pillow's rotate(expand=True)."""
    angle %= 360.0
    if center is None and angle in (0, 180):
        return height, width
    if center is None and angle in (90, 270):
        return width, height
    cx, cy = center or (width / 2.0, height / 2.0)
    turn = -math.radians(angle)
    cos, sin = round(math.cos(turn), 15), round(math.sin(turn), 15)
    minus_sin = round(-math.sin(turn), 15)
    moved_x = cos * -cx + sin * -cy + cx
    moved_y = minus_sin * -cx + cos * -cy + cy
    corners = [(0, 0), (width, 0), (width, height), (0, height)]
    xs = [cos * x + sin * y + moved_x for x, y in corners]
    ys = [minus_sin * x + cos * y + moved_y for x, y in corners]
    return math.ceil(max(ys)) - math.floor(min(ys)), math.ceil(max(xs)) - math.floor(min(xs))
