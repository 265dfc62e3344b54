# SPDX-License-Identifier: Apache-2.0
"""The units in a real systemd: start, serve an unprivileged user, limits, reload, restart, hardening."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import re
import resource
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator

import pytest
from nspawn import SystemdMachine, why_not

import photos
from daemon import ROOT, build_dir

SAMPLES = 60
REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

# A trainer that goes on until the file is there; prints its epochs, how long its longest step waited, and what it logged.
LONG_TRAINER = """
import json, os, sys, time
import loaderd
from loaderd import transforms
loader = loaderd.DataLoader(
    loaderd.ImageFolder("/srv/photos"), batch_size=8, shuffle=True, seed=int(sys.argv[1]),
    transform=[transforms.Resize(32), transforms.CenterCrop(32)],
)
epochs, longest = [], 0.0
while not os.path.exists("/run/enough"):
    seen, asked = [], time.monotonic()
    for batch in loader:
        longest = max(longest, time.monotonic() - asked)
        seen += batch.index.tolist()
        time.sleep(0.01)
        asked = time.monotonic()
    epochs.append(seen)
print(json.dumps([longest, epochs]))
"""

UNITS = ("loaderd.socket", "loaderd.service")

# What a trainer of the group does; prints what it saw.
TRAINER = """
import json, sys
import loaderd
from loaderd import transforms
loader = loaderd.DataLoader(
    loaderd.ImageFolder(sys.argv[1]), batch_size=8, shuffle=True,
    transform=[transforms.Resize(32), transforms.CenterCrop(32)],
)
seen = []
for batch in loader:
    seen += batch.index.tolist()
print(json.dumps(sorted(seen)))
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdMachine]:
    data = photos.generate(tmp_path_factory.mktemp("photos"), SAMPLES, classes=3)
    with SystemdMachine() as made:
        for name in ("loaderd", "loaderctl"):
            made.install(build_dir() / "bin" / name, f"/usr/bin/{name}", 0o755)
        made.install(build_dir() / "lib" / "libloaderd_client.so", "/usr/lib/libloaderd_client.so", 0o644)
        made.install(ROOT / "client" / "python" / "loaderd", "/usr/lib/python3/dist-packages/loaderd")
        for name in UNITS:
            made.install(ROOT / "systemd" / name, f"/usr/lib/systemd/system/{name}")
            made.install(ROOT / "systemd" / "user" / name, f"/usr/lib/systemd/user/{name}")
        made.install(ROOT / "systemd" / "sysusers.d" / "loaderd.conf", "/usr/lib/sysusers.d/loaderd.conf")
        made.install(ROOT / "systemd" / "tmpfiles.d" / "loaderd.conf", "/usr/lib/tmpfiles.d/loaderd.conf")
        made.install(ROOT / "deploy" / "loaderd.txtpb", "/etc/loaderd/loaderd.txtpb")
        made.install(data, "/srv/photos")
        made.write("/usr/local/bin/trainer.py", TRAINER)
        made.write("/usr/local/bin/long_trainer.py", LONG_TRAINER)
        with open(made.inside("/etc/loaderd/loaderd.txtpb"), "a") as config:
            config.write('dataset_root: "/srv"\n')
        made.tool("systemd-sysusers")
        made.add_user("trainer", "loaderd")
        made.add_user("stranger")
        # numpy is wherever this test's interpreter has it.
        made.boot(binds={sysconfig.get_paths()["purelib"]: "/opt/site-packages"})
        made.run("systemctl", "start", "loaderd")
        yield made


PYTHON = f"/usr/bin/python3.{sys.version_info.minor}"


def read_epoch(machine: SystemdMachine, user: str, path: str = "/srv/photos", check: bool = True):
    # Named for the member, so that no user daemon can stand in; the stranger goes the way that a newcomer goes.
    place = {"LOADERD_SOCKET": "/run/loaderd/loaderd.sock"} if user == "trainer" else {}
    env = {**place, "PYTHONPATH": "/opt/site-packages", "LOADERD_LIBRARY": "/usr/lib/libloaderd_client.so"}
    return machine.run(PYTHON, "/usr/local/bin/trainer.py", path, user=user, env=env, check=check)


@contextlib.contextmanager
def drop_in(machine: SystemdMachine, text: str) -> Iterator[None]:
    """The service restarted with a drop-in, and again without it."""
    machine.write("/etc/systemd/system/loaderd.service.d/test.conf", text)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "loaderd")
    try:
        yield
    finally:
        machine.run("rm", "-r", "/etc/systemd/system/loaderd.service.d")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "loaderd")


