# SPDX-License-Identifier: Apache-2.0
"""What a sample costs the daemon in system calls."""

import collections
import re
import shutil
import signal
import subprocess
import time

import pytest

import loaderd
import photos as generator
from loaderd import transforms as T

FOLDERS, EPOCHS, BATCH = 400, 10, 64


@pytest.fixture
def traced(user_daemon, tmp_path):
    """Counts of the daemon's system calls: a function that ends the tracing and gives them."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (./run setup does it)")
    out = tmp_path / "strace"
    tracer = subprocess.Popen(
        ["strace", "-f", "-q", "-c", "-o", str(out), "-p", str(user_daemon.process.pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1)
    if tracer.poll() is not None:
        pytest.skip(f"strace may not look at the daemon: {tracer.stderr.read()}")

    def counts():
        tracer.send_signal(signal.SIGINT)
        tracer.wait(30)
        rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", out.read_text(), re.M)
        return collections.Counter({name: int(calls) for calls, name in rows if name != "total"})

    yield counts
    tracer.kill()
    tracer.wait()


def test_a_sample_costs_its_files_open_stat_read_and_close(user_daemon, tmp_path, request):
    folder = generator.generate(tmp_path / "photos", FOLDERS, seed=5, classes=2)
    loader = loaderd.DataLoader(
        loaderd.ImageFolder(folder),
        BATCH,
        shuffle=True,
        transform=T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()]),
    )
    assert len(list(loader)) > 0  # indexed, and all has grown
    counts = request.getfixturevalue("traced")
    samples = 0
    for _ in range(EPOCHS):
        for batch in loader:
            samples += len(batch.index)
    calls = counts()
    each = {name: number / samples for name, number in calls.items()}
    print({name: round(number, 3) for name, number in sorted(each.items(), key=lambda item: -item[1])})
    assert samples == EPOCHS * FOLDERS
    # A session's slots are made ahead: some were before, some are of the epoch after.
    ahead = 6 * BATCH / samples
    opened = each.get("open", 0) + each.get("openat", 0) + each.get("openat2", 0)
    stated = sum(each.get(name, 0) for name in ("stat", "fstat", "newfstatat", "statx"))
    assert abs(opened - 1) <= ahead
    assert abs(stated - 1) <= ahead
    assert abs(each.pop("close") - 1) <= ahead
    # Events are read as well, some times a batch.
    assert abs(each.pop("read") - 1) <= ahead + 0.25
    files = {"open", "openat", "openat2", "stat", "fstat", "newfstatat", "statx"}
    assert sum(number for name, number in each.items() if name not in files) < 1
