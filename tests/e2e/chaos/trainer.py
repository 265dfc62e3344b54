# SPDX-License-Identifier: Apache-2.0
"""One trainer of a chaos run: `trainer.py SPEC`, JSON with job, folder, socket, log, state, seed, peace, stop.

It appends a line of JSON to its log for each step: what came, and the state to go on with; so a successor of a killed one goes
on behind its last line. In peace it reads each epoch once; else it pauses and holds batches at random, and leaves at the end
of an epoch once the file `stop` is there. Exit code 1: it could not go on.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import re
import sys
import time
import zlib
from typing import Any

import jobs

import loaderd

GIVE_UP_S = 150
TAIL = 1 << 18  # bytes of a log that are looked at for the last step


def checksum(batch: Any) -> int:
    return zlib.crc32(batch.labels.tobytes(), zlib.crc32(batch.images.tobytes()))


def what(batch: Any) -> dict[str, Any]:
    """What is compared with the answers."""
    bad = [[each.index, each.substitute] for each in batch.bad]
    return {
        "index": batch.index.tolist(),
        "pad": batch.pad.tolist(),
        "labels": batch.labels.tolist(),
        "crc": checksum(batch),
        "bad": bad,
    }


class Log:
    """Whole lines, each one write, so that a kill leaves all before it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._file).st_size
        begin = max(0, size - TAIL)
        tail = os.pread(self._file, TAIL, begin)
        whole = tail[: tail.rfind(b"\n") + 1]
        os.ftruncate(self._file, begin + len(whole))
        steps = [json.loads(line) for line in whole.splitlines()[begin > 0 :] if b'"what"' in line]
        self.last: dict[str, Any] | None = steps[-1] if steps else None  # step
        if self.last is None and begin > 0:
            raise RuntimeError(f"{path} has no step in its last {TAIL} bytes")

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if "what" in line:
            self.last = line


class Trainer:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.log = Log(spec["log"])
        self.rng = random.Random(spec["seed"])
        self.held: collections.deque = collections.deque()
        self.most_held = self.rng.randint(0, 4)
        self.opening = True

    def run(self) -> int:
        """Goes on until it is stopped; after an error with a new loader, from the state of the last step."""
        failed_since = None
        while True:
            before = self.log.last
            try:
                self.epochs()
                return 0
            except loaderd.UnavailableError as error:
                # Who opens where no daemon is is told so, and comes again; who has opened waits.
                kind = "refused" if self.opening else "error"
                self.log.write(**{kind: type(error).__name__}, text=str(error), end=time.monotonic())
            except loaderd.Error as error:
                self.log.write(error=type(error).__name__, text=str(error), end=time.monotonic())
            if self.log.last is not before or failed_since is None:
                failed_since = time.monotonic()
            if time.monotonic() - failed_since > GIVE_UP_S:
                return 1
            time.sleep(self.rng.uniform(0.05, 0.5))

    def epochs(self) -> None:
        spec = self.spec
        self.opening = True
        loader = jobs.loader_of(spec["job"], spec["folder"], spec["socket"])
        first, state = 0, spec["state"]
        if self.log.last is not None:
            first, state = self.log.last["n"], self.log.last["state"]
        if state is None:
            self.log.write(start=loader.state_dict())
        else:
            loader.load_state_dict(state)
        for n in range(jobs.EPOCHS) if spec["peace"] else itertools.count(first):
            loader.set_epoch(n % jobs.EPOCHS)
            self.epoch(n, loader)
            if os.path.exists(spec["stop"]):
                break
        self.drop(0)

    def epoch(self, n: int, loader: Any) -> None:
        batches = iter(loader)
        self.opening = False
        while True:
            begin = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            except loaderd.BadSampleError as error:
                batch = None
                found = {"failed": re.findall(r"\d{4}\.jpg", str(error))}
            end = time.monotonic()
            state = loader.state_dict()
            if batch is not None:
                found = what(batch)
                self.held.append((batch, found["crc"]))
            self.log.write(n=n, step=state["step"] - 1, what=found, state=state, wait=end - begin, end=end)
            del batch
            self.drop(self.most_held)
            if not self.spec["peace"]:
                self.pause()

    def drop(self, most: int) -> None:
        """Lets all but the newest go, which must be as they came."""
        while len(self.held) > most:
            batch, crc = self.held.popleft()
            if checksum(batch) != crc:
                self.log.write(fault=f"a batch changed while it was held: epoch {batch.epoch}, step {batch.step}")

    def pause(self) -> None:
        luck = self.rng.random()
        if luck < 0.3:
            time.sleep(self.rng.uniform(0, 0.05))
        elif luck > 0.995:
            time.sleep(self.rng.uniform(0.5, 2))
        if luck > 0.98:
            self.most_held = self.rng.randint(0, 6)


if __name__ == "__main__":
    sys.exit(Trainer(json.loads(sys.argv[1])).run())
