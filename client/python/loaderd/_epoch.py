# SPDX-License-Identifier: Apache-2.0
"""Iteration over one epoch, for both loaders."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _session, errors
from ._session import Session
from ._state import Cursor, Samples
from .batch import Batch

_MAX_INDICES_AHEAD = 1 << 20  # the daemon's limit


class SessionKeeper:
    """Opens a loader's sessions, and keeps one between epochs. Thread-safe."""

    def __init__(self, job: dict[str, Any], socket: Any, reconnect: float | None = None) -> None:
        self.job = job
        self._socket = socket
        self._reconnect = reconnect
        self._idle: Session | None = None
        self._lock = threading.Lock()

    def take(self, batch_size: int, samples: Samples | None = None) -> Session:
        """A session whose slots hold at least `batch_size` samples: the kept one, or a new one. samples: it must have these."""
        with self._lock:
            session, self._idle = self._idle, None
        if session is not None:
            others = samples is not None and samples.order_fingerprint not in ("", session.order_fingerprint)
            if session.batch_size >= batch_size and not others:
                return session
            session.close()
        return self.open(batch_size, samples)

    def open(self, batch_size: int, samples: Samples | None = None) -> Session:
        """A new session. StateError where the daemon has `samples` no more."""
        job = {**self.job, "batch_size": batch_size}
        try:
            return Session(job, self._socket, "" if samples is None else samples.order_fingerprint, self._reconnect)
        except errors.Error as error:
            if samples is None or error.code != errors.FAILED_PRECONDITION:
                raise
            now = _session.describe(job["dataset"], self._socket).num_samples
            text = "with other names" if now == samples.number else f"it has {now}"
            raise errors.StateError(
                f"the dataset is another one: it had {samples.number} samples, and now {text}: {error}"
            ) from None

    def give_back(self, session: Session) -> None:
        """Keeps a session whose epoch has ended, where none is kept."""
        with self._lock:
            if self._idle is None:
                session.fresh = False
                self._idle = session
                return
        session.close()

    def __reduce__(self):  # a copy opens its own
        return SessionKeeper, (self.job, self._socket, self._reconnect)


class Feed:
    """Explicit order: draws the batches' indices from a sampler, some batches ahead, and streams them.

    Indices are drawn in the thread that iterates, inside iter() and next(): as many batches ahead as the daemon has
    slots, and prefetch_factor more.
    """

    def __init__(
        self,
        batches: Iterator[Sequence[int]],
        prefetch: int,
        capacity: int | None,
        *,
        first: int = 0,
        skip: int = 0,
        mark: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """capacity: the most samples that a batch has, where that is known. first: the step of the first batch to be delivered,
        before which `skip` more are drawn and dropped. mark: asked after each draw for what delivered() is to give."""
        self._batches = batches
        self._mark = mark
        self._marks: deque[dict[str, Any]] = deque()  # of each pending batch
        self._pending: deque[list[int]] = deque()  # drawn and not yet delivered
        self._sent = 0  # so many of them, from the first on
        self._first = first  # step of the first
        self._exhausted = False
        self._ended = False
        self._most_ahead = self._ahead = 2 * prefetch + 3
        for drawn in range(skip):
            if next(batches, None) is None:
                raise errors.StateError(f"the sampler gave {drawn} batches; the state is behind {skip} of them")
        self._draw()
        self.capacity = capacity or max(map(len, self._pending), default=1)

    def _draw(self) -> None:
        while not self._exhausted and len(self._pending) < self._ahead:
            try:
                batch = [operator.index(index) for index in next(self._batches)]
            except StopIteration:
                self._exhausted = True
                if self._mark is not None and self._marks:  # behind its end a sampler is ready for the next epoch
                    self._marks[-1] = {**self._mark(), "spent": True}
                return
            if not batch:
                raise ValueError("batch_sampler gave a batch without an index; leave empty batches out")
            self._pending.append(batch)
            if self._mark is not None:
                self._marks.append(self._mark())

    def delivered(self) -> dict[str, Any] | None:
        """The first batch that was sent has come. What mark() gave when it was drawn."""
        self._pending.popleft()
        self._sent -= 1
        self._first += 1
        return self._marks.popleft() if self._marks else None

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
        cursor: Cursor,
        timeout: float,
        feed: Feed | None = None,
    ) -> None:
        """From the cursor's place on. feed: the indices, for explicit order."""
        self._keeper = keeper
        self._cursor = cursor
        self._timeout = timeout
        self._lock = threading.RLock()
        self._failure: BaseException | None = None
        self._feed = feed
        self._began_at = cursor.at.step
        capacity = keeper.job["batch_size"] if feed is None else feed.capacity
        self._session: Session | None = self._has(keeper.take(capacity, cursor.samples))
        try:
            self._start(self._session)
        except errors.UnavailableError:
            self._replace_if_stale(self._session)

    def _has(self, session: Session) -> Session:
        self._cursor.samples = Samples(session.num_samples, session.order_fingerprint)
        return session

    def _start(self, session: Session) -> None:
        at = self._cursor.at
        session.start_epoch(at.epoch, at.step, goes_on=self._feed is None)
        if self._feed is not None:
            self._feed.attach(session)
            self._feed.top_up(session)

    def _replace_if_stale(self, session: Session) -> Session:
        """In an except clause: a new session where a kept one's daemon went between two epochs; else raises again."""
        if session.fresh or self._cursor.at.step > self._began_at:
            raise  # noqa: PLE0704 (the caller's exception)
        session.close()
        self._session = self._has(self._keeper.open(session.batch_size, self._cursor.samples))
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
            self._cursor.ended = True
            self._keeper.give_back(session)
        raise StopIteration

    def _next(self, session: Session) -> Batch | None:
        feed = self._feed
        if feed is not None:
            feed.top_up(session)
            if feed.outgrown():
                session.close()
                self._session = session = self._has(self._keeper.take(feed.capacity, self._cursor.samples))
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
        mark = None if self._feed is None else self._feed.delivered()
        self._cursor.taken(self._cursor.at.sampler if mark is None else mark)

    def __getstate__(self):
        raise TypeError("an iterator of a loader cannot be pickled; pickle the loader")