def main_pid(machine: SystemdMachine) -> int:
    return int(machine.run("systemctl", "show", "--value", "-p", "MainPID", "loaderd").stdout)


def test_service_is_active_and_says_what_it_does(machine: SystemdMachine) -> None:
    shown = machine.run("systemctl", "show", "-p", "ActiveState,StatusText,User,NotifyAccess", "loaderd").stdout
    assert "ActiveState=active" in shown and "StatusText=serving: " in shown, machine.journal("loaderd")
    log = machine.journal("loaderd")
    assert "mode=system" in log
    assert "socket=/run/loaderd/loaderd.sock (passed) segment_socket=/run/loaderd/loaderd-segment.sock (passed)" in log
    sockets = machine.run(
        "stat", "-c", "%U %G %a", "/run/loaderd/loaderd.sock", "/run/loaderd/loaderd-segment.sock"
    ).stdout
    assert sockets == "loaderd loaderd 660\nloaderd loaderd 660\n"


def descriptor_limits(machine: SystemdMachine) -> tuple[int, int]:
    limits = machine.run("cat", f"/proc/{main_pid(machine)}/limits").stdout
    found = re.search(r"Max open files +(\d+) +(\d+) ", limits)
    assert found, limits
    return int(found[1]), int(found[2])


def test_unit_s_descriptor_limit_is_in_force(machine: SystemdMachine) -> None:
    wanted = 524288
    able = subprocess.run(["prlimit", f"--nofile={wanted}:{wanted}", "true"], capture_output=True).returncode == 0
    if not able:  # then systemd takes the nearest that it may set
        wanted = min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        print(f"this machine lets nobody raise RLIMIT_NOFILE: {wanted} in place of 524288")
    assert descriptor_limits(machine) == (wanted, wanted)
    assert f"hard {wanted}" in machine.journal("loaderd")
    # A number of the administrator's own, as a drop-in.
    with drop_in(machine, "[Service]\nLimitNOFILE=4321\n"):
        assert descriptor_limits(machine) == (4321, 4321)
        assert "descriptors_hard=4321" in machine.journal("loaderd")
    assert descriptor_limits(machine) == (wanted, wanted)


def test_daemon_runs_as_its_own_user_without_capabilities(machine: SystemdMachine) -> None:
    status = machine.run("cat", f"/proc/{main_pid(machine)}/status").stdout
    uid = machine.run("id", "-u", "loaderd").stdout.strip()
    assert re.search(rf"Uid:\s+{uid}\s+{uid}\s+{uid}\s+{uid}\n", status)
    for line in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert re.search(rf"{line}:\s+0+\n", status), status
    assert re.search(r"NoNewPrivs:\s+1\n", status) and re.search(r"Seccomp:\s+2\n", status)


def test_member_of_the_group_reads_an_epoch_before_and_after_a_restart(machine: SystemdMachine) -> None:
    assert json.loads(read_epoch(machine, "trainer").stdout) == list(range(SAMPLES))
    before = main_pid(machine)
    machine.run("systemctl", "restart", "loaderd")
    assert main_pid(machine) != before
    assert json.loads(read_epoch(machine, "trainer").stdout) == list(range(SAMPLES))


def test_ten_restarts_in_a_row_are_pauses_to_two_trainers(machine: SystemdMachine) -> None:
    env = {"LOADERD_SOCKET": "/run/loaderd/loaderd.sock", "PYTHONPATH": "/opt/site-packages"}
    env["LOADERD_LIBRARY"] = "/usr/lib/libloaderd_client.so"
    script = "/usr/local/bin/long_trainer.py"
    machine.run("rm", "-f", "/run/enough")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        trainers = [
            pool.submit(machine.run, PYTHON, script, str(seed), user="trainer", env=env, timeout=240) for seed in (1, 2)
        ]
        pids = {main_pid(machine)}
        for _ in range(10):
            time.sleep(0.5)
            machine.run("systemctl", "restart", "loaderd")
            pids.add(main_pid(machine))
        time.sleep(1)
        machine.run("touch", "/run/enough")
        answers = [trainer.result() for trainer in trainers]
    assert len(pids) == 11
    for answer in answers:
        longest, epochs = json.loads(answer.stdout)
        waits = answer.stderr.count("waiting up to 60.0 s")
        print(f"a trainer of {len(epochs)} epochs was interrupted {waits} times, by {longest:.2f} s at most")
        assert waits > 0
        assert epochs and all(sorted(epoch) == list(range(SAMPLES)) for epoch in epochs)


