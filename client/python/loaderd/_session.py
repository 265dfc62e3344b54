# SPDX-License-Identifier: Apache-2.0
"""One session with the daemon over the C interface, and its batches as numpy arrays."""

from __future__ import annotations

import collections
import ctypes
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _lib, errors
from .batch import BadSample, Batch, Facts, batch_type

_SLICE_MS = 100  # between two looks for signals and other threads
_OWN_FIELDS = ("index", "pad")  # come with every dataset


class EntryNote(NamedTuple):
    """Entries of a folder that were left out, or taken though they look odd."""

    kind: str  # "hidden entries", "dangling links", ...
    count: int
    first: tuple[str, ...]  # at most 5 names, relative to the folder, with escapes
    taken: bool  # they are classes or samples all the same


class Description(NamedTuple):
    """What the daemon knows of a dataset."""

    num_samples: int
    class_names: tuple[str, ...]
    order_fingerprint: str
    notes: tuple[EntryNote, ...] = ()


class FieldLayout(NamedTuple):
    """One field of a batch in its slot. shape is that of one sample; strides has the batch's in front."""

    name: str
    offset: int
    typestr: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bfloat16: bool
    view: Any  # a numpy dtype to see the bits as, or None


class Interruptible:
    """The `waiting` callback: lets Ctrl-C end a call that blocks in the library.

    A Python function would not do: its first instruction runs the pending signal handler, outside of any `try` of its own,
    and ctypes drops what that raises. So the callback is the builtin next(generator, default), C's second argument being
    the unused default, and the handler runs where the generator stands: within its `try`.
    """

    callback = _lib.WAITING(next)

    def __init__(self) -> None:
        self._caught: list[BaseException] = []
        self._generator = self._run(self._caught)
        next(self._generator)

    @staticmethod
    def _run(caught: list[BaseException]):
        while True:
            try:
                _print_lines()
                yield 1 if caught else 0
            except GeneratorExit:
                return
            except BaseException as error:  # handed to the caller of the library by check()
                caught.append(error)

    @property
    def argument(self) -> int:
        """Address of the generator, for waiting_arg; valid while this object lives."""
        return id(self._generator)

    def check(self) -> None:
        """Prints what the library said, and raises what a signal handler raised while it waited."""
        _print_lines()
        if self._caught:
            raise self._caught.pop()


# What the library says, until Python code that waits for the library prints it. The callback is a builtin for the reason
# that Interruptible's is: in a Python function a pending Ctrl-C would be raised to ctypes, which drops it.
_lines: collections.deque[bytes] = collections.deque()
_LOG = _lib.LOG(_lines.append)


def _print_lines() -> None:
    while _lines:
        try:
            line = _lines.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            print("loaderd: " + line.decode("utf-8", "replace"), file=sys.stderr, flush=True)
        except OSError as error:  # a pipe without a reader, a full disk; without errno it is a signal handler's
            if error.errno is None:
                raise


def _open_options(
    socket: str | os.PathLike | None,
    waiting: Interruptible,
    expected_order: str = "",
    reconnect: float | None = None,
) -> _lib.OpenOptions:
    options = _lib.OpenOptions()
    options.struct_size = ctypes.sizeof(options)
    options.socket = os.fsencode(socket) if socket is not None else None
    options.timeout_ms = -1
    options.delivery = 2  # LOADERD_MAPPED_OR_INLINE
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    options.client = os.fsencode(f"python {version} {os.path.basename(sys.argv[0] if sys.argv else '')}".strip())
    options.log = _LOG
    options.waiting = waiting.callback
    options.waiting_arg = waiting.argument
    options.expected_order_fingerprint = expected_order.encode()
    options.reconnect_ms = -1 if reconnect is None else min(round(reconnect * 1000), 2**62)
    return options


