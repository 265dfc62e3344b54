# SPDX-License-Identifier: Apache-2.0
"""ctypes over the C interface (client/cpp/include/loaderd/client.h). The library is loaded at first use, not at import."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

ABI_VERSION = 4
NAME = "libloaderd_client.so"

# The second argument (what is waited for) is not used: see `_session.Interruptible`.
WAITING = ctypes.CFUNCTYPE(c_int, ctypes.py_object, c_char_p)
LOG = ctypes.CFUNCTYPE(None, c_char_p)


class OpenOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("socket", c_char_p),
        ("timeout_ms", c_int64),
        ("delivery", c_int),
        ("no_start", c_int),
        ("daemon", c_char_p),
        ("client", c_char_p),
        ("log", LOG),
        ("waiting", WAITING),
        ("waiting_arg", c_void_p),
        ("expected_order_fingerprint", c_char_p),
        ("reconnect_ms", c_int64),
    ]


class Field(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("ndim", c_uint32),
        ("shape", POINTER(c_int64)),
        ("stride_bytes", POINTER(c_int64)),
        ("offset", c_uint64),
    ]


class Opened(ctypes.Structure):
    _fields_ = [
        ("session", c_char_p),
        ("socket", c_char_p),
        ("num_fields", c_uint32),
        ("fields", POINTER(Field)),
        ("num_samples", c_uint64),
        ("num_batches", c_uint64),
        ("epoch_samples", c_uint64),
        ("slot_bytes", c_uint64),
        ("slot_count", c_uint32),
        ("delivery", c_int),
        ("job_fingerprint", c_char_p),
        ("plain_loop_copies", c_int),
        ("order_fingerprint", c_char_p),
    ]


class BadSampleStruct(ctypes.Structure):
    _fields_ = [("index", c_int64), ("reason", c_char_p), ("substitute", c_int64)]


class BatchStruct(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("epoch", c_uint64),
        ("step", c_uint64),
        ("count", c_uint32),
        ("bad_count", c_uint32),
        ("bad", POINTER(BadSampleStruct)),
        ("copied", c_int),
    ]


class EntryNote(ctypes.Structure):
    _fields_ = [
        ("kind", c_char_p),
        ("count", c_uint64),
        ("first", POINTER(c_char_p)),
        ("num_first", c_uint32),
        ("taken", c_int),
    ]


class Description(ctypes.Structure):
    _fields_ = [
        ("num_samples", c_uint64),
        ("num_classes", c_uint64),
        ("class_names", POINTER(c_char_p)),
        ("order_fingerprint", c_char_p),
        ("num_notes", c_uint32),
        ("notes", POINTER(EntryNote)),
    ]


# Batches and sessions go as c_void_p: a void pointer can be tested and cleared in place.
_SIGNATURES = {
    "loaderd_abi_version": (c_uint32, []),
    "loaderd_error": (c_char_p, []),
    "loaderd_open": (c_int, [c_char_p, POINTER(OpenOptions), POINTER(c_void_p)]),
    "loaderd_opened_of": (POINTER(Opened), [c_void_p]),
    "loaderd_start_epoch": (c_int, [c_void_p, c_uint64, c_uint64, c_int]),
    "loaderd_send_indices": (c_int, [c_void_p, c_uint64, c_void_p, c_size_t]),
    "loaderd_end_indices": (c_int, [c_void_p]),
    "loaderd_next": (c_int, [c_void_p, c_int64, POINTER(c_void_p)]),
    "loaderd_release": (None, [c_void_p]),
    "loaderd_close": (None, [c_void_p]),
    "loaderd_describe": (
        c_int,
        [c_char_p, POINTER(OpenOptions), POINTER(POINTER(Description))],
    ),
    "loaderd_free_description": (None, [POINTER(Description)]),
}


def _candidates() -> Iterator[str]:
    here = Path(__file__).resolve().parent
    yield str(here / NAME)
    for parent in here.parents:
        if (parent / "proto" / "loaderd").is_dir():  # a source checkout
            yield str(parent / "build" / "lib" / NAME)


def _load() -> ctypes.CDLL:
    tried: list[str] = []
    named = os.environ.get("LOADERD_LIBRARY")
    for path in [named] if named else _candidates():
        if os.path.exists(path):
            try:
                return ctypes.CDLL(path)
            except OSError as error:
                tried.append(f"{path}: {error}")
        else:
            tried.append(f"{path}: no such file")
    if not named:
        try:
            return ctypes.CDLL(NAME)  # ld.so's own path
        except OSError as error:
            tried.append(str(error))
    what = "LOADERD_LIBRARY" if named else "loaderd's client library"
    raise ImportError(
        f"{what} cannot be loaded ({'; '.join(tried)}). Build it with `./run build` in the source checkout, "
        f"install the loaderd package, or set LOADERD_LIBRARY to the path of {NAME}."
    )


_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The client library with its signatures set. ImportError says where it was looked for and what to do."""
    global _library
    if _library is None:
        lib = _load()
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(lib, name)
            except AttributeError:
                raise ImportError(f"{lib._name} is no loaderd client library: it lacks {name}") from None
            function.restype = result
            function.argtypes = arguments
        version = lib.loaderd_abi_version()
        if version < ABI_VERSION:
            raise ImportError(
                f"{lib._name} has interface version {version}; this package needs {ABI_VERSION} or later. "
                f"Rebuild it with `./run build`, or unset LOADERD_LIBRARY if that names an old one."
            )
        _library = lib
    return _library


def error_text(lib: ctypes.CDLL) -> str:
    """Text of this thread's last error; to be read right after the call that failed."""
    return (lib.loaderd_error() or b"").decode("utf-8", "replace")
