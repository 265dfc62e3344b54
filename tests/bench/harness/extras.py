# SPDX-License-Identifier: Apache-2.0
"""Measurements of loaderd alone: threads, the first batch, fidelity on large photographs, the index of many files."""

from __future__ import annotations

import inspect
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import trainer

import loaderd
from daemon import Daemon

from . import data, registry, runner

LOADERD = registry.BY_NAME["loaderd"]
RECIPE = "crop_uint8"
LARGE = {0.2: 256, 2: 96, 12: 32}  # megapixels: how many photographs
LINKS = 30_000  # names of one file; ext4 allows 65,000
FILES_IN_FOLDER = 1000

Account = dict[str, Any]


def result_of(what: str, measure: Callable[[], Account]) -> dict[str, Any]:
    try:
        return {"what": what, "account": measure()}
    except runner.Failed as error:
        return {"what": what, "error": str(error)}


def medians(accounts: list[Account]) -> Account:
    return {key: statistics.median(account[key] for account in accounts) for key in accounts[0]}


def two_threads(run: runner.Runner, rounds: int) -> Account:
    found = []
    for _ in range(rounds):
        one, two = (run.peer(LOADERD, RECIPE, threads=threads)["images_per_s"] for threads in (1, 2))
        bare_one, bare_two = (run.limit("crop", threads)["images_per_s"] for threads in (1, 2))
        found.append({"one": one, "two": two, "ratio": two / one, "bare_ratio": bare_two / bare_one})
    return medians(found)


def first_batch(run: runner.Runner, rounds: int) -> Account:
    """The daemon runs and knows the folder; the batch's own decode time is told by the rate of the same run."""
    found = []
    for _ in range(rounds):
        account = run.peer(LOADERD, RECIPE, warm=True)
        decode_s = run.settings.batch / account["images_per_s"]
        first_s = account["first_batch_s"]
        found.append({"first_batch_s": first_s, "decode_s": decode_s, "beyond_decode_s": first_s - decode_s})
    return medians(found)


def has_fidelity() -> bool:
    return "fidelity" in inspect.signature(loaderd.DataLoader).parameters


def fidelity(run: runner.Runner, source: Path, folder: Path, megapixels: float, rounds: int) -> Account:
    large = folder / f"photographs-{megapixels:g}MP"
    if not large.is_dir():
        part = large.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        data.write_large(source, part, megapixels, LARGE[megapixels])
        part.rename(large)
    boxes = folder / f"{large.name}.boxes"
    data.write_boxes(large, boxes)
    variants = ["fidelity=exact"] + (["fidelity=fast"] if has_fidelity() else [])
    batch = min(run.settings.batch, LARGE[megapixels] // 4)
    found = []
    for _ in range(rounds):
        account: Account = {"bare_crop": run.limit("crop", run.settings.threads, boxes)["images_per_s"]}
        for variant in variants:
            name = variant.partition("=")[2]
            account[name] = run.peer(LOADERD, RECIPE, data=large, batch=batch, variant=variant)["images_per_s"]
        if "fast" in account:
            account["fast_over_exact"] = account["fast"] / account["exact"]
        found.append(account)
    account = medians(found)
    return account if has_fidelity() else account | {"fast": "not in this build"}


def make_many(source: Path, target: Path, count: int) -> None:
    """An image folder of `count` names, 1,000 in a folder, that share few files."""
    shutil.rmtree(target, ignore_errors=True)
    origin = target.with_suffix(".origin")
    shutil.rmtree(origin, ignore_errors=True)
    origin.mkdir(parents=True)
    for number in range(count):
        file = origin / f"{number // LINKS}.jpg"
        if number % LINKS == 0:
            shutil.copyfile(source, file)
        folder = target / f"class_{number // FILES_IN_FOLDER:05d}"
        if number % FILES_IN_FOLDER == 0:
            folder.mkdir(parents=True)
        os.link(file, folder / f"sample_{number:08d}.jpg")


def index(run: runner.Runner, source: Path, folder: Path, count: int) -> Account:
    """A plain walk beside loaderd's first open, both with the kernel's caches warm; the daemon's memory before and after."""
    target = folder / f"many-{count}"
    try:
        make_many(Path(trainer.samples(source)[0][0]), target, count)
        walk = run.settings.build / "bin" / "walk"
        runner.run([walk, "stat", target, run.settings.threads], 3600)  # so that the caches are warm
        plain = runner.run([walk, "stat", target, run.settings.threads], 3600)
        names = runner.run([walk, "names", target, run.settings.threads], 3600)
        with Daemon(config=f"fleet {{ threads: {run.settings.threads} }}\n") as daemon:
            before = trainer.pss_bytes(daemon.pid)
            opened = runner.run([sys.executable, "-c", OPEN, target, daemon.socket], 3600, client_env(run))
            after = trainer.pss_bytes(daemon.pid)
        if opened["samples"] != count:
            raise runner.Failed(f"the index has {opened['samples']} samples of {count}")
        return {
            "files": plain["files"],
            "walk_with_stat_s": plain["seconds"],
            "walk_of_names_s": names["seconds"],
            "open_s": opened["seconds"],
            "of_walk": opened["seconds"] / plain["seconds"],
            "of_names": opened["seconds"] / names["seconds"],
            "bytes_per_sample": (after - before - plain["name_bytes"]) / plain["files"],
        }
    finally:
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(target.with_suffix(".origin"), ignore_errors=True)


OPEN = inspect.cleandoc(
    """
    import json, sys, time, loaderd
    begin = time.perf_counter()
    samples = loaderd.ImageFolder(sys.argv[1]).describe(sys.argv[2]).num_samples
    print(json.dumps({"seconds": time.perf_counter() - begin, "samples": samples}))
    """
)


def client_env(run: runner.Runner) -> dict[str, str]:
    return dict(
        os.environ,
        PYTHONPATH=str(runner.ROOT / "client" / "python"),
        LOADERD_LIBRARY=str(run.settings.build / "lib" / "libloaderd_client.so"),
    )
