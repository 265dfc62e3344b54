# SPDX-License-Identifier: Apache-2.0
"""Brings a sampler back to a batch.

A sampler with state_dict and load_state_dict is asked. Any other one is iterated anew and its first batches are dropped, which
the daemon never hears of; for that the random generators that it draws from are put to where they were when the epoch began:
those that it or the loader has in `generator`, and torch's global one where the sampler was seen to draw from it.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import errors
from ._epoch import Feed
from ._state import Cursor

_FACTS = ("batch_size", "drop_last", "rank", "num_replicas", "seed", "shuffle", "replacement")
_TORCHS = "torch.utils.data.sampler"
Batches = Iterator[Sequence[int]]


def _torch() -> Any:
    return sys.modules.get("torch")  # where nothing imported it, nothing draws from it


def _is_generator(value: Any) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, torch.Generator)


def _written(state: Any) -> str:
    """A torch generator's state (a tensor of bytes) as text, about 4 kB."""
    return base64.b85encode(zlib.compress(state.numpy().tobytes(), 9)).decode("ascii")


def _read(text: str) -> Any:
    try:
        return _torch().frombuffer(bytearray(zlib.decompress(base64.b85decode(text))), dtype=_torch().uint8)
    except (ValueError, zlib.error) as error:
        raise errors.StateError(f"the state of a random generator in this state is damaged: {error}") from None


def _generator_state(generator: Any) -> dict[str, Any]:
    """Its seed, where it stands right behind it, else all of it."""
    state, seed = generator.get_state(), generator.initial_seed()
    fresh = _torch().Generator(generator.device).manual_seed(seed).get_state()
    return {"seed": str(seed)} if fresh.equal(state) else {"state": _written(state)}


def _set_generator(generator: Any, saved: dict[str, Any]) -> None:
    if "seed" in saved:
        generator.manual_seed(int(saved["seed"]))
    else:
        generator.set_state(_read(saved["state"]))


def _keeps_state(sampler: Any) -> bool:
    return all(callable(getattr(sampler, name, None)) for name in ("state_dict", "load_state_dict"))


