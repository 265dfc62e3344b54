# SPDX-License-Identifier: Apache-2.0
"""Who does the damage: each in a thread of its own, at random times of a seed of its own, until told to stop."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jobs

import daemon as daemon_support
import loaderd
import loaderd.transforms as T

HERE = pathlib.Path(__file__).resolve().parent
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Lineage:
    """A trainer and its successors, which share a log."""

    def __init__(self, number: int, seed: int, spec: dict[str, Any], environment: dict[str, str]) -> None:
        self.number = number
        self.spec = spec
        self.stops: list[tuple[float, float]] = []
        self.left: list[int] = []  # exit codes that nobody asked for
        self.generation = 0
        self._seed = seed
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        with self._lock:
            self._start()

    def _start(self) -> None:
        self.generation += 1
        spec = {**self.spec, "seed": f"{self._seed} {self.number} {self.generation}"}
        with open(self.spec["log"] + ".stderr", "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "trainer.py"), json.dumps(spec)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def replace(self, pause: float) -> None:
        """kill -9, and a successor after a while."""
        with self._lock:
            self._see_whether_it_left()
            self._process.kill()
            self._process.wait()
            time.sleep(pause)
            self._start()

    def stop_for(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        with self._lock:
            self._see_whether_it_left()
            begin = time.monotonic()
            self._process.send_signal(signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                self._process.send_signal(signal.SIGCONT)
                self.stops.append((begin, time.monotonic()))

    def _see_whether_it_left(self) -> None:
        if self._process.poll() is not None:
            self.left.append(self._process.returncode)
            self._start()

    def finish(self, timeout: float) -> None:
        """Waits for its end: it was told to, or is in peace."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            code = -signal.SIGALRM
        if code != 0:
            self.left.append(code)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def lines(self) -> Iterator[dict[str, Any]]:
        with open(self.spec["log"]) as log:
            yield from map(json.loads, log)


