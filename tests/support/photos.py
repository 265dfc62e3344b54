# SPDX-License-Identifier: Apache-2.0
"""Makes photo-like JPEGs: smooth shading, soft edges, some texture and grain, of mixed sizes around 500 x 375, some grey.

    python photos.py OUT [--count 2000] [--seed 0] [--classes 10]

The same count, seed and classes give the same pixels. Needs numpy and Pillow.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import os
import pathlib

import numpy as np
from PIL import Image

GREY_SHARE = 0.03
MAX_BYTES = 110_000


def _size(rng: np.random.Generator) -> tuple[int, int]:
    long_edge = int(np.clip(rng.normal(515, 50), 320, 640))
    width, height = long_edge, int(long_edge / rng.choice([3 / 2, 4 / 3, 4 / 3, 1.25]))
    return (height, width) if rng.random() < 0.1 else (width, height)


@functools.cache
def _texture() -> np.ndarray:
    """Fine noise that all photos cut theirs from: making it anew would take most of the time."""
    rng = np.random.default_rng(1)
    grain = rng.integers(-7, 8, (1280, 1280, 1), dtype=np.int16)
    return grain + (_layer(rng, 1280, 1280, 4, 1) >> 2)


def _layer(rng: np.random.Generator, width: int, height: int, cell: int, channels: int) -> np.ndarray:
    """Noise with details of about `cell` pixels, int16 around 0."""
    shape = (height // cell + 2, width // cell + 2, channels)
    small = rng.integers(0, 256, shape, dtype=np.uint8)
    image = Image.fromarray(small[..., 0] if channels == 1 else small)
    large = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    return large.reshape(height, width, channels).astype(np.int16) - 128


def photo(seed: int, number: int) -> Image.Image:
    """One photo-like image; a pure function of its arguments."""
    rng = np.random.default_rng((seed, number))
    width, height = _size(rng)
    pixels = 128 + (_layer(rng, width, height, 120, 3) >> 1)
    pixels += (_layer(rng, width, height, 40, 1) >> 2) * 3  # things
    pixels[_layer(rng, width, height, 60, 1)[..., 0] > 20] += rng.integers(-60, 60, 3, dtype=np.int16)  # edges
    top, left = rng.integers(0, 640, 2)
    pixels += _texture()[top : top + height, left : left + width]
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    return image.convert("L") if rng.random() < GREY_SHARE else image


def write(path: pathlib.Path, seed: int, number: int) -> int:
    """Writes one photo; returns its length in bytes, at most MAX_BYTES where quality 40 suffices."""
    image = photo(seed, number)
    for quality in (88, 75, 60, 40):
        image.save(path, "JPEG", quality=quality)
        if path.stat().st_size <= MAX_BYTES:
            break
    return path.stat().st_size


def generate(folder: str | os.PathLike, count: int = 2000, seed: int = 0, classes: int = 10) -> pathlib.Path:
    """Writes `count` photos as an image folder: class_00/photo_00000.jpg and so on."""
    root = pathlib.Path(folder)
    paths = [root / f"class_{k % classes:02d}" / f"photo_{k:05d}.jpg" for k in range(count)]
    for parent in {path.parent for path in paths}:
        parent.mkdir(parents=True, exist_ok=True)
    # Threads suffice: Pillow and numpy work without the interpreter's lock.
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(write, paths, [seed] * count, range(count)))
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()
    generate(args.out, args.count, args.seed, args.classes)


if __name__ == "__main__":
    main()
