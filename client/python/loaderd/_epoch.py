# SPDX-License-Identifier: Apache-2.0
"""Iteration over one epoch, for both loaders."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import errors
from ._session import Session
from .batch import Batch

_MAX_INDICES_AHEAD = 1 << 20  # the daemon's limit


class SessionKeeper:
    """Opens a loader's sessions, and keeps one between epochs. Thread-safe."""

    def __init__(self, job: dict[str, Any], socket: Any) -> None:
        self.job = job
        self._socket = socket
        self._idle: Session | None = None
        self._lock = threading.Lock()

    def take(self, batch_size: int) -> Session:
        """A session whose slots hold at least `batch_size` samples: the kept one, or a new one."""
        with self._lock:
            session, self._idle = self._idle, None
        if session is not None and session.batch_size >= batch_size:
            return session
        if session is not None:
            session.close()
        return self.open(batch_size)

    def open(self, batch_size: int) -> Session:
        """A new session."""
        return Session({**self.job, "batch_size": batch_size}, self._socket)

    def give_back(self, session: Session) -> None:
        """Keeps a session whose epoch has ended, where none is kept."""
        with self._lock:
            if self._idle is None:
                session.fresh = False
                self._idle = session
                return
        session.close()

    def __reduce__(self):  # a copy opens its own
        return SessionKeeper, (self.job, self._socket)


class _Feed:
    """Explicit order: draws the batches' indices from a sampler, some batches ahead, and streams them.

    Indices are drawn in the thread that iterates, inside iter() and next(): as many batches ahead as the daemon has
    slots, and prefetch_factor more.
    """

    def __init__(self, batches: Iterator[Sequence[int]], prefetch: int, capacity: int | None) -> None:
        self._batches = batches
        self._pending: deque[list[int]] = deque()  # drawn and not yet delivered
        self._sent = 0  # so many of them, from the first on
        self._first = 0  # step of the first
        self._exhausted = False
        self._ended = False
        self._most_ahead = self._ahead = 2 * prefetch + 3
        self._draw()
        self.capacity = capacity or max(map(len, self._pending), default=1)

    def _draw(self) -> None:
        while not self._exhausted and len(self._pending) < self._ahead:
            try:
                batch = [operator.index(index) for index in next(self._batches)]
            except StopIteration:
                self._exhausted = True
                return
            if not batch:
                raise ValueError("batch_sampler gave a batch without an index; leave empty batches out")
            self._pending.append(batch)

    def delivered(self) -> None:
        """The first batch that was sent has come."""
        self._pending.popleft()
        self._sent -= 1
        self._first += 1

    def attach(self, session: Session) -> None:
        """The session from now on, which begins at the next batch to be delivered; what was sent is to be sent again."""
        self.capacity = session.batch_size
        self._ahead = min(self._most_ahead, max(1, _MAX_INDICES_AHEAD // session.batch_size))
        self._sent = 0
        self._ended = False

    def outgrown(self) -> bool:
        """Whether the next batch is larger than the session's slots, and all before it are delivered. Raises capacity."""
        if self._pending and self._sent == 0 and len(self._pending[0]) > self.capacity:
            self.capacity = max(map(len, self._pending))
            return True
        return False

    def top_up(self, session: Session) -> None:
        self._draw()
        while self._sent < len(self._pending) and len(self._pending[self._sent]) <= self.capacity:
            indices = [_within(index, session.num_samples) for index in self._pending[self._sent]]
            session.send_indices(self._first + self._sent, indices)
            self._sent += 1
        if self._exhausted and self._sent == len(self._pending) and not self._ended:
            session.end_indices()
            self._ended = True


def _within(index: int, n: int) -> int:
    if not -n <= index < n:
        raise IndexError(f"the sampler gave index {index}; the dataset has {n} samples")
    return index % n


class EpochIterator:
    """One epoch's batches. Dropping it before its end closes its session and gives its slots back."""

    def __init__(
        self,
        keeper: SessionKeeper,
        epoch: int,
        timeout: float,
        batches: Iterable[Sequence[int]] | None = None,
        capacity: int | None = None,
    ) -> None:
        """batches: the indices of each, for explicit order. capacity: the most samples that one has, where that is known."""
        self._keeper = keeper
        self._epoch = epoch
        self._timeout = timeout
        self._lock = threading.RLock()
        self._failure: BaseException | None = None
        self._feed: _Feed | None = None
        if batches is not None:
            self._feed = _Feed(iter(batches), keeper.job["prefetch_factor"], capacity)
            capacity = self._feed.capacity
        self._step = 0  # of the next batch
        self._session: Session | None = keeper.take(capacity or keeper.job["batch_size"])
        try:
            self._start(self._session)
        except errors.UnavailableError:
            self._replace_if_stale(self._session)

    def _start(self, session: Session) -> None:
        session.start_epoch(self._epoch, self._step, goes_on=self._feed is None)
        if self._feed is not None:
            self._feed.attach(session)
            self._feed.top_up(session)

    def _replace_if_stale(self, session: Session) -> Session:
        """In an except clause: a new session where a kept one's daemon went between two epochs; else raises again."""
        if session.fresh or self._step:
            raise  # noqa: PLE0704 (the caller's exception)
        session.close()
        self._session = self._keeper.open(session.batch_size)
        self._start(self._session)
        return self._session

    def bfloat16_fields(self) -> list[bool]:
        """For each field of a batch, whether it is bfloat16 (which numpy lacks)."""
        return self._session.bfloat16 if self._session is not None else []

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> Batch:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._session is None:
                raise StopIteration
            try:
                batch = self._next(self._session)
            except (errors.BadSampleError, errors.TimeoutError):
                raise
            except Exception as error:
                self._failure = error
                self._session.close()
                self._session = None
                raise
            if batch is not None:
                return batch
            session, self._session = self._session, None
            self._keeper.give_back(session)
        raise StopIteration

    def _next(self, session: Session) -> Batch | None:
        feed = self._feed
        if feed is not None:
            feed.top_up(session)
            if feed.outgrown():
                session.close()
                self._session = session = self._keeper.take(feed.capacity)
                self._start(session)
        try:
            batch = self._receive(session)
        except errors.BadSampleError:
            self._delivered()
            raise
        if batch is not None:
            self._delivered()
        return batch

    def _receive(self, session: Session) -> Batch | None:
        try:
            return session.next(self._timeout)
        except errors.UnavailableError:
            session = self._replace_if_stale(session)
        return session.next(self._timeout)

    def _delivered(self) -> None:
        self._step += 1
        if self._feed is not None:
            self._feed.delivered()

    def __getstate__(self):
        raise TypeError("an iterator of a loader cannot be pickled; pickle the loader")
