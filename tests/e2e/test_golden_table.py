# SPDX-License-Identifier: Apache-2.0
"""All of golden/ through the client: what the files there hold is asked of the daemon, and what they hold of another kind fails."""

import collections
import hashlib
import itertools
import json
import os

import numpy as np
import pytest
import remake
from conftest import run_python
from PIL import Image
from seed_search import resized_crop_seed

import loaderd
import loaderd.random
import loaderd.transforms as T

REFERENCES = ("pillow13", "pillow12")
BILINEAR = T.InterpolationMode.BILINEAR
EVAL = [T.Resize(256), T.CenterCrop(224)]


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.fixture
def read(daemon, tmp_path):
    """Reads files in one job; their pixels, in their order. The step behind all others cuts nothing of a result of that shape."""
    folders = {}

    def read(files, steps, shape, reference="pillow13", seed=0, **options):
        key = tuple(files)
        if key not in folders:
            folders[key] = tmp_path / str(len(folders)) / "only"
            folders[key].mkdir(parents=True)
            for number, file in enumerate(files):  # formats go by their content
                (folders[key] / f"{number:04d}.jpg").symlink_to(file)
        loader = loaderd.DataLoader(
            loaderd.ImageFolder(folders[key].parent, **options),
            32,
            transform=[*steps, T.CenterCrop(shape[:2])] if shape else steps,
            socket=daemon.socket,
            reference=reference,
            seed=seed,
        )
        return [pixels.copy() for batch in loader for pixels in batch.images]

    return read


@pytest.fixture
def pixels(golden):
    return json.loads((golden / "pixels.json").read_text())


def wanted(entry, reference, name="sha256"):
    return entry.get(f"{name}_pillow12", entry[name]) if reference == "pillow12" else entry[name]


def test_pixels_holds_nothing_that_is_not_read_here(pixels):
    assert set(pixels) == {"files", "eval", "resized_crop_224", "more", "formats"}
    assert {key for key in pixels["eval"] if "sha256" in key} == {"u8_sha256", "u8_sha256_pillow12", "f32_sha256"}


@pytest.mark.parametrize("reference", REFERENCES)
def test_evaluation(imagenet, pixels, read, reference):
    answers = pixels["eval"]
    files = [imagenet / name for name in pixels["files"]]
    size = (answers["crop"], answers["crop"])
    steps = [T.Resize(answers["resize"]), T.CenterCrop(size)]
    right = wanted(answers, reference, "u8_sha256")
    got = [sha256(image) for image in read(files, steps, size, reference)]
    print(f"eval, {reference}: {sum(map(str.__eq__, got, right))} of {len(right)} equal")
    assert got == right
    floats = read(files, [*steps, T.ToTensor(), T.Normalize(answers["mean"], answers["std"])], None, reference)
    same = [k for k, (a, b) in enumerate(zip(right, answers["u8_sha256"], strict=True)) if a == b]
    print(f"eval as floats, {reference}: {len(same)} of {len(files)} have an answer")
    assert [sha256(floats[k]) for k in same] == [answers["f32_sha256"][k] for k in same]


@pytest.mark.parametrize("reference", REFERENCES)
def test_resized_crops(imagenet, pixels, read, reference):
    """By RandomResizedCrop itself: of the one size that the box has, and with a seed that puts it there."""
    wrong, entries = [], pixels["resized_crop_224"]
    for entry in entries:
        with Image.open(imagenet / entry["file"]) as image:
            width, height = image.size
        h, w = entry["height"], entry["width"]
        area, ratio = h * w / (height * width), w / h
        seed = resized_crop_seed(height, width, entry["top"], entry["left"], h, w)
        box = loaderd.random.random_resized_crop_box(seed, 0, 0, 0, height, width, (area, area), (ratio, ratio))
        assert box == (entry["top"], entry["left"], h, w)
        crop = T.RandomResizedCrop(224, (area, area), (ratio, ratio))
        steps = [crop, T.RandomHorizontalFlip(float(entry["flip"]))]
        (got,) = read([imagenet / entry["file"]], steps, None, reference, seed)
        if sha256(got) != wanted(entry, reference):
            wrong.append(entry)
    print(f"resized_crop_224, {reference}: {len(entries) - len(wrong)} of {len(entries)} equal")
    assert wrong == []


