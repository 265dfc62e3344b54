# SPDX-License-Identifier: Apache-2.0
"""Order and pixels through the client, against answers that torch, torchvision and Pillow gave."""

import hashlib
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

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def pixels_of(golden):
    return json.loads((golden / "pixels.json").read_text())


@pytest.fixture
def names(imagenet):
    return [str(path.relative_to(imagenet)) for path in files_of(imagenet)]


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


@pytest.mark.parametrize("reference", ["pillow13", "pillow12"])
def test_evaluation_pixels_are_exact(imagenet, names, golden, daemon, reference):
    answers = pixels_of(golden)
    got = load(imagenet, T.Compose([T.Resize(256), T.CenterCrop(224)]), daemon, reference=reference)
    wanted = dict(zip(answers["files"], answers["eval"]["u8_sha256"], strict=True))
    differ = [name for k, name in enumerate(names) if name in wanted and sha256(got[k]) != wanted[name]]
    assert differ == []


def test_normalised_pixels_are_exact(imagenet, names, golden, daemon):
    answers = pixels_of(golden)
    transform = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize(MEAN, STD)])
    got = load(imagenet, transform, daemon)
    wanted = dict(zip(answers["files"], answers["eval"]["f32_sha256"], strict=True))
    assert got[0].shape == (3, 224, 224) and got[0].dtype == np.float32
    assert [name for k, name in enumerate(names) if name in wanted and sha256(got[k]) != wanted[name]] == []


@pytest.mark.parametrize(
    ("answer", "steps"),
    [
        ("Resize((224,224),bilinear)", [T.Resize((224, 224))]),
        ("Resize(232,bicubic)+CenterCrop(224)", [T.Resize(232, T.InterpolationMode.BICUBIC), T.CenterCrop(224)]),
        ("CenterCrop(640) (zero padded)", [T.CenterCrop(640)]),
        ("Resize((33,517),bilinear)", [T.Resize((33, 517))]),
    ],
)
def test_other_sizes_and_filters_are_exact(imagenet, names, golden, daemon, answer, steps):
    wanted = {entry["file"]: entry["sha256"] for entry in pixels_of(golden)["more"] if entry["transform"] == answer}
    got = load(imagenet, T.Compose(steps), daemon)
    assert wanted
    assert [name for k, name in enumerate(names) if name in wanted and sha256(got[k]) != wanted[name]] == []


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


def delivered(folder, daemon, **arguments):
    batches = loaderd.DataLoader(
        loaderd.ImageFolder(folder), 256, transform=T.CenterCrop(8), socket=daemon.socket, **arguments
    )
    return batches, lambda: [int(index) for batch in batches for index in batch.index]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 61, 63, 1000])
def test_orders_are_torchs(golden, daemon, tiny_folder, n):
    """All of the answers for n samples."""
    entries = [entry for entry in json.loads((golden / "order.json").read_text()) if entry["n"] == n]
    assert entries
    wrong = []
    for entry in entries:
        if entry["kind"] == "randperm":
            arguments = {"shuffle": True, "seed": entry["seed"]}
        else:
            arguments = {name: entry[name] for name in ("shuffle", "seed", "rank")}
            arguments.update(world_size=entry["world"], shard="drop" if entry["drop_last"] else "pad")
        batches, indices = delivered(tiny_folder(n), daemon, **arguments)
        batches.set_epoch(entry.get("epoch", 0))
        if entry["count"] == 0:
            with pytest.raises(ValueError):
                indices()
            continue
        if hashlib.sha256(np.array(indices(), "<i8").tobytes()).hexdigest() != entry["sha256"]:
            wrong.append(entry)
    assert wrong == []


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
