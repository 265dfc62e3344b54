# SPDX-License-Identifier: Apache-2.0
"""The machine and the build that figures were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def _first_line(command: list[str | Path]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (result.stdout.splitlines() or [""])[0].strip()


def _line_of(path: str, begin: str) -> str:
    with open(path) as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(begin)), "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "not told"


def cache_entries(text: str) -> dict[str, str]:
    """CMakeCache.txt's NAME -> value."""
    entries = (line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] not in "#/")
    return {name.split(":", 1)[0]: value for name, value in entries}


def commit(root: Path) -> str:
    return _first_line(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12"]) or "not told"


def machine(build: Path) -> dict[str, str]:
    cache = cache_entries((build / "CMakeCache.txt").read_text())
    return {
        "cpu": _line_of("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _line_of("/proc/meminfo", "MemTotal"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "load before": f"{os.getloadavg()[0]:.2f}",
        "compiler": _first_line([cache.get("CMAKE_CXX_COMPILER", "c++"), "--version"]),
        "build type": cache.get("CMAKE_BUILD_TYPE", ""),
        "libjpeg-turbo": _first_line(["dpkg-query", "-W", "-f=${Version}\n", "libjpeg62-turbo"]),
        "loaderd": _first_line([build / "bin" / "loaderctl", "--version"]).removeprefix("loaderctl "),
    }
