# SPDX-License-Identifier: Apache-2.0
"""Bad folders, bad files, bad jobs, no daemon: what the trainer is told."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
from conftest import CLIENT, LIBRARY, end_user_daemon, files_of

import loaderd
import loaderd.transforms as T
from loaderd import _lib

CROP = T.CenterCrop(16)
NOBODY = 65534


def read(folder, daemon, batch_size=4, **arguments):
    arguments.setdefault("transform", CROP)
    return loaderd.DataLoader(loaderd.ImageFolder(folder), batch_size, socket=daemon.socket, **arguments)


@pytest.fixture
def copy(photos, tmp_path):
    """A copy of the photos that a test may spoil."""
    folder = tmp_path / "copy"
    shutil.copytree(photos, folder)
    return folder


# ---- folders


def test_a_missing_folder_is_named(daemon, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        iter(read(tmp_path / "nowhere", daemon))
    with pytest.raises(loaderd.NotFoundError, match="nowhere"):
        loaderd.ImageFolder(tmp_path / "nowhere").describe(daemon.socket)


def test_an_empty_folder_is_refused(daemon, tmp_path):
    with pytest.raises(loaderd.Error, match=str(tmp_path)):
        iter(read(tmp_path, daemon))


def test_a_file_in_place_of_a_folder_is_refused(daemon, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(loaderd.Error, match="file"):
        iter(read(tmp_path / "file", daemon))


def test_an_empty_class_is_refused_by_name(daemon, copy):
    (copy / "class_01b").mkdir()
    with pytest.raises(loaderd.Error, match="class_01b"):
        iter(read(copy, daemon))


def test_an_unreadable_folder_is_permission_denied(copy, tmp_path):
    """The daemon runs as another user, for whom the folder is closed."""
    if os.geteuid() != 0:
        copy.chmod(0)
        prefix = ()
    else:
        copy.chmod(0o700)
        prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    result = run_as(prefix, tmp_path, copy)
    assert "PermissionDeniedError" in result.stdout and str(copy) in result.stdout, result


def run_as(prefix, tmp_path, folder):
    """A trainer with a user daemon of its own, perhaps as another user; prints its error."""
    home = tmp_path / "other"
    home.mkdir()
    for parent in [home, *home.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o711)
    if prefix:
        os.chown(home, NOBODY, NOBODY)
    code = (
        "import sys, loaderd, loaderd.transforms as T\n"
        "try:\n"
        "    list(loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, transform=T.CenterCrop(8)))\n"
        "    print('read')\n"
        "except loaderd.Error as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    places = {"XDG_RUNTIME_DIR": str(home), "HOME": str(home), "LOADERD_SYSTEM_SOCKET": str(home / "none.sock")}
    result = subprocess.run(
        [*prefix, sys.executable, "-c", code, str(folder)],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=60,
    )
    end_user_daemon(home)
    return result


# ---- files


BAD = 50  # the index that is made bad: so late that nothing ahead of an epoch has read it
BAD_STEP = 12  # of its batch, of 4


def spoil(folder, how):
    """Makes one sample bad; its file's name."""
    path = files_of(folder)[BAD]
    if how == "no image":
        path.write_bytes(b"this is text, not an image\n" * 100)
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "deleted":
        path.unlink()
    elif how == "huge":
        data = bytearray(path.read_bytes())
        at = next(k for k in range(2, len(data)) if data[k] == 0xFF and data[k + 1] in (0xC0, 0xC1, 0xC2))
        data[at + 5 : at + 9] = (65500).to_bytes(2, "big") * 2
        path.write_bytes(bytes(data))
    return path.name


FAULTS = ["no image", "truncated", "empty", "deleted", "huge"]


@pytest.mark.parametrize("how", FAULTS)
def test_fail_names_the_file_and_the_next_call_delivers_the_following_batch(copy, daemon, how):
    batches = read(copy, daemon)
    list(batches)  # indexed while the file is whole
    name = spoil(copy, how)
    iterator, steps, errors = iter(batches), [], []
    while True:
        try:
            steps.append(next(iterator).step)
        except loaderd.BadSampleError as error:
            errors.append(str(error))
        except StopIteration:
            break
    assert steps == [step for step in range(15) if step != BAD_STEP]
    assert len(errors) == 1 and name in errors[0]


