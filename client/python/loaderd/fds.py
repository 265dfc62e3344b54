# SPDX-License-Identifier: Apache-2.0
"""The open descriptors of a process, by kind and target, and what comes on top of them: finds leaks in a trainer.

    import loaderd.fds

    with loaderd.fds.watch():          # logs a warning that names the files, should any stay open
        train_one_epoch()

    loaderd.fds.raise_soft_limit()     # before "Too many open files"

Needs nothing but the standard library and Linux's /proc. `loaderctl fds` shows the same, of any process of yours, from outside.
All functions may be called from any thread; what other threads open and close meanwhile is seen or not, as it happens.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import stat
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

__all__ = [
    "Descriptor",
    "Growth",
    "Limits",
    "Watch",
    "by_kind",
    "count",
    "kind_of",
    "limits",
    "open_descriptors",
    "raise_soft_limit",
    "target_of",
    "watch",
]

_log = logging.getLogger(__name__)
_MEMFD, _DELETED, _ANONYMOUS = "/memfd:", " (deleted)", "anon_inode:"
_SHOWN = 20  # targets in a report's text


class Limits(NamedTuple):
    """RLIMIT_NOFILE: `soft` binds, and may be raised up to `hard`; -1 (resource.RLIM_INFINITY) is no limit."""

    soft: int
    hard: int


class Descriptor(NamedTuple):
    """One open descriptor: its number, its kind (see kind_of) and what it is open on (see target_of)."""

    number: int
    kind: str
    target: str


def limits() -> Limits:
    """The limits on this process's descriptors.

    >>> soft, hard = limits()
    >>> 0 < soft <= hard or hard == -1
    True
    """
    return Limits(*resource.getrlimit(resource.RLIMIT_NOFILE))


def raise_soft_limit(to: int | None = None) -> Limits:
    """Raises the soft limit to `to`, or to the hard one, and returns what holds then. It is never lowered.

    The limit holds for the whole process and for children started later. Programs that call select() with a descriptor
    above 1,023 break; poll, epoll and Python's selectors do not mind. ValueError: `to` is above the hard limit, which only
    root can raise (`loaderctl doctor` says where).
    """
    soft, hard = limits()
    wanted = hard if to is None else to
    if hard != resource.RLIM_INFINITY and (wanted > hard or wanted == resource.RLIM_INFINITY):
        raise ValueError(
            f"{wanted} descriptors are more than the hard limit of {hard} (RLIMIT_NOFILE); "
            "`loaderctl doctor` says how to raise that"
        )
    if soft != resource.RLIM_INFINITY and (wanted > soft or wanted == resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return limits()


def kind_of(link: str, mode: int = 0) -> str:
    """The kind of a descriptor by what /proc/PID/fd/N points to and, of a path, the file's st_mode (0: not known).

    "file", "directory", "shm" (a file in /dev/shm), "device", "socket", "pipe", "memfd", "eventfd", "epoll", "timerfd",
    "signalfd", "pidfd", "inotify", "io_uring" and whatever else the kernel calls its nameless inodes; "other" for the rest.

    >>> kind_of("anon_inode:[eventpoll]"), kind_of("/dev/shm/torch_1"), kind_of("/data", stat.S_IFDIR)
    ('epoll', 'shm', 'directory')
    """
    for prefix in ("socket", "pipe", "pidfd"):
        if link.startswith(prefix + ":"):
            return prefix
    if link.startswith(_ANONYMOUS):
        return _anonymous(link)
    if _is_memfd(link):
        return "memfd"
    return _kind_of_path(link, stat.S_IFMT(mode)) if link.startswith("/") else "other"


def target_of(link: str) -> str:
    """What a descriptor is open on: the path, of a memfd its name, of nameless things one word for all of them.

    >>> target_of("/data/a.jpg"), target_of("socket:[123]"), target_of("/memfd:loaderd (deleted)")
    ('/data/a.jpg', 'socket', 'memfd:loaderd')
    """
    if _is_memfd(link):
        return link[1 : -len(_DELETED)]
    if link.startswith("/"):
        return link
    return _anonymous(link) if link.startswith(_ANONYMOUS) else link.partition(":")[0]


def _is_memfd(link: str) -> bool:
    return link.startswith(_MEMFD) and link.endswith(_DELETED)


def _anonymous(link: str) -> str:
    name = link[len(_ANONYMOUS) :]
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return {"eventpoll": "epoll", "": "other"}.get(name, name)


def _kind_of_path(link: str, file_type: int) -> str:
    special = {stat.S_IFDIR: "directory", stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFIFO: "pipe"}
    if file_type in special:
        return special[file_type]
    if link.startswith("/dev/shm/"):
        return "shm"
    return "device" if file_type == 0 and link.startswith("/dev/") else "file"


def open_descriptors(pid: int | None = None) -> list[Descriptor]:
    """All open descriptors of this process, or of `pid`, by number; without the one that the look itself needs.

    ProcessLookupError: no such process. PermissionError: another user's.
    """
    process = "self" if pid is None or pid == os.getpid() else str(pid)
    folder = f"/proc/{process}/fd"
    try:
        listing = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}") from None
    try:
        numbers = sorted(int(name) for name in os.listdir(listing))
        found = [_look(f"{folder}/{number}", number) for number in numbers if process != "self" or number != listing]
    finally:
        os.close(listing)
    return [descriptor for descriptor in found if descriptor is not None]


def _look(path: str, number: int) -> Descriptor | None:
    try:
        link = os.readlink(path)
    except OSError:
        return None  # closed meanwhile
    mode = 0
    if link.startswith("/") and not _is_memfd(link):
        with contextlib.suppress(OSError):  # storage that is gone
            mode = os.stat(path).st_mode
    return Descriptor(number, kind_of(link, mode), target_of(link))


def count(pid: int | None = None) -> int:
    """How many descriptors this process, or `pid`, has open.

    >>> before = count()
    >>> with open("/dev/null"):
    ...     count() - before
    1
    """
    return len(open_descriptors(pid))


def by_kind(pid: int | None = None) -> dict[str, int]:
    """How many descriptors of each kind this process, or `pid`, has open.

    >>> before = by_kind().get("pipe", 0)
    >>> ends = os.pipe()
    >>> by_kind()["pipe"] - before
    2
    >>> for end in ends: os.close(end)
    """
    return dict(Counter(descriptor.kind for descriptor in open_descriptors(pid)))


class Growth(NamedTuple):
    """What is open on top of a baseline. `str()` of it is a report that names the most grown targets."""

    open: int  # now
    total: int  # now less the baseline's; negative where fewer are open
    limit: int  # the soft limit; -1: none
    kinds: dict[str, int]  # kind -> difference, where there is one
    targets: dict[tuple[str, str], int]  # (kind, target) -> how many more, the most grown first

    def __str__(self) -> str:
        share = "" if self.limit <= 0 else f" of {self.limit} ({100 * self.open / self.limit:.1f} %)"
        kinds = ", ".join(f"{kind} {difference:+d}" for kind, difference in self.kinds.items())
        lines = [f"descriptors: {self.open} open{share}, {self.total:+d}" + (f": {kinds}" if kinds else "")]
        for (kind, target), difference in list(self.targets.items())[:_SHOWN]:
            lines.append(f"  {difference:+6d}  {kind:9}  {target}")
        if len(self.targets) > _SHOWN:
            lines.append(f"  ... and {len(self.targets) - _SHOWN} more")
        return "\n".join(lines)


class Watch:
    """A baseline, and what has grown since; made by watch()."""

    def __init__(self, report: Callable[[Growth], object]) -> None:
        self._report = report
        self._baseline: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> Watch:
        self._baseline = _counts()
        return self

    def growth(self) -> Growth:
        """What is open now on top of the baseline: inside the block or, of the moment of the call, after it."""
        now, before = _counts(), self._baseline
        targets = sorted((now - before).items(), key=lambda item: (-item[1], item[0]))
        kinds: Counter[str] = Counter()
        for (kind, _), number in now.items():
            kinds[kind] += number
        for (kind, _), number in before.items():
            kinds[kind] -= number
        grown = sorted(((kind, number) for kind, number in kinds.items() if number), key=lambda item: (-item[1], item[0]))
        return Growth(now.total(), now.total() - before.total(), limits().soft, dict(grown), dict(targets))

    def __exit__(self, *_: object) -> None:
        grown = self.growth()
        if grown.targets:
            self._report(grown)


def watch(report: Callable[[Growth], object] | None = None) -> Watch:
    """A context manager that takes what is open at its start as a baseline and reports at its end what came on top of it.

    `report` is called with a Growth where a target is open more often than before, also when the block ends by an exception;
    by default the growth is logged as a warning of the logger "loaderd.fds". Inside, `growth()` tells the same at any time.

    >>> with watch(report=lambda growth: print(growth.kinds, *growth.targets)):
    ...     leaked = os.open("/dev/null", os.O_RDONLY)
    {'device': 1} ('device', '/dev/null')
    >>> os.close(leaked)
    """
    return Watch(report if report is not None else lambda growth: _log.warning("%s", growth))


def _counts() -> Counter[tuple[str, str]]:
    return Counter((descriptor.kind, descriptor.target) for descriptor in open_descriptors())