NAMED_STEPS = {
    "Resize((224,224),bilinear)": [T.Resize((224, 224))],
    "Resize(232,bicubic)+CenterCrop(224)": [T.Resize(232, T.InterpolationMode.BICUBIC), T.CenterCrop(224)],
    "CenterCrop(640) (zero padded)": [T.CenterCrop(640)],
    "Resize((33,517),bilinear)": [T.Resize((33, 517))],
    "Resize(288,lanczos)": [T.Resize(288, T.InterpolationMode.LANCZOS)],
    "Resize(64,nearest)": [T.Resize(64, T.InterpolationMode.NEAREST)],
    "Grayscale(3)+Resize(96)": [T.Grayscale(3), T.Resize(96)],
    "decode only": [],
}


BY_PILLOW12 = """
import hashlib, json, sys
import PIL, remake
from PIL import Image
assert PIL.__version__.startswith("12."), PIL.__version__
hashes = []
for file, calls in json.loads(sys.argv[1]):
    picture = Image.open(file).convert("RGB")
    for name, arguments in calls:
        picture = remake.by_pillow(name)(picture, **arguments)
    hashes.append(hashlib.sha256(picture.tobytes()).hexdigest())
print(json.dumps(hashes))
"""


@pytest.fixture
def more_right(request, imagenet, pixels):
    """The right answers under `more`. They are Pillow 13's; where 12 has others, which the file does not tell, it is asked."""

    def right(reference):
        answers = [entry["sha256"] for entry in pixels["more"]]
        if reference == "pillow13":
            return answers, 0
        others = []
        for number, entry in enumerate(pixels["more"]):
            with Image.open(imagenet / entry["file"]) as image:
                width, height = image.size
            calls = loaderd.random.replay(NAMED_STEPS[entry["transform"]], height, width, seed=0, epoch=0, index=0)
            resized = [(call.arguments["size"]) for call in calls if call.function == "resize"]
            if any(len(s) == 2 and height - s[0] > max(0, 2 * (width - s[1])) for s in resized):
                others.append((number, [str(imagenet / entry["file"]), calls]))
        path = f"{request.getfixturevalue('pillow12')}:{os.environ['PYTHONPATH']}"
        jobs = json.dumps([job for _, job in others])
        given = run_python(BY_PILLOW12, jobs, env={**os.environ, "PYTHONPATH": path})
        for (number, _), answer in zip(others, given, strict=True):
            assert answers[number] != answer
            answers[number] = answer
        return answers, len(others)

    return right


@pytest.mark.parametrize("reference", REFERENCES)
def test_more_sizes_and_filters(imagenet, pixels, read, more_right, reference):
    answers, asked = more_right(reference)
    jobs, equal, wrong = collections.defaultdict(list), collections.Counter(), []
    for entry, answer in zip(pixels["more"], answers, strict=True):
        jobs[entry["transform"], tuple(entry["shape"])].append((imagenet / entry["file"], answer))
    for (name, shape), cases in jobs.items():
        got = read([file for file, _ in cases], NAMED_STEPS[name], shape, reference)
        for (file, answer), image in zip(cases, got, strict=True):
            if sha256(image) == answer:
                equal[name] += 1
            else:
                wrong.append((name, file))
    print(
        f"more, {reference}: {equal.total()} of {len(answers)} equal, {asked} of them asked of Pillow 12; not: {wrong}"
    )
    assert wrong == []


@pytest.mark.parametrize(
    ("wide", "upright", "answer"),
    [("scale", False, "rgb"), ("clip", False, "rgb"), ("clip", True, "upright_rgb"), ("scale", True, "upright_rgb")],
)
def test_formats(golden, pixels, read, wide, upright, answer):
    files = {path.name for path in (golden / "formats").iterdir()}
    assert files == set(pixels["formats"])
    jobs, wrong = collections.defaultdict(list), []
    for name, entry in pixels["formats"].items():
        assert set(entry) - {"note", "pillow_mode", "shape", "upright_shape", "scaled_rgb_sha256"} == {
            "rgb_sha256",
            "upright_rgb_sha256",
        }
        jobs[tuple(entry["upright_shape" if upright else "shape"])].append(name)
    for shape, names in jobs.items():
        got = read([golden / "formats" / name for name in names], [], shape, wide=wide, exif_transpose=upright)
        for name, image in zip(names, got, strict=True):
            entry = pixels["formats"][name]
            right = entry[f"{answer}_sha256"]
            if wide == "scale":
                right = entry.get("scaled_rgb_sha256", right)  # what is scaled lies upright
            if sha256(image) != right:
                wrong.append(name)
    print(f"formats, wide={wide}, upright={upright}: {len(files) - len(wrong)} of {len(files)} equal; not: {wrong}")
    assert wrong == []


