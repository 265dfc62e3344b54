# SPDX-License-Identifier: Apache-2.0
"""Counts of a running process's system calls, by strace."""

import collections
import contextlib
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest


def _all_threads_are_traced(pid):
    states = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
    return all("TracerPid:\t0\n" not in state for state in states)


@contextlib.contextmanager
def counted(pid, out):
    """A function that ends the counting and gives a Counter by name, since all threads were traced.

    Skips the test where strace is missing or may not look. `out` is a file of the test's.
    """
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (./run setup does it)")
    tracer = subprocess.Popen(
        ["strace", "-f", "-q", "-c", "-o", str(out), "-p", str(pid)], stderr=subprocess.PIPE, text=True
    )

    def counts():
        tracer.send_signal(signal.SIGINT)
        tracer.wait(60)
        rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", out.read_text(), re.M)
        return collections.Counter({name: int(calls) for calls, name in rows if name != "total"})

    try:
        deadline = time.monotonic() + 20
        while tracer.poll() is None and not _all_threads_are_traced(pid):
            assert time.monotonic() < deadline, "strace has not attached within 20 s"
            time.sleep(0.01)
        if tracer.poll() is not None:
            pytest.skip(f"strace may not look at process {pid}: {tracer.stderr.read()}")
        yield counts
    finally:
        tracer.kill()
        tracer.wait()
