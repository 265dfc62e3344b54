# SPDX-License-Identifier: Apache-2.0
"""Holds source text against layers.toml."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')


class Layers:
    def __init__(self, file: Path = Path(__file__).with_name("layers.toml")) -> None:
        table = tomllib.loads(file.read_text())
        self.modules: dict[str, list[str]] = table["modules"]
        self.walled: list[dict] = table["walled"]

    def module_of(self, path: str) -> str | None:
        return next((module for module in self.modules if path.startswith(module + "/")), None)

    def strays(self, path: str, text: str) -> list[str]:
        """What is wrong with the includes of one file, each with its line."""
        module = self.module_of(path)
        if module is None:
            return [f"{path}: belongs to no module of layers.toml"]
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            match = _INCLUDE.match(line)
            if match is None:
                continue
            header = match[1]
            if header.startswith(("server/", "client/")):
                allowed = [module, *self.modules[module]]
                if not any(header.startswith(folder + "/") for folder in allowed):
                    found.append(f"{path}:{number}: {module} may not include {header}")
            elif header.startswith("tests/") or header.startswith("../"):
                found.append(f"{path}:{number}: {header} is not included from the root of the sources")
            for wall in self.walled:
                if any(fnmatch.fnmatch(header, pattern) for pattern in wall["headers"]) and not any(
                    fnmatch.fnmatch(path, pattern) for pattern in wall["files"]
                ):
                    found.append(f"{path}:{number}: {wall['what']} ({header}) belongs into {', '.join(wall['files'])} only")
        return found


def tracked(*patterns: str) -> list[str]:
    """Files of the project, from the root: what git holds and what is new in the folder, else (no git) all that is there."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True
    )
    if listed.returncode == 0:
        names: Iterable[str] = listed.stdout.split("\0")
    else:
        hidden = {".git", ".venv", "build", "__pycache__"}
        names = (str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if not hidden & set(p.relative_to(ROOT).parts))
    return sorted(
        name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns) and (ROOT / name).is_file()
    )
