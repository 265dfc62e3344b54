# SPDX-License-Identifier: Apache-2.0
"""Folders as people have them, through the real daemon and client: leftovers, odd names, links, changes, and storage that
fails (which needs root, /dev/fuse and python3-fusepy)."""

import contextlib
import io
import os
import shutil
import subprocess
import time

import numpy as np
import pytest
from conftest import SUPPORT, Control, files_of, wait_until
from PIL import Image

import daemon as daemon_support
import loaderd
import loaderd.transforms as T

CROP = T.Compose([T.CenterCrop(32)])


def tagged(number):
    """JPEG bytes of one flat colour that says which it is, 0 to 4095."""
    colour = ((number >> 8) * 16 + 8, ((number >> 4) & 15) * 16 + 8, (number & 15) * 16 + 8)
    out = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(out, "JPEG", quality=95, subsampling=0)
    return out.getvalue()


def untag(pixel):
    return (int(pixel[0]) // 16) << 8 | (int(pixel[1]) // 16) << 4 | int(pixel[2]) // 16


def put(path, data):
    path = os.fsencode(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def tree(root, count, classes=4):
    for number in range(count):
        put(f"{root}/c{number % classes}/{number:06d}.jpg", tagged(number))


def loader(daemon, folder, batch_size=16, **arguments):
    dataset = folder if isinstance(folder, loaderd.ImageFolder) else loaderd.ImageFolder(folder)
    return loaderd.DataLoader(dataset, batch_size, transform=CROP, socket=daemon.socket, **arguments)


def tags(batches):
    return [untag(image[10, 10]) for batch in batches for image in batch[0]]


def notes(described):
    return {note.kind + (", taken" if note.taken else ""): note.count for note in described.notes}


@pytest.fixture
def leftovers(tmp_path):
    root = tmp_path / "38"
    tree(root, 40, 2)
    twin = bytes.fromhex("0005160700020000") + b"Mac OS X        " + bytes(4072)
    for kind in ("c0", "c1"):
        put(root / kind / ".DS_Store", b"\0\0\0\1Bud1")
        put(root / kind / "._000000.jpg", twin)
        put(root / kind / "Thumbs.db", b"x")
    put(root / ".DS_Store", b"\0\0\0\1Bud1")
    put(root / "README.txt", b"hello")
    put(root / ".ipynb_checkpoints/000000-checkpoint.jpg", tagged(0))
    put(root / "c0/.ipynb_checkpoints/000002-checkpoint.jpg", tagged(2))
    put(root / "__MACOSX/c0/._000000.jpg", twin)
    put(root / "c1/holiday.jpg/inner.txt", b"x")
    put(root / "c0/nested/deep.jpg", tagged(99))
    put(root / "c0/upload.jpg.part", b"x")
    return root


def test_hidden_skip_leaves_leftovers_out_and_counts_them(leftovers, daemon):
    dataset = loaderd.ImageFolder(leftovers, hidden="skip")
    batches = list(loader(daemon, dataset))
    assert dataset.classes == ["c0", "c1"]
    assert tags(batches) == [*range(0, 40, 2), 99, *range(1, 40, 2)]  # 41: nested folders belong to their class
    assert [label for batch in batches for label in batch.labels] == [0] * 21 + [1] * 20
    described = dataset.describe()
    assert notes(described) == {
        "hidden entries": 8,
        "files beside the class folders": 1,
        "files without an image's extension": 4,
    }
    daemon.wait_log("8 hidden entries left out (.DS_Store, .ipynb_checkpoints, __MACOSX, ")


def test_hidden_entries_are_taken_as_torchvision_does_unless_told_otherwise(leftovers, daemon):
    described = loaderd.ImageFolder(leftovers).describe(daemon.socket)
    assert described.class_names == (".ipynb_checkpoints", "__MACOSX", "c0", "c1")
    assert described.num_samples == 1 + 1 + 23 + 21
    daemon.wait_log("hidden entries taken as torchvision does")


def test_extensions_of_any_case_are_read_and_the_rest_is_named(daemon, tmp_path):
    for number, ending in enumerate(("jpg", "JPG", "jpeg", "JPEG", "Jpg", "jpe", "JFIF")):
        put(tmp_path / f"39/c0/{number}.{ending}", tagged(number))
    for name, number in (("9", 9), ("10.jpg_large", 10), ("11.tar.jpg", 11)):
        put(tmp_path / "39/c0" / name, tagged(number))
    dataset = loaderd.ImageFolder(tmp_path / "39")
    assert sorted(tags(loader(daemon, dataset))) == [0, 1, 2, 3, 4, 11]
    (note,) = dataset.describe().notes
    assert note.count == 4 and note.first == ("c0/10.jpg_large", "c0/5.jpe", "c0/6.JFIF", "c0/9") and not note.taken

    put(tmp_path / "none/c0/a.jfif", tagged(1))
    with pytest.raises(loaderd.InvalidArgumentError, match=r"\.jpg, \.jpeg, \.png.*c0/a\.jfif"):
        loaderd.ImageFolder(tmp_path / "none").describe(daemon.socket)


def test_links_have_the_class_of_their_place(daemon, tmp_path):
    root, pool = tmp_path / "40", tmp_path / "40x"
    tree(root, 8, 2)
    put(pool / "pool/5000.jpg", tagged(500))
    put(pool / "more/6.jpg", tagged(600))
    for target, name in (
        (pool / "pool/5000.jpg", "c0/link.jpg"),
        (pool / "more", "c2"),
        ("/nonexistent/a.jpg", "c0/dangling.jpg"),
        (".", "c1/loop"),
        ("self.jpg", "c1/self.jpg"),
        ("../c0/000000.jpg", "c1/cross.jpg"),
    ):
        os.symlink(target, root / name)
    batches = list(loader(daemon, root, on_bad_sample="skip"))
    seen = {(tag, int(label)) for batch in batches for tag, label in zip(tags([batch]), batch.labels, strict=True)}
    assert seen >= {(500, 0), (0, 0), (0, 1), (600, 2)} and len(seen) == 11
    reasons = sorted(bad.reason for batch in batches for bad in batch.bad)
    assert len(reasons) == 2
    assert "dangling.jpg: is a dangling link, to /nonexistent/a.jpg" in reasons[0]
    assert "self.jpg: is a dangling link, to self.jpg" in reasons[1]
    daemon.wait_log("2 dangling links taken as torchvision does (c0/dangling.jpg, c1/self.jpg)")
    daemon.wait_log("1 links that lead back to a folder above them left out (c1/loop)")
    with pytest.raises(loaderd.BadSampleError, match="dangling link"):
        list(loader(daemon, root))


NAMES = [
    b"stra\xdfe",
    b"\xff\xfe",
    b"tab\there",
    b"line\nbreak",
    "caf\u00e9".encode(),
    "cafe\u0301".encode(),
    "\u732b\U0001f408".encode(),
    b" lead and trail ",
    b"quote\"'$(touch pwn)",
    b"x" * 251,
    b"%s%n",
    b"\\..\\up",
]


def test_names_of_any_bytes_are_read_in_byte_order(daemon, tmp_path):
    root = os.fsencode(tmp_path) + b"/41\xe9"
    for number, name in enumerate(NAMES):
        put(root + b"/klasse\xe4/" + name + b".jpg", tagged(number))
    dataset = loaderd.ImageFolder(root)
    assert tags(loader(daemon, dataset)) == sorted(range(len(NAMES)), key=lambda k: NAMES[k] + b".jpg")
    assert dataset.classes == [os.fsdecode(b"klasse\xe4")]
    again = loaderd.ImageFolder(dataset.path, class_to_idx={dataset.classes[0]: 7})
    assert {int(label) for batch in loader(daemon, again) for label in batch.labels} == {7}
    put(root + b"/klasse\xe4/line\nbreak.jpg", b"no image")
    with pytest.raises(loaderd.BadSampleError, match=r"41\\xe9/klasse\\xe4/line\\nbreak\.jpg"):
        list(loader(daemon, dataset))
    lines = [line for line in daemon.log().splitlines() if "break.jpg" in line]
    assert len(lines) == 1 and "line\\nbreak.jpg" in lines[0]


CLASSES = ("1", "2", "10", "B", "a", "\u00e9")


def test_classes_and_order_are_the_same_on_every_machine(tmp_path):
    roots = [tmp_path / name for name in ("one", "two")]
    if os.access("/dev/shm", os.W_OK):
        roots.append(tmp_path.__class__(f"/dev/shm/loaderd-test-{os.getpid()}"))  # another file system
    rng = np.random.default_rng(5)
    found = []
    try:
        for root, locale in zip(roots, ("C", "C.UTF-8", "de_DE.ISO-8859-1"), strict=False):
            names = [f"{kind}/{k:03d}.jpg" for kind in CLASSES for k in range(10)]
            for name in rng.permutation(names):
                put(root / name, tagged(CLASSES.index(name.split("/")[0]) * 10 + int(name[-7:-4])))
            with daemon_support.Daemon(env={"LC_ALL": locale}) as daemon:
                dataset = loaderd.ImageFolder(root)
                batches = list(loader(daemon, dataset, 10, shuffle=True, seed=3))
                found.append((dataset.classes, tags(batches), [list(batch.index) for batch in batches]))
    finally:
        shutil.rmtree(roots[-1], ignore_errors=True)
    assert found[0][0] == ["1", "10", "2", "B", "a", "\u00e9"]
    assert all(other == found[0] for other in found[1:])


def test_validation_takes_the_class_numbers_of_training(daemon, tmp_path):
    for part, classes in (("train", CLASSES), ("val", ("1", "10", "a"))):
        for kind in classes:
            put(tmp_path / part / kind / "0.jpg", tagged(1))
    train = loaderd.ImageFolder(tmp_path / "train")
    train.use_socket(daemon.socket)
    numbers = train.class_to_idx
    val = loaderd.ImageFolder(tmp_path / "val", class_to_idx=numbers)
    assert [int(label) for batch in loader(daemon, val) for label in batch.labels] == [0, 1, 4]
    assert val.class_to_idx == numbers and val.classes == train.classes
    (tmp_path / "val/new").mkdir()
    put(tmp_path / "val/new/0.jpg", tagged(1))
    with pytest.raises(loaderd.InvalidArgumentError, match='class_to_idx: has no number for the class "new"'):
        iter(loader(daemon, loaderd.ImageFolder(tmp_path / "val", class_to_idx=numbers)))
    (tmp_path / "train/empty").mkdir()
    with pytest.raises(loaderd.InvalidArgumentError, match="no valid file for the classes empty"):
        loaderd.ImageFolder(tmp_path / "train").describe(daemon.socket)


def test_200_000_names_are_described_in_bounded_time_and_once(daemon, tmp_path):
    count, classes = 200_000, 5_000
    for kind in range(classes):
        folder = tmp_path / "43" / f"{kind:05d}"
        folder.mkdir(parents=True)
        first = folder / f"{0:0146d}.jpg"
        first.write_bytes(b"no image")
        for k in range(1, count // classes):
            os.link(first, folder / f"{k:0146d}.jpg")
    begin = time.monotonic()
    described = loaderd.ImageFolder(tmp_path / "43").describe(daemon.socket)
    first_s = time.monotonic() - begin
    assert described.num_samples == count and len(described.class_names) == classes
    time.sleep(2.1)  # a folder that changed within two seconds is looked at again
    loaderd.ImageFolder(tmp_path / "43").describe(daemon.socket)
    begin = time.monotonic()
    loaderd.ImageFolder(tmp_path / "43").describe(daemon.socket)
    second_s = time.monotonic() - begin
    print(f"200,000 entries: first open {first_s:.2f} s, from the index {second_s:.2f} s")
    assert first_s < 60 and second_s < first_s + 5


def test_a_running_stream_keeps_its_index_while_the_folder_changes(daemon, tmp_path):
    root, away = tmp_path / "44", tmp_path / "44-away"
    tree(root, 400)
    files = files_of(root)
    batches = loader(daemon, root, on_bad_sample="skip", prefetch_factor=1)
    iterator = iter(batches)
    got = [next(iterator)]
    for path in files[200:210]:
        path.unlink()
    for number in range(400, 410):
        put(root / f"c0/{number:06d}.jpg", tagged(number))
    for path in files[220:225]:
        put(f"{path}.new", tagged(4000))
        os.replace(f"{path}.new", path)
    for path in files[230:235]:
        path.write_bytes(path.read_bytes()[:200])
    shutil.rmtree(root / "c3")
    os.rename(root, away)
    os.rename(away, root)
    got += iterator
    assert len(got) == 25 and sum(len(batch.index) + len(batch.bad) for batch in got) == 400
    bad = {sample.index: sample.reason for batch in got for sample in batch.bad}
    assert set(bad) == {*range(200, 210), *range(230, 235), *range(300, 400)}
    assert all("vanished since indexing" in bad[index] for index in (200, 209, 300, 399))
    assert all(
        tag in (4000, 4 * (int(index) % 100) + int(index) // 100)
        for batch in got
        for tag, index in zip(tags([batch]), batch.index, strict=True)
    )
    second = loaderd.ImageFolder(root).describe(daemon.socket)
    assert second.num_samples == 300 and second.class_names == ("c0", "c1", "c2")
    assert len(loader(daemon, root)) == -(-300 // 16)


# ---- storage that fails


@contextlib.contextmanager
def failing_storage(tmp_path, count):
    """A folder of tagged images behind a file system that fails by rule; yields its mount and the setter of rules."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("mounting needs root and /dev/fuse")
    if subprocess.run(["/usr/bin/python3", "-c", "import fusepy"], capture_output=True).returncode:
        pytest.skip("python3-fusepy is not installed")
    source, mount = tmp_path / "source", tmp_path / "mount"
    tree(source, count)
    mount.mkdir()
    process = subprocess.Popen(["/usr/bin/python3", str(SUPPORT / "badfs.py"), str(source), str(mount)])
    try:
        wait_until(lambda: os.path.ismount(mount) or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip(f"badfs.py left with {process.returncode}: this machine mounts no FUSE file system")

        def rules(text):
            (source / ".rules.new").write_text(text)
            os.replace(source / ".rules.new", source / ".rules")

        yield mount, rules
    finally:
        subprocess.run(["umount", "-l", str(mount)], capture_output=True)
        process.terminate()
        process.wait()


@pytest.mark.parametrize("policy", ["fail", "skip", "substitute"])
def test_storage_errors_that_pass_are_not_seen_and_those_that_stay_cost_little(tmp_path, policy):
    with failing_storage(tmp_path, 200) as (mount, rules), daemon_support.Daemon() as daemon:
        rules("000007.jpg EIO 1\n000019.jpg ESTALE 2\n000023.jpg EIO 999999\n000031.jpg EAGAIN 1\n")
        batches = loader(daemon, mount, 1, on_bad_sample=policy)
        seconds = []
        for epoch in range(3):
            begin = time.monotonic()
            iterator, got, errors = iter(batches), [], []
            while True:
                try:
                    got.append(next(iterator))
                except StopIteration:
                    break
                except loaderd.BadSampleError as error:
                    errors.append(str(error))
            seconds.append(time.monotonic() - begin)
            reasons = errors or [bad.reason for batch in got for bad in batch.bad]
            assert len(reasons) == 1, (epoch, reasons)
            assert "000023.jpg: Input/output error (EIO)" in reasons[0]
            seen = tags(got)
            assert 23 not in seen and {7, 19, 31} <= set(seen)
            assert len(seen) == {"fail": 199, "skip": 199, "substitute": 200}[policy]
        print(f"{policy}: epochs of {', '.join(f'{one:.2f} s' for one in seconds)}; the pauses of the first are 1.3 s")
        (state,) = Control(daemon.socket)("datasets")["datasets"]
        # What stays is tried again in the first epoch only.
        assert int(state["storage_retries"]) == 3 + 4 and int(state["storage_failures"]) == 3


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_storage_that_is_gone_is_an_error_and_not_a_heap_of_skipped_samples(tmp_path, policy):
    with failing_storage(tmp_path, 400) as (mount, rules), daemon_support.Daemon() as daemon:
        batches = loader(daemon, mount, on_bad_sample=policy)
        assert len(batches) == 25
        rules(".jpg EIO 999999\n")
        skipped = 0
        with pytest.raises(loaderd.StorageError, match=r"\(EIO\).*the storage is gone") as caught:
            for batch in batches:
                skipped += len(batch.bad)
        assert isinstance(caught.value, OSError) and skipped <= 100 + 16
        rules("")
        assert sorted(tags(batches)) == list(range(400))
