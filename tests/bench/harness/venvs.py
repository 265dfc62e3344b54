# SPDX-License-Identifier: Apache-2.0
"""A virtual environment for each family of peers, made when it is first needed.

LOADERD_BENCH_PYTHON_FAMILY (for example LOADERD_BENCH_PYTHON_TORCH) names an interpreter that has the packages already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import registry

PIP_TIMEOUT_S = 3600


class NotInstalled(Exception):  # noqa: N818 (it is a fact for the table more than an error)
    """Why a family is not there, in one line."""


def reason(log: str) -> str:
    """The line of pip's output that says what went wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR:", "error:"))]
    return (errors or lines or ["pip said nothing"])[-1][:300]


class Venvs:
    """Environments in a folder; made once, and again when their requirements change."""

    def __init__(self, folder: Path, base_python: str = "/usr/bin/python3") -> None:
        self._folder = folder
        self._base = base_python if os.path.exists(base_python) else sys.executable
        self._failed: dict[str, str] = {}

    def python(self, family: str) -> str:
        """The interpreter of a family. NotInstalled, at once when it has failed before."""
        if not family:
            return sys.executable
        if named := os.environ.get(f"LOADERD_BENCH_PYTHON_{family.upper()}"):
            return named
        if family in self._failed:
            raise NotInstalled(self._failed[family])
        try:
            return self._make(family)
        except NotInstalled as error:
            self._failed[family] = str(error)
            raise

    def _make(self, family: str) -> str:
        requirements = registry.FAMILIES[family].requirements
        folder = self._folder / family
        python, stamp = folder / "bin" / "python", folder / "installed"
        wanted = " ".join(requirements)
        if stamp.exists() and stamp.read_text() == wanted:
            return str(python)
        print(f"bench: making an environment with {wanted}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        commands = [
            [self._base, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
        ]
        for command in commands:
            try:
                made = subprocess.run(
                    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PIP_TIMEOUT_S
                )
            except subprocess.TimeoutExpired:
                raise NotInstalled(f"not installed within {PIP_TIMEOUT_S} s") from None
            if made.returncode != 0:
                raise NotInstalled(f"does not install: {reason(made.stdout)}")
        stamp.write_text(wanted)
        return str(python)
