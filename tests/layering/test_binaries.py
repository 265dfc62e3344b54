# SPDX-License-Identifier: Apache-2.0
"""What the linker made: names that are shown, libraries that are needed, hardening."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from layers import ROOT

BUILD = Path(os.environ.get("LOADERD_BUILD_DIR", ROOT / "build"))
LIBRARY = BUILD / "lib" / "libloaderd_client.so"
PROGRAMS = [BUILD / "bin" / "loaderd", BUILD / "bin" / "loaderctl"]
BINARIES = [*PROGRAMS, LIBRARY]
# What a trainer's process gets with the client, beside the C library and C++'s.
ALLOWED = re.compile(r"^(libnghttp2|libstdc\+\+|libgcc_s|libm|libc|ld-linux[a-z0-9-]*)\.so")


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shown_symbols(library: Path) -> set[str]:
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", library).splitlines()}


def needed_libraries(binary: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", binary))


def test_client_library_shows_only_its_own_interface() -> None:
    header = (ROOT / "client/cpp/include/loaderd/client.h").read_text()
    declared = set(re.findall(r"^LOADERD_EXPORT .*?\b(loaderd_\w+)\(", header, re.MULTILINE))
    assert len(declared) > 10
    assert shown_symbols(LIBRARY) == declared


def test_client_library_needs_nghttp2_and_the_language_only() -> None:
    assert [name for name in needed_libraries(LIBRARY) if not ALLOWED.match(name)] == []


def test_daemon_would_fail_the_rule_for_the_client_library() -> None:
    assert [name for name in needed_libraries(PROGRAMS[0]) if not ALLOWED.match(name)] != []


@pytest.mark.parametrize("binary", PROGRAMS, ids=lambda path: path.name)
def test_program_is_position_independent(binary: Path) -> None:
    assert re.search(r"Type:\s+DYN", output("readelf", "-hW", binary))
    assert re.search(r"FLAGS_1.*\bPIE\b", output("readelf", "-dW", binary))


@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.name)
def test_relocations_are_read_only_and_bound_at_start(binary: Path) -> None:
    dynamic = output("readelf", "-dW", binary)
    assert "GNU_RELRO" in output("readelf", "-lW", binary)
    assert re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic)


@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.name)
def test_stack_cannot_be_executed(binary: Path) -> None:
    (stack,) = re.findall(r"GNU_STACK.*", output("readelf", "-lW", binary))
    assert re.search(r"\bRW\b", stack) and "RWE" not in stack


@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.name)
def test_stack_protector_and_checked_calls_are_in(binary: Path) -> None:
    symbols = output("nm", "-D", "--undefined-only", binary)
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__(mem|str|read|recv|snprintf|vsnprintf|fprintf|printf|poll)\w*_chk", symbols)
