# SPDX-License-Identifier: Apache-2.0
"""What people met in the field with pictures, and with large descriptions."""

import contextlib
import io
import itertools
import os
import pathlib
import shutil
import struct
import time

import hostile
import numpy as np
import pytest
from conftest import Control, files_of, run_python, wait_until
from PIL import Image

import daemon as daemon_support
import loaderd
import loaderd.transforms as T


def quad(width=96, height=64):
    """Four flat quarters: shows negatives, swapped channels and turns."""
    image = Image.new("RGB", (width, height))
    w, h = width // 2, height // 2
    for box, colour in (
        ((0, 0, w, h), (220, 40, 30)),
        ((w, 0, width, h), (40, 200, 60)),
        ((0, h, w, height), (30, 60, 210)),
        ((w, h, width, height), (230, 210, 50)),
    ):
        image.paste(colour, box)
    return image


def encoded(image, kind="JPEG", **options):
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0, **options}
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def tagged(number, size=(96, 64)):
    """One flat colour that says which it is, 0 to 4095."""
    return Image.new("RGB", size, ((number >> 8) * 16 + 8, ((number >> 4) & 15) * 16 + 8, (number & 15) * 16 + 8))


def untag(pixel):
    return (int(pixel[0]) // 16) << 8 | (int(pixel[1]) // 16) << 4 | int(pixel[2]) // 16


def without_segment(data, marker):
    at = 2
    while data[at + 1] != marker:
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0] :]


def among_plain(folder, files):
    """An image folder of one class: the files, and plain tagged ones, 16 in all. Where each file stands."""
    only = pathlib.Path(folder) / "only"
    only.mkdir(parents=True)
    for name, data in files.items():
        (only / name).write_bytes(data)
    for number in range(16 - len(files)):
        (only / f"plain_{number:02d}.jpg").write_bytes(encoded(tagged(number)))
    return {path.name: index for index, path in enumerate(files_of(folder))}


def read(daemon, folder, batch_size=16, mode="RGB", transform=None, **options):
    return loaderd.DataLoader(
        loaderd.ImageFolder(folder, mode), batch_size, transform=transform, socket=daemon.socket, **options
    )


def test_grey_and_rgb_coded_pictures_have_the_shape_of_all_others(daemon, tmp_path):
    picture = quad()
    planes = without_segment(encoded(Image.merge("YCbCr", picture.split())), 0xE0)  # RGB as it is
    adobe = bytes.fromhex("ffee000e41646f626500640000000000")
    files = {
        "grey.jpg": encoded(picture.convert("L")),
        "la.png": encoded(picture.convert("L").convert("LA"), "PNG"),
        "rgbcoded.jpg": planes[:2] + adobe + planes[2:],
    }
    at = among_plain(tmp_path / "27", files)
    (batch,) = read(daemon, tmp_path / "27", transform=T.CenterCrop((64, 96)))
    assert batch.images.shape == (16, 64, 96, 3) and batch.images.dtype == np.uint8 and not batch.bad
    grey = np.asarray(picture.convert("L")).astype(int)
    for name in ("grey.jpg", "la.png"):
        got = batch.images[at[name]].astype(int)
        assert np.ptp(got, axis=2).max() == 0, name
        assert np.abs(got[..., 0] - grey).max() <= 1, name
    assert np.abs(batch.images[at["rgbcoded.jpg"]].astype(int) - np.asarray(picture)).max() <= 1
    plain = [untag(batch.images[at[name]][10, 10]) for name in sorted(at) if name.startswith("plain")]
    assert plain == list(range(13))

    (batch,) = read(daemon, tmp_path / "27", mode="L", transform=T.CenterCrop((64, 96)))
    assert batch.images.shape == (16, 64, 96, 1)
    for name in at:
        with Image.open(tmp_path / "27" / "only" / name) as image:
            assert np.array_equal(batch.images[at[name]][..., 0], np.asarray(image.convert("L"))), name


