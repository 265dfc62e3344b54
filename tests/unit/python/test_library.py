# SPDX-License-Identifier: Apache-2.0
"""Finding the client library, the mirror of its structs, and what importing the package costs."""

import pathlib
import re
import subprocess
import sys

import pytest

from loaderd import _lib

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADER = (ROOT / "client" / "cpp" / "include" / "loaderd" / "client.h").read_text()


def fields_of(struct):
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return [
        re.search(r"(?:\(\*)?(\w+)\)?(?:\([^)]*\))?\s*$", part).group(1) for part in body.split(";") if part.strip()
    ]


@pytest.mark.parametrize(
    ("struct", "mirror"),
    [
        ("loaderd_open_options", _lib.OpenOptions),
        ("loaderd_field", _lib.Field),
        ("loaderd_opened", _lib.Opened),
        ("loaderd_bad_sample", _lib.BadSampleStruct),
        ("loaderd_batch", _lib.BatchStruct),
        ("loaderd_description", _lib.Description),
    ],
)
def test_structs_have_the_headers_fields_in_its_order(struct, mirror):
    assert [name for name, _ in mirror._fields_] == fields_of(struct)


def test_every_function_of_the_header_is_declared():
    assert set(re.findall(r"LOADERD_EXPORT [^;]*?(loaderd_\w+)\(", HEADER)) == set(_lib._SIGNATURES)
    assert int(re.search(r"LOADERD_ABI_VERSION (\d+)", HEADER).group(1)) == _lib.ABI_VERSION


def test_codes_are_the_headers():
    from loaderd import errors

    for name, value in re.findall(r"LOADERD_([A-Z_]+) = (\d+)", HEADER):
        if hasattr(errors, name):
            assert getattr(errors, name) == int(value)


@pytest.fixture
def unloaded(monkeypatch):
    monkeypatch.setattr(_lib, "_library", None)


def test_a_library_that_is_named_and_not_there_is_an_import_error_with_the_cure(monkeypatch, unloaded):
    monkeypatch.setenv("LOADERD_LIBRARY", "/nowhere/libloaderd_client.so")
    with pytest.raises(ImportError, match=r"LOADERD_LIBRARY cannot be loaded \(/nowhere/.*no such file.*run build"):
        _lib.library()


def test_another_library_is_refused_by_the_function_that_it_lacks(monkeypatch, unloaded):
    monkeypatch.setenv("LOADERD_LIBRARY", "libc.so.6")
    monkeypatch.setattr(_lib.os.path, "exists", lambda path: True)
    with pytest.raises(ImportError, match="no loaderd client library: it lacks loaderd_abi_version"):
        _lib.library()


def test_import_starts_no_thread_opens_nothing_and_brings_only_numpy():
    code = (
        "import os, sys, numpy\n"
        "state = lambda: (sorted(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')))\n"
        "before, modules = state(), set(sys.modules)\n"
        "import loaderd, loaderd.transforms, loaderd.random\n"
        "assert state() == before, (before, state())\n"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(tops))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "client" / "python")},
    )
    assert result.stdout.strip() == "['loaderd']", result.stderr


def test_ctrl_c_ends_a_call_that_blocks_in_native_code(tmp_path):
    """Native code calls the callback until it answers non-zero, as loaderd_open does; SIGINT comes meanwhile."""
    source = tmp_path / "wait.c"
    source.write_text(
        "#include <unistd.h>\n"
        "int wait_for(int (*waiting)(void*, const char*), void* arg) {\n"
        "  int turns = 0;\n"
        '  while (turns < 100 && !waiting(arg, "x")) { usleep(50000); ++turns; }\n'
        "  return turns;\n"
        "}\n"
    )
    library = tmp_path / "wait.so"
    if subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source]).returncode:
        pytest.skip("no C compiler")
    code = (
        "import ctypes, os, signal, sys, threading, time\n"
        "from loaderd import _lib\n"
        "from loaderd._session import Interruptible\n"
        "lib = ctypes.CDLL(sys.argv[1])\n"
        "lib.wait_for.argtypes = [_lib.WAITING, ctypes.c_void_p]\n"
        "waiting = Interruptible()\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "started = time.monotonic()\n"
        "try:\n"
        "    turns = lib.wait_for(waiting.callback, waiting.argument)\n"
        "    waiting.check()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', time.monotonic() - started < 2)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(library)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "client" / "python")},
    )
    assert (result.stdout.strip(), result.stderr) == ("interrupted True", "")
