# SPDX-License-Identifier: Apache-2.0
"""Peers that speak nonsense or nothing, another user's process, and a full /dev/shm: nobody who reads notices."""

import contextlib
import os
import socket
import subprocess
import sys
import time

import pytest
from conftest import Control, run_python, wait_until

import daemon as daemon_support
import loaderd
import loaderd.transforms as T

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user or mount")


def connect(path):
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.settimeout(20)
    peer.connect(path)
    return peer


def read_to_end(peer):
    with contextlib.suppress(ConnectionResetError):
        while peer.recv(65536):
            pass


def test_200_silent_peers_on_both_sockets_are_closed_in_time_and_logged_once(photos):
    with daemon_support.Daemon() as running:
        loader = loaderd.DataLoader(loaderd.ImageFolder(photos), 10, transform=T.CenterCrop(32), socket=running.socket)
        reading = iter(loader)
        assert next(reading).step == 0
        begin = time.monotonic()
        with contextlib.ExitStack() as stack:
            paths = [running.socket, running.segment_socket] * 200
            silent = [stack.enter_context(contextlib.closing(connect(path))) for path in paths]
            assert next(reading).step == 1
            for peer in silent:
                read_to_end(peer)
        assert 8 < time.monotonic() - begin < 16, "a peer that begins nothing is ended 10 s after it connected"
        assert [batch.step for batch in reading] == [2, 3, 4, 5]
        assert running.log().count("ended peers that began no call") <= 2


def test_garbage_on_both_sockets_is_closed_and_a_reader_goes_on(photos):
    with daemon_support.Daemon() as running:
        loader = loaderd.DataLoader(loaderd.ImageFolder(photos), 10, transform=T.CenterCrop(32), socket=running.socket)
        reading = iter(loader)
        assert next(reading).step == 0
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(100_000), preface + os.urandom(5_000), preface + b"\0" * 9):
            for path in (running.socket, running.segment_socket):
                with contextlib.closing(connect(path)) as peer:
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        peer.sendall(garbage)
                    read_to_end(peer)
        assert [batch.step for batch in reading] == [1, 2, 3, 4, 5]
        assert running.log().count("\n") < 25, running.log()


def test_peers_that_ping_and_never_read_cost_no_memory(daemon, control):
    before = control("status")["resident_bytes"]
    ping = b"\0\0\x08\x06\0\0\0\0\0" + b"12345678"
    for _ in range(5):
        with contextlib.closing(connect(daemon.socket)) as peer:
            peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(2000):
                    peer.sendall(ping * 100)
    assert control("status")["resident_bytes"] - before < 64 << 20


@needs_root
def test_a_user_daemon_refuses_every_other_user_by_name(open_folder, photos):
    path = f"{open_folder}/loaderd.sock"
    config = "listen { mode: 0666 }"
    with daemon_support.Daemon(config=config, folder=open_folder):
        code = """
import sys, loaderd, json
loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), transform=loaderd.transforms.CenterCrop(8), socket=sys.argv[2])
try:
    next(iter(loader))
    print(json.dumps("read"))
except loaderd.Error as error:
    print(json.dumps(str(error)))
"""
        said = run_python("import loaderd.transforms" + code, photos, path, prefix=AS_NOBODY)
        assert "serves nobody else" in said and f"you are uid {NOBODY}" in said


@needs_root
def test_a_small_shared_memory_file_system_has_no_effect(photos):
    """Daemon and trainer in a mount namespace whose /dev/shm holds 1 MB; batches are larger."""
    code = """
import sys, json, os, loaderd, loaderd.transforms as T
loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 30, transform=T.Resize((256, 256)))
held = list(loader)
room = os.statvfs("/dev/shm")
print(json.dumps([room.f_blocks * room.f_frsize, sum(b.images.nbytes for b in held), os.listdir("/dev/shm")]))
"""
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" "$@"')
    room, held, names = run_python(code, photos, prefix=mount)
    assert room == 1 << 20 and held == 60 * 256 * 256 * 3 and names == []


@needs_root
def test_a_dead_trainer_of_another_uid_gives_everything_back(open_folder, photos):
    """A system daemon serves a second user, whose trainer is killed in mid-batch."""
    config = f'listen {{ socket: "{open_folder}/loaderd.sock" mode: 0666 }}\ndataset_root: "{photos}"'
    with daemon_support.Daemon(system=True, config=config, folder=open_folder) as running:
        code = """
import sys, time, loaderd, loaderd.transforms as T
loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 8, transform=T.CenterCrop(64), socket=sys.argv[2])
held = []
for batch in loader:
    held.append(batch)
    print(len(held), flush=True)
    time.sleep(0.2)
"""
        command = [*AS_NOBODY, sys.executable, "-c", code, str(photos), running.socket]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
            assert trainer.stdout.readline() == "1\n"
            trainer.kill()
        control = Control(running.socket)

        def used():
            budgets = control("status")["budget"]
            return {each["name"]: int(each["used"]) for each in budgets if each["name"] != "descriptors"}

        wait_until(lambda: not any(used().values()), timeout=1.5)