class Replay:
    """A loader's sampler, or batch sampler and the sampler in it, and the loader's own torch generator."""

    def __init__(self, sampler: Any, generator: Any = None) -> None:
        inner = getattr(sampler, "sampler", None)
        self._samplers = [sampler] if inner is None else [sampler, inner]
        self._generator = generator

    # ---- what it is

    def describe(self) -> list[dict[str, Any]]:
        """What each sampler is and has, for a comparison."""
        return [self._describe(sampler) for sampler in self._samplers]

    @staticmethod
    def _describe(sampler: Any) -> dict[str, Any]:
        facts: dict[str, Any] = {"type": type(sampler).__name__}
        if not _keeps_state(sampler):  # the length of such a one may be what is left
            with contextlib.suppress(TypeError, NotImplementedError):
                facts["len"] = len(sampler)
        for name in _FACTS:
            value = getattr(sampler, name, None)
            if isinstance(value, (bool, int)):
                facts[name] = value
        return facts

    def _own(self) -> Any:
        """The outermost that keeps its own state."""
        for sampler in self._samplers:
            if _keeps_state(sampler):
                return sampler
        return None

    def _generators(self) -> list[Any]:
        found: list[Any] = []
        for value in (self._generator, *(getattr(sampler, "generator", None) for sampler in self._samplers)):
            if _is_generator(value) and not any(value is known for known in found):
                found.append(value)
        return found

    def _epoch(self) -> int | None:
        """The epoch of a sampler that is told it, as DistributedSampler is."""
        for sampler in self._samplers:
            if callable(getattr(sampler, "set_epoch", None)) and isinstance(getattr(sampler, "epoch", None), int):
                return sampler.epoch
        return None

    # ---- saving

    def between_epochs(self) -> dict[str, Any]:
        """For a state while no epoch is under way: the next begins with this."""
        return self._record(begun=False)

    def _record(self, begun: bool) -> dict[str, Any]:
        record: dict[str, Any] = {"begun": True} if begun else {}
        own = self._own()
        if own is not None:
            record["own"] = copy.deepcopy(own.state_dict())
        elif generators := [_generator_state(generator) for generator in self._generators()]:
            record["generators"] = generators
        epoch = self._epoch()
        if epoch is not None:
            record["epoch"] = epoch
        return record

    # ---- restoring

    def announce(self, record: dict[str, Any] | None) -> None:
        """A state was loaded: a sampler that is told its epoch is told that one, until the trainer tells it another."""
        if record and "epoch" in record:
            for sampler in self._samplers:
                if callable(getattr(sampler, "set_epoch", None)):
                    sampler.set_epoch(record["epoch"])
                    return

    def begin(
        self,
        cursor: Cursor,
        start: Callable[[], Batches],
        prefetch: int,
        capacity: int | None,
        draw: Callable[[], None] = lambda: None,
    ) -> Feed:
        """The feed of the epoch at the cursor; draws its first batches. start: gives the batches of indices of an epoch.
        draw: draws from the loader's generator what torch's loader does between start() and the first index."""
        record = cursor.at.sampler
        if record and "epoch" in record and record["epoch"] != self._epoch():
            cursor.at, record = cursor.at._replace(step=0, sampler=None), None  # the trainer wants another one

        def feed(batches: Batches, skip: int = 0) -> Feed:
            return Feed(batches, prefetch, capacity, first=cursor.at.step, skip=skip, mark=self._mark())

        if record and record.get("begun"):
            return self._replayed(record, cursor.at.step, start, draw, feed)
        if record:
            self._restore(record)
        return self._fresh(cursor, start, draw, feed)

    def _mark(self) -> Callable[[], dict[str, Any]] | None:
        """What brings a sampler that keeps its own state to behind the batches drawn so far."""
        return None if self._own() is None else lambda: self._record(begun=True)

    def _restore(self, record: dict[str, Any]) -> None:
        own, saved = self._own(), record.get("generators", [])
        generators = self._generators() if own is None else []
        if ("own" in record) != (own is not None) or len(saved) != len(generators):
            raise errors.StateError(
                f"the state is that of {len(saved)} random generators and {'a' if 'own' in record else 'no'} sampler; this "
                f"loader has {len(generators)}, and {'one' if own is not None else 'none'} that can load it"
            )
        if own is not None:
            own.load_state_dict(copy.deepcopy(record["own"]))
        for generator, state in zip(generators, saved, strict=True):
            _set_generator(generator, state)

    def _fresh(
        self, cursor: Cursor, start: Callable[[], Batches], draw: Callable[[], None], feed: Callable[..., Feed]
    ) -> Feed:
        record = self._record(begun=True)
        cursor.at = cursor.at._replace(sampler=record)
        if "own" in record or _torch() is None:
            batches = start()
            draw()
            return feed(batches)
        first = _torch().get_rng_state()
        batches = start()
        drew = not first.equal(_torch().get_rng_state())
        draw()
        before = _torch().get_rng_state()
        more: dict[str, Any] = {}
        if self._seeds_itself() is not None:
            more["seed"] = str(_torch().empty((), dtype=_torch().int64).random_().item())
            _torch().set_rng_state(before)
        made = feed(batches)
        if drew or not before.equal(_torch().get_rng_state()):
            cursor.at = cursor.at._replace(sampler={**record, **(more or {"torch": _written(first)})})
        return made

    def _seeds_itself(self) -> Any:
        """The torch RandomSampler that draws one number from the global generator, and all from one seeded with that."""
        kinds = [(type(sampler).__module__, type(sampler).__name__) for sampler in self._samplers]
        outer = [(_TORCHS, "BatchSampler")] * (len(kinds) - 1)
        if kinds != [*outer, (_TORCHS, "RandomSampler")] or self._samplers[-1].generator is not None:
            return None
        return self._samplers[-1]

    def _replayed(
        self,
        record: dict[str, Any],
        step: int,
        start: Callable[[], Batches],
        draw: Callable[[], None],
        feed: Callable[..., Feed],
    ) -> Feed:
        """What torch's global generator gives afterwards is not touched: the trainer saves and restores that one itself."""
        self._restore(record)
        if "own" in record:
            return feed(iter(()) if record.get("spent") else start())
        with self._as_it_was(record):
            batches = start()
            if "torch" in record or self._generator is not None:
                draw()
            return feed(batches, step)

    @contextlib.contextmanager
    def _as_it_was(self, record: dict[str, Any]) -> Iterator[None]:
        """torch's global generator as when the epoch began, for as long as the first batches are drawn."""
        sampler = self._seeds_itself()
        if "seed" in record and sampler is not None:
            sampler.generator = _torch().Generator().manual_seed(int(record["seed"]))
            try:
                yield
            finally:
                sampler.generator = None
        elif "torch" in record:
            now = _torch().get_rng_state()
            _torch().set_rng_state(_read(record["torch"]))
            try:
                yield
            finally:
                _torch().set_rng_state(now)
        else:
            yield