def describe(dataset: dict[str, Any], socket: str | os.PathLike | None = None) -> Description:
    """Asks what a dataset (DatasetSpec in JSON form) holds; blocks until it is indexed."""
    lib = _lib.library()
    waiting = Interruptible()
    found = ctypes.POINTER(_lib.Description)()
    options = _open_options(socket, waiting)
    code = lib.loaderd_describe(json.dumps(dataset).encode(), ctypes.byref(options), ctypes.byref(found))
    text = _lib.error_text(lib) if code else ""
    waiting.check()
    if code:
        raise errors.from_code(code, text)
    try:
        names = tuple(os.fsdecode(found.contents.class_names[k]) for k in range(found.contents.num_classes))
        notes = tuple(
            EntryNote(
                note.kind.decode(),
                note.count,
                tuple(note.first[k].decode("utf-8", "replace") for k in range(note.num_first)),
                bool(note.taken),
            )
            for note in (found.contents.notes[k] for k in range(found.contents.num_notes))
        )
        fingerprint = (found.contents.order_fingerprint or b"").decode()
        return Description(found.contents.num_samples, names, fingerprint, notes)
    finally:
        lib.loaderd_free_description(found)


class Lease:
    """A batch of the library's; released when this object goes, which every view of it keeps alive."""

    __slots__ = ("_address", "_release")

    def __init__(self, address: int, release: Callable[[int], None]) -> None:
        self._address = address
        self._release = release

    def __del__(self) -> None:
        self._release(self._address)


class _FieldMemory:
    """What numpy reads a field from; becomes the array's base and so keeps the lease."""

    __slots__ = ("__array_interface__", "_lease")

    def __init__(self, interface: dict[str, Any], lease: Lease) -> None:
        self.__array_interface__ = interface
        self._lease = lease


def _bfloat16() -> Any:
    try:
        import ml_dtypes  # noqa: PLC0415 (optional, and only looked for where a job has this type)
    except ImportError:
        return None
    return np.dtype(ml_dtypes.bfloat16)


def _layout(field: _lib.Field) -> FieldLayout:
    dtype = field.dtype.decode()
    bfloat16 = dtype == "bfloat16"
    view = _bfloat16() if bfloat16 else None
    typestr = "<u2" if bfloat16 else np.dtype(dtype).str
    shape = tuple(field.shape[k] for k in range(1, field.ndim))
    strides = tuple(field.stride_bytes[k] for k in range(field.ndim))
    return FieldLayout(field.name.decode(), field.offset, typestr, shape, strides, bfloat16, view)


def _end(lib: ctypes.CDLL, handle: int, out: ctypes.c_void_p) -> None:
    if out.value:  # a batch that an interrupted next() left behind
        lib.loaderd_release(out)
    lib.loaderd_close(handle)


