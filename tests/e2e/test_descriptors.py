# SPDX-License-Identifier: Apache-2.0
"""Descriptors seen and explained: `loaderctl fds`, `loaderctl doctor`, the daemon's own warning, `loaderd.fds`, and limits in trouble."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time

import pytest
from conftest import Control, end_user_daemon, files_of, python_process, run_python, wait_until
from test_loaderctl import NOBODY, ctl, ctl_json, needs_root

import daemon as daemon_support
import loaderd
import loaderd.transforms as T

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
NEEDS_20000 = "limits { max_sessions: 6640 }\n"


def loader(folder, daemon, **options):
    options.setdefault("transform", T.Resize([32, 32]))
    return loaderd.DataLoader(loaderd.ImageFolder(str(folder)), 10, socket=daemon.socket, **options)


# ---- fds, of the daemon


def test_the_daemons_add_up_to_what_the_kernel_shows(daemon, photos):
    iterator = iter(loader(photos, daemon))
    held = next(iterator)
    told = ctl_json("fds", "--socket", daemon.socket)
    shown = sum(group["open"] for group in told["fds"] if not group["session"])
    assert told["open"] == shown == sum(target["open"] for target in told["targets"])
    # The caller's own connection and the samples being read come and go.
    assert abs(shown - len(os.listdir(f"/proc/{daemon.pid}/fd"))) <= 6
    assert [group["open"] for group in told["fds"] if group["session"]] == [1]
    assert (told["pid"], told["soft_limit"], told["hard_limit"]) == (daemon.pid, HARD, HARD)
    kinds = {group["kind"]: group["open"] for group in told["fds"] if not group["session"]}
    assert kinds["socket"] >= 4 and kinds["memfd"] >= 1 and kinds["epoll"] >= 1
    assert {"kind": "file", "target": daemon.log_path.as_posix(), "open": 2} in told["targets"]
    assert any(target["target"] == f"unix {daemon.socket}" for target in told["targets"])
    table = ctl("fds", "--socket", daemon.socket).stdout
    assert table.startswith("KIND") and f"process {daemon.pid}: " in table and f"of {HARD:,} (" in table
    del held, iterator


@needs_root
def test_a_stranger_sees_the_daemons_kinds_and_no_paths(open_folder):
    config = f'listen {{ socket: "{open_folder}/d.sock" mode: 0666 }}\n'
    with daemon_support.Daemon(system=True, config=config, start=False) as running:
        running.spawn()
        wait_until(lambda: daemon_support.connects(f"{open_folder}/d.sock"), 20)
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        told = ctl_json("fds", "--socket", f"{open_folder}/d.sock", **as_nobody)
        assert told["open"] > 10 and told["targets"] == []
        assert ctl_json("fds", "--socket", f"{open_folder}/d.sock")["targets"]


# ---- fds, of a process

HOLDER = """
import os, sys
held = [open(path, "rb") for path in sys.argv[1:]]
ends = os.pipe()
shared = os.memfd_create("mine")
print("ready")
for line in sys.stdin:
    held += [open(path, "rb") for path in line.split()]
    print("opened")
"""


def test_a_processs_are_told_by_kind_and_target_with_the_share_of_the_limit(photos):
    paths = files_of(photos)[:3]
    with python_process(HOLDER, *paths, paths[0], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60))) as child:
        child.stdout.readline()
        told = ctl_json("fds", child.pid)
        assert (told["pid"], told["soft_limit"], told["hard_limit"]) == (child.pid, 50, 60)
        assert told["open"] == len(os.listdir(f"/proc/{child.pid}/fd"))
        kinds = {group["kind"]: group["open"] for group in told["fds"]}
        assert kinds["file"] >= 4 and kinds["pipe"] >= 4 and kinds["memfd"] == 1
        targets = {(target["kind"], target["target"]): target["open"] for target in told["targets"]}
        assert [targets["file", str(path)] for path in paths] == [2, 1, 1]
        assert targets["memfd", "memfd:mine"] == 1
        text = ctl("fds", child.pid).stdout
        assert f"{told['open']} open of 50 ({2 * told['open']}.0 %), hard limit 60" in text and str(paths[2]) in text


def test_a_process_that_is_not_there_is_an_error():
    child = subprocess.Popen(["true"])
    child.wait()
    for more in ([], ["--watch"]):
        result = ctl("fds", child.pid, *more)
        assert result.returncode == 1 and result.stdout == ""
        assert f"no process {child.pid}" in result.stderr


def test_a_process_that_has_ended_and_is_not_waited_for_is_an_error():
    with subprocess.Popen(["true"]) as child:
        wait_until(lambda: pathlib.Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z")
        result = ctl("fds", child.pid)
    assert result.returncode == 1 and f"process {child.pid} has ended" in result.stderr


@needs_root
def test_another_users_process_is_refused_with_its_owner():
    result = ctl("fds", os.getpid(), user=NOBODY, group=NOBODY, extra_groups=[])
    assert result.returncode == 1
    assert f"process {os.getpid()} belongs to uid 0 (root)" in result.stderr and f"you are uid {NOBODY}" in result.stderr


# ---- fds --watch


@contextlib.contextmanager
def watching(*arguments):
    command = [daemon_support.loaderctl(), "fds", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


LEAKY_TRAINER = """
import sys
from PIL import Image