@pytest.mark.parametrize("how", FAULTS)
def test_skip_leaves_the_sample_out_and_tells_of_it(copy, daemon, how):
    batches = read(copy, daemon, on_bad_sample="skip")
    list(batches)
    name = spoil(copy, how)
    got = list(batches)
    short = got[BAD_STEP]
    assert len(got) == 15
    assert short.index.tolist() == [48, 49, 51] and short.images.shape == (3, 16, 16, 3) and len(short.labels) == 3
    assert [(bad.index, bad.substitute) for bad in short.bad] == [(BAD, None)] and name in short.bad[0].reason
    assert all(not batch.bad and len(batch.index) == 4 for batch in got if batch is not short)


@pytest.mark.parametrize("how", FAULTS)
def test_substitute_puts_another_sample_in_its_place(copy, daemon, how):
    batches = read(copy, daemon, on_bad_sample="substitute")
    whole = {}
    for batch in batches:
        for index, pixels, label in zip(batch.index.tolist(), batch.images.copy(), batch.labels.tolist(), strict=True):
            whole[index] = (pixels, label)
    name = spoil(copy, how)
    stand_ins = []
    for _ in range(2):
        got = list(batches)
        assert [len(batch.index) for batch in got] == [4] * 15
        (bad,) = got[BAD_STEP].bad
        assert bad.index == BAD and name in bad.reason
        pixels, label = whole[bad.substitute]
        assert np.array_equal(got[BAD_STEP].images[2], pixels) and got[BAD_STEP].labels[2] == label
        stand_ins.append(bad.substitute)
    assert stand_ins[0] == stand_ins[1] != BAD


def test_a_batch_of_which_nothing_is_left_comes_empty(copy, daemon):
    batches = read(copy, daemon, batch_size=1, on_bad_sample="skip")
    list(batches)
    spoil(copy, "empty")
    got = list(batches)
    assert len(got) == 60 and got[BAD].images.shape == (0, 16, 16, 3) and len(got[BAD].bad) == 1


def test_bad_samples_are_counted(copy, daemon, control):
    spoil(copy, "truncated")
    batches = read(copy, daemon, on_bad_sample="skip")
    list(batches)
    assert control.session()["bad_samples"] >= 1


# ---- jobs


def job(folder, **changes):
    return {
        "dataset": {"image_folder": {"path": str(folder)}},
        "transform": [{"center_crop": {"size": [8]}}],
        "batch_size": 2,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"colour": 1}, "colour"),
        ({"transform": [{"center_crop": {"size": [8], "place": 1}}]}, "place"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 10_000_000}, "batch_size"),
        ({"batch_size": "many"}, "batch_size"),
        ({"prefetch_factor": 5000}, "prefetch_factor"),
        ({"transform": [{"center_crop": {"size": [0]}}]}, r"transform\[0\].center_crop.size"),
        (
            {
                "transform": [
                    {"center_crop": {"size": [8]}},
                    {"to_tensor": {}},
                    {"normalize": {"mean": ["NaN"], "std": [1]}},
                ]
            },
            r"transform\[2\].normalize.mean",
        ),
        (
            {
                "transform": [
                    {"center_crop": {"size": [8]}},
                    {"to_tensor": {}},
                    {"normalize": {"mean": [0], "std": [0]}},
                ]
            },
            r"transform\[2\].normalize.std",
        ),
        (
            {"transform": [{"center_crop": {"size": [8]}}, {"normalize": {"mean": [0], "std": [1]}}]},
            r"transform\[1\].normalize",
        ),
        ({"transform": [{"sharpen": {}}]}, "sharpen"),
        ({"transform": [{"resize": {"size": [8]}}]}, "transform"),
        ({"order": {"rank": 2, "world_size": 2}}, "order.rank"),
        ({"order": {"kind": "ORDER_KIND_WILD"}}, "ORDER_KIND_WILD|order.kind"),
        ({"dataset": {}}, "dataset"),
        ({"dataset": {"image_folder": {"path": "relative"}}}, "path"),
        ({"dataset": {"image_folder": {"path": "/" + "x" * 5000}}}, "path"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_fields_path(photos, daemon, changes, path):
    from loaderd._session import Session

    with pytest.raises(loaderd.InvalidArgumentError, match=path) as caught:
        Session(job(photos, **changes), daemon.socket)
    assert caught.value.code == 3


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"x"', b"{" * 10_000])
def test_text_that_is_no_job_is_refused(daemon, text):
    lib = _lib.library()
    options = _lib.OpenOptions(
        struct_size=ctypes.sizeof(_lib.OpenOptions), socket=daemon.socket.encode(), timeout_ms=5000
    )
    session = ctypes.c_void_p()
    assert lib.loaderd_open(text, ctypes.byref(options), ctypes.byref(session)) == 3
    assert _lib.error_text(lib)
    assert not session.value


def test_what_the_python_side_leaves_to_the_daemon_comes_back_with_its_path(photos, daemon):
    with pytest.raises(loaderd.InvalidArgumentError, match="batch_size"):
        iter(read(photos, daemon, batch_size=10_000_000))
    with pytest.raises(ValueError, match=r"transform\[0\].center_crop.size"):
        iter(read(photos, daemon, transform=T.CenterCrop(0)))
    with pytest.raises(ValueError, match=r"transform\[1\].random_horizontal_flip.p"):
        iter(read(photos, daemon, transform=T.Compose([CROP, T.RandomHorizontalFlip(1.5)])))


def test_a_batch_that_memory_cannot_hold_is_refused_with_the_numbers(photos, daemon):
    huge = T.Compose([T.Resize((20_000, 20_000))])
    with pytest.raises(loaderd.Error, match=r"\d{6}"):
        iter(read(photos, daemon, batch_size=65536, transform=huge))


# ---- the daemon


def test_no_daemon_on_a_named_socket_says_which_and_what_to_do(photos, tmp_path):
    path = str(tmp_path / "none.sock")
    with pytest.raises(ConnectionError, match=f"{path}.*start the daemon"):
        iter(loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=CROP, socket=path))