# ---- ops


def fixed(low, _=None):
    return (low, low)


def affine(entry):
    """RandomAffine draws its translation: the least interval that holds it, and a seed that gives it."""
    x, y = entry["translate"]
    step = T.RandomAffine(
        fixed(entry["angle"]),
        (abs(x) / 224, abs(y) / 224),
        fixed(entry["scale"]),
        [value for shear in entry["shear"] for value in fixed(shear)],
        entry["interpolation"].lower(),
        entry["fill"],
    )
    for seed in itertools.count():
        calls = loaderd.random.replay([*EVAL, step], 256, 256, seed=seed, epoch=0, index=0)
        if calls[-1].arguments["translate"] == [x, y]:
            return step, seed


STEPS_OF_OPS = {
    "adjust_brightness": lambda e: T.ColorJitter(brightness=fixed(e["brightness_factor"])),
    "adjust_contrast": lambda e: T.ColorJitter(contrast=fixed(e["contrast_factor"])),
    "adjust_saturation": lambda e: T.ColorJitter(saturation=fixed(e["saturation_factor"])),
    "adjust_hue": lambda e: T.ColorJitter(hue=fixed(e["hue_factor"] or 1e-9)),  # 0 is left out, and converts nothing
    "adjust_sharpness": lambda e: T.RandomAdjustSharpness(e["sharpness_factor"], 1.0),
    "rotate": lambda e: T.RandomRotation(fixed(e["angle"]), e["interpolation"].lower(), e["expand"], None, e["fill"]),
    "affine": affine,
    "posterize": lambda e: T.RandomPosterize(e["bits"], 1.0),
    "solarize": lambda e: T.RandomSolarize(e["threshold"], 1.0),
    "equalize": lambda _: T.RandomEqualize(1.0),
    "autocontrast": lambda _: T.RandomAutocontrast(1.0),
    "invert": lambda _: T.RandomInvert(1.0),
    "hflip": lambda _: T.RandomHorizontalFlip(1.0),
    "vflip": lambda _: T.RandomVerticalFlip(1.0),
    "rgb_to_grayscale": lambda e: T.Grayscale(e["num_output_channels"]),
    "pad": lambda e: T.Pad(e["padding"], e["fill"], e["padding_mode"]),
    "gaussian_blur": lambda e: T.GaussianBlur(e["kernel_size"], e["sigma"]),  # both the same: a draw between them
}
# No transform has given corners. That such an answer is met by what the client is held against elsewhere is shown instead.
BY_PILLOW = ("perspective",)


