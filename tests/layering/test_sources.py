# SPDX-License-Identifier: Apache-2.0
"""Rules on the text of every source file."""

from __future__ import annotations

import re

import pytest
from layers import ROOT, tracked

SOURCES = tracked(
    "*.cc", "*.h", "*.hpp", "*.py", "*.proto", "*.cmake", "*CMakeLists.txt", "run", ".ci/run", "*.toml", "*.sh", "systemd/*"
)
MAX_LINES = 500
# Spelled apart, so that this file does not find itself.
FORBIDDEN = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "NO" + "LINT"]) + r")(?![A-Za-z0-9_])")


def licence_is_named(text: str) -> bool:
    lines = text.splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    return bool(lines) and re.match(r"^(//|#|/\*) ?SPDX-License-Identifier: Apache-2\.0", lines[0]) is not None


def forbidden_words(text: str) -> list[str]:
    return [f"{number}: {match[0]}" for number, line in enumerate(text.splitlines(), 1) if (match := FORBIDDEN.search(line))]


def test_every_source_names_its_licence_in_its_first_line() -> None:
    texts = {file: (ROOT / file).read_text() for file in SOURCES}
    # An empty __init__.py marks a package and holds nothing to license.
    assert [file for file, text in texts.items() if text.strip() and not licence_is_named(text)] == []


def test_no_source_is_longer_than_it_reads() -> None:
    lengths = {file: len((ROOT / file).read_text().splitlines()) for file in SOURCES}
    assert {file: length for file, length in lengths.items() if length > MAX_LINES} == {}


def test_no_source_has_words_of_unfinished_work() -> None:
    found = {file: words for file in SOURCES if (words := forbidden_words((ROOT / file).read_text()))}
    assert found == {}


@pytest.mark.parametrize("text", ["int a;\n// SPDX-License-Identifier: Apache-2.0\n", "// SPDX-License-Identifier: MIT\n", ""])
def test_missing_licence_line_is_found(text: str) -> None:
    assert not licence_is_named(text)


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "HA" + "CK"])
def test_planted_word_of_unfinished_work_is_found(word: str) -> None:
    assert forbidden_words(f"int a;  // {word}: more\n") == [f"1: {word}"]


def test_name_for_a_temporary_folder_is_no_word_of_unfinished_work() -> None:
    assert forbidden_words('mkdtemp("loaderd-' + "X" * 6 + '")') == []