kept = []
print("ready")
sys.stdin.readline()
for path in sys.argv[1:]:
    image = Image.open(path)  # reads the header, and keeps the file open until its pixels are read
    kept.append(image.size), kept.append(image)
print("read")
sys.stdin.readline()
"""


def test_watch_names_the_jpegs_that_a_trainer_never_closes(photos):
    paths = [str(path) for path in files_of(photos)[:12]]
    with python_process(LEAKY_TRAINER, *paths) as trainer:
        trainer.stdout.readline()
        with watching(trainer.pid, "--watch", 0.1) as watch:
            assert f"process {trainer.pid}: " in watch.stdout.readline()
            trainer.stdin.write("\n")
            trainer.stdin.flush()
            assert trainer.stdout.readline() == "read\n"
            lines = []
            while not ("+12: file +12" in "".join(lines) and sum(line.endswith(".jpg\n") for line in lines[-12:]) == 12):
                lines.append(watch.stdout.readline())
                assert lines[-1], "it ended before the leak was told"
            assert {line.split()[-1] for line in lines[-12:]} == set(paths)
            assert all(line.split()[:2] == ["+1", "file"] for line in lines[-12:])
            trainer.kill()
            rest, errors = watch.communicate(timeout=10)
    assert watch.returncode == 0 and errors == ""
    assert "the process has ended" in rest and paths[11] in rest


def test_watch_as_json_gives_a_line_each_time_and_ends_by_ctrl_c(photos):
    paths = [str(path) for path in files_of(photos)[:2]]
    with python_process(HOLDER) as child:
        child.stdout.readline()
        with watching(child.pid, "--watch", 0.1, "--json") as watch:
            first = json.loads(watch.stdout.readline())
            assert first["kinds"] == first["targets"] == [] and first["open"] == first["baseline"]
            child.stdin.write(f"{paths[0]} {paths[1]} {paths[0]}\n")
            child.stdin.flush()
            child.stdout.readline()
            grown = wait_until(lambda: (line := json.loads(watch.stdout.readline()))["kinds"] and line)
            assert grown["open"] == first["open"] + 3
            (kind,) = grown["kinds"]
            assert (kind["kind"], kind["growth"]) == ("file", 3) and kind["open"] >= 3
            assert grown["targets"] == [
                {"kind": "file", "target": paths[0], "open": 2, "growth": 2},
                {"kind": "file", "target": paths[1], "open": 1, "growth": 1},
            ]
            watch.send_signal(signal.SIGINT)
            last = json.loads(watch.communicate(timeout=10)[0].splitlines()[-1])
    assert watch.returncode == 0
    assert last["ended"] is False and last["targets"] == grown["targets"] and last["open"] == first["open"] + 3


def test_watch_without_a_process_is_of_the_daemon_and_ends_with_it(daemon, photos):
    with watching("--watch", 0.1, "--json", "--socket", daemon.socket) as watch:
        assert json.loads(watch.stdout.readline())["pid"] == daemon.pid
        iterator = iter(loader(photos, daemon))
        next(iterator)
        wait_until(lambda: {"memfd", "socket"} <= {kind["kind"] for kind in json.loads(watch.stdout.readline())["kinds"]})
        daemon.kill()
        last = json.loads(watch.communicate(timeout=10)[0].splitlines()[-1])
    assert watch.returncode == 0 and last["ended"] is True


def test_loaderd_fds_watch_names_the_jpegs_in_the_trainers_own_log(photos):
    paths = [str(path) for path in files_of(photos)[:5]]
    code = (
        "import sys, json, logging, loaderd.fds\n"
        "from PIL import Image\n"
        "records = []\n"
        "logging.getLogger('loaderd.fds').addFilter(lambda record: records.append(record.getMessage()) or False)\n"
        "with loaderd.fds.watch():\n"
        "    leaked = [Image.open(path) for path in sys.argv[1:]]\n"
        "print(json.dumps(records))\n"
    )
    (report,) = run_python(code, *paths)
    assert "+5: file +5" in report and all(path in report for path in paths)


# ---- doctor


def test_doctor_finds_nothing_short_of_a_small_configuration():
    with daemon_support.Daemon(config="limits { max_sessions: 50 }\n") as daemon:
        told = ctl_json("doctor", "--socket", daemon.socket)
        assert told["ok"] is True and told["daemon_reached"] is True and told["fixes"] == []
        assert f"process {daemon.pid} of uid {os.getuid()}, user" in told["daemon"]
        assert told["needs"]["descriptors"] < 3000 and told["needs"]["lowered"] == []
        checks = {check["name"]: check for check in told["checks"]}
        assert checks["daemon.nofile.soft"]["has"] == checks["daemon.nofile.hard"]["has"] == f"{HARD:,}"
        assert {"caller.nofile.soft", "kernel.nr_open", "kernel.file_max", "nproc", "stack", "memory", "memlock",
                "shm"} <= set(checks)  # fmt: skip
        text = ctl("doctor", "--socket", daemon.socket)
        assert text.returncode == 0 and "Nothing falls short." in text.stdout and "loaderd does not use it" in text.stdout


@pytest.mark.parametrize("with_daemon", [True, False])
def test_doctor_under_64_descriptors_falls_short_and_names_the_cures(with_daemon):
    command = ["prlimit", "--nofile=64", daemon_support.loaderctl(), "doctor"]
    with contextlib.ExitStack() as stack:
        if with_daemon:
            daemon = stack.enter_context(daemon_support.Daemon(config="limits { max_sessions: 50 }\n"))
            command += ["--socket", daemon.socket]
        result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and result.stderr == ""
    assert "SHORT: RLIMIT_NOFILE of the caller, soft" in result.stdout and "Something falls short." in result.stdout
    for words in ("LimitNOFILE=524288", "system.conf.d", "user.conf.d", "limits.d", "--ulimit nofile=524288:524288", "ulimits:",
                  "a pod has no field for it", "PropagateResourceLimitsExcept=NOFILE"):  # fmt: skip
        assert words in result.stdout
    assert ("no daemon is reached, so the caller and the machine are judged" in result.stdout) is not with_daemon


def test_doctor_without_a_daemon_takes_the_need_from_the_executable(tmp_path):
    config = tmp_path / "loaderd.txtpb"
    config.write_text(NEEDS_20000)
    asked = subprocess.run([daemon_support.loaderd(), "--needs", "--config", str(config)], capture_output=True, text=True)
    needs = json.loads(asked.stdout)
    assert needs["descriptors"] > 19920 and f"6640 sessions x 3 (connection, its watch, segment) = {needs['descriptors']}" in needs["arithmetic"]
    command = ["prlimit", f"--nofile=1024:{needs['descriptors'] - 1}", daemon_support.loaderctl(), "doctor", "--json"]
    result = subprocess.run([*command, "--config", str(config)], capture_output=True, text=True, timeout=30)
    told = json.loads(result.stdout)
    assert result.returncode == 1 and told["ok"] is False and told["daemon_reached"] is False
    assert [check["name"] for check in told["checks"] if check["verdict"] == "short"] == ["caller.nofile.hard"]
    assert told["needs"]["descriptors"] == needs["descriptors"] and str(config) in told["needs_of"]
    # Of a user daemon by default, which this machine may hold.
    by_default = json.loads(ctl("doctor", "--json").stdout)
    assert 3000 < by_default["needs"]["descriptors"] < 5000


def test_doctor_says_what_is_wrong_with_a_configuration(tmp_path):
    config = tmp_path / "loaderd.txtpb"
    config.write_text("limits { no_such_field: 1 }\n")
    text = ctl("doctor", "--config", config).stdout
    assert "what a daemon needs is not known" in text and "no_such_field" in text


def test_the_needed_threads_are_at_least_those_that_a_busy_daemon_has(daemon, photos, control):
    iterators = [iter(loader(photos, daemon)) for _ in range(8)]
    held = [next(iterator) for iterator in iterators]
    status = control("status")
    assert 5 < status["threads"] <= status["needs"]["threads"]
    del held, iterators


# ---- the raised limit is not the one the service gets


def test_soft_limit_is_raised_for_a_configuration_that_needs_20000():
    hard = min(524288, HARD)
    with daemon_support.Daemon(config=NEEDS_20000, prefix=("prlimit", f"--nofile=1024:{hard}")) as daemon:
        assert f"RLIMIT_NOFILE soft raised from 1024 to {hard}, hard {hard}" in daemon.log()
        status = Control(daemon.socket)("status")
        assert status["descriptor_soft_limit"] == status["descriptor_hard_limit"] == hard
        assert 0 < status["descriptors_open"] < 60 and status["needs"]["descriptors"] > 19920


def test_the_limit_of_the_trainer_that_starts_a_daemon_is_left_alone(photos, open_folder, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", open_folder)  # a shorter path than the test's own
    hard = min(524288, HARD)
    code = (
        "import sys, json, resource, loaderd, loaderd.transforms as T\n"
        "loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 10, transform=T.CenterCrop(8))\n"
        "batches = sum(1 for _ in loader)\n"
        "print(json.dumps([batches, *resource.getrlimit(resource.RLIMIT_NOFILE)]))\n"
    )
    try:
        assert run_python(code, photos, prefix=("prlimit", f"--nofile=300:{hard}")) == [6, 300, hard]
        assert ctl_json("status")["descriptor_soft_limit"] == hard
    finally:
        end_user_daemon(pathlib.Path(open_folder))


def test_hard_limit_below_the_need_is_warned_of_by_the_daemon_and_by_doctor():
    with daemon_support.Daemon(config=NEEDS_20000, prefix=("prlimit", "--nofile=1024:1024")) as daemon:
        assert "limits.max_sessions lowered from 6640 to" in daemon.log() and "LimitNOFILE=" in daemon.log()
        result = ctl("doctor", "--socket", daemon.socket)
        assert result.returncode == 1
        assert "SHORT: RLIMIT_NOFILE of the daemon, hard" in result.stdout and "LimitNOFILE=524288" in result.stdout
        assert "limits.max_sessions lowered from 6640 to" in result.stdout


# ---- the daemon itself runs out of descriptors


def set_soft_limit(pid, soft):
    subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={soft}:{HARD}"], check=True)


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def at_rest(pid):
    """Whether the number of a process's descriptors stays as it is for a while."""
    before = descriptors_of(pid)
    time.sleep(0.2)
    return descriptors_of(pid) == before


