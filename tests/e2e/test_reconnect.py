# SPDX-License-Identifier: Apache-2.0
"""Trainers whose daemon is killed, stopped, restarted or replaced: nothing is lost, nothing comes twice, nothing hangs."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import processes
import pytest
from conftest import end_process, is_alive, wait_until

import loaderd
import loaderd.transforms as T
import photos as photo_maker

AUGMENT = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos") / "set"
    photo_maker.generate(folder, 120)
    return folder


def loader_of(photos, daemon, **options):
    options = {"batch_size": 4, "shuffle": True, "seed": 5, "transform": AUGMENT, **options}
    return loaderd.DataLoader(loaderd.ImageFolder(photos), socket=daemon.socket, **options)


def seen(batch):
    return (batch.epoch, batch.step, batch.index.tolist(), batch[0].tobytes(), batch[1].tolist())


def peace(loader, epochs=1):
    return [seen(batch) for _ in range(epochs) for batch in loader]


def restart(daemon):
    daemon.kill()
    daemon.start()


def test_twenty_kills_at_any_step_change_nothing(photos, daemon):
    expected = peace(loader_of(photos, daemon), 2)
    chance = random.Random(3)
    kills = set(chance.sample(range(len(expected)), 20))
    got, held = [], []
    loader = loader_of(photos, daemon)
    for _ in range(2):
        for batch in loader:
            got.append(seen(batch))
            if len(got) in kills:
                restart(daemon)
            held = [*held[-2:], (batch, got[-1])]
            for earlier, was in held:
                assert seen(earlier) == was, "a batch that is held has changed"
    assert got == expected


def test_what_a_restart_costs_a_trainer_is_a_pause_and_no_descriptor(photos, daemon, capfd):
    batches = itertools.chain.from_iterable(itertools.repeat(loader_of(photos, daemon)))
    next(batches)
    before = processes.cost().descriptors
    said = ""
    for loss in range(1, 9):
        restart(daemon)
        for _ in range(8):  # what had arrived before the loss is handed out first
            next(batches)
            said += capfd.readouterr().err
            if said.count("goes on after") == loss:
                break
    assert processes.cost().descriptors == before
    assert said.count("waiting up to 60.0 s") == 8, "each loss is said once"
    assert said.count("goes on after") == 8


def test_a_sampler_of_ones_own_is_drawn_once_only(photos, daemon):
    order = random.Random(1).sample(range(120), 120)
    drawn = []

    def sampler():
        for index in order:
            drawn.append(index)
            yield index

    got = []
    for step, batch in enumerate(loader_of(photos, daemon, shuffle=False, sampler=sampler())):
        got += batch.index.tolist()
        if step in (0, 7, 28):
            restart(daemon)
    assert got == order == drawn


@pytest.mark.parametrize("when", [0, 12, 29])
def test_a_daemon_that_stops_in_good_order_and_its_successor(photos, daemon, when):
    expected = peace(loader_of(photos, daemon))
    got = []
    for batch in loader_of(photos, daemon):
        got.append(seen(batch))
        if batch.step == when:
            assert daemon.stop() == 0
            daemon.start()
    assert got == expected


def test_a_daemon_that_comes_back_late_is_waited_for(photos, daemon):
    expected = peace(loader_of(photos, daemon))
    iterator = iter(loader_of(photos, daemon))
    got = [seen(next(iterator))]
    daemon.kill()
    later = threading.Timer(2.5, daemon.start)
    later.start()
    got += [seen(batch) for batch in iterator]
    later.join()
    assert got == expected


def test_a_daemon_that_never_comes_back_is_an_error_in_time(photos, daemon):
    iterator = iter(loader_of(photos, daemon, reconnect=1.5))
    held = next(iterator)
    was = seen(held)
    daemon.kill()
    begun = time.monotonic()
    with pytest.raises(loaderd.UnavailableError, match="1500 ms") as raised:
        list(iterator)
    assert 1.4 < time.monotonic() - begun < 10
    assert daemon.socket in str(raised.value)
    assert seen(held) == was


def test_the_timeout_of_next_holds_while_it_waits_for_a_daemon(photos, daemon):
    iterator = iter(loader_of(photos, daemon, timeout=0.3))
    first = seen(next(iterator))
    daemon.kill()
    for _ in range(3):
        begun = time.monotonic()
        with pytest.raises(loaderd.TimeoutError):
            while True:  # batches that had come already are given out
                next(iterator)
        assert time.monotonic() - begun < 5
    daemon.start()
    rest = []
    while len(rest) < 40:
        try:
            rest.append(seen(next(iterator)))
        except loaderd.TimeoutError:
            continue
        except StopIteration:
            break
    steps = [step for _, step, *_ in [first, *rest]]
    assert steps == sorted(set(steps)) and steps[-1] == 29


def test_a_stopped_daemon_is_told_from_a_slow_one(photos, daemon):
    iterator = iter(loader_of(photos, daemon, prefetch_factor=1, reconnect=2))
    next(iterator)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        with pytest.raises(loaderd.UnavailableError, match=r"has not answered for .* s: it is stopped"):
            list(iterator)
        assert time.monotonic() - begun < 30
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_ctrl_c_ends_the_wait_for_a_daemon(photos, daemon, tmp_path):
    code = """
