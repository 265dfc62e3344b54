# SPDX-License-Identifier: Apache-2.0
"""loaderd.DataLoader: batches as numpy arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

from . import _job, transforms
from ._epoch import EpochIterator, SessionKeeper
from ._sampler import Replay
from ._state import Cursor, Progress, Resumable, job_facts
from .datasets import Dataset, NamedDataset


def in_batches(sampler: Iterable[int], batch_size: int, drop_last: bool) -> Iterator[list[int]]:
    """A sampler's indices, batch_size at a time, drawn when asked for."""
    batch: list[int] = []
    for index in sampler:
        batch.append(index)
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def reconnect_seconds(reconnect: Any) -> float:
    if not isinstance(reconnect, (int, float)) or math.isnan(reconnect) or reconnect < 0:
        raise ValueError("reconnect option should be non-negative")
    return min(float(reconnect), 7 * 86400.0)


def seconds(timeout: Any) -> float:
    if not isinstance(timeout, (int, float)) or math.isnan(timeout) or timeout < 0:
        raise ValueError("timeout option should be non-negative")
    return float(timeout) if math.isfinite(timeout) else 0.0


class DataLoader(Resumable):
    """Batches of a dataset, decoded and transformed by the daemon.

    dataset: loaderd.ImageFolder, or the name (str) of a dataset that the daemon's configuration defines.
    batch_size: samples in a batch, 1 to 65536. drop_last: leave a last batch out that is not full.
    shuffle, seed: epoch e is torch's randperm(n) for the generator seed + e, as DistributedSampler shuffles; the seed
      (0 to 2**64 - 1) is also the key of all random augmentation, see loaderd.random.
    transform: of loaderd.transforms, or torchvision's own of the same names. It must end in one size for all samples.
    batch_transform: MixUp, CutMix or RandomChoice of them, of loaderd.transforms, on each batch after `transform`; the labels
      become float32 [n, num_classes].
    rank, world_size: this trainer's share of each epoch; None means 0 of 1. shard: what to do when an epoch does not
      divide: "pad" (DistributedSampler's, repeats flagged in batch.pad), "drop" the rest, or "uneven".
    sampler: an iterable of indices; batch_sampler: an iterable of lists of indices. They are iterated in iter() and next(), in
      this thread, ahead of need by the number of slots (prefetch_factor + 3) and prefetch_factor batches more.
    prefetch_factor: batches made ahead, 1 to 1024; the session has this + 3 slots, in each of which a batch may be held.
    timeout: seconds that one next() may wait; 0 waits for ever.
    on_bad_sample: a sample that cannot be read is an error at its step ("fail"), is left out ("skip"), or another stands
      in for it ("substitute"); see batch.bad.
    reference: whose resizing is reproduced bit for bit, "pillow13" or "pillow12".
    fidelity: "exact", or "fast": JPEGs of which the first steps (a crop, a resize, or both) make something much smaller are read
      in 1/2, 1/4 or 1/8 of their size. Much faster on photographs of many megapixels, close to exact, and not equal to it.
    socket: the daemon's; None: LOADERD_SOCKET, else the system's, else the user's, which is started if there is none.
    reconnect: seconds that next() waits for a daemon that has gone (killed, restarted, upgraded) before UnavailableError; 0: not
      at all. The loop then goes on with the very next batch, of the same samples in the same order, and batches that are held stay
      as they are. timeout holds meanwhile: TimeoutError, after which next() goes on waiting.

    Each iter() is an epoch: the one given to set_epoch since the last iter(), else the last started + 1; the first is 0.
    state_dict() and load_state_dict() go on in mid-epoch in another process. One
    session spans the epochs; a second live iterator has one of its own; leaving a loop half-way ends it. Yields
    loaderd.Batch. Making a loader opens nothing. Thread-safe; after fork its use in the child is ForkedError.
    """

    def __init__(
        self,
        dataset: Dataset | str,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        transform: Any = None,
        batch_transform: Any = None,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        shard: str = "pad",
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        prefetch_factor: int = 2,
        timeout: float = 0,
        on_bad_sample: str = "fail",
        reference: str = "pillow13",
        fidelity: str = "exact",
        socket: str | os.PathLike | None = None,
        reconnect: float = 60.0,
    ) -> None:
        if isinstance(dataset, str):
            dataset = NamedDataset(dataset)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"dataset should be a loaderd.ImageFolder or the name of a dataset of the daemon, not {dataset!r}; "
                "for a folder write loaderd.ImageFolder(path), for torchvision's ImageFolder use loaderd.torch.DataLoader"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        explicit = sampler is not None or batch_sampler is not None
        if explicit and (rank is not None or world_size is not None):
            raise ValueError("sampler and batch_sampler options are mutually exclusive with rank and world_size")
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size should be given together")
        self.dataset = dataset
        self.batch_size = _job.whole("batch_size", batch_size, 1) if batch_sampler is None else None
        self.drop_last = bool(drop_last)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.prefetch_factor = _job.whole("prefetch_factor", prefetch_factor, 1)
        self.timeout = seconds(timeout)
        self.transform = transform
        self.batch_transform = batch_transform
        world = _job.whole("world_size", 1 if world_size is None else world_size, 1)
        kind = "EXPLICIT" if explicit else "TORCH_SHUFFLE" if shuffle else "SEQUENTIAL"
        self._order = _job.Order(
            kind=kind,
            seed=_job.whole("seed", seed, 0, 2**64 - 1),
            rank=_job.whole("rank", 0 if rank is None else rank, 0, world - 1),
            world_size=world,
            shard=shard,
        )
        self._socket = socket
        dataset.use_socket(socket)
        self._progress = Progress()
        self._replay = None
        if explicit:
            self._replay = Replay(sampler if batch_sampler is None else batch_sampler)
        self._keeper = SessionKeeper(
            _job.job(
                dataset.to_json(),
                transforms.steps_of(transform),
                self._order,
                batch_size=self.batch_size or 1,
                drop_last=self.drop_last and not explicit,
                prefetch_factor=self.prefetch_factor,
                on_bad_sample=on_bad_sample,
                reference=reference,
                fidelity=fidelity,
                batch_transform=batch_transform,
            ),
            socket,
            reconnect_seconds(reconnect),
        )

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iter()."""
        self._progress.set(epoch)

    def _facts(self, asked: bool = False) -> dict[str, Any]:
        return job_facts(self._order, self.batch_size, self.drop_last, self._order.seed)

    def _batches(self) -> Iterator[Sequence[int]]:
        if self.batch_sampler is not None:
            return iter(self.batch_sampler)
        return in_batches(self.sampler, self.batch_size, self.drop_last)

    def __iter__(self) -> EpochIterator:
        return self._progress.start(self._begin)

    def _begin(self, cursor: Cursor) -> EpochIterator:
        feed = None
        if self._replay is not None:
            feed = self._replay.begin(cursor, self._batches, self.prefetch_factor, self.batch_size)
        return EpochIterator(self._keeper, cursor, self.timeout, feed)

    def __len__(self) -> int:
        """Batches of an epoch of this rank. TypeError where the sampler has no len()."""
        if self.batch_sampler is not None:
            return _length(self.batch_sampler)
        if self.sampler is not None:
            samples = _length(self.sampler)
        else:
            resumed = self._progress.samples
            all_samples = self.dataset.describe(self._socket).num_samples if resumed is None else resumed.number
            samples = self._order.num_samples(all_samples)
        return _job.num_batches(samples, self.batch_size, self.drop_last)

    def __bool__(self) -> bool:  # len() would ask the daemon
        return True


def _length(sampler: Any) -> int:
    if not isinstance(sampler, Sized):
        raise TypeError(f"this loader has no len(): its sampler, of type {type(sampler).__name__}, has none")
    return len(sampler)
