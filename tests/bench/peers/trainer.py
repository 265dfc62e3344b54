# SPDX-License-Identifier: Apache-2.0
"""The measuring trainer that every peer runs in: takes batches as fast as they come, and accounts for what they cost.

A peer is a script beside this file that calls `main(make)`. `make(options)` returns a Loader; its arguments come from the
command line of the script. The last line of standard output is a JSON document, the account; everything else is ignored.
With --prepare the script only calls the `prepare` that it gave (files of a format of its own), which is not measured.

First come an epoch and the begin of the next, by which the first batch and the wait at the boundary are told. Then comes one
long stream without boundaries, where the peer has such a thing; the rate is taken in a window within it, from one batch to
another, so that as much is in flight at its end as at its begin. CPU time is that of this process, its descendants and the
service it names, in the same window. Needs the standard library and numpy.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
RECIPES = ("crop_uint8", "crop_float32", "eval_float32")
AFTER_BOUNDARY = 4  # batches
WARM_UP_S = 1.5  # of the long stream, before the window
WARM_UP_BATCHES = 2
LONG = 64  # epochs that a long stream has at least, where it has an end


class Options(NamedTuple):
    data: Path
    work: Path  # for files of the peer's own format
    recipe: str
    batch: int
    threads: int
    seconds: float
    variant: str
    service: int  # process that does the work besides this one and its descendants; 0: none
    socket: str
    long: bool = False  # the loader is made for `stream`

    @property
    def random_crop(self) -> bool:
        return self.recipe.startswith("crop")

    @property
    def floats(self) -> bool:
        return self.recipe.endswith("float32")


class Loader:
    """What a peer makes. The images of a batch are an array of (n, ...)."""

    def epoch(self, number: int) -> Iterator[Any]:
        """The batches of one epoch."""
        raise NotImplementedError

    def stream(self) -> Iterator[Any]:
        """Batches without end, or LONG epochs of them; of a loader made with `options.long`."""
        for number in itertools.count():
            yield from self.epoch(number)

    def images(self, batch: Any) -> np.ndarray:
        """A view of the batch's images, without a copy."""
        return np.asarray(batch[0])

    def close(self) -> None:
        pass


def samples(data: Path) -> tuple[list[str], list[int]]:
    """Paths and class numbers of an image folder, in the order of torchvision's ImageFolder."""
    paths, labels = [], []
    folders = [entry.path for entry in os.scandir(data) if entry.is_dir()]
    for number, folder in enumerate(sorted(folders, key=os.fsencode)):
        for name in sorted(os.listdir(folder), key=os.fsencode):
            paths.append(os.path.join(folder, name))
            labels.append(number)
    return paths, labels


# ---- what /proc says


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children = [int(child) for child in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, with that of its children that have ended and were waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def total_cpu(service: int) -> float:
    own = os.getpid()
    return sum(map(cpu_seconds, [own, *descendants(own), *([service] if service else [])]))


def pss_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def status_number(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":"))


class Footprint:
    """The most that was seen of this process and its descendants."""

    def __init__(self) -> None:
        self.peak: dict[str, int] = {}

    def look(self, service: int) -> None:
        own = os.getpid()
        children = descendants(own)
        now = {
            "trainer_descriptors": len(os.listdir("/proc/self/fd")) - 1,
            "trainer_threads": status_number("Threads"),
            "trainer_children": len(children),
            "trainer_pss_bytes": pss_bytes(own),
            "trainer_and_children_pss_bytes": sum(map(pss_bytes, [own, *children])),
            "service_pss_bytes": pss_bytes(service) if service else 0,
        }
        self.peak = {key: max(value, self.peak.get(key, 0)) for key, value in now.items()}


# ---- the measurement


class Consumer:
    """Takes batches, and has each of them really be there."""

    def __init__(self, loader: Loader, batch_size: int) -> None:
        self._loader = loader
        self._batch_size = batch_size
        self.checksum = 0

    def mean(self, batch: Any) -> float:
        """Of the pixels, or of some of them: shows that peers load the same images and make the same of them."""
        return float(self._loader.images(batch).reshape(-1)[::7].mean(dtype=np.float64))

    def take(self, batch: Any) -> None:
        pixels = self._loader.images(batch)
        if len(pixels) != self._batch_size:
            raise ValueError(f"a batch of {len(pixels)} images, not {self._batch_size}")
        # One byte of each page: what was only promised is made.
        self.checksum += int(pixels.reshape(-1).view(np.uint8)[::4096].sum())