import sys, loaderd, loaderd.transforms as T
loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 4, transform=T.RandomResizedCrop(32), socket=sys.argv[2])
iterator = iter(loader)
next(iterator)
print("ready", flush=True)
sys.stdin.readline()
try:
    list(iterator)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, "-c", code, str(photos), daemon.socket]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdout.readline() == "ready\n"
        daemon.kill()
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        assert "waiting up to" in trainer.stderr.readline()
        begun = time.monotonic()
        trainer.send_signal(signal.SIGINT)
        assert trainer.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begun < 3
        trainer.stdin.close()
        assert trainer.wait(20) == 0


def test_ctrl_c_while_a_line_of_the_library_is_printed_is_not_dropped(photos, daemon, tmp_path, monkeypatch):
    class InterruptingStderr:
        said = ""

        def write(self, text):
            self.said += text
            if "waiting up to" in text:
                os.kill(os.getpid(), signal.SIGINT)

        def flush(self):
            pass

    iterator = iter(loader_of(photos, daemon))
    next(iterator)
    daemon.kill()
    stderr = InterruptingStderr()
    monkeypatch.setattr(sys, "stderr", stderr)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(iterator)
    assert "waiting up to" in stderr.said
    assert time.monotonic() - begun < 10


def test_a_folder_that_has_changed_meanwhile_goes_on_as_it_was(photos, daemon, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(photos, folder)
    expected = peace(loader_of(folder, daemon))
    got = []
    for batch in loader_of(folder, daemon):
        got.append(seen(batch))
        if batch.step == 9:
            daemon.kill()
            some = sorted(folder.glob("*/*"))
            shutil.copy(some[0], some[0].with_name("0000-new.jpg"))
            os.utime(some[5])
            daemon.start()
    assert got == expected


def test_a_lost_snapshot_and_other_names_are_an_error_and_never_another_order(photos, daemon, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(photos, folder)
    iterator = iter(loader_of(folder, daemon))
    next(iterator)
    daemon.kill()
    some = sorted(folder.glob("*/*"))
    some[0].rename(some[0].with_name("zzz.jpg"))
    shutil.rmtree(tmp_path / "state")
    daemon.start()
    with pytest.raises(loaderd.Error, match="order") as raised:
        list(iterator)
    assert not isinstance(raised.value, loaderd.UnavailableError)


def test_bad_samples_are_told_once(photos, daemon, tmp_path):
    folder = tmp_path / "set"
    shutil.copytree(photos, folder)
    for path in sorted(folder.glob("*/*"))[8:11]:
        path.write_bytes(b"\xff\xd8 no picture")
    steps, errors = [], 0
    iterator = iter(loader_of(folder, daemon, shuffle=False))
    while True:
        try:
            steps.append(next(iterator).step)
        except loaderd.BadSampleError:
            errors += 1
        except StopIteration:
            break
        if len(steps) < 5:
            restart(daemon)
    assert errors == 1 and steps == [step for step in range(30) if step != 2]


def test_the_daemon_that_the_client_started_is_started_again(photos, runtime_dir):
    def user_loader():
        return loaderd.DataLoader(loaderd.ImageFolder(photos), 4, shuffle=True, seed=5, transform=AUGMENT)

    expected = peace(user_loader())
    got, killed = [], set()
    for batch in user_loader():
        got.append(seen(batch))
        if batch.step % 6 == 3:
            pid = processes.user_daemon(runtime_dir)
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not is_alive(pid))
    assert got == expected
    assert len(killed) == 5
    assert processes.cost().children == 0
    end_process(processes.user_daemon(runtime_dir))


def test_many_trainers_come_back_at_once(photos, daemon, control):
    expected = peace(loader_of(photos, daemon, batch_size=8))
    iterators = [iter(loader_of(photos, daemon, batch_size=8)) for _ in range(30)]
    got = [[seen(next(iterator))] for iterator in iterators]
    restart(daemon)

    def finish(number):
        got[number] += [seen(batch) for batch in iterators[number]]

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(len(iterators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert all(one == expected for one in got)
    iterators.clear()
    wait_until(lambda: control.sessions() == [], 20)


def test_without_reconnecting_the_loss_is_an_error_at_once(photos, daemon):
    iterator = iter(loader_of(photos, daemon, reconnect=0))
    next(iterator)
    daemon.kill()
    with pytest.raises(loaderd.UnavailableError, match="stopped or died"):
        list(iterator)


@pytest.mark.parametrize("reconnect", [-1, float("nan"), "soon", None])
def test_reconnect_is_checked(photos, reconnect):
    with pytest.raises(ValueError, match="reconnect option should be non-negative"):
        loaderd.DataLoader(loaderd.ImageFolder(photos), reconnect=reconnect)
