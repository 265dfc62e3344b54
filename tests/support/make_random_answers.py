# SPDX-License-Identifier: Apache-2.0
"""Makes tests/support/fixtures/random_answers.json: loaderd.random's parameters, which the daemon's must equal.

    PYTHONPATH=client/python python tests/support/make_random_answers.py
"""
import json
import pathlib

from loaderd import random as R

FILE = pathlib.Path(__file__).parent / "fixtures" / "random_answers.json"
HEIGHT, WIDTH = 375, 501


def answer(seed: int, epoch: int, index: int, place: int) -> dict:
    key = (seed, epoch, index, place)
    affine = R.random_affine(*key, HEIGHT, WIDTH, (-20, 50), (0.1, 0.3), (0.5, 1.75), (-10, 10, 3, 4))
    jitter = R.color_jitter(*key, (0.6, 1.4), (0.2, 1.8), None, (-0.1, 0.1))
    return {
        "key": [str(part) for part in key],
        "crop": list(R.random_crop_box(*key, HEIGHT, WIDTH, (224, 200))),
        "angle": R.random_rotation_angle(*key, (-45, 30)),
        "affine": [affine.angle, *affine.translate, affine.scale, *affine.shear],
        "perspective": sum(R.random_perspective_corners(*key, HEIGHT, WIDTH, 0.6, 0.8) or [], []),
        "order": R.random_order(*key, 7),
        "choice": [R.random_choice(*key, 5), R.random_choice(*key, 3, (0.5, 0.0, 2.0))],
        "jitter": [*jitter.order, *(factor for factor in jitter.factors if factor is not None)],
        "sigma": R.gaussian_blur_sigma(*key),
        "erased": list(R.random_erasing_box(*key, HEIGHT, WIDTH, 0.9) or []),
        "noise": list(R.random_erasing_noise(*key, 6)),
        "rand_augment": [list(op) for op in R.rand_augment_ops(*key, HEIGHT, WIDTH, 3, 7)],
        "trivial_augment": list(R.trivial_augment_op(*key)),
        "auto_augment": [[list(op) for op in R.auto_augment_ops(*key, HEIGHT, WIDTH, p)] for p in ("imagenet", "cifar10", "svhn")],
    }


def answers() -> list[dict]:
    keys = [(2**63 + 5, 3, 2**40 + 1, 65535), *((7, epoch, index, 2) for epoch in range(2) for index in range(60))]
    return [answer(*key) for key in keys]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(a) for a in answers())
    FILE.write_text(f'{{"answers": [\n{lines}\n]}}\n')