class Damage:
    """All that happens to a daemon, its trainers and its files. counts: how often what was done."""

    def __init__(
        self,
        seed: int,
        daemon: daemon_support.Daemon,
        lineages: list[Lineage],
        folder: pathlib.Path,
        staging: pathlib.Path,
    ) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self._seed = seed
        self._daemon = daemon
        self._lineages = lineages
        self._folder = folder
        self._files = jobs.good_files(folder)
        self._staging = staging
        self._stop = threading.Event()
        self._daemon_stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, daemon_kills: bool) -> None:
        self._run("kills of trainers", 2.0, self._kill_trainer)
        self._run("stops of trainers", 1.5, self._stop_trainer)
        self._run("files", 0.7, self._change_a_file)
        self._run("fills of a budget", 6.0, self._fill_a_budget)
        self._run("strangers", 1.0, self._be_a_stranger)
        if daemon_kills:
            self._run("daemon", 6.0, self._end_the_daemon, self._daemon_stop)

    def spare_the_daemon(self) -> None:
        """No more kills of the daemon: the last one lives through the rest of the damage."""
        self._daemon_stop.set()

    def end(self) -> None:
        self._daemon_stop.set()
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            if thread.is_alive():
                self.faults.append(f"{thread.name} did not end")
        self._threads.clear()

    def _run(
        self, name: str, mean_s: float, act: Callable[[random.Random], None], stop: threading.Event | None = None
    ) -> None:
        stop = stop or self._stop

        def loop() -> None:
            rng = random.Random(f"{self._seed} {name}")
            while not stop.wait(min(4 * mean_s, rng.expovariate(1 / mean_s))):
                try:
                    act(rng)
                except Exception as error:  # told in the summary; the others go on
                    self.faults.append(f"{name}: {error!r}")

        thread = threading.Thread(target=loop, name=name)
        thread.start()
        self._threads.append(thread)

    # ---- trainers

    def _kill_trainer(self, rng: random.Random) -> None:
        rng.choice(self._lineages).replace(rng.uniform(0, 1))
        self.counts["trainer kills"] += 1

    def _stop_trainer(self, rng: random.Random) -> None:
        rng.choice(self._lineages).stop_for(rng.choice((0.02, 0.2, 2.0)) * rng.random())
        self.counts["trainer stops"] += 1

    # ---- the daemon

    def _end_the_daemon(self, rng: random.Random) -> None:
        kind = rng.choice(("daemon kills", "daemon terminations"))
        if self._daemon.process.poll() is not None:
            self.faults.append(f"the daemon left by itself with {self._daemon.process.returncode}")
        elif kind == "daemon kills":
            self._daemon.kill()
        elif (code := self._daemon.stop(40)) != 0:
            self.faults.append(f"the daemon left with {code} after SIGTERM")
        time.sleep(rng.uniform(0, 1))
        self._daemon.start()
        self.counts[kind] += 1

    # ---- files

    def _change_a_file(self, rng: random.Random) -> None:
        path = rng.choice(self._files)
        kind = rng.choice(("touched", "replaced", "added"))
        if kind == "touched":
            os.utime(path)
        else:
            copy = self._staging / f"{self.counts['files replaced'] + self.counts['files added']}"
            shutil.copyfile(path, copy)
            added = path.with_name(f"{path.stem}_new{rng.randrange(20)}.jpg")
            os.rename(copy, added if kind == "added" else path)
        self.counts[f"files {kind}"] += 1

    # ---- budgets

    def _fill_a_budget(self, rng: random.Random) -> None:
        """Opens sessions until one is refused, small ones or such of much memory, and lets them go after a while."""
        size, batch, most = rng.choice(((16, 1, 400), (512, 64, 40)))
        held = []
        with contextlib.suppress(loaderd.UnavailableError, loaderd.TimeoutError):
            try:
                for _ in range(most):
                    loader = loaderd.DataLoader(
                        loaderd.ImageFolder(self._folder),
                        batch,
                        transform=T.Resize((size, size)),
                        on_bad_sample="skip",
                        socket=self._daemon.socket,
                    )
                    held.append(iter(loader))
                    if self._stop.is_set():
                        break
            except loaderd.ResourceExhaustedError:
                self.counts["budgets filled"] += 1
            self.counts["sessions that filled"] += len(held)
            self._stop.wait(rng.uniform(0.1, 1))

    # ---- strangers

    def _be_a_stranger(self, rng: random.Random) -> None:
        path = rng.choice((self._daemon.socket, self._daemon.segment_socket))
        kind = rng.choice((self._babble, self._half_close, self._never_read, self._hurry))
        with contextlib.suppress(ConnectionError, FileNotFoundError, TimeoutError, BlockingIOError):
            kind(rng, path)
        self.counts[f"strangers that {kind.__name__[1:].replace('_', ' ')}"] += 1

    @staticmethod
    def _connect(path: str) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(5)
        try:
            peer.connect(path)
        except OSError:
            peer.close()
            raise
        return peer

    def _babble(self, rng: random.Random, path: str) -> None:
        with self._connect(path) as peer:
            peer.sendall(rng.choice((b"", PREFACE)) + rng.randbytes(rng.randint(1, 50_000)))
            self._stop.wait(rng.uniform(0, 0.2))

    def _half_close(self, rng: random.Random, path: str) -> None:
        with self._connect(path) as peer:
            peer.sendall(PREFACE[: rng.randint(0, len(PREFACE))])
            peer.shutdown(socket.SHUT_WR)
            self._stop.wait(rng.uniform(0, 1))

    def _never_read(self, rng: random.Random, path: str) -> None:
        """Speaks HTTP/2 and asks for ever more answers, none of which it takes."""
        ping = b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)
        with self._connect(path) as peer:
            peer.sendall(PREFACE + b"\0\0\0\x04\0\0\0\0\0")
            peer.settimeout(0.3)
            for _ in range(2000):
                peer.sendall(ping * 100)
            self._stop.wait(rng.uniform(0, 1))

    def _hurry(self, rng: random.Random, path: str) -> None:
        for _ in range(1000):
            self._connect(path).close()
