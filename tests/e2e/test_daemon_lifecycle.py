# SPDX-License-Identifier: Apache-2.0
"""Limits, start, watchdog and stop of the real `loaderd`."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from daemon import Daemon, connects, loaderd


class Manager:
    """Stands for the service manager: a datagram socket that hears what the daemon tells it."""

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.heard: list[tuple[float, str]] = []

    def hear(self, text: str, timeout: float = 20.0) -> str:
        """The next message with `text` in it."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                message = self._socket.recv(4096).decode()
            except TimeoutError:
                break
            self.heard.append((time.monotonic(), message))
            if text in message:
                return message
        raise AssertionError(f"{text!r} was not told within {timeout} s; told: {[m for _, m in self.heard]}")

    def drop(self) -> None:
        """Forgets what waits."""
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager() -> Iterator[Manager]:
    with tempfile.TemporaryDirectory(prefix="loaderd-test-") as folder:
        made = Manager(folder)
        yield made
        made.close()


def test_manager_is_told_of_start_reload_and_stop_in_order(manager: Manager) -> None:
    with Daemon(env={"NOTIFY_SOCKET": manager.path}, start=False) as daemon:
        daemon.spawn()
        manager.hear("READY=1")
        assert connects(daemon.socket) and connects(daemon.segment_socket), "READY=1 came before the sockets listened"
        assert any(message.startswith("STATUS=serving: 0 sessions") for _, message in manager.heard)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        assert re.search(r"RELOADING=1\nMONOTONIC_USEC=\d+", manager.hear("RELOADING=1"))
        manager.hear("READY=1")
        daemon.process.send_signal(signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=15000000" in manager.hear("STOPPING=1")
        assert daemon.wait() == 0


def test_watchdog_is_answered_at_half_its_time(manager: Manager) -> None:
    with Daemon(
        env={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": None}, start=False
    ) as daemon:
        daemon.spawn()
        manager.hear("READY=1")
        times = []
        for _ in range(4):
            manager.hear("WATCHDOG=1")
            times.append(manager.heard[-1][0])
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert all(0.4 < gap < 1.9 for gap in gaps), gaps
        # A process that does not run does not answer.
        os.kill(daemon.pid, signal.SIGSTOP)
        time.sleep(0.2)
        manager.drop()
        with pytest.raises(AssertionError, match="was not told"):
            manager.hear("WATCHDOG=1", timeout=2.5)
        os.kill(daemon.pid, signal.SIGCONT)
        manager.hear("WATCHDOG=1")


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_0_and_takes_its_files_away(which: signal.Signals) -> None:
    with Daemon() as daemon:
        begin = time.monotonic()
        os.kill(daemon.pid, which)
        assert daemon.wait() == 0
        assert time.monotonic() - begin < 8, "the deadline of 10 s is for what is stuck"
        assert os.listdir(daemon.folder) == ["loaderd.log"]


def test_second_sigterm_does_not_skip_the_clean_up() -> None:
    with Daemon() as daemon:
        for _ in range(20):
            if daemon.process is not None and daemon.process.poll() is None:
                os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.wait() == 0
        assert os.listdir(daemon.folder) == ["loaderd.log"]


def test_silent_connections_do_not_hold_up_the_stop() -> None:
    with Daemon() as daemon:
        silent = []
        for path in (daemon.socket, daemon.segment_socket):
            for _ in range(20):
                silent.append(socket.socket(socket.AF_UNIX))
                silent[-1].connect(path)
        begin = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - begin < 15, "the default deadline is 10 s"
        for connection in silent:
            connection.close()


def test_broken_pipe_does_not_end_it() -> None:
    with Daemon() as daemon:
        for _ in range(50):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(daemon.socket)
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert daemon.process is not None and daemon.process.poll() is None
        assert daemon.stop() == 0


def test_idle_user_daemon_leaves_after_its_time() -> None:
    with Daemon(args=("--idle-exit", "1")) as daemon:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(daemon.socket)
            time.sleep(2.5)
            assert daemon.process is not None and daemon.process.poll() is None, "it left with somebody connected"
        begin = time.monotonic()
        assert daemon.wait(20) == 0
        assert 0.5 < time.monotonic() - begin < 10
        assert "idle for 1 s" in daemon.log()
        assert os.listdir(daemon.folder) == ["loaderd.log"]


def limits_of(pid: int) -> tuple[int, int]:
    line = next(line for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line)
    return int(line.split()[3]), int(line.split()[4])


def test_soft_descriptor_limit_is_raised_and_both_are_said() -> None:
    hard = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    with Daemon(prefix=("prlimit", f"--nofile=1024:{hard}")) as daemon:
        assert limits_of(daemon.pid) == (hard, hard)
        assert f"RLIMIT_NOFILE soft raised from 1024 to {hard}, hard {hard}" in daemon.log()


def test_64_descriptors_are_enough_and_less_is_said() -> None:
    with Daemon(prefix=("prlimit", "--nofile=64")) as daemon:
        assert limits_of(daemon.pid) == (64, 64)
        assert "RLIMIT_NOFILE 64 - reserve 32 leaves 32" in daemon.log()
        assert "LimitNOFILE=" in daemon.log()
        # More peers than it has descriptors for: they wait, nothing fails, and it goes on.
        peers = []
        for _ in range(60):
            peers.append(socket.socket(socket.AF_UNIX))
            peers[-1].connect(daemon.socket)
        time.sleep(1)
        open_now = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        assert open_now <= 64
        assert daemon.process is not None and daemon.process.poll() is None
        for peer in peers:
            peer.close()
        assert daemon.stop() == 0


def test_reserve_covers_what_the_daemon_itself_holds() -> None:
    with Daemon() as daemon:
        time.sleep(0.5)
        own = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        assert own <= 24, f"{own} descriptors without a client; the least reserve is 28"


def test_too_few_descriptors_are_refused_with_the_arithmetic() -> None:
    with tempfile.TemporaryDirectory(prefix="loaderd-test-") as folder:
        answer = subprocess.run(
            ["prlimit", "--nofile=24", loaderd(), "--user", "--socket", f"{folder}/x.sock"],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert answer.returncode == 1
        assert "RLIMIT_NOFILE 24 is too low: reserve 28 + 1 reader + one trainer's 5 = 34" in answer.stderr
        assert os.listdir(folder) == []


def test_start_says_the_fleet_and_why() -> None:
    cpus = len(os.sched_getaffinity(0))
    with Daemon() as daemon:
        line = next(line for line in daemon.log().splitlines() if "fleet threads=" in line)
        assert re.search(r'fleet threads=\d+ readers=\d+ reason="affinity ' + str(cpus), line)
    with Daemon(prefix=("taskset", "-c", str(min(os.sched_getaffinity(0))))) as daemon:
        assert 'fleet threads=1 readers=4 reason="affinity 1' in daemon.log()


def test_root_in_system_mode_is_warned() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root")
    with Daemon(system=True, config="") as daemon:
        assert "the system daemon runs as root" in daemon.log()
        assert "no dataset_root in the configuration" in daemon.log()
