# SPDX-License-Identifier: Apache-2.0
"""What /proc says of a process: descriptors, threads, children."""

from __future__ import annotations

import os
import socket
import struct
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


def listener_pid(path: str) -> int:
    """The process that listens on a Unix socket, by the kernel's word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(path)
        pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return pid
