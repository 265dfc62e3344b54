# SPDX-License-Identifier: Apache-2.0
"""What loaderd raises. Everything is an `Error`, which is a RuntimeError as torch's loader raises; where Python has a
builtin for the case, the class is that one too, so that `except FileNotFoundError` works as with torchvision."""

from __future__ import annotations

import builtins

CANCELLED = 1
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
UNIMPLEMENTED = 12
UNAVAILABLE = 14
DATA_LOSS = 15
END_OF_EPOCH = 100
INTERRUPTED = 101
FORKED = 102
STORAGE_GONE = 103


class Error(RuntimeError):
    """Base of all errors of a loader. `code` is gRPC's status code, or one of the client's own from 100 on."""

    code: int

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:  # OSError's would look for errno
        return str(self.args[0]) if self.args else ""

    def __reduce__(self):
        return type(self), (str(self), self.code)


class InvalidArgumentError(Error, ValueError):
    """A job that cannot be; the message begins with the path of the field."""


class NotFoundError(Error, FileNotFoundError):
    """No such folder or dataset."""


class PermissionDeniedError(Error, PermissionError):
    """No right to the socket, or the daemon may not open the data."""


class ResourceExhaustedError(Error):
    """A limit of the daemon: the message has the limit, what was asked and what is left."""


class UnsupportedError(Error, NotImplementedError):
    """The daemon lacks a feature that the job needs."""


class UnavailableError(Error, ConnectionError):
    """No daemon answers, or it ended."""


class StateError(Error, ValueError):
    """load_state_dict: the state is of another job, of other data, or no state; the message names each difference."""


class BadSampleError(Error):
    """A sample cannot be read, under `on_bad_sample="fail"`. The iterator lives on: its next `next()` is the following batch."""


class StorageError(Error, OSError):
    """Many reads in a row failed by the storage (a mount is gone, a disk fails), whatever the policy for bad samples. Ends
    the iterator; iterating anew tries again."""


class TimeoutError(Error, builtins.TimeoutError):
    """No batch within `timeout` seconds. The iterator lives on: its next `next()` goes on waiting for the same batch."""


class ForkedError(Error):
    """A session was used in a child of the process that opened it. Make a new DataLoader in the child."""


_BY_CODE: dict[int, type[Error]] = {
    INVALID_ARGUMENT: InvalidArgumentError,
    DEADLINE_EXCEEDED: TimeoutError,
    NOT_FOUND: NotFoundError,
    PERMISSION_DENIED: PermissionDeniedError,
    RESOURCE_EXHAUSTED: ResourceExhaustedError,
    UNIMPLEMENTED: UnsupportedError,
    UNAVAILABLE: UnavailableError,
    DATA_LOSS: BadSampleError,
    FORKED: ForkedError,
    STORAGE_GONE: StorageError,
}


def from_code(code: int, message: str) -> Error:
    """The exception for a code of the C interface."""
    return _BY_CODE.get(code, Error)(message, code)
