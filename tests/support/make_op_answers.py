# SPDX-License-Identifier: Apache-2.0
"""Makes tests/support/fixtures/op_answers.json: what torchvision's functions make of the fixtures' pictures, as PIL images.

    python tests/support/make_op_answers.py    # with torchvision

A case has the function's own parameters by name, the result's shape, and a sha256 of its bytes or, where a library's order of additions
decides the last bit, the bytes in hex.
"""
import hashlib
import json
import pathlib

import numpy as np
import torch
import torchvision
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode

FOLDER = pathlib.Path(__file__).parent / "fixtures"
MODES = {"NEAREST": InterpolationMode.NEAREST, "BILINEAR": InterpolationMode.BILINEAR, "BICUBIC": InterpolationMode.BICUBIC}
FILL = [7, 80, 200]


def cases():
    for name in ("brightness", "contrast", "saturation", "sharpness"):
        for factor in (0.0, 0.1, 0.5, 0.9999, 1.0, 1.3, 2.0, 17.5):
            yield f"adjust_{name}", {f"{name}_factor": factor}
    for factor in (-0.5, -0.3, -0.004, 0.0, 0.1, 0.33, 0.5):
        yield "adjust_hue", {"hue_factor": factor}
    for bits in range(1, 9):
        yield "posterize", {"bits": bits}
    for threshold in (0, 1, 77.5, 128, 255, 256):
        yield "solarize", {"threshold": threshold}
    for name in ("equalize", "autocontrast", "invert", "hflip", "vflip"):
        yield name, {}
    for mode in MODES:
        for angle in (0, 7.25, 90, 180, 270, -90, 359.9, 123.4, -405.0):
            for expand in (False, True):
                yield "rotate", {"angle": angle, "interpolation": mode, "expand": expand, "fill": FILL}
        yield "rotate", {"angle": 90, "interpolation": mode, "expand": False, "fill": FILL, "center": [3, 11.5]}
        yield "rotate", {"angle": 33, "interpolation": mode, "expand": True, "fill": FILL, "center": [0, 0]}
        for angle, translate, scale, shear, center in (
            (0, [0, 0], 1.0, [0.0, 0.0], None),
            (0, [0, 0], 0.37, [0.0, 0.0], None),
            (0, [5, -3], 1.9, [0.0, 0.0], None),
            (0, [0, 0], 1.0, [16.7, 0.0], [0, 0]),
            (0, [0, 0], 1.0, [0.0, -33.0], [0, 0]),
            (-45.5, [2, 9], 0.8, [5.0, -6.0], None),
            (180, [0, 0], 1.0, [0.0, 0.0], None),
            (10, [1, 1], 0.0005, [0.0, 0.0], None),
        ):
            parameters = {"angle": angle, "translate": translate, "scale": scale, "shear": shear, "interpolation": mode, "fill": FILL}
            yield "affine", parameters if center is None else {**parameters, "center": center}
        for corners in ([[3, 2], [70, 9], [60, 50], [10, 55]], [[0, 0], [82, 0], [80, 60], [0, 58]], [[20, 0], [50, 30], [82, 60], [5, 60]]):
            start = [[0, 0], [82, 0], [82, 60], [0, 60]]
            yield "perspective", {"startpoints": start, "endpoints": corners, "interpolation": mode, "fill": FILL}
    for mode in ("constant", "edge", "reflect", "symmetric"):
        for padding in ([0, 0, 0, 0], [4, 7, 1, 3], [100, 2, 0, 150]):
            yield "pad", {"padding": padding, "fill": FILL if mode == "constant" else 0, "padding_mode": mode}


def blurs():
    for kernel, sigma in (([1, 1], [1.0, 1.0]), ([3, 5], [0.1, 2.0]), ([7, 7], [1.1, 0.4]), ([15, 33], [2.0, 9.0])):
        yield "gaussian_blur", {"kernel_size": kernel, "sigma": sigma}


def apply(image: Image.Image, op: str, parameters: dict) -> Image.Image:
    parameters = dict(parameters)
    if "interpolation" in parameters:
        parameters["interpolation"] = MODES[parameters["interpolation"]]
    if image.mode == "L" and isinstance(parameters.get("fill"), list):
        parameters["fill"] = parameters["fill"][:1]
    return getattr(F, op)(image, **parameters)


def main() -> None:
    torch.set_num_threads(1)
    results = []
    for file in ("colour_444.jpg", "grey.jpg", "tall.jpg", "wide.jpg", "one_pixel.jpg"):
        image = Image.open(FOLDER / file)
        image.load()
        for op, parameters in cases():
            out = apply(image, op, parameters)
            answer = {"file": file, "mode": image.mode, "op": op, **parameters, "shape": [out.height, out.width, len(out.getbands())]}
            results.append({**answer, "sha256": hashlib.sha256(out.tobytes()).hexdigest()})
    for file in ("odd.jpg", "grey.jpg"):
        image = Image.open(FOLDER / file).crop((0, 0, 31, 17))
        for op, parameters in blurs():
            out = apply(image, op, parameters)
            answer = {"file": file, "mode": image.mode, "op": op, **parameters, "shape": [out.height, out.width, len(out.getbands())]}
            results.append({**answer, "crop": [17, 31], "hex": np.asarray(out).tobytes().hex()})
    lines = ",\n".join(json.dumps(result) for result in results)
    (FOLDER / "op_answers.json").write_text(f'{{"torchvision": "{torchvision.__version__}", "results": [\n{lines}\n]}}\n')


main()
