# SPDX-License-Identifier: Apache-2.0
"""The images that are loaded, and the boxes that are cut from them."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from pathlib import Path

import numpy as np
from peers import trainer
from PIL import Image

import loaderd.random
import photos

SEED = 0  # of the loader that is measured
EPOCHS = 2
GRAIN = 5  # of 255


def link(source: Path, target: Path) -> None:
    """One more name for a file; a copy where the file system wants one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def multiply(source: Path, target: Path, count: int) -> None:
    """An image folder of `count` names for the files of another, each as often as any other (or once more)."""
    files = [Path(path) for path in trainer.samples(source)[0]]
    for number, file in zip(range(count), itertools.cycle(files)):  # noqa: B905 (the second has no end)
        copy = number // len(files)
        link(file, target / file.parent.name / f"{file.stem}_{copy}{file.suffix}")


def folder(named: Path | None, images: int, shared: Path, cache: Path) -> tuple[Path, str]:
    """The image folder to load, made in `cache` where none is named, and what it is, in words."""
    if named is not None:
        return named.resolve(), f"{len(trainer.samples(named)[0]):,} files of {named}"
    sample = shared / "data" / "imagenet-sample-400"
    kind = "imagenet" if sample.is_dir() else "made"
    target = cache / f"{kind}-{images}"
    if not target.is_dir():
        part = target.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        if sample.is_dir():
            multiply(sample, part, images)
        else:
            print(f"bench: {sample} is absent: making {images:,} photographs", flush=True)
            photos.generate(part, images)
        part.rename(target)
    what = "names of the 400 ImageNet photographs" if sample.is_dir() else "made photographs"
    return target, f"{images:,} {what}"


def fingerprint(data: Path) -> str:
    """Of names and lengths: files that were made of the folder are of use as long as it stays."""
    digest = hashlib.sha256()
    for path in trainer.samples(data)[0]:
        digest.update(f"{path}\0{os.stat(path).st_size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def write_boxes(data: Path, target: Path) -> int:
    """The samples of `limit`, one a line: the boxes that loaderd cuts in its first epochs. How many there are."""
    lines = []
    for epoch in range(EPOCHS):
        for index, path in enumerate(trainer.samples(data)[0]):
            if "\n" in path:
                continue
            try:
                with Image.open(path) as image:
                    width, height = image.size
            except OSError:
                continue
            box = loaderd.random.random_resized_crop_box(SEED, epoch, index, 0, height, width)
            lines.append(f"{box.top} {box.left} {box.height} {box.width} {path}\n")
    target.write_bytes(os.fsencode("".join(lines)))
    return len(lines)


def write_large(source: Path, target: Path, megapixels: float, count: int) -> None:
    """Photographs of about so many megapixels, enlarged from those of another folder, with a sensor's grain, at quality 90.

    Without the grain they would be as smooth as no camera's, and their files as short.
    """
    rng = np.random.default_rng(1)
    files = trainer.samples(source)[0][:count]
    for number, path in enumerate(files):
        with Image.open(path) as file:
            image = file.convert("RGB")
        factor = (megapixels * 1e6 / (image.width * image.height)) ** 0.5
        size = (round(image.width * factor), round(image.height * factor))
        out = target / f"class_{number % 2}" / f"{number:04d}.jpg"
        out.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC), np.int16)
        pixels = pixels + rng.integers(-GRAIN, GRAIN + 1, (*pixels.shape[:2], 1), dtype=np.int16)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