def test_the_socket_of_a_dead_daemon_says_so(photos, tmp_path):
    path = str(tmp_path / "dead.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    with pytest.raises(loaderd.UnavailableError, match=path):
        iter(loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=CROP, socket=path))


def test_a_socket_path_over_107_bytes_is_refused_with_the_limit(photos):
    path = "/tmp/" + "x" * 120
    with pytest.raises(loaderd.InvalidArgumentError, match="107"):
        iter(loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=CROP, socket=path))


def test_no_executable_to_start_says_what_to_set(photos, monkeypatch):
    monkeypatch.setenv("LOADERD_DAEMON", "/nowhere/loaderd")
    with pytest.raises(loaderd.Error, match="/nowhere/loaderd"):
        iter(loaderd.DataLoader(loaderd.ImageFolder(photos), 4, transform=CROP))


def test_no_right_to_the_socket_says_so(photos, daemon):
    if os.geteuid() != 0:
        pytest.skip("needs root to become a second user")
    daemon.folder.chmod(0o711)
    code = (
        "import sys, loaderd, loaderd.transforms as T\n"
        "try:\n"
        "    iter(loaderd.DataLoader(loaderd.ImageFolder('/'), 4, transform=T.CenterCrop(8), socket=sys.argv[1]))\n"
        "except PermissionError as error:\n"
        "    print(error)\n"
    )
    second_user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    result = subprocess.run(
        [*second_user, sys.executable, "-c", code, daemon.socket],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(CLIENT), "LOADERD_LIBRARY": str(LIBRARY), "PATH": os.environ["PATH"]},
    )
    assert daemon.socket in result.stdout, result


def test_a_daemon_that_dies_is_an_error_that_says_so_and_the_loader_can_go_on_with_the_next(photos, daemon):
    batches = read(photos, daemon, batch_size=1, reconnect=0)
    iterator = iter(batches)
    next(iterator)
    daemon.kill()
    with pytest.raises(loaderd.UnavailableError):
        list(iterator)
    daemon.start()
    assert sum(len(batch.index) for batch in batches) == 60


def test_a_reused_session_whose_daemon_has_gone_is_replaced(photos, daemon):
    batches = read(photos, daemon)
    list(batches)
    daemon.kill()
    daemon.start()
    assert sum(len(batch.index) for batch in batches) == 60


def test_names_of_any_bytes_are_read(photos, daemon, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    shutil.copytree(os.fsencode(photos), folder)
    os.rename(folder + b"/class_01", folder + b"/class_\xff")
    dataset = loaderd.ImageFolder(folder)
    batches = loaderd.DataLoader(dataset, 4, transform=CROP, socket=daemon.socket)
    assert sum(len(batch.index) for batch in batches) == 60
    assert json.dumps(dataset.to_json())
