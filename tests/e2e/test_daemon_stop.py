# SPDX-License-Identifier: Apache-2.0
"""The real `loaderd` stopped, or full, with trainers connected."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import photos
from daemon import Daemon

# Takes one batch, says so, then waits for a line and goes on to the end.
TRAINER = """
import sys
import loaderd
from loaderd import transforms
loader = loaderd.DataLoader(
    loaderd.ImageFolder(sys.argv[1]), batch_size=4, transform=[transforms.Resize(32), transforms.CenterCrop(32)], reconnect=1,
)
batches = iter(loader)
held = next(batches)
print("first", flush=True)
sys.stdin.readline()
print(4 + sum(len(batch.index) for batch in batches), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return photos.generate(tmp_path_factory.mktemp("photos"), 40, classes=2)


@contextlib.contextmanager
def trainer(daemon: Daemon, folder: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A trainer in the middle of its epoch."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOADERD_SOCKET": daemon.socket},
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "first\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_stop_with_a_session_open_ends_with_0_within_the_deadline(folder: pathlib.Path) -> None:
    with Daemon() as daemon, trainer(daemon, folder):
        begin = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - begin < 8, "the deadline is for what is stuck"
        assert os.listdir(daemon.folder) == ["loaderd.log"]


def test_trainer_that_does_not_run_does_not_hold_up_the_stop(folder: pathlib.Path) -> None:
    with Daemon(config="stop_deadline_s: 3") as daemon, trainer(daemon, folder) as process:
        os.kill(process.pid, signal.SIGSTOP)
        begin = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - begin < 8
        assert sorted(os.listdir(daemon.folder)) == ["loaderd.log", "loaderd.txtpb"]


def test_trainer_is_told_that_the_daemon_stopped(folder: pathlib.Path) -> None:
    with Daemon() as daemon, trainer(daemon, folder) as process:
        assert daemon.stop() == 0
        _, err = process.communicate("go\n", timeout=60)
        assert process.returncode != 0
        assert "daemon is stopping" in err and "waiting up to 1.0 s" in err
        assert "UnavailableError" in err and "within 1000 ms" in err


def test_connections_beyond_max_connections_wait_until_one_leaves() -> None:
    with Daemon(config="limits { max_connections: 3 }") as daemon:
        first = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for connection in first:
            connection.connect(daemon.socket)
        late = socket.socket(socket.AF_UNIX)
        late.connect(daemon.socket)
        daemon.wait_log("limits.max_connections")
        # gRPC greets whom the daemon has accepted, and nobody else.
        with pytest.raises(TimeoutError):
            late.settimeout(0.5)
            late.recv(9)
        first[0].close()
        late.settimeout(10)
        assert late.recv(9), "accepted once there was room"
        for connection in (*first, late):
            connection.close()
