# SPDX-License-Identifier: Apache-2.0
"""The functions that loaderd.random.replay names, on PIL images and numpy arrays: with Pillow alone, or torchvision's own.

    for call in loaderd.random.replay(...):
        picture = function(picture, **call.arguments)    # function: by_pillow(call.function) or by_torchvision(call.function)

A picture is a PIL image, and from a tensor step on an array (Pillow's way) or a torch tensor (torchvision's), channels first.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageEnhance, ImageOps


def _channels(image: Image.Image) -> int:
    return len(image.getbands())


def _colour(image: Image.Image, fill: list[int]) -> tuple[int, ...]:
    return tuple(fill * _channels(image) if len(fill) == 1 else fill)


def resize(image, size, interpolation, max_size=None):
    if len(size) == 1:
        short, long = sorted(image.size)
        new_short, new_long = size[0], int(size[0] * long / short)
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
        size = (new_long, new_short) if image.height > image.width else (new_short, new_long)
    return image if image.size == (size[1], size[0]) else image.resize((size[1], size[0]), interpolation)


def crop(image, top, left, height, width):
    return image.crop((left, top, left + width, top + height))


def resized_crop(image, top, left, height, width, size, interpolation):
    return crop(image, top, left, height, width).resize((size[1], size[0]), interpolation)


def center_crop(image, output_size):
    height, width = output_size
    x, y = max(width - image.width, 0), max(height - image.height, 0)
    image = ImageOps.expand(image, (x // 2, y // 2, (x + 1) // 2, (y + 1) // 2))
    top, left = round((image.height - height) / 2.0), round((image.width - width) / 2.0)
    return crop(image, top, left, height, width)


def pad(image, padding, fill, padding_mode):
    left, top, right, bottom = padding
    if padding_mode == "constant":
        return ImageOps.expand(
            image, (left, top, right, bottom), _colour(image, fill) if _channels(image) > 1 else fill[0]
        )
    sides = ((top, bottom), (left, right)) + (((0, 0),) if _channels(image) > 1 else ())
    return Image.fromarray(np.pad(np.asarray(image), sides, padding_mode))


def hflip(image):
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vflip(image):
    return image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def rotate(image, angle, interpolation, fill, expand=False, center=None):
    return image.rotate(angle, interpolation, expand, center, fillcolor=_colour(image, fill))


def affine(image, angle, translate, scale, shear, interpolation, fill, center=None):
    turn, lean_x, lean_y = (math.radians(value) for value in (angle, *shear))
    cx, cy = center if center is not None else (image.width * 0.5, image.height * 0.5)
    a = math.cos(turn - lean_y) / math.cos(lean_y)
    b = -math.cos(turn - lean_y) * math.tan(lean_x) / math.cos(lean_y) - math.sin(turn)
    c = math.sin(turn - lean_y) / math.cos(lean_y)
    d = -math.sin(turn - lean_y) * math.tan(lean_x) / math.cos(lean_y) + math.cos(turn)
    m = [value / scale for value in (d, -b, 0.0, -c, a, 0.0)]
    x, y = -cx - translate[0], -cy - translate[1]
    m[2] += m[0] * x + m[1] * y
    m[5] += m[3] * x + m[4] * y
    m[2] += cx
    m[5] += cy
    return image.transform(image.size, Image.Transform.AFFINE, m, interpolation, fillcolor=_colour(image, fill))


def perspective(image, startpoints, endpoints, interpolation, fill):
    rows = []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    solution = np.linalg.lstsq(np.array(rows, float), np.array(startpoints, float).reshape(8), rcond=None)[0]
    coefficients = solution.astype(np.float32).tolist()
    way = Image.Transform.PERSPECTIVE
    return image.transform(image.size, way, coefficients, interpolation, fillcolor=_colour(image, fill))


def rgb_to_grayscale(image, num_output_channels):
    grey = image.convert("L")
    return grey if num_output_channels == 1 else Image.merge("RGB", [grey] * 3)


def adjust_brightness(image, brightness_factor):
    return ImageEnhance.Brightness(image).enhance(brightness_factor)


def adjust_contrast(image, contrast_factor):
    return ImageEnhance.Contrast(image).enhance(contrast_factor)


def adjust_saturation(image, saturation_factor):
    return ImageEnhance.Color(image).enhance(saturation_factor)


def adjust_hue(image, hue_factor):
    if image.mode == "L":
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = np.asarray(hue) + np.int32(hue_factor * 255).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def adjust_sharpness(image, sharpness_factor):
    return ImageEnhance.Sharpness(image).enhance(sharpness_factor)


def posterize(image, bits):
    return ImageOps.posterize(image, bits)


def solarize(image, threshold):
    return ImageOps.solarize(image, threshold)


def invert(image):
    return ImageOps.invert(image)


def autocontrast(image):
    return ImageOps.autocontrast(image)


def equalize(image):
    return ImageOps.equalize(image)


def gaussian_blur(image, kernel_size, sigma):
    """In doubles, where torch has floats: within 1 of it."""
    pixels = np.asarray(image, np.float64)
    for axis, (edge, width) in enumerate(zip(kernel_size[::-1], sigma[::-1], strict=True)):
        half = edge // 2
        weights = np.exp(-0.5 * (np.arange(-half, half + 1) / width) ** 2)
        sides = [(0, 0)] * pixels.ndim
        sides[axis] = (half, half)
        padded = np.pad(pixels, sides, "reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, edge, axis)
        pixels = windows @ (weights / weights.sum())
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


# ---- tensors


def pil_to_tensor(image):
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1))


def to_tensor(image):
    return pil_to_tensor(image).astype(np.float32) / np.float32(255)


def convert_image_dtype(tensor, dtype):
    if tensor.dtype == np.uint8 and dtype != "uint8":
        return tensor.astype(dtype) / np.dtype(dtype).type(255)
    return tensor.astype(dtype)


def normalize(tensor, mean, std):
    mean, std = (np.array(values, tensor.dtype).reshape(-1, 1, 1) for values in (mean, std))
    return (tensor - mean) / std


def erase(tensor, i, j, h, w, v):
    out = tensor.copy()
    out[:, i : i + h, j : j + w] = np.array(v, tensor.dtype).reshape(
        len(out), *((h, w) if len(v) > len(out) else (1, 1))
    )
    return out


NAMES = frozenset(
    name for name, value in globals().items() if type(value) is type(_colour) and not name.startswith("_")
)


def by_pillow(name: str):
    """The function of that name above."""
    if name not in NAMES:
        raise ValueError(f"no function {name} to make a sample again with")
    return globals()[name]


def by_torchvision(name: str):
    """torchvision.transforms.functional's; ImportError where it is not installed."""
    import real_torchvision
    import torch

    function = getattr(real_torchvision.load().transforms.functional, name)
    if name == "erase":
        return lambda tensor, i, j, h, w, v: function(
            tensor,
            i,
            j,
            h,
            w,
            torch.tensor(v, dtype=tensor.dtype).reshape(len(tensor), *((h, w) if len(v) > len(tensor) else (1, 1))),
        )
    if name == "convert_image_dtype":
        return lambda tensor, dtype: function(tensor, getattr(torch, dtype))
    return function
