# SPDX-License-Identifier: Apache-2.0
"""Labels, resizing and cropping through the client, against the Pillows 12 and 13 beside it; test_golden_table.py has golden/."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import files_of

import loaderd
import loaderd.random
import loaderd.transforms as T


def load(folder, transform, daemon, **arguments):
    """Every sample's pixels, by index."""
    batches = loaderd.DataLoader(
        loaderd.ImageFolder(folder),
        arguments.pop("batch_size", 16),
        transform=transform,
        socket=daemon.socket,
        **arguments,
    )
    return {
        int(index): pixels.copy() for batch in batches for index, pixels in zip(batch.index, batch.images, strict=True)
    }


def test_classes_and_labels_are_those_of_the_folder(imagenet, daemon):
    folder = loaderd.ImageFolder(imagenet)
    described = folder.describe(daemon.socket)
    assert list(described.class_names) == sorted(path.name for path in imagenet.iterdir())
    assert described.num_samples == 400
    labels = {}
    for batch in loaderd.DataLoader(folder, 50, transform=T.CenterCrop(1), socket=daemon.socket):
        labels.update(zip(batch.index.tolist(), batch.labels.tolist(), strict=True))
    expected = [described.class_names.index(path.parent.name) for path in files_of(imagenet)]
    assert [labels[k] for k in range(400)] == expected


PILLOW = """
import json, sys
import numpy as np
from PIL import Image, __version__
assert __version__.startswith(sys.argv[1] + "."), __version__
FILTERS = {name.lower(): number for name, number in Image.Resampling.__members__.items()}
images, expected = [], []
for job in json.load(sys.stdin):
    image = Image.open(job["file"]).convert("RGB")
    if "box" in job:
        top, left, height, width = job["box"]
        image = image.crop((left, top, left + width, top + height))
    if "centre" in job:  # torchvision's CenterCrop: pad, then cut in the middle
        edge = job["centre"]
        w, h = image.size
        padded = Image.new("RGB", (max(w, edge), max(h, edge)))
        padded.paste(image, (max(0, (edge - w) // 2), max(0, (edge - h) // 2)))
        w, h = padded.size
        top, left = int(round((h - edge) / 2.0)), int(round((w - edge) / 2.0))
        image = padded.crop((left, top, left + edge, top + edge))
    if "size" in job:
        height, width = job["size"]
        image = image.resize((width, height), FILTERS[job["filter"]])
    if job.get("flip"):
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    images.append(np.asarray(image))
np.savez(sys.argv[2], *images)
"""


def remake(jobs, major, tmp_path, pillow12):
    """The jobs' pixels, by a Pillow of that major version in a process of its own."""
    path = str(pillow12) if major == 12 else ""
    result = subprocess.run(
        [sys.executable, "-c", PILLOW, str(major), tmp_path / "remade.npz"],
        input=json.dumps(jobs),
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 0, result.stderr
    remade = np.load(tmp_path / "remade.npz")
    return [remade[f"arr_{k}"] for k in range(len(jobs))]


@pytest.fixture(params=[13, 12])
def pillow_major(request, pillow12):
    if request.param == 13:
        pillow = pytest.importorskip("PIL", reason="Pillow is not installed")
        if not pillow.__version__.startswith("13."):
            pytest.skip(f"this Python has Pillow {pillow.__version__}, not 13")
    return request.param


@pytest.mark.parametrize("epoch", [0, 5])
def test_random_crops_and_flips_can_be_made_again(photos, daemon, tmp_path, pillow12, pillow_major, epoch):
    """With loaderd.random and Pillow: each delivered sample, bit for bit."""
    from PIL import Image

    seed = 2**40 + 17
    transform = T.Compose([T.RandomResizedCrop(96), T.RandomHorizontalFlip()])
    batches = loaderd.DataLoader(
        loaderd.ImageFolder(photos),
        7,
        True,
        transform=transform,
        seed=seed,
        socket=daemon.socket,
        reference=f"pillow{pillow_major}",
    )
    batches.set_epoch(epoch)
    got = {
        int(index): pixels.copy() for batch in batches for index, pixels in zip(batch.index, batch.images, strict=True)
    }
    jobs = []
    for index, path in enumerate(files_of(photos)):
        with Image.open(path) as image:
            width, height = image.size
        box = loaderd.random.random_resized_crop_box(seed, epoch, index, 0, height, width)
        flip = loaderd.random.random_horizontal_flip(seed, epoch, index, 1)
        jobs.append({"file": str(path), "box": box, "size": (96, 96), "filter": "bilinear", "flip": flip})
    assert any(job["flip"] for job in jobs) and not all(job["flip"] for job in jobs)
    remade = remake(jobs, pillow_major, tmp_path, pillow12)
    assert [k for k, pixels in enumerate(remade) if not np.array_equal(pixels, got[k])] == []


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"])
@pytest.mark.parametrize("size", [(31, 200), (224, 224), (600, 41)])
def test_every_filter_equals_pillow(photos, daemon, tmp_path, pillow12, pillow_major, name, size):
    step = T.Resize(size, T.InterpolationMode(name))
    got = load(photos, step, daemon, reference=f"pillow{pillow_major}")
    jobs = [{"file": str(path), "size": size, "filter": name} for path in files_of(photos)]
    remade = remake(jobs, pillow_major, tmp_path, pillow12)
    assert [k for k, pixels in enumerate(remade) if not np.array_equal(pixels, got[k])] == []


@pytest.mark.parametrize("edge", [33, 450, 700])
def test_central_crops_equal_pillow(photos, daemon, tmp_path, pillow12, pillow_major, edge):
    got = load(photos, T.CenterCrop(edge), daemon, reference=f"pillow{pillow_major}")
    remade = remake(
        [{"file": str(path), "centre": edge} for path in files_of(photos)], pillow_major, tmp_path, pillow12
    )
    assert [k for k, pixels in enumerate(remade) if not np.array_equal(pixels, got[k])] == []


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """Makes folders of n samples: links to one small file."""
    from PIL import Image

    one = tmp_path_factory.mktemp("one") / "one.jpg"
    Image.new("RGB", (8, 8), (90, 120, 30)).save(one)

    def make(n):
        folder = one.parent / f"folder-{n}"
        if not folder.exists():
            (folder / "only").mkdir(parents=True)
            for k in range(n):
                os.link(one, folder / "only" / f"{k:06d}.jpg")
        return folder

    return make


def test_padding_is_flagged_and_the_others_come_once_over_all_ranks(daemon, tiny_folder):
    seen, padded = [], 0
    for rank in range(4):
        for batch in loaderd.DataLoader(
            loaderd.ImageFolder(tiny_folder(10)),
            2,
            True,
            rank=rank,
            world_size=4,
            transform=T.CenterCrop(8),
            socket=daemon.socket,
        ):
            seen += batch.index[~batch.pad].tolist()
            padded += int(batch.pad.sum())
    assert sorted(seen) == list(range(10)) and padded == 2
