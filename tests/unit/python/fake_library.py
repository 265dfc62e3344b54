# SPDX-License-Identifier: Apache-2.0
"""The C interface in Python: a dataset of numbered samples, delivered at once. Stands in for `_lib.library()`."""

from __future__ import annotations

import ctypes
import json

import numpy as np

from loaderd import _lib, errors


class _Session:
    def __init__(self, job: dict) -> None:
        self.job = job
        self.size = job["batch_size"]
        self.explicit = job["order"]["kind"] == "ORDER_KIND_EXPLICIT"
        self.batches: dict[int, list[int]] = {}
        self.end: int | None = None
        self.epoch = self.step = 0
        self.opened: ctypes.Structure | None = None
        self.keep: list[object] = []


class FakeLibrary:
    """Records what is asked of it: `jobs`, `expected` orders, `started` (epoch, first batch), `sent` batches, `closed` and `live`
    batches."""

    def __init__(self, num_samples: int = 10, classes: tuple[str, ...] = ("cat", "dog")) -> None:
        self.num_samples = num_samples
        self.classes = classes
        self.jobs: list[dict] = []
        self.expected: list[str] = []
        self.order = "f"  # its order fingerprint
        self.started: list[tuple[int, int]] = []
        self.sent: list[list[int]] = []
        self.closed: list[int] = []
        self.live: dict[int, object] = {}
        self.script: list[int] = []  # codes that the next calls of loaderd_next return first
        self.before_next = lambda: None
        self.open_code = 0
        self.gone: set[int] = set()  # sessions whose daemon has gone
        self.waits: list[int] = []
        self._sessions: dict[int, _Session] = {}

    def loaderd_error(self) -> bytes:
        return b"the fake's reason"

    def loaderd_describe(self, text, options, found) -> int:
        names = (ctypes.c_char_p * len(self.classes))(*(name.encode() for name in self.classes))
        found._obj.contents = _lib.Description(self.num_samples, len(names), names, b"f")
        self._names = names
        return self.open_code

    def loaderd_free_description(self, found) -> None:
        pass

    def loaderd_open(self, text, options, handle) -> int:
        if self.open_code:
            return self.open_code
        expected = (options._obj.expected_order_fingerprint or b"").decode()
        if expected not in ("", self.order):
            return errors.FAILED_PRECONDITION
        self.expected.append(expected)
        job = json.loads(text)
        self.jobs.append(job)
        number = len(self.jobs)
        self._sessions[number] = _Session(job)
        handle._obj.value = number
        return 0

    def loaderd_opened_of(self, handle):
        session = self._sessions[handle]
        fields = (_lib.Field * 4)()
        size, offset = session.size, 0
        rows = [
            (b"images", b"uint8", (2, 2, 3)),
            (b"labels", b"int64", ()),
            (b"index", b"int64", ()),
            (b"pad", b"bool", ()),
        ]
        for field, (name, dtype, shape) in zip(fields, rows, strict=True):
            itemsize = np.dtype(dtype.decode()).itemsize
            dims = (size, *shape)
            strides = [itemsize * int(np.prod(dims[k + 1 :])) for k in range(len(dims))]
            field.name, field.dtype, field.ndim, field.offset = name, dtype, len(dims), offset
            field.shape = (ctypes.c_int64 * len(dims))(*dims)
            field.stride_bytes = (ctypes.c_int64 * len(dims))(*strides)
            offset += -(-size * int(np.prod(shape)) * itemsize // 64) * 64
        session.keep = [fields]
        batches = 0 if session.explicit else -(-self.num_samples // size)
        session.opened = _lib.Opened(
            b"s-1",
            b"/tmp/s",
            4,
            fields,
            self.num_samples,
            batches,
            0,
            offset,
            session.job["prefetch_factor"] + 3,
            0,
            b"f",
            0,
            self.order.encode(),
        )
        session.offsets = [field.offset for field in fields]
        session.slot_bytes = offset
        return ctypes.pointer(session.opened)

    def loaderd_start_epoch(self, handle, epoch, first_batch, goes_on) -> int:
        if handle in self.gone:
            return errors.UNAVAILABLE
        session = self._sessions[handle]
        session.epoch, session.step, session.end, session.batches = epoch, first_batch, None, {}
        self.started.append((epoch, first_batch))
        if not session.explicit:
            order = list(range(self.num_samples))
            session.batches = {
                k: order[k * session.size : (k + 1) * session.size] for k in range(session.opened.num_batches)
            }
            session.end = session.opened.num_batches
        return 0

    def loaderd_send_indices(self, handle, batch, address, count) -> int:
        session = self._sessions[handle]
        indices = list((ctypes.c_int64 * count).from_address(address))
        assert count <= session.size and batch == max(session.batches, default=session.step - 1) + 1
        session.batches[batch] = indices
        self.sent.append(indices)
        return 0

    def loaderd_end_indices(self, handle) -> int:
        session = self._sessions[handle]
        session.end = max(session.batches, default=session.step - 1) + 1
        return 0

    def loaderd_next(self, handle, timeout_ms, out) -> int:
        session = self._sessions[handle]
        self.waits.append(timeout_ms)
        self.before_next()
        if self.script:
            code = self.script.pop(0)
            session.step += code == errors.DATA_LOSS
            return code
        if session.end is not None and session.step >= session.end:
            return errors.END_OF_EPOCH
        indices = session.batches[session.step]
        memory = np.zeros(session.slot_bytes + 64, np.uint8)
        base = memory.ctypes.data
        for row, index in enumerate(indices):
            images, labels, index_at, pad = session.offsets
            memory[images + row * 12 : images + row * 12 + 12] = index
            memory[labels + row * 8 : labels + row * 8 + 8].view(np.int64)[0] = index % 2
            memory[index_at + row * 8 : index_at + row * 8 + 8].view(np.int64)[0] = index
            memory[pad + row] = 0
        bad = (_lib.BadSampleStruct * 1)((3, b"3.jpg: truncated", -1))
        batch = _lib.BatchStruct(base, session.epoch, session.step, len(indices), 0, bad, 0)
        self.live[ctypes.addressof(batch)] = (batch, memory, bad)
        session.step += 1
        out._obj.value = ctypes.addressof(batch)
        return 0

    def loaderd_release(self, batch) -> None:
        del self.live[getattr(batch, "value", batch)]

    def loaderd_close(self, handle) -> None:
        self.closed.append(getattr(handle, "value", handle))
