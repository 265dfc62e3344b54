# SPDX-License-Identifier: Apache-2.0
"""Where a loader stands, and the dict that says so: what state_dict() writes and load_state_dict() checks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from . import _job, errors

VERSION = 1
_MOST = 2**64 - 1
_ELASTIC = (
    "the rest of an epoch cannot be dealt out anew to another number of ranks, and each rank loads the state that it saved: "
    "resume as it was, or begin an epoch anew with set_epoch instead"
)
T = TypeVar("T")


class Position(NamedTuple):
    """The next batch to be taken, and what brings the sampler there (None: nothing has to)."""

    epoch: int
    step: int
    sampler: dict[str, Any] | None = None


class Samples(NamedTuple):
    """Which samples, in which order."""

    number: int
    order_fingerprint: str


class Cursor:
    """How far the trainer is in an epoch. Every change is one assignment, so that it may be read at any time without a lock:
    from another thread while next() waits, and from a signal handler."""

    def __init__(self, at: Position, samples: Samples | None) -> None:
        self.at = at
        self.ended = False
        self.samples = samples  # those asked for, then those of the session

    def taken(self, sampler: dict[str, Any] | None) -> None:
        """One more batch; sampler: what brings the sampler to the next."""
        self.at = Position(self.at.epoch, self.at.step + 1, sampler)


class Progress:
    """A loader's place. Each iter() takes the epoch set since the last iter(), else the last started + 1; the first is 0; the
    first iter() after load() goes on where that says, unless another epoch is set. Thread-safe."""

    def __init__(self) -> None:
        self._next = 0
        self._loaded: Position | None = None
        self._cursor: Cursor | None = None  # of the newest epoch
        self._samples: Samples | None = None  # that a loaded state is of
        self._lock = threading.RLock()  # a signal handler may come in between

    def set(self, epoch: int) -> None:
        epoch = _job.whole("epoch", epoch, 0, _MOST)
        with self._lock:
            self._next = epoch
            if self._loaded is not None and self._loaded.epoch != epoch:
                self._loaded = None

    def load(self, position: Position, samples: Samples | None) -> None:
        with self._lock:
            self._next, self._loaded, self._cursor = position.epoch, position, None
            self._samples = samples

    @property
    def samples(self) -> Samples | None:
        """Those of the loaded state."""
        return self._samples

    def start(self, make: Callable[[Cursor], T]) -> T:
        """Begins the next epoch: what `make` makes of its cursor. Where that raises, the epoch is still the next one."""
        with self._lock:
            before = self._next, self._loaded, self._cursor
            cursor = Cursor(self._loaded or Position(self._next, 0), self._samples)
            self._next, self._loaded, self._cursor = cursor.at.epoch + 1, None, cursor
        try:
            return make(cursor)
        except BaseException:
            with self._lock:
                if self._cursor is cursor:
                    self._next, self._loaded, self._cursor = before
            raise

    def where(self) -> tuple[Position, Samples | None]:
        """Where a copy of this loader has to begin to go on in its stead."""
        with self._lock:
            if self._cursor is not None and not self._cursor.ended:
                return self._cursor.at, self._cursor.samples
            samples = self._samples if self._cursor is None else self._cursor.samples
            return self._loaded or Position(self._next, 0), samples

    def __reduce__(self):
        return _progress_at, (self._next, self._loaded, self._samples)


def _progress_at(epoch: int, loaded: Position | None, samples: Samples | None) -> Progress:
    progress = Progress()
    progress.set(epoch)
    if loaded is not None:
        progress.load(loaded, samples)
    return progress


def job_facts(order: _job.Order, batch_size: int | None, drop_last: bool, seed: int | None) -> dict[str, Any]:
    """What of a job a state belongs to. A seed of None is not known yet."""
    return {
        "order": order.kind.lower(),
        "batch_size": batch_size,
        "drop_last": drop_last,
        "seed": seed,
        "rank": order.rank,
        "world_size": order.world_size,
        "shard": order.shard,
    }


def pack(position: Position, samples: Samples | None, job: dict[str, Any], samplers: list[dict[str, Any]]) -> dict:
    state: dict[str, Any] = {"version": VERSION, "epoch": position.epoch, "step": position.step, "job": job}
    if samples is not None:
        state["samples"], state["order_fingerprint"] = samples
    if samplers:
        state["samplers"] = samplers
    if position.sampler:
        state["at"] = position.sampler
    return state


def unpack(state: Any, job: dict[str, Any], samplers: list[dict[str, Any]]) -> tuple[Position, Samples | None]:
    """Checks a state against the loader that is to go on from it. StateError names every difference."""
    if not isinstance(state, Mapping):
        raise TypeError(f"a state is the dict that state_dict() gave, not {type(state).__name__}")
    version = state.get("version")
    if version != VERSION:
        raise errors.StateError(
            f"this is no state that this version of loaderd can load: its version is {version!r}, not {VERSION}"
        )
    try:
        position = Position(
            _job.whole("epoch", state["epoch"], 0, _MOST), _job.whole("step", state["step"], 0, _MOST), state.get("at")
        )
        samples = None
        if "samples" in state:
            samples = Samples(_job.whole("samples", state["samples"], 0, _MOST), str(state["order_fingerprint"]))
        saved = dict(state["job"])
        saved_samplers = [dict(each) for each in state.get("samplers", ())]
    except (KeyError, TypeError, ValueError) as error:
        raise errors.StateError(f"this is no whole state: {error!r}") from None
    found = _differences(saved, job, "") + _sampler_differences(saved_samplers, samplers)
    if found:
        raise errors.StateError("the state is of another job: " + "; ".join(found))
    return position, samples


def _differences(saved: dict[str, Any], mine: dict[str, Any], prefix: str) -> list[str]:
    found = []
    for name in [*mine, *(name for name in saved if name not in mine)]:
        theirs, ours = saved.get(name), mine.get(name)
        if theirs == ours or (name == "seed" and None in (theirs, ours) and not prefix):
            continue
        text = f"{prefix}{name} was {theirs!r} and is {ours!r}"
        found.append(f"{text} ({_ELASTIC})" if name in ("world_size", "rank", "num_replicas") else text)
    return found


def _sampler_differences(saved: list[dict[str, Any]], mine: list[dict[str, Any]]) -> list[str]:
    kinds = [[each.get("type") for each in samplers] for samplers in (saved, mine)]
    if kinds[0] != kinds[1]:
        return [
            f"the sampler was {' of '.join(map(str, kinds[0])) or None} and is {' of '.join(map(str, kinds[1])) or None}"
        ]
    found = []
    for theirs, ours in zip(saved, mine, strict=True):
        found += _differences(theirs, ours, f"{ours.get('type')}'s ")
    return found


class Resumable:
    """state_dict and load_state_dict of both loaders."""

    _progress: Progress
    _replay: Any  # _sampler.Replay, where the order comes from a sampler

    def _facts(self, asked: bool = False) -> dict[str, Any]:
        """job_facts of this loader. asked: as its arguments say, not what it chose itself."""
        raise NotImplementedError

    def _load(self, state: Mapping[str, Any], samples: Samples | None) -> None:
        """More to check or to take from a state that fits."""

    def state_dict(self) -> dict[str, Any]:
        """Where the training stands, as a small dict that JSON can hold, to be saved beside the model.

        It counts the batches that next() has returned, of the epoch begun last, never those made ahead. Call it within the
        loop, between two steps; any thread and any callback may, also while next() waits in another. Once an epoch has
        ended it means the next one, from its beginning; after a loop that was left half-way it still means its next batch.
        """
        position, samples = self._progress.where()
        if self._replay is not None and position.sampler is None:
            position = position._replace(sampler=self._replay.between_epochs())
        samplers = [] if self._replay is None else self._replay.describe()
        return pack(position, samples, self._facts(), samplers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iter() goes on at the batch where `state` was taken, with the samples and pixels that were to come; those
        before it are neither read nor sent. Epochs follow from there. set_epoch with the same epoch changes nothing; with
        another one, that begins instead, from its first batch. len() stays that of whole epochs.

        transform, prefetch_factor, policies and the daemon may be others. StateError, a ValueError, names each difference where
        batch size, seed, order, sampler, drop_last, rank or world size differ, here; where the files do, at iter(): a daemon
        that keeps the index of before goes on with that.
        """
        samplers = [] if self._replay is None else self._replay.describe()
        position, samples = unpack(state, self._facts(asked=True), samplers)
        self._load(state, samples)
        if self._replay is not None:
            self._replay.announce(position.sampler)
        self._progress.load(position, samples)
