# SPDX-License-Identifier: Apache-2.0
"""What files that are made to hurt cost the daemon: its memory's high-water mark, the time, and the samples beside them."""

import io
import pathlib
import time

import hostile
import numpy as np
import pytest
from conftest import wait_until
from PIL import Image

import daemon as daemon_support
import loaderd
import loaderd.transforms as T

MOST_RISE_KB = 50_000
MOST_SECONDS = 3.0  # with a machine that does other things; a refusal takes milliseconds
GOOD = [(number * 16 + 8, 200 - number * 8, 40) for number in range(15)]


def memory_kb(daemon, field):
    for line in pathlib.Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {field} in the process's status")


def reset_peak(daemon):
    """Lets VmHWM begin anew at what is resident now, which it returns."""
    pathlib.Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")
    return memory_kb(daemon, "VmHWM")


@pytest.fixture
def beside(tmp_path):
    """Makes folders: 15 plain pictures, and behind them one file."""
    pictures = []
    for colour in GOOD:
        out = io.BytesIO()
        Image.new("RGB", (64, 64), colour).save(out, "JPEG", quality=95, subsampling=0)
        pictures.append(out.getvalue())

    def make(name, data):
        folder = tmp_path / name / "only"
        folder.mkdir(parents=True)
        for number, picture in enumerate(pictures):
            (folder / f"{number:02d}.jpg").write_bytes(picture)
        (folder / "worst.jpg").write_bytes(data)
        return folder.parent

    return make


def first_batch(daemon, folder, transform, **arguments):
    (batch,) = loaderd.DataLoader(
        loaderd.ImageFolder(folder), 16, transform=transform, socket=daemon.socket, **arguments
    )
    return batch


def test_hostile_files_are_refused_and_cost_little(daemon, beside):
    crop = T.CenterCrop(32)
    first_batch(daemon, beside("before", hostile.saved("PNG", (64, 64))), crop)  # threads and their memory are there
    begin = reset_peak(daemon)
    rows, wrong = [], []
    for number, (kind, data) in enumerate(hostile.refused().items()):
        folder = beside(str(number), data)
        wait_until(lambda: memory_kb(daemon, "VmRSS") < begin + MOST_RISE_KB)  # the next epoch was begun, and ends
        resident = reset_peak(daemon)
        started = time.monotonic()
        batch = first_batch(daemon, folder, crop, on_bad_sample="skip")
        seconds = time.monotonic() - started
        rise = memory_kb(daemon, "VmHWM") - resident
        reasons = [bad.reason for bad in batch.bad]
        rows.append((kind, len(data), rise, seconds, reasons[0].split(": ", 1)[-1] if reasons else "taken"))
        if len(reasons) != 1 or "worst.jpg" not in reasons[0]:
            wrong.append((kind, reasons))
        elif batch.index.tolist() != list(range(15)):
            wrong.append((kind, batch.index.tolist()))
        elif np.abs(batch.images[:, 16, 16].astype(int) - np.array(GOOD)).max() > 3:
            wrong.append((kind, "the others' pixels"))
        elif rise > MOST_RISE_KB or seconds > MOST_SECONDS:
            wrong.append((kind, f"{rise} kB, {seconds:.2f} s"))
    print(f"\n{'kind':<44} {'bytes':>8} {'rise kB':>8} {'seconds':>8}  outcome")
    for kind, size, rise, seconds, outcome in rows:
        print(f"{kind:<44} {size:>8} {rise:>8} {seconds:>8.3f}  {outcome[:120]}")
    assert wrong == []


def test_what_stands_beside_a_picture_is_not_carried(beside):
    before = beside("before", hostile.saved("PNG", (64, 64)))
    print()
    for number, (kind, data) in enumerate(hostile.beside_the_picture().items()):
        folder = beside(str(number), data)
        with daemon_support.Daemon() as daemon:
            first_batch(daemon, before, T.CenterCrop(64), on_bad_sample="skip")
            resident = reset_peak(daemon)
            started = time.monotonic()
            batch = first_batch(daemon, folder, T.CenterCrop(64), on_bad_sample="skip")
            seconds, rise = time.monotonic() - started, memory_kb(daemon, "VmHWM") - resident
            print(
                f"{kind:<44} {len(data):>8} {rise:>8} {seconds:>8.3f}  {batch.bad[0].reason if batch.bad else 'read'}"
            )
            assert not batch.bad and (batch.images[15] == (90, 90, 160)).all(), kind
            assert rise < MOST_RISE_KB and seconds < MOST_SECONDS, kind


def test_false_claims_that_pillow_takes_cost_their_pixels_and_not_more(beside):
    """Damaged data is tolerated where Pillow does so, grey; limits.max_pixels is then what bounds the memory."""
    edge, pixels = (64, 64), hostile.TAKEN[0] * hostile.TAKEN[1]
    before = beside("before", hostile.saved("PNG", (64, 64)))
    print()
    for number, (kind, (data, cost)) in enumerate(hostile.taken().items()):
        folder = beside(str(number), data)
        with daemon_support.Daemon(config="fleet { threads: 1 }") as daemon:
            first_batch(daemon, before, T.Resize(edge))
            resident = reset_peak(daemon)
            got = first_batch(daemon, folder, T.Resize(edge)).images[15].copy()
            rise = memory_kb(daemon, "VmHWM") - resident
        print(f"{kind:<44} {len(data):>8} {rise:>8} kB of {cost * pixels // 1000} that {pixels} pixels may cost")
        with Image.open(io.BytesIO(data)) as image:
            wanted = np.asarray(image.convert("RGB").resize(edge, Image.Resampling.BILINEAR))
        assert np.array_equal(got, wanted), kind
        assert rise <= cost * pixels // 1000 + 15_000, kind


def test_an_honest_large_picture_loads_where_the_limit_allows_it(beside):
    out = io.BytesIO()
    Image.effect_noise((9000, 9000), 30).convert("RGB").save(out, "JPEG", quality=50)
    folder = beside("honest", out.getvalue())
    with daemon_support.Daemon() as daemon:
        begin = reset_peak(daemon)
        batch = first_batch(daemon, folder, T.Resize((64, 64)))
        print(f"\n81 megapixels, {len(out.getvalue())} bytes: {memory_kb(daemon, 'VmHWM') - begin} kB")
        with Image.open(out) as image:
            assert np.array_equal(batch.images[15], np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR)))
    with daemon_support.Daemon(config="limits { max_pixels: 80000000 }") as daemon:
        begin = reset_peak(daemon)
        with pytest.raises(
            loaderd.BadSampleError, match="worst.jpg: JPEG claims 9000 x 9000 pixels; the limit is 80000000"
        ):
            first_batch(daemon, folder, T.Resize((64, 64)))
        assert memory_kb(daemon, "VmHWM") - begin < MOST_RISE_KB


def test_a_claim_that_no_memory_has_room_for_is_an_error_and_not_the_end(beside):
    """With a limit on pixels that limits nothing, in 6 GB of address space."""
    folder = beside("endless", b"P6 65535 65535 255\n" + bytes(40))
    config = "limits { max_pixels: 4294836225 slot_bytes: 100000000 }"
    with daemon_support.Daemon(config=config, prefix=("prlimit", "--as=6000000000")) as daemon:
        batch = first_batch(daemon, folder, T.CenterCrop(8), on_bad_sample="skip")
        assert len(batch.index) == 15 and "worst.jpg: no memory to decode" in batch.bad[0].reason