class Session:
    """An open session. Ends by close(), or when the object is dropped; batches outlive it. Thread-safe."""

    def __init__(
        self,
        job: dict[str, Any],
        socket: str | os.PathLike | None = None,
        expected_order: str = "",
        reconnect: float | None = None,
    ) -> None:
        """Opens `job` (a JobSpec in JSON form); blocks until the dataset is indexed. expected_order: the order_fingerprint that
        it must have; else an Error of FAILED_PRECONDITION. reconnect: seconds that next() waits for a daemon that has gone."""
        self._lib = lib = _lib.library()
        self._lock = threading.RLock()
        self._out = ctypes.c_void_p()  # where the library puts the next batch
        waiting = Interruptible()
        handle = ctypes.c_void_p()
        options = _open_options(socket, waiting, expected_order, reconnect)
        text = ""
        try:
            code = lib.loaderd_open(json.dumps(job).encode(), ctypes.byref(options), ctypes.byref(handle))
            text = _lib.error_text(lib) if code else ""
            waiting.check()
        except BaseException:
            if handle.value:
                lib.loaderd_close(handle)
            raise
        if code:
            raise errors.from_code(code, text)
        self._handle = handle.value
        self._close = weakref.finalize(self, _end, lib, self._handle, self._out)
        self._close.atexit = False  # the kernel does it, and a daemon thread may still be in next()
        opened = lib.loaderd_opened_of(self._handle).contents
        fields = [_layout(opened.fields[k]) for k in range(opened.num_fields)]
        self._fields = [field for field in fields if field.name not in _OWN_FIELDS]
        self._own = {field.name: field for field in fields if field.name in _OWN_FIELDS}
        self._batch_type = batch_type(tuple(field.name for field in self._fields))
        self.bfloat16 = [field.bfloat16 for field in self._fields]
        self.name = opened.session.decode()
        self.socket = os.fsdecode(opened.socket)
        self.num_samples = opened.num_samples
        self.num_batches = opened.num_batches
        self.order_fingerprint = (opened.order_fingerprint or b"").decode()
        self.slot_count = opened.slot_count
        self.batch_size = int(job.get("batch_size", 1))
        self.fresh = True  # has begun no epoch but its first

    def close(self) -> None:
        """Ends the session; calling it again does nothing."""
        self._close()

    def _check(self, code: int) -> None:
        if code:
            raise errors.from_code(code, _lib.error_text(self._lib))

    def _open_handle(self) -> int:
        if not self._close.alive:
            raise errors.Error(f"session {self.name} is closed")
        return self._handle

    def start_epoch(self, epoch: int, first_batch: int = 0, goes_on: bool = True) -> None:
        """Delivery begins at a batch; what was on its way from elsewhere is dropped."""
        with self._lock:
            if self._out.value:
                self._lib.loaderd_release(self._out)
                self._out.value = None
            self._check(self._lib.loaderd_start_epoch(self._open_handle(), epoch, first_batch, goes_on))

    def send_indices(self, batch: int, indices: Sequence[int]) -> None:
        """Explicit order: the samples of one batch, in batch order."""
        array = np.ascontiguousarray(indices, np.int64)
        with self._lock:
            self._check(self._lib.loaderd_send_indices(self._open_handle(), batch, array.ctypes.data, len(array)))

    def end_indices(self) -> None:
        """Explicit order: the epoch has no further batch."""
        with self._lock:
            self._check(self._lib.loaderd_end_indices(self._open_handle()))

    def next(self, timeout: float = 0) -> Batch | None:
        """The next batch, or None at the epoch's end. timeout in seconds; 0 waits for ever.

        Errors: BadSampleError and TimeoutError, after which the session goes on; any other ends it.
        """
        deadline = time.monotonic() + timeout if timeout else None
        with self._lock:
            while not self._out.value:
                wait_ms = _SLICE_MS
                if deadline is not None:
                    wait_ms = min(_SLICE_MS, max(0, round((deadline - time.monotonic()) * 1000)))
                code = self._lib.loaderd_next(self._open_handle(), wait_ms, ctypes.byref(self._out))
                _print_lines()
                if code == errors.END_OF_EPOCH:
                    return None
                if code == errors.DEADLINE_EXCEEDED:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise errors.TimeoutError(
                            f"no batch within timeout={timeout} s; the next call goes on waiting for it", code
                        )
                elif code != errors.INTERRUPTED:
                    self._check(code)
            return self._take()

    def _take(self) -> Batch:
        batch = _lib.BatchStruct.from_address(self._out.value)
        data, count = batch.data, batch.count
        bad = tuple(
            BadSample(
                batch.bad[k].index,
                (batch.bad[k].reason or b"").decode("utf-8", "replace"),
                batch.bad[k].substitute if batch.bad[k].substitute >= 0 else None,
            )
            for k in range(batch.bad_count)
        )
        epoch, step = batch.epoch, batch.step
        lease = Lease(self._out.value, self._lib.loaderd_release)
        self._out.value = None
        fields = [self._array(field, data, count, lease) for field in self._fields]
        own = {name: self._array(field, data, count, lease).copy() for name, field in self._own.items()}
        return self._batch_type(fields, Facts(own.get("index"), own.get("pad"), bad, epoch, step))

    @staticmethod
    def _array(field: FieldLayout, data: int, count: int, lease: Lease) -> np.ndarray:
        interface = {
            "version": 3,
            "data": (data + field.offset, False),
            "shape": (count, *field.shape),
            "strides": field.strides,
            "typestr": field.typestr,
        }
        array = np.asarray(_FieldMemory(interface, lease))
        return array if field.view is None else array.view(field.view)
