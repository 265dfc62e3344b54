# SPDX-License-Identifier: Apache-2.0
"""What /proc says of a process: descriptors, threads, children."""

from __future__ import annotations

import os
from typing import NamedTuple


class Cost(NamedTuple):
    descriptors: int
    threads: int
    children: int


def children(pid: int | str = "self") -> list[int]:
    """Living children of a process, of all of its threads."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            found += map(int, file.read().split())
    return found


def cost(pid: int | str = "self") -> Cost:
    """The folder's own descriptor is not counted."""
    descriptors = len(os.listdir(f"/proc/{pid}/fd")) - (pid == "self")
    return Cost(descriptors, len(os.listdir(f"/proc/{pid}/task")), len(children(pid)))


def user_daemon(runtime_dir: str | os.PathLike) -> int | None:
    """The loaderd that has this XDG_RUNTIME_DIR. (The peer of its socket would be the process that it was forked from.)"""
    wanted = b"XDG_RUNTIME_DIR=" + os.fsencode(runtime_dir)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe").endswith("/loaderd"):
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        return int(pid)
        except OSError:
            continue
    return None