def test_index_snapshots_are_kept_in_the_unit_s_state_directory(machine: SystemdMachine) -> None:
    read_epoch(machine, "trainer")
    assert "state directory /var/lib/loaderd" in machine.journal("loaderd")
    machine.run("systemctl", "restart", "loaderd")  # a stop writes what waits to be written
    listed = machine.run("sh", "-c", "stat -c '%U %a %n' /var/lib/loaderd /var/lib/loaderd/snapshots/*").stdout
    folder, *files = listed.splitlines()
    assert folder == "loaderd 700 /var/lib/loaderd"
    assert files and all(re.match(r"loaderd 600 .*\.index$", file) for file in files), listed
    assert "are not kept" not in machine.journal("loaderd")


def test_path_outside_of_the_roots_is_refused_naming_the_field(machine: SystemdMachine) -> None:
    answer = read_epoch(machine, "trainer", path="/usr/share", check=False)
    assert answer.returncode != 0
    assert "dataset_root" in answer.stderr, answer.stderr


def test_user_outside_of_the_group_is_told_what_is_missing(machine: SystemdMachine) -> None:
    answer = read_epoch(machine, "stranger", check=False)
    assert answer.returncode != 0
    assert "/run/loaderd/loaderd.sock" in answer.stderr and "ermission" in answer.stderr, answer.stderr


def test_reload_reads_the_dataset_definitions(machine: SystemdMachine) -> None:
    machine.write("/etc/loaderd/datasets.d/photos.txtpb", 'dataset { name: "photos" image_folder: "/srv/photos" }\n')
    machine.run("systemctl", "reload", "loaderd")
    assert "dataset definitions read again datasets=1" in machine.journal("loaderd")


def test_connection_starts_a_stopped_service(machine: SystemdMachine) -> None:
    machine.run("systemctl", "stop", "loaderd")
    assert machine.run("systemctl", "is-active", "loaderd", check=False).stdout == "inactive\n"
    assert machine.run("systemctl", "show", "--value", "-p", "Result", "loaderd").stdout == "success\n"
    assert json.loads(read_epoch(machine, "trainer").stdout) == list(range(SAMPLES))
    assert machine.run("systemctl", "is-active", "loaderd").stdout == "active\n"


def test_killed_service_comes_back(machine: SystemdMachine) -> None:
    before = main_pid(machine)
    machine.run("systemctl", "kill", "--signal=SIGKILL", "loaderd")
    assert json.loads(read_epoch(machine, "trainer").stdout) == list(range(SAMPLES))
    assert main_pid(machine) not in (0, before)


def test_watchdog_ends_a_daemon_that_does_not_run_and_starts_another(machine: SystemdMachine) -> None:
    with drop_in(machine, "[Service]\nWatchdogSec=1\nTimeoutAbortSec=1\nRestartSec=0\n"):
        before = main_pid(machine)
        time.sleep(3)
        assert main_pid(machine) == before, "it answers the watchdog"
        machine.run("systemctl", "kill", "--signal=SIGSTOP", "loaderd")
        deadline = time.monotonic() + 20
        while main_pid(machine) in (0, before) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "Watchdog timeout" in machine.journal("loaderd")
        assert json.loads(read_epoch(machine, "trainer").stdout) == list(range(SAMPLES))


def test_units_verify_clean(machine: SystemdMachine) -> None:
    for where in ("system", "user"):
        answer = machine.run(
            "systemd-analyze",
            "verify",
            f"--{where}",
            "--man=no",
            *(f"/usr/lib/systemd/{where}/{name}" for name in UNITS),
            env={"XDG_RUNTIME_DIR": "/run"},
            check=False,
        )
        ours = [line for line in (answer.stdout + answer.stderr).splitlines() if "loaderd" in line]
        assert (answer.returncode, ours) == (0, [])


def test_exposure_is_at_most_2(machine: SystemdMachine) -> None:
    answer = machine.run("systemd-analyze", "security", "--no-pager", "loaderd", check=False).stdout
    overall = float(re.search(r"Overall exposure level for loaderd.service: ([\d.]+)", answer)[1])
    assert overall <= 2.0, answer
    print(f"systemd-analyze security loaderd: {overall}")


def test_installed_configuration_of_the_daemon_checks_ok(machine: SystemdMachine) -> None:
    assert machine.run("loaderd", "--config", "/etc/loaderd/loaderd.txtpb", "--check").stdout == "ok\n"
