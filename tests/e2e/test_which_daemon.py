# SPDX-License-Identifier: Apache-2.0
"""Which daemon a trainer gets: the named one, else the system's, else its user's; and what each of them takes."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

import processes
import pytest
from conftest import Control, end_user_daemon, run_python, wait_until

import daemon as daemon_support
import loaderd
import loaderd.transforms as T

NOBODY = 65534

# Reads a folder once; prints where the session was, the samples, and what the client logged.
READ = """
import json, os, sys, tempfile
import loaderd, loaderd.transforms as T
with tempfile.TemporaryFile("w+") as log:
    kept = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 7, transform=T.CenterCrop(16))
        samples = sum(len(batch.index) for batch in loader)
        error = None
    except loaderd.Error as caught:
        samples, error = 0, [type(caught).__name__, str(caught)]
    os.dup2(kept, 2)
    log.seek(0)
    lines = [line for line in log.read().splitlines() if line]
print(json.dumps({"samples": samples, "error": error, "log": lines}))
"""


@contextlib.contextmanager
def system_daemon(folder, root, mode="0600"):
    """One at the place that LOADERD_SYSTEM_SOCKET names, which opens only what is under `root`."""
    config = f'listen {{ socket: "{folder}/loaderd.sock" mode: {mode} }}\ndataset_root: "{root}"'
    with daemon_support.Daemon(system=True, config=config, folder=folder) as running:
        yield running


@pytest.fixture
def system(tmp_path, photos, monkeypatch):
    place = tmp_path / "system"
    place.mkdir()
    monkeypatch.setenv("LOADERD_SYSTEM_SOCKET", str(place / "loaderd.sock"))
    with system_daemon(place, photos) as running:
        yield running


def delivered(daemon):
    return int(Control(daemon.socket)("status").get("samples_delivered", 0))


def test_the_named_daemon_comes_before_the_systems(photos, daemon, system, runtime_dir, monkeypatch):
    monkeypatch.setenv("LOADERD_SOCKET", daemon.socket)
    assert run_python(READ, photos) == {"samples": 60, "error": None, "log": []}
    assert (delivered(daemon), delivered(system)) == (60, 0)
    monkeypatch.setenv("LOADERD_SOCKET", str(runtime_dir / "none.sock"))
    answer = run_python(READ, photos)
    assert answer["error"][0] == "UnavailableError" and "none.sock" in answer["error"][1]
    assert delivered(system) == 0 and not (runtime_dir / "loaderd").exists()


def test_the_systems_daemon_comes_before_the_users(photos, system, user_daemon):
    assert run_python(READ, photos) == {"samples": 60, "error": None, "log": []}
    assert (delivered(system), delivered(user_daemon)) == (60, 0)


def test_the_users_daemon_is_the_last(photos, user_daemon):
    assert run_python(READ, photos) == {"samples": 60, "error": None, "log": []}
    assert delivered(user_daemon) == 60


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be a user without rights")
@pytest.mark.parametrize("closed", ["socket", "folder"])
def test_no_right_to_the_systems_socket_is_an_error_not_another_daemon(photos, open_folder, monkeypatch, closed):
    place = pathlib.Path(open_folder) / "system"
    place.mkdir()
    home = pathlib.Path(open_folder) / "home"
    home.mkdir(mode=0o700)
    shutil.chown(home, NOBODY)
    monkeypatch.setenv("LOADERD_SYSTEM_SOCKET", str(place / "loaderd.sock"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    with system_daemon(place, photos, "0666" if closed == "folder" else "0600"):
        place.chmod(0o700 if closed == "folder" else 0o755)
        name, text = run_python(READ, photos, prefix=prefix)["error"]
    assert name == "PermissionDeniedError" and str(place / "loaderd.sock") in text and "its group is root" in text
    assert list(home.iterdir()) == []


def test_a_job_that_the_systems_daemon_may_not_read_goes_to_the_users_with_one_line(photos, system, runtime_dir, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(photos, own)
    answer = run_python(READ, own)
    assert answer["samples"] == 60 and answer["error"] is None
    started, refused = sorted(answer["log"], key=lambda line: "refused" in line)
    assert "dataset_root" in refused and str(runtime_dir / "loaderd" / "loaderd.sock") in refused
    assert "started the user's daemon" in started
    assert delivered(system) == 0
    users = Control(str(runtime_dir / "loaderd" / "loaderd.sock"))
    assert int(users("status")["samples_delivered"]) == 60
    # Beside a system daemon it takes half of the threads, and says so at its start.
    cpus = len(os.sched_getaffinity(0))
    status = users("status")
    assert "half beside the system daemon" in status["fleet_reason"]
    assert int(status["fleet_threads"]) <= max(1, cpus // 2)
    assert "half beside the system daemon" in (runtime_dir / "loaderd" / "loaderd.log").read_text()
    # What the system's may read stays with it.
    assert run_python(READ, photos)["log"] == []
    assert delivered(system) == 60


def test_a_users_daemon_alone_takes_all_threads(photos, user_daemon):
    status = Control(user_daemon.socket)("status")
    assert "beside" not in status["fleet_reason"]


def test_a_wrong_job_is_the_systems_daemons_to_refuse(photos, system, runtime_dir):
    with pytest.raises(loaderd.Error, match="batch_size"):
        iter(loaderd.DataLoader(loaderd.ImageFolder(photos), 100_000, transform=T.CenterCrop(16)))
    assert not (runtime_dir / "loaderd").exists()


def test_status_tells_the_mount_namespace(daemon, control):
    assert control("status")["mount_namespace"] == os.readlink("/proc/self/ns/mnt")


@pytest.fixture
def apart(tmp_path):
    """A command prefix that runs in a mount namespace where tmp_path/data is another, smaller folder."""
    (tmp_path / "other").mkdir()
    script = f'mount --bind "{tmp_path}/other" "{tmp_path}/data" && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", script, "sh")
    (tmp_path / "data").mkdir()
    made = subprocess.run([*prefix, "true"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"needs the right to make mount namespaces: {made.stderr.strip()}")
    return prefix


def test_a_daemon_of_another_mount_namespace_is_left_alone(photos, tmp_path, runtime_dir, apart):
    data = tmp_path / "data"
    shutil.copytree(photos, data, dirs_exist_ok=True)
    shutil.copytree(photos / "class_00", tmp_path / "other" / "class_00")
    inside = len(list((tmp_path / "other" / "class_00").iterdir()))
    assert inside < 60
    try:
        first = run_python(READ, data)
        assert first["samples"] == 60
        both = run_python(READ, data, prefix=apart)
        assert (both["samples"], both["error"]) == (inside, None)
        lines = [line for line in both["log"] if "another mount namespace" in line]
        (suffixed,) = runtime_dir.glob("loaderd-*")
        assert len(lines) == 1 and str(runtime_dir / "loaderd" / "loaderd.sock") in lines[0]
        assert str(suffixed / "loaderd.sock") in lines[0]
        assert suffixed.stat().st_mode & 0o7777 == 0o700
        told = Control(str(suffixed / "loaderd.sock"))("status")["mount_namespace"]
        assert re.fullmatch(rf"mnt:\[{suffixed.name.removeprefix('loaderd-')}\]", told)
        assert told != os.readlink("/proc/self/ns/mnt")
        # Each goes on with its own.
        assert run_python(READ, data) == {"samples": 60, "error": None, "log": []}
        assert int(Control(str(runtime_dir / "loaderd" / "loaderd.sock"))("status")["samples_delivered"]) == 120
    finally:
        while processes.user_daemon(runtime_dir) is not None:
            end_user_daemon(runtime_dir)
    wait_until(lambda: not (runtime_dir / "loaderd" / "loaderd.sock").exists())
