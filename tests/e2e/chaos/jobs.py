# SPDX-License-Identifier: Apache-2.0
"""What the trainers of a chaos run train on: a folder of pictures, and jobs at random, each a dict that JSON can hold."""

from __future__ import annotations

import pathlib
import random
from typing import Any

EPOCHS = 3  # that have answers: a trainer begins with the first again after the last
ORDERS = ("shuffle", "sequential", "sampler", "batch_sampler", "stateful")
POLICIES = ("fail", "skip", "substitute")
SAMPLES = 96
BAD = (17, 40, 71)  # pictures that are none


class Stateful:
    """A sampler that says where it is, and goes on there."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.at = 0

    def __iter__(self):
        while self.at < len(self.order):
            self.at += 1
            yield self.order[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def make_folder(folder: pathlib.Path, seed: int) -> None:
    """SAMPLES pictures of 3 classes, of which some cannot be read."""
    from PIL import Image  # noqa: PLC0415 (trainers do without)

    rng = random.Random(f"{seed} pictures")
    for number in range(SAMPLES):
        kind = folder / f"class_{number * 3 // SAMPLES}"
        kind.mkdir(parents=True, exist_ok=True)
        path = kind / f"{number:04}.jpg"
        if number in BAD:
            path.write_bytes(rng.randbytes(900))
            continue
        size = rng.randint(40, 160), rng.randint(40, 160)
        small = Image.frombytes("RGB", (8, 8), rng.randbytes(192))
        small.resize(size, Image.Resampling.BILINEAR).save(path, quality=85)


def good_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The pictures that were made and can be read."""
    return [path for path in sorted(folder.glob("*/*.jpg")) if path.stem.isdigit() and int(path.stem) not in BAD]


def make_job(seed: int, number: int) -> dict[str, Any]:
    """Job `number` of a run: each order and policy comes in turn, all else at random."""
    rng = random.Random(f"{seed} job {number}")
    order = ORDERS[number % len(ORDERS)]
    job: dict[str, Any] = {
        "order": order,
        "batch_size": rng.randint(1, 16),
        "prefetch_factor": rng.randint(1, 6),
        "seed": rng.getrandbits(63),
        "on_bad_sample": POLICIES[number % len(POLICIES)],
        "size": rng.choice((16, 24, 40)),
        "drop_last": rng.random() < 0.3,
    }
    if order in ("shuffle", "sequential"):
        job["world_size"] = rng.randint(1, 3)
        job["rank"] = rng.randrange(job["world_size"])
        job["shard"] = rng.choice(("pad", "drop", "uneven"))
    else:
        job["indices"] = rng.sample(range(SAMPLES), SAMPLES)
    if order == "batch_sampler":
        cuts = sorted(rng.sample(range(1, SAMPLES), 11))
        job["cuts"] = [0, *cuts, SAMPLES]
    return job


def loader_of(job: dict[str, Any], folder: str, socket: str) -> Any:
    """The loader of a job."""
    import loaderd  # noqa: PLC0415 (not at all in the tests of what is pure)
    import loaderd.transforms as T  # noqa: PLC0415

    steps = [T.RandomResizedCrop(job["size"]), T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3, 0.3)]
    arguments = {key: job[key] for key in ("prefetch_factor", "seed", "on_bad_sample")}
    order = job["order"]
    if order == "batch_sampler":
        cuts = job["cuts"]
        arguments["batch_sampler"] = [job["indices"][a:b] for a, b in zip(cuts, cuts[1:], strict=False)]
    else:
        arguments |= {key: job[key] for key in ("batch_size", "drop_last")}
    if order in ("shuffle", "sequential"):
        arguments |= {key: job[key] for key in ("rank", "world_size", "shard")}
        arguments["shuffle"] = order == "shuffle"
    elif order != "batch_sampler":
        arguments["sampler"] = job["indices"] if order == "sampler" else Stateful(job["indices"])
    return loaderd.DataLoader(loaderd.ImageFolder(folder), transform=T.Compose(steps), socket=socket, **arguments)
