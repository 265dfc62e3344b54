# SPDX-License-Identifier: Apache-2.0
"""Unit tests of the Python package: no daemon and no client library."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [
    str(ROOT / "client" / "python"),
    str(ROOT / "tests" / "support"),
    str(ROOT / "tests" / "unit" / "python"),
]

from fake_library import FakeLibrary  # noqa: E402 (found by the line above)

from loaderd import _lib  # noqa: E402


@pytest.fixture
def library(monkeypatch):
    """A FakeLibrary in place of the client library."""
    fake = FakeLibrary()
    monkeypatch.setattr(_lib, "library", lambda: fake)
    return fake