@pytest.mark.parametrize("reference", REFERENCES)
def test_ops(imagenet, golden, pixels, read, reference):
    answers = json.loads((golden / "ops.json").read_text())
    assert set(answers) == {"input", "results"} and answers["input"].startswith("Resize(256) + CenterCrop(224)")
    assert {entry["op"] for entry in answers["results"]} <= {*STEPS_OF_OPS, *BY_PILLOW}
    evaluated = dict(
        zip(
            pixels["files"],
            zip(pixels["eval"]["u8_sha256"], pixels["eval"]["u8_sha256_pillow12"], strict=True),
            strict=True,
        )
    )
    jobs, equal, wrong, other_input = collections.defaultdict(list), collections.Counter(), [], 0
    for entry in answers["results"]:
        if reference == "pillow12" and len(set(evaluated[entry["file"]])) > 1:
            other_input += 1
            continue
        said = {key: value for key, value in entry.items() if key not in ("file", "sha256", "npy", "note")}
        jobs[json.dumps(said)].append(entry)
    for entries in jobs.values():
        first, files = entries[0], [imagenet / entry["file"] for entry in entries]
        if first["op"] in BY_PILLOW:
            arguments = {key: first[key] for key in ("startpoints", "endpoints", "fill")}
            filter_ = Image.Resampling[first["interpolation"]]
            inputs = [Image.fromarray(image) for image in read(files, EVAL, (224, 224), reference)]
            got = [np.asarray(remake.perspective(image, interpolation=filter_, **arguments)) for image in inputs]
        else:
            step = STEPS_OF_OPS[first["op"]](first)
            if isinstance(step, tuple):  # with its seed, which is good for one sample
                got = [read([file], [*EVAL, step[0]], first["shape"], reference, step[1])[0] for file in files]
            else:
                got = read(files, [*EVAL, step], first["shape"], reference)
        for entry, image in zip(entries, got, strict=True):
            if entry["op"] == "gaussian_blur":
                assert entry["sigma"][0] == entry["sigma"][1]
                right = np.load(golden / entry["npy"]).astype(int)
                is_right = image.shape == right.shape and np.abs(image.astype(int) - right).max() <= 1
            else:
                is_right = list(image.shape) == entry["shape"] and sha256(image) == entry["sha256"]
            equal[entry["op"]] += int(is_right)
            if not is_right:
                wrong.append(entry)
    outside = sum(equal[op] for op in BY_PILLOW)
    print(
        f"ops, {reference}: {equal.total() - outside} equal by the daemon, {outside} ({', '.join(BY_PILLOW)}) by Pillow on "
        f"its input, {len(wrong)} not, {other_input} of inputs that this reference makes otherwise; {dict(equal)}"
    )
    assert wrong == []


# ---- order


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Makes folders of n samples: many links to one class folder of small files, and one with the rest."""
    root = tmp_path_factory.mktemp("orders")
    small = root / "small.jpg"
    Image.new("RGB", (8, 8), (90, 120, 30)).save(small)

    def class_folder(count):
        folder = root / f"class-{count}"
        if not folder.exists():
            folder.mkdir()
            for k in range(count):
                (folder / f"{k:06d}.jpg").hardlink_to(small)
        return folder

    def make(n):
        folder = root / f"of-{n}"
        if not folder.exists():
            folder.mkdir()
            each = 1000
            for k in range(n // each):
                (folder / f"{k:06d}").symlink_to(class_folder(each))
            if n % each:
                (folder / "rest").symlink_to(class_folder(n % each))
        return folder

    return make


WHOLE_UP_TO = 7000  # samples of an order that is compared whole; of longer ones the first


def test_orders(golden, daemon, folder_of):
    counts, wrong = collections.Counter(), []
    entries = json.loads((golden / "order.json").read_text())
    for entry in entries:
        if entry["kind"] == "randperm":
            options = {"shuffle": True, "seed": entry["seed"]}
        else:
            assert entry["kind"] == "distributed", "an order of another kind"
            options = {name: entry[name] for name in ("shuffle", "seed", "rank")}
            options.update(world_size=entry["world"], shard="drop" if entry["drop_last"] else "pad")
        is_whole = entry["count"] <= WHOLE_UP_TO
        loader = loaderd.DataLoader(
            loaderd.ImageFolder(folder_of(entry["n"])),
            1000 if is_whole else len(entry["first"]),
            transform=T.CenterCrop(8),
            socket=daemon.socket,
            **options,
        )
        loader.set_epoch(entry.get("epoch", 0))
        kind = f"{entry['kind']}, {'whole' if is_whole else 'its first'}"
        if entry["count"] == 0:
            with pytest.raises(ValueError):
                iter(loader)
            counts["distributed, refused as empty"] += 1
            continue
        got = [int(index) for batch in itertools.islice(loader, None if is_whole else 1) for index in batch.index]
        if is_whole:
            is_right = hashlib.sha256(np.array(got, "<i8").tobytes()).hexdigest() == entry["sha256"]
        else:
            is_right = got == entry["first"]
        counts[kind] += is_right
        if not is_right:
            wrong.append((kind, {key: entry[key] for key in ("n", "seed", "count")}))
    print(f"order: {counts.total()} of {len(entries)} equal: {dict(counts)}")
    assert wrong == []
