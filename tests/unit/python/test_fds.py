# SPDX-License-Identifier: Apache-2.0
import doctest
import logging
import os
import pathlib
import resource
import select
import socket
import stat
import subprocess
import sys

import pytest

from loaderd import fds

TABLE = pathlib.Path(__file__).resolve().parents[2] / "support" / "fixtures" / "descriptors.tsv"
TYPES = {"-": 0, "file": stat.S_IFREG, "directory": stat.S_IFDIR, "character": stat.S_IFCHR, "block": stat.S_IFBLK,
         "fifo": stat.S_IFIFO}  # fmt: skip
ROWS = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]


@pytest.fixture
def opened():
    """Descriptors that are closed at the end."""
    numbers = []
    yield numbers
    for number in numbers:
        os.close(number)


@pytest.fixture
def soft_limit():
    """Sets the soft limit for one test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda soft: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_examples_in_the_docstrings_are_true():
    assert doctest.testmod(fds) == (0, doctest.testmod(fds).attempted)
    assert doctest.testmod(fds).attempted >= 10


@pytest.mark.parametrize(("link", "file_type", "kind", "target"), ROWS)
def test_kind_and_target_are_those_of_the_table(link, file_type, kind, target):
    assert (fds.kind_of(link, TYPES[file_type]), fds.target_of(link)) == (kind, target)


def test_every_kind_that_python_can_open_is_told_apart(opened, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"")
    poller = select.epoll()
    makers = {
        "file": lambda: os.open(path, os.O_RDONLY),
        "directory": lambda: os.open(tmp_path, os.O_RDONLY),
        "device": lambda: os.open("/dev/null", os.O_RDONLY),
        "socket": lambda: socket.socket(socket.AF_UNIX).detach(),
        "memfd": lambda: os.memfd_create("mine"),
        "eventfd": lambda: os.eventfd(0),
        "epoll": lambda: os.dup(poller.fileno()),
        "pidfd": lambda: os.pidfd_open(os.getpid()),
    }
    for kind, make in makers.items():
        number = make()
        opened.append(number)
        (found,) = [descriptor for descriptor in fds.open_descriptors() if descriptor.number == number]
        assert found.kind == kind
    targets = {descriptor.number: descriptor.target for descriptor in fds.open_descriptors()}
    assert [targets[number] for number in opened[:3]] == [str(path), str(tmp_path), "/dev/null"]
    assert targets[opened[4]] == "memfd:mine"


def test_the_look_does_not_count_itself(opened):
    opened.append(os.open("/dev/null", os.O_RDONLY))
    # Of this process by another one, which does not add its own.
    code = f"import os; print(len(os.listdir('/proc/{os.getpid()}/fd')))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        before = fds.count() - 1  # the pipe from the child
        told = int(other.stdout.read())
    assert told in (before, before + 1)
    assert sum(fds.by_kind().values()) == fds.count() == len(fds.open_descriptors())


def test_another_process_is_looked_at_by_its_number(tmp_path):
    path = tmp_path / "held"
    path.write_bytes(b"")
    code = f"import sys; f = open({str(path)!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert ("file", str(path)) in {(found.kind, found.target) for found in fds.open_descriptors(child.pid)}
        child.stdin.close()
    with pytest.raises(ProcessLookupError, match=str(child.pid)):
        fds.count(child.pid)


def test_soft_limit_is_raised_to_a_number_and_to_the_hard_limit(soft_limit):
    hard = fds.limits().hard
    soft_limit(128)
    assert fds.raise_soft_limit(200) == (200, hard)
    assert fds.raise_soft_limit(100) == (200, hard)
    assert fds.raise_soft_limit() == (hard, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_a_soft_limit_above_the_hard_one_is_refused_with_both():
    hard = fds.limits().hard
    if hard == resource.RLIM_INFINITY:
        pytest.skip("no hard limit on this machine")
    with pytest.raises(ValueError, match=f"{hard + 1} descriptors .* hard limit of {hard} .*loaderctl doctor"):
        fds.raise_soft_limit(hard + 1)


def test_watch_names_what_stays_open_and_not_what_was_closed(opened, tmp_path):
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for path in paths:
        path.write_bytes(b"")
    told = []
    with fds.watch(told.append) as watched:
        opened += [os.open(path, os.O_RDONLY) for path in (paths[0], paths[1], paths[1])]
        with open(paths[2]):
            assert ("file", str(paths[2])) in watched.growth().targets
    (growth,) = told
    assert growth.total == 3 and growth.kinds == {"file": 3}
    assert list(growth.targets.items()) == [(("file", str(paths[1])), 2), (("file", str(paths[0])), 1)]
    assert growth.limit == fds.limits().soft and growth.open == fds.count()


def test_watch_reports_also_when_the_block_fails(opened):
    told = []
    with pytest.raises(OSError, match="Too many"), fds.watch(told.append):
        opened.append(os.open("/dev/null", os.O_RDONLY))
        raise OSError(24, "Too many open files")
    assert told[0].kinds == {"device": 1}


def test_watch_is_silent_where_nothing_has_grown(caplog, tmp_path):
    held = os.open(tmp_path, os.O_RDONLY)
    with caplog.at_level(logging.DEBUG, "loaderd.fds"), fds.watch() as watched:
        os.close(held)
    assert caplog.records == [] and watched.growth().kinds == {"directory": -1}


def test_watch_logs_a_warning_that_names_the_most_grown_and_counts_the_rest(opened, caplog, tmp_path):
    paths = [tmp_path / f"{number:02d}.jpg" for number in range(25)]
    with caplog.at_level(logging.WARNING, "loaderd.fds"), fds.watch():
        for path in paths:
            path.write_bytes(b"")
            opened.append(os.open(path, os.O_RDONLY))
    (record,) = caplog.records
    text = record.getMessage()
    assert "+25: file +25" in text and "... and 5 more" in text
    assert str(paths[0]) in text and str(paths[19]) in text and str(paths[20]) not in text


def test_it_needs_the_standard_library_only():
    code = "import sys, importlib.util as u; s = u.spec_from_file_location('fds', sys.argv[1]); m = u.module_from_spec(s)\n"
    code += "sys.modules['fds'] = m; s.loader.exec_module(m); print(m.count() > 2, 'numpy' in sys.modules)"
    told = subprocess.run([sys.executable, "-S", "-c", code, fds.__file__], capture_output=True, text=True, check=True)
    assert told.stdout == "True False\n"