def test_the_daemon_warns_once_at_80_percent_and_again_after_a_fall(daemon):
    wait_until(lambda: at_rest(daemon.pid))
    open_now = descriptors_of(daemon.pid)
    set_soft_limit(daemon.pid, open_now + 2)
    daemon.wait_log(f"open={open_now} limit={open_now + 2} percent=")
    (warning,) = [line for line in daemon.log().splitlines() if "percent=" in line]
    assert " W " in warning and "socket=" in warning and "epoll=" in warning and "LimitNOFILE=" in warning
    set_soft_limit(daemon.pid, HARD)
    daemon.wait_log(f"descriptors are enough again open={open_now} limit={HARD}")
    set_soft_limit(daemon.pid, open_now + 3)
    daemon.wait_log(f"limit={open_now + 3} percent=")
    assert daemon.log().count("percent=") == 2
    set_soft_limit(daemon.pid, HARD)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_forty_descriptors_with_sixteen_threads_start_with_fewer_and_say_so():
    with daemon_support.Daemon(config="fleet { threads: 16 }\n", prefix=("prlimit", "--nofile=40:40")) as daemon:
        assert "decode threads lowered from 16 to 1: 16 need 128 descriptors" in daemon.log()
        assert "RLIMIT_NOFILE 40 - reserve 28 leaves 12" in daemon.log()
        assert Control(daemon.socket)("status")["fleet_threads"] == 1