def timed(stream: Iterator[Any]) -> Iterator[tuple[float, float, Any]]:
    """(wait, time of arrival, batch); the first wait is from this call's first next()."""
    asked = time.perf_counter()
    for batch in stream:
        now = time.perf_counter()
        yield now - asked, now, batch
        del batch
        asked = time.perf_counter()


def measure_epochs(make: Callable[[Options], Loader], options: Options, batches: int) -> dict[str, Any]:
    """One epoch, and the begin of the next."""
    started = time.perf_counter()
    loader = make(options)
    consumer = Consumer(loader, options.batch)
    waits = []
    first_batch_s = mean = 0.0
    for wait, now, batch in timed(loader.epoch(0)):
        if first_batch_s:
            waits.append(wait)
        else:
            first_batch_s = now - started
            mean = consumer.mean(batch)
        consumer.take(batch)
        del batch
    if len(waits) + 1 != batches:
        raise ValueError(f"an epoch had {len(waits) + 1} batches, not {batches}")
    asked = time.perf_counter()
    second = loader.epoch(1)
    made = time.perf_counter() - asked
    after = []
    for wait, _, batch in itertools.islice(timed(second), min(AFTER_BOUNDARY, batches)):
        after.append(wait)
        consumer.take(batch)
        del batch
    after[0] += made
    loader.close()
    return {
        "first_batch_s": first_batch_s,
        "first_batch_mean": mean,
        "median_wait_s": statistics.median(waits),
        "boundary_wait_s": max(after),
    }


def measure_stream(make: Callable[[Options], Loader], options: Options) -> dict[str, Any]:
    """The long stream, until its window has `options.seconds`."""
    loader = make(options._replace(long=True))
    consumer = Consumer(loader, options.batch)
    footprint = Footprint()
    started = time.perf_counter()
    begun = cpu_begun = 0.0
    batches = 0  # in the window
    for number, (_, now, batch) in enumerate(timed(loader.stream()), 1):
        consumer.take(batch)
        del batch
        if begun:
            batches += 1
            # Workers finish their batches together: the window has whole rounds of them.
            if now - begun >= options.seconds and batches % options.threads == 0:
                break
        elif number >= WARM_UP_BATCHES and now - started >= min(WARM_UP_S, options.seconds):
            begun, cpu_begun = now, total_cpu(options.service)
    else:
        raise ValueError(f"the stream ended within {options.seconds} s")
    images = batches * options.batch
    cpu_s = total_cpu(options.service) - cpu_begun
    footprint.look(options.service)
    loader.close()
    return {
        "images_per_s": images / (now - begun),
        "cpu_s_per_1000_images": cpu_s * 1000 / images,
        "window_s": now - begun,
        "window_images": images,
        "checksum": consumer.checksum,
        **footprint.peak,
    }


def measure(make: Callable[[Options], Loader], options: Options) -> dict[str, Any]:
    paths, _ = samples(options.data)
    batches = len(paths) // options.batch  # whole ones: every peer leaves out the rest
    if batches < 2:
        raise ValueError(f"{len(paths)} images are fewer than two batches of {options.batch}")
    account = measure_epochs(make, options, batches)
    gc.collect()
    account |= measure_stream(make, options)
    return account | {"trainer_peak_rss_bytes": status_number("VmHWM") * 1024}


def versions(packages: list[str]) -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def main(
    make: Callable[[Options], Loader],
    packages: list[str],
    prepare: Callable[[Options], None] | None = None,
) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--recipe", choices=RECIPES, default=RECIPES[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--variant", default="")
    parser.add_argument("--service", type=int, default=0)
    parser.add_argument("--socket", default="")
    parser.add_argument("--prepare", action="store_true")
    arguments = vars(parser.parse_args())
    preparing = arguments.pop("prepare")
    options = Options(**arguments)
    account: dict[str, Any] = {"versions": versions(packages)}
    if preparing:
        if prepare is not None:
            prepare(options)
    else:
        account |= measure(make, options)
    sys.stdout.flush()
    print(json.dumps(account), flush=True)
    # Some libraries hang or crash while the interpreter ends; what they did is accounted for.
    os._exit(0)
