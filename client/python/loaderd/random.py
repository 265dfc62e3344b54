# SPDX-License-Identifier: Apache-2.0
"""The random choices of the daemon's augmentations, in plain Python: what box and flip a sample got.

Every choice is a function of (seed, epoch, sample index, place): `seed` is the DataLoader's, `epoch` and `index` are in the
batch, and `place` is the step's number in the recipe, counted from 0, steps that hold others before those (in `Compose([RandomResizedCrop(224),
RandomHorizontalFlip()])` the flip has place 1). The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
random numbers: as easy as 1, 2, 3", SC 2011). Only integers and IEEE doubles are used; all functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._batch_random import Cut, batch_choice, cut_mix, mix_up_lam
from ._philox import Box, below, draw, philox4x32, unit
from ._random_params import (
    AffineParams,
    AugmentOp,
    Jitter,
    auto_augment_ops,
    color_jitter,
    gaussian_blur_sigma,
    happens,
    rand_augment_ops,
    random_affine,
    random_choice,
    random_crop_box,
    random_erasing_box,
    random_erasing_noise,
    random_order,
    random_perspective_corners,
    random_rotation_angle,
    trivial_augment_op,
)
from ._replay import Call, Replay
from .transforms import steps_of

__all__ = [
    "AffineParams",
    "AugmentOp",
    "Box",
    "Cut",
    "Call",
    "Jitter",
    "auto_augment_ops",
    "batch_choice",
    "below",
    "color_jitter",
    "cut_mix",
    "draw",
    "gaussian_blur_sigma",
    "happens",
    "mix_up_lam",
    "philox4x32",
    "rand_augment_ops",
    "random_affine",
    "random_choice",
    "random_crop_box",
    "random_erasing_box",
    "random_erasing_noise",
    "random_horizontal_flip",
    "random_order",
    "random_perspective_corners",
    "random_resized_crop_box",
    "random_rotation_angle",
    "replay",
    "trivial_augment_op",
    "unit",
]


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


def replay(
    transform: Any, height: int, width: int, *, seed: int, epoch: int, index: int, channels: int = 3
) -> list[Call]:
    """What the daemon did to sample `index` of `epoch`: `transform` with every random choice made, as a flat list of calls.

    `transform` is the DataLoader's; `height` and `width` are those of the decoded image, upright where the dataset turns it;
    `channels` is 3 of mode "RGB", 1 of "L". With torchvision's functional module the sample is made again so (steps on tensors
    take tensors, for `erase` also as `v`):

        for call in loaderd.random.replay(transform, image.height, image.width, seed=seed, epoch=batch.epoch, index=index):
            image = getattr(functional, call.function)(image, **call.arguments)
    """
    run = Replay((seed, epoch, index), height, width, channels)
    run.run([step.to_json() for step in steps_of(transform)])
    return run.calls