LATE = """
import sys, loaderd, loaderd.transforms as T
loader = loaderd.DataLoader(loaderd.ImageFolder(sys.argv[1]), 10, transform=T.CenterCrop(8), socket=sys.argv[2])
print("ready")
print(sum(1 for _ in loader))
"""


def test_300_clients_on_200_descriptors_disturb_nobody_and_service_recovers(photos):
    with daemon_support.Daemon(prefix=("prlimit", "--nofile=200:200")) as daemon:
        served = [loader(photos, daemon) for _ in range(5)]
        iterators = [iter(one) for one in served]
        first = [next(iterator) for iterator in iterators]
        kept = []
        for _ in range(300):
            kept.append(socket.socket(socket.AF_UNIX))
            kept[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):  # the queue of the listening socket is full
                kept[-1].connect(daemon.socket)
        wait_until(lambda: at_rest(daemon.pid))
        before, began = cpu_seconds(daemon.pid), time.monotonic()
        time.sleep(1.0)
        assert (cpu_seconds(daemon.pid) - before) / (time.monotonic() - began) < 0.10
        assert 130 < descriptors_of(daemon.pid) <= 200
        # The clients that were there go on to the end of this epoch and through two more.
        assert [1 + sum(1 for _ in iterator) for iterator in iterators] == [6] * 5
        assert [sum(1 for _ in one) for one in served for _ in range(2)] == [6] * 10
        # One more waits to be let in, and is served once the 300 have gone, without a restart.
        with python_process(LATE, photos, daemon.socket) as late:
            assert late.stdout.readline() == "ready\n"
            for client in kept:
                client.close()
            assert late.stdout.readline() == "6\n"
        del first
        assert sum(1 for _ in loader(photos, daemon)) == 6
        assert daemon.process.poll() is None
