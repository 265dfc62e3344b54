# SPDX-License-Identifier: Apache-2.0
"""loaderd.torch.DataLoader: batches as torch tensors, with torch's own loader's arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError("loaderd.torch needs PyTorch, which is not installed: pip install 'loaderd[torch]'") from error
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from . import _job, _torchvision, transforms
from ._epoch import EpochIterator, SessionKeeper
from ._sampler import Replay
from ._state import Cursor, Progress, Resumable, Samples, job_facts
from .batch import Facts
from .datasets import Dataset
from .loader import reconnect_seconds, seconds


def _tensor(array: np.ndarray, bfloat16: bool) -> torch.Tensor:
    if bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class DataLoader(Resumable):
    """torch.utils.data.DataLoader over a dataset that the daemon reads, without workers.

    dataset: loaderd.ImageFolder with transform= here, or torchvision's ImageFolder with its own transform (default loader, no
    target_transform). Yields a list [images, labels] of tensors, as torch's default_collate makes it: views of the
    batch's memory, writable in place, without a copy; memory goes back when the last is gone. `last` has the facts of
    the batch that came last: index, pad, bad, epoch, step.

    Arguments are torch's. shuffle=True, samplers and batch samplers draw from torch's generators in torch's order, so the
    indices are those that torch's loader gives. Without meaning here, and accepted: num_workers, worker_init_fn,
    multiprocessing_context, persistent_workers, in_order, pin_memory_device. collate_fn must be None. pin_memory
    copies to pinned memory where there is an accelerator. Beyond torch's: transform, batch_transform (MixUp and CutMix, which
    torch's loader has in its collate_fn), on_bad_sample, reference, socket and reconnect as in loaderd.DataLoader (the reference follows
    Pillow's version for torchvision's ImageFolder), and seed, the key of random augmentation (default: torch.initial_seed()
    at the first iter()); set_epoch sets its epoch.

    state_dict() and load_state_dict() go on in mid-epoch in another process, also under samplers and generators; torch's
    global generator beyond that epoch is yours to save (torch.get_rng_state()), and going on draws nothing from it.

    Errors: TypeError for a dataset, transform or collate_fn that the daemon cannot run; loaderd.Error later.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        batch_transform: Any = None,
        seed: int | None = None,
        on_bad_sample: str = "fail",
        reference: str | None = None,
        fidelity: str = "exact",
        socket: str | os.PathLike | None = None,
        reconnect: float = 60.0,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative")
        if collate_fn is not None:
            raise TypeError(
                "collate_fn cannot run in the daemon: leave it out, and change the batch in the training loop; for MixUp and "
                "CutMix there is batch_transform"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None:
            raise ValueError("batch_size=None (no batching) is not supported by this version: use batch_size=1")
        self.dataset = dataset
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = seconds(timeout)
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.batch_size = batch_size if batch_size is None else _job.whole("batch_size", batch_size, 1)
        self.drop_last = bool(drop_last)
        self.last: Facts | None = None
        self._native, steps = _native(dataset, transform)
        if reference is None:
            reference = _torchvision.reference() if self._native is not dataset else "pillow13"
        self._explicit = bool(shuffle) or sampler is not None or batch_sampler is not None
        self._socket = socket
        self._reconnect = reconnect_seconds(reconnect)
        self._native.use_socket(socket)
        self._seed = seed if seed is None else _job.whole("seed", seed, 0, 2**64 - 1)
        self._own_seed: int | None = None  # where none is given: torch's at the first iter(), or a loaded state's
        self._progress = Progress()
        self._keeper: SessionKeeper | None = None
        self._job = _job.job(
            self._native.to_json(),
            steps,
            _job.Order("EXPLICIT" if self._explicit else "SEQUENTIAL"),
            batch_size=self.batch_size or 1,
            drop_last=self.drop_last and not self._explicit,
            prefetch_factor=max(1, _job.whole("prefetch_factor", 2 if prefetch_factor is None else prefetch_factor, 0)),
            on_bad_sample=on_bad_sample,
            reference=reference,
            fidelity=fidelity,
            batch_transform=batch_transform,
        )
        if sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if batch_sampler is None:
            batch_sampler = BatchSampler(sampler, self.batch_size, self.drop_last)
        self.batch_sampler = batch_sampler
        self._replay = None
        if self._explicit:
            self._replay = Replay(batch_sampler, generator)

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iter(), for random augmentation; a sampler keeps its own."""
        self._progress.set(epoch)

    def _facts(self, asked: bool = False) -> dict[str, Any]:
        seed = self._seed if asked or self._seed is not None else self._own_seed
        return job_facts(
            _job.Order("EXPLICIT" if self._explicit else "SEQUENTIAL"), self.batch_size, self.drop_last, seed
        )

    def _load(self, state: Mapping[str, Any], samples: Samples | None) -> None:
        seed = state["job"].get("seed")
        if self._seed is None and seed not in (None, self._own_seed):
            self._own_seed, self._keeper = _job.whole("seed", seed, 0, 2**64 - 1), None
        if samples is not None and isinstance(self._native, _torchvision._Checked):
            self._native.must_have(samples.number)

    def _indices(self) -> Iterator[Sequence[int]]:
        return iter(self.batch_sampler)

    def _draw_seed(self) -> None:
        """As torch's loader draws its workers' seed."""
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)

    def _sessions(self) -> SessionKeeper:
        if self._keeper is None:
            if isinstance(self._native, _torchvision._Checked):
                self._native.check(self._socket)
            if self._seed is None and self._own_seed is None:
                self._own_seed = torch.initial_seed() % 2**64
            seed = self._own_seed if self._seed is None else self._seed
            order = {**self._job["order"], "seed": str(seed)}
            self._keeper = SessionKeeper({**self._job, "order": order}, self._socket, self._reconnect)
        return self._keeper

    def __iter__(self) -> _Iterator:
        return self._progress.start(self._begin)

    def _begin(self, cursor: Cursor) -> _Iterator:
        keeper = self._sessions()
        feed = None
        if self._replay is not None:
            feed = self._replay.begin(
                cursor, self._indices, self._job["prefetch_factor"], self.batch_size, self._draw_seed
            )
        elif cursor.at.step == 0:
            self._draw_seed()
        return _Iterator(self, EpochIterator(keeper, cursor, self.timeout, feed))

    def __len__(self) -> int:
        """Batches of an epoch."""
        resumed = self._progress.samples
        if resumed is not None and not self._explicit:
            return _job.num_batches(resumed.number, self.batch_size, self.drop_last)
        return len(self.batch_sampler)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True


class _Iterator:
    def __init__(self, loader: DataLoader, batches: EpochIterator) -> None:
        self._loader = loader
        self._batches = batches
        self._bfloat16 = batches.bfloat16_fields()
        self._pin = loader.pin_memory and torch.accelerator.is_available()

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> list[torch.Tensor]:
        batch = next(self._batches)
        tensors = [_tensor(field, bits) for field, bits in zip(batch, self._bfloat16, strict=True)]
        self._loader.last = batch.facts
        return [tensor.pin_memory() for tensor in tensors] if self._pin else tensors


def _native(dataset: Any, transform: Any) -> tuple[Dataset, list[transforms.Transform]]:
    if isinstance(dataset, Dataset):
        return dataset, transforms.steps_of(transform)
    if _torchvision.is_image_folder(dataset):
        if transform is not None:
            raise TypeError(
                "torchvision's ImageFolder has a transform of its own: give it there, not to the DataLoader"
            )
        return _torchvision.image_folder(dataset), transforms.steps_of(dataset.transform)
    raise TypeError(
        f"dataset of type {type(dataset).__module__}.{type(dataset).__qualname__} cannot run in the daemon; this version "
        "supports loaderd.ImageFolder and torchvision.datasets.ImageFolder (not subclasses of it)"
    )
