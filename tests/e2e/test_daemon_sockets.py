# SPDX-License-Identifier: Apache-2.0
"""What the real `loaderd` does with its sockets: whose they are, who is alive, what stands in the way."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import pytest

from daemon import Daemon, connects, loaderd, segment_path

NOBODY = 65534


def refused(path: str, **options: object) -> str:
    answer = subprocess.run(
        [loaderd(), "--user", "--socket", path], capture_output=True, text=True, timeout=10, **options
    )
    assert answer.returncode == 1, answer
    return answer.stderr


def test_second_instance_leaves_within_2_s_and_names_the_first() -> None:
    with Daemon() as daemon:
        begin = time.monotonic()
        message = refused(daemon.socket)
        assert time.monotonic() - begin < 2
        assert f"already running: loaderd with PID {daemon.pid}" in message
        assert connects(daemon.socket) and connects(daemon.segment_socket)


def test_sockets_of_a_killed_daemon_are_replaced() -> None:
    with Daemon() as daemon:
        daemon.kill()
        assert os.path.exists(daemon.socket)
        daemon.start()
        assert "stale socket" in daemon.log()
        assert daemon.stop() == 0
        assert not [name for name in os.listdir(daemon.folder) if name.startswith("loaderd.") and name != "loaderd.log"]
        assert not os.path.exists(daemon.segment_socket)


def test_ten_instances_started_at_once_leave_exactly_one() -> None:
    folder = tempfile.mkdtemp(prefix="loaderd-test-")
    path = f"{folder}/loaderd.sock"
    processes = [
        subprocess.Popen([loaderd(), "--user", "--socket", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(10)
    ]
    try:
        deadline = time.monotonic() + 20
        while sum(p.poll() is None for p in processes) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [p.poll() for p in processes].count(None) == 1
        assert connects(path)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)
        shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["file", "folder", "link", "fifo", "live", "foreign"])
def test_what_stands_at_the_path_is_named_and_left_alone(tmp_path: pathlib.Path, kind: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    path = folder / "loaderd.sock"
    live = socket.socket(socket.AF_UNIX)
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "live":
        live.bind(str(path))
        live.listen()
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can give a socket to another user")
        live.bind(str(path))
        live.close()
        os.chown(path, NOBODY, NOBODY)
    before = os.lstat(path)
    message = refused(str(path))
    found = {
        "file": "a regular file",
        "folder": "a folder",
        "link": "a symbolic link",
        "fifo": "a FIFO",
        "live": "the live socket of another program",
        "foreign": f"a socket of uid {NOBODY}",
    }[kind]
    assert found in message and str(path) in message and "left untouched" in message
    after = os.lstat(path)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert os.listdir(folder) == ["loaderd.sock"]
    live.close()


def test_missing_folder_says_how_to_make_it(tmp_path: pathlib.Path) -> None:
    message = refused(str(tmp_path / "none" / "loaderd.sock"))
    assert str(tmp_path / "none") in message and "RuntimeDirectory=" in message and "mkdir" in message


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_mode_is_the_configured_one_whatever_the_umask(umask: int) -> None:
    folder = tempfile.mkdtemp(prefix="loaderd-test-")
    before = os.umask(umask)
    try:
        config = f'listen {{ socket: "{folder}/loaderd.sock" mode: 0660 }}'
        with Daemon(system=True, folder=folder, config=config) as daemon:
            for path in (daemon.socket, daemon.segment_socket):
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def test_path_of_107_bytes_works_and_of_108_is_refused_with_its_length() -> None:
    folder = tempfile.mkdtemp(prefix="l", dir="/tmp")
    try:
        # The longer of the two is the segment socket's.
        fits = f"{folder}/{'x' * (107 - len('-segment') - len(folder) - 1)}"
        assert len(segment_path(fits)) == 107
        process = subprocess.Popen([loaderd(), "--user", "--socket", fits], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not connects(segment_path(fits)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert connects(fits) and connects(segment_path(fits))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        answer = subprocess.run(
            [loaderd(), "--user", "--socket", fits + "x"], capture_output=True, text=True, timeout=10
        )
        assert answer.returncode == 1
        assert "108 bytes" in answer.stderr and "107" in answer.stderr and "--socket" in answer.stderr
    finally:
        shutil.rmtree(folder)


def test_user_daemon_stands_in_the_runtime_folder(tmp_path: pathlib.Path) -> None:
    with Daemon(start=False) as daemon:
        daemon.command = [loaderd(), "--user"]
        daemon._env["XDG_RUNTIME_DIR"] = str(tmp_path)
        daemon.socket = str(tmp_path / "loaderd" / "loaderd.sock")
        daemon.segment_socket = segment_path(daemon.socket)
        daemon.start()
        assert stat.S_IMODE(os.stat(tmp_path / "loaderd").st_mode) == 0o700
        assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600


def test_user_folder_that_others_may_enter_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "loaderd").mkdir()
    (tmp_path / "loaderd").chmod(0o777)
    answer = subprocess.run(
        [loaderd(), "--user"],
        capture_output=True,
        text=True,
        timeout=10,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert answer.returncode == 1
    assert "has mode 0777" in answer.stderr


def test_detach_returns_when_both_sockets_listen() -> None:
    folder = tempfile.mkdtemp(prefix="loaderd-test-")
    path = f"{folder}/loaderd.sock"
    try:
        answer = subprocess.run(
            [loaderd(), "--user", "--socket", path, "--detach"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
        assert answer.returncode == 0
        assert connects(path) and connects(segment_path(path))
        pid = int(pathlib.Path(folder, "loaderd.lock").read_text().split()[0])
        assert pathlib.Path(f"/proc/{pid}/comm").read_text() == "loaderd\n"
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert os.listdir(folder) == []
    finally:
        shutil.rmtree(folder)


def test_detach_with_closed_standard_streams_keeps_sockets_off_their_numbers() -> None:
    folder = tempfile.mkdtemp(prefix="loaderd-test-")
    path = f"{folder}/loaderd.sock"
    try:
        subprocess.run(
            ["/bin/sh", "-c", 'exec "$0" --user --socket "$1" --detach <&- >&- 2>&-', loaderd(), path],
            check=True,
            timeout=20,
        )
        pid = int(pathlib.Path(folder, "loaderd.lock").read_text().split()[0])
        assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)} == {"/dev/null"}
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        shutil.rmtree(folder)


def test_passed_sockets_are_served_and_left_in_place(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "act.sock")
    # systemd-socket-activate starts the daemon at the first connection.
    process = subprocess.Popen(
        ["systemd-socket-activate", "-l", segment_path(path), "-l", path, loaderd(), "--user", "--idle-exit", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not connects(path) and time.monotonic() < deadline:
            time.sleep(0.02)
        lines = []
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if "mode=user" in line:
                break
        assert f"socket={path} (passed) segment_socket={segment_path(path)} (passed)" in lines[-1]
        process.terminate()
        assert process.wait(20) == 0
        assert os.path.exists(path), "what was passed is the passer's"
    finally:
        process.kill()
        process.wait()


def passing(fds: list[int], *args: str) -> subprocess.CompletedProcess[str]:
    """Runs loaderd with `fds` as LISTEN_FDS, from 3 on."""
    code = (
        "import fcntl,os,sys\n"
        "fds=[int(f) for f in sys.argv[1].split(',')]\n"
        "high=[fcntl.fcntl(f,fcntl.F_DUPFD,100) for f in fds]\n"
        "for i,f in enumerate(high): os.dup2(f,3+i,inheritable=True)\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()),LISTEN_FDS=str(len(fds)))\n"
        "os.execv(sys.argv[2],sys.argv[2:])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, ",".join(map(str, fds)), loaderd(), *args],
        capture_output=True,
        text=True,
        timeout=20,
        pass_fds=fds,
    )


def test_passed_descriptors_of_other_kinds_are_named(tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "plain", "w") as plain, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
        datagram.bind(str(tmp_path / "datagram"))
        for descriptor, found in ((plain.fileno(), "is a regular file"), (datagram.fileno(), "is no stream socket")):
            answer = passing([descriptor], "--user", "--socket", str(tmp_path / "x.sock"))
            assert answer.returncode == 1, answer
            assert found in answer.stderr


def test_closed_passed_descriptor_is_an_error(tmp_path: pathlib.Path) -> None:
    code = (
        "import os,sys\n"
        "os.environ.update(LISTEN_PID=str(os.getpid()),LISTEN_FDS='40')\n"
        "os.execv(sys.argv[1],sys.argv[1:])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, loaderd(), "--user", "--socket", str(tmp_path / "x.sock")],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert answer.returncode == 1
    assert "LISTEN_FDS" in answer.stderr


def test_another_process_s_descriptors_are_ignored() -> None:
    with Daemon(env={"LISTEN_PID": "1", "LISTEN_FDS": "2"}) as daemon:
        assert "(own)" in daemon.log()