def test_resizing_is_pillows_with_any_number_of_threads(tmp_path):
    y, x = np.mgrid[0:512, 0:512]
    zone = (127.5 + 127.5 * np.cos((x * x + y * y) * np.pi / 600)).astype("uint8")
    slope = (x * 255 // 511).astype("uint8")
    files = {
        "zone.png": encoded(Image.fromarray(np.stack([zone] * 3, -1)), "PNG"),
        "quad.png": encoded(quad(500, 375), "PNG"),
        "ramp.jpg": encoded(Image.fromarray(np.stack([slope, slope.T, 255 - slope], -1)), subsampling=2),
    }
    at = among_plain(tmp_path / "37", files)
    steps = {
        (128, 128): [T.Resize((128, 128))],
        (224, 224): [T.Resize((224, 224))],
        256: [T.Resize(256), T.CenterCrop(224)],
        (700, 700): [T.Resize((700, 700))],
    }

    def by_pillow(name, size):
        with Image.open(tmp_path / "37" / "only" / name) as file:
            image = file.convert("RGB")
        if isinstance(size, tuple):
            return np.asarray(image.resize(size, Image.Resampling.BILINEAR))
        long = int(size * max(image.size) / min(image.size))
        image = image.resize((long, size) if image.width >= image.height else (size, long), Image.Resampling.BILINEAR)
        top, left = round((image.height - 224) / 2.0), round((image.width - 224) / 2.0)
        return np.asarray(image.crop((left, top, left + 224, top + 224)))

    for threads, again in itertools.product((1, 4), range(2)):
        with daemon_support.Daemon(config=f"fleet {{ threads: {threads} }}") as daemon:
            for size, transform in steps.items():
                (batch,) = read(daemon, tmp_path / "37", transform=transform)
                for name in files:
                    right = by_pillow(name, size)
                    assert np.array_equal(batch.images[at[name]], right), (name, size, threads, again)


def broken_files():
    """Files cut short and damaged, and what the reason says."""
    noise = Image.fromarray(np.random.default_rng(7).integers(0, 256, (256, 256, 3), np.uint8))
    jpeg, png = encoded(noise), encoded(noise, "PNG")
    damaged, checksum = bytearray(png), bytearray(png)
    damaged[len(png) // 2] ^= 255
    data = png.index(b"IDAT")
    checksum[data + 4 + int.from_bytes(png[data - 4 : data], "big")] ^= 255
    return {
        "empty.jpg": (b"", "is an empty file"),
        "one.jpg": (jpeg[:1], "no image that can be read"),
        "soi.jpg": (jpeg[:2], "JPEG that ends or breaks after its first bytes"),
        "header.jpg": (jpeg[: jpeg.index(b"\xff\xda")], "JPEG is truncated"),
        "half.jpg": (jpeg[: len(jpeg) // 2], "JPEG is truncated"),
        "most.jpg": (jpeg[: len(jpeg) * 99 // 100], "JPEG is truncated"),
        "no_end.jpg": (jpeg[:-2], "JPEG is truncated"),
        "half.png": (png[: len(png) // 2], "PNG is truncated"),
        "damaged.png": (bytes(damaged), "PNG cannot be decoded: "),
        "checksum.png": (bytes(checksum), "PNG cannot be decoded: IDAT: CRC error"),
    }


@pytest.mark.parametrize("name", broken_files())
def test_a_broken_file_is_the_same_error_each_time_and_at_once(daemon, tmp_path, name):
    data, reason = broken_files()[name]
    at = among_plain(tmp_path / "30", {name: data})[name]
    loader = read(daemon, tmp_path / "30", 1, transform=T.CenterCrop(256))
    told = []
    for _ in range(2):
        iterator, right = iter(loader), 0
        for index in range(16):
            begin = time.monotonic()
            try:
                right += int(next(iterator).index[0]) == index
            except loaderd.BadSampleError as error:
                assert index == at
                told.append(str(error))
            assert time.monotonic() - begin < 5
        assert right == 15
    assert len(told) == 2 and told[0] == told[1]
    assert str(tmp_path / "30" / "only" / name) in told[0] and reason in told[0]


def test_jpegs_without_their_end_marker_are_taken_where_pillow_takes_them(daemon, tmp_path):
    """Which is hardly ever: the last bits are not read without bytes behind them."""
    rng = np.random.default_rng(3)
    (tmp_path / "ends" / "only").mkdir(parents=True)
    taken = set()
    for number in range(300):
        noise = Image.fromarray(rng.integers(0, 256, (*rng.integers(1, 80, 2), 3), np.uint8))
        quality, sampling, scans = int(rng.integers(20, 99)), int(rng.integers(0, 3)), bool(rng.integers(0, 2))
        data = encoded(noise, quality=quality, subsampling=sampling, progressive=scans)[:-2]
        (tmp_path / "ends" / "only" / f"{number:03d}.jpg").write_bytes(data)
        with contextlib.suppress(OSError), Image.open(io.BytesIO(data)) as image:
            image.load()
            taken.add(number)
    (batch,) = read(daemon, tmp_path / "ends", 300, transform=T.CenterCrop(80), on_bad_sample="skip")
    print(f"JPEGs without an end marker: {len(taken)} of 300 taken, as by Pillow")
    assert set(batch.index.tolist()) == taken
    assert all("JPEG is truncated" in bad.reason for bad in batch.bad)


def test_a_picture_that_takes_longer_than_the_limit_is_ended_by_it(tmp_path):
    """A progressive JPEG of 450 scans: within the limit on scans, each a pass over all of it."""
    among_plain(tmp_path / "slow", {"slow.jpg": hostile.endless_scans(3000, 450)})
    with daemon_support.Daemon(config="limits { max_decode_ms: 60 }") as daemon:
        begin = time.monotonic()
        (batch,) = read(daemon, tmp_path / "slow", transform=T.CenterCrop(32), on_bad_sample="skip")
        seconds = time.monotonic() - begin
        assert len(batch.index) == 15 and seconds < 10
        (bad,) = batch.bad
        assert (
            "slow/only/slow.jpg: JPEG is not decoded after 60 ms, the limit of limits.max_decode_ms; raise it"
            in bad.reason
        )
        daemon.wait_log("slow.jpg: JPEG is not decoded after 60 ms")
    with daemon_support.Daemon() as daemon:
        begin = time.monotonic()
        (batch,) = read(daemon, tmp_path / "slow", transform=T.CenterCrop(32))
        print(f"450 scans: ended after {seconds:.2f} s by the limit of 60 ms, {time.monotonic() - begin:.2f} s without")
        assert len(batch.index) == 16


LONG = "{:0146d}.jpg"


@pytest.fixture(scope="module")
def many_bad(tmp_path_factory):
    """50,000 samples that are no images, of names of 150 characters."""
    root = tmp_path_factory.mktemp("many")
    for kind in range(50):
        folder = root / f"{kind:02d}"
        folder.mkdir()
        first = folder / LONG.format(0)
        first.write_bytes(b"no image")
        for number in range(1, 1000):
            (folder / LONG.format(number)).hardlink_to(first)
    return root


@pytest.mark.parametrize("batch_size", [4096, 50_000])
def test_the_paths_of_a_batch_of_bad_samples_arrive(daemon, many_bad, batch_size):
    (batch, *_) = read(daemon, many_bad, batch_size, transform=T.CenterCrop(1), on_bad_sample="skip")
    assert len(batch.index) == 0 and len(batch.bad) == batch_size
    for sample in itertools.islice(batch.bad, 0, None, 97):
        path = many_bad / f"{sample.index // 1000:02d}" / LONG.format(sample.index % 1000)
        assert sample.reason.startswith(f"{path}: no image that can be read")


def test_status_with_500_sessions_arrives(many_bad, tmp_path):
    folder = tmp_path / "one"
    among_plain(folder, {})
    with daemon_support.Daemon() as daemon:
        control = Control(daemon.socket)
        loaders = [read(daemon, folder, 1, transform=T.CenterCrop(8)) for _ in range(500)]
        iterators = [iter(loader) for loader in loaders]
        first = [next(iterator) for iterator in iterators]
        assert all(untag(batch.images[0, 4, 4]) == 0 for batch in first)
        assert len(control.sessions()) == 500
        assert int(control("status")["sessions"]) == 500
        assert sum(int(group["open"]) for group in control("fds")["fds"]) >= 1000
        del first, iterators, loaders
        wait_until(lambda: int(control("status")["sessions"]) == 0, 20)


# ---- a set that changes


def tree(root, count, classes=4):
    for number in range(count):
        path = pathlib.Path(root) / f"c{number % classes}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(tagged(number, (64, 64))))


CROP = T.CenterCrop(32)
SECOND_CLIENT = """
import json, sys
import loaderd, loaderd.transforms as T
folder = loaderd.ImageFolder(sys.argv[1])
count = 0
for batch in loaderd.DataLoader(folder, 16, transform=T.CenterCrop(32), socket=sys.argv[2]):
    count += len(batch.index)
print(json.dumps([len(folder), folder.classes, count]))
"""


def test_a_stream_keeps_its_snapshot_over_epochs_and_takes_what_was_restored(daemon, tmp_path):
    root, saved = tmp_path / "44", tmp_path / "44-saved"
    tree(root, 400)
    shutil.copytree(root, saved)
    files = files_of(root)
    loader = read(daemon, root, transform=CROP, on_bad_sample="skip", prefetch_factor=1)
    right = {index: 4 * (index % 100) + index // 100 for index in range(400)}

    def check(batches, bad_ones):
        assert len(batches) == 25
        seen = {
            int(index): (untag(image[10, 10]), int(label))
            for batch in batches
            for index, image, label in zip(batch.index, batch.images, batch.labels, strict=True)
        }
        bad = {sample.index: sample.reason for batch in batches for sample in batch.bad}
        assert set(seen) | set(bad) == set(range(400)) and set(bad) == set(bad_ones)
        assert all("vanished since indexing" in reason for reason in bad.values())
        assert all(tag == right[index] and label == index // 100 for index, (tag, label) in seen.items())

    iterator = iter(loader)
    batches = [next(iterator)]
    for path in files[200:210]:
        path.unlink()
    for number in range(400, 410):
        (root / "c0" / f"{number:06d}.jpg").write_bytes(encoded(tagged(number)))
    shutil.rmtree(root / "c3")
    length, classes, count = run_python(SECOND_CLIENT, root, daemon.socket)  # in the middle
    assert (length, classes, count) == (300, ["c0", "c1", "c2"], 300)
    gone = [*range(200, 210), *range(300, 400)]
    check([*batches, *iterator], gone)  # epoch 0
    check(list(loader), gone)  # epoch 1
    shutil.copytree(saved, root, dirs_exist_ok=True)
    check(list(loader), [])  # epoch 2
    assert run_python(SECOND_CLIENT, root, daemon.socket) == [410, ["c0", "c1", "c2", "c3"], 410]


@pytest.mark.parametrize("nanoseconds", [1, 0])
def test_a_changed_set_of_the_same_count_and_time_is_indexed_anew(daemon, tmp_path, nanoseconds):
    root = tmp_path / "44"
    tree(root, 16, 1)
    folder = root / "c0"
    long_ago = 1_600_000_000 * 10**9
    os.utime(folder, ns=(long_ago, long_ago))
    os.utime(root, ns=(long_ago, long_ago))

    def tags():
        (batch,) = read(daemon, root, transform=CROP)
        return [untag(image[10, 10]) for image in batch.images]

    assert tags() == list(range(16))
    time.sleep(2.1)  # what changed within two seconds is looked at again anyway
    assert tags() == list(range(16))
    (folder / "000003.jpg").unlink()
    (folder / "000099.jpg").write_bytes(encoded(tagged(99, (64, 64))))
    os.utime(folder, ns=(long_ago, long_ago + nanoseconds))
    assert tags() == [0, 1, 2, *range(4, 16), 99]
