# SPDX-License-Identifier: Apache-2.0
"""loaderctl on a running daemon, and without one."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest
from conftest import files_of, wait_until
from PIL import Image

import daemon as daemon_support

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="acts as a second user, which only root can")


def ctl(*arguments, env=None, timeout=60, **options):
    command = [daemon_support.loaderctl(), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}, **options
    )


def ctl_json(*arguments, **options):
    result = ctl(*arguments, "--json", **options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def evaluated(path, size=224):
    """Resize(size) and CenterCrop(size) by Pillow, as torchvision calls it."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    short = min(width, height)
    resized = (size, int(size * height / width)) if short == width else (int(size * width / height), size)
    image = image.resize(resized, Image.Resampling.BILINEAR)
    left, top = (round((resized[axis] - size) / 2) for axis in (0, 1))
    return np.asarray(image.crop((left, top, left + size, top + size)))


# ---- commands that ask


def test_status_tells_limits_fleet_and_process(daemon):
    result = ctl("status", "--socket", daemon.socket)
    assert result.returncode == 0, result.stderr
    assert f"process {daemon.pid} of uid {os.getuid()}" in result.stdout
    assert "user daemon, serving" in result.stdout
    assert daemon.socket in result.stdout
    for word in ("decode threads", "resident", "soft limit", "LIMIT", "USED", "TOTAL", "RAISED BY"):
        assert word in result.stdout


def test_status_as_json_has_numbers_and_every_field(daemon):
    status = ctl_json("status", "--socket", daemon.socket)
    assert status["pid"] == daemon.pid
    assert status["sessions"] == 0 and status["samples_delivered"] == 0
    assert isinstance(status["descriptor_soft_limit"], int) and status["descriptor_soft_limit"] > 0
    assert isinstance(status["uptime_s"], float | int) and status["cpu_s"] > 0 and status["resident_bytes"] > 1 << 20
    assert status["budget"] and all(isinstance(budget["total"], int) and budget["total"] > 0 for budget in status["budget"])
    assert all(budget["config_field"] for budget in status["budget"])


def test_sessions_and_datasets_show_a_reading_trainer(daemon, photos):
    import loaderd

    loader = loaderd.DataLoader(
        loaderd.ImageFolder(str(photos)), batch_size=10, transform=loaderd.transforms.Resize([32, 32]), socket=daemon.socket
    )
    iterator = iter(loader)
    held = next(iterator)
    (session,) = ctl_json("sessions", "--socket", daemon.socket)["sessions"]
    assert session["pid"] == os.getpid() and session["uid"] == os.getuid()
    assert session["batch_size"] == 10 and session["num_batches"] == 6 and session["batches_delivered"] >= 1
    assert session["slots_lent"] >= 1
    (dataset,) = ctl_json("datasets", "--socket", daemon.socket)["datasets"]
    assert dataset["path"] == str(photos) and dataset["num_samples"] == 60 and dataset["num_classes"] == 3
    assert dataset["sessions"] == 1
    assert ctl_json("status", "--socket", daemon.socket)["sessions"] == 1
    lines = ctl("sessions", "--socket", daemon.socket).stdout.splitlines()
    assert lines[0].startswith("SESSION") and lines[1].startswith(session["session"]) and len(lines) == 2
    assert str(photos) in ctl("datasets", "--socket", daemon.socket).stdout
    del held, iterator


def test_lists_without_entries_say_so(daemon):
    assert ctl("sessions", "--socket", daemon.socket).stdout == "no sessions\n"
    assert ctl("datasets", "--socket", daemon.socket).stdout == "no datasets are open\n"
    assert ctl_json("sessions", "--socket", daemon.socket) == {"sessions": []}


def test_drain_tells_what_is_left_and_ends_the_daemon(daemon):
    result = ctl("drain", "--socket", daemon.socket)
    assert result.returncode == 0, result.stderr
    assert "no sessions are left" in result.stdout
    assert daemon.wait() == 0


def test_drain_waits_for_the_sessions_that_it_counts(daemon, photos):
    import loaderd

    loader = loaderd.DataLoader(
        loaderd.ImageFolder(str(photos)), batch_size=10, transform=loaderd.transforms.Resize([32, 32]), socket=daemon.socket
    )
    iterator = iter(loader)
    next(iterator)
    assert ctl_json("drain", "--socket", daemon.socket) == {"sessions_left": 1}
    assert daemon.process.poll() is None
    assert sum(1 for _ in iterator) == 5
    del iterator, loader
    assert daemon.wait() == 0


@needs_root
def test_drain_by_another_user_is_refused_and_status_is_not(tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if str(folder).startswith(os.environ.get("TMPDIR", "/tmp")):
            os.chmod(folder, os.stat(folder).st_mode | 0o055)
    config = f'listen {{ socket: "{tmp_path}/d.sock" mode: 0666 }}\n'
    with daemon_support.Daemon(system=True, config=config, start=False) as running:
        running.spawn()
        wait_until(lambda: daemon_support.connects(f"{tmp_path}/d.sock"), 20)
        as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        refused = ctl("drain", "--socket", f"{tmp_path}/d.sock", **as_nobody)
        assert refused.returncode == 1
        assert "permission denied" in refused.stderr and f"{tmp_path}/d.sock" in refused.stderr
        status = ctl_json("status", "--socket", f"{tmp_path}/d.sock", **as_nobody)
        assert status["mode"] == "system" and status["state"] == "serving"


@needs_root
def test_socket_without_a_right_to_it_is_an_error_with_the_cure(tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if str(folder).startswith(os.environ.get("TMPDIR", "/tmp")):
            os.chmod(folder, os.stat(folder).st_mode | 0o055)
    config = f'listen {{ socket: "{tmp_path}/d.sock" mode: 0600 }}\n'
    with daemon_support.Daemon(system=True, config=config, start=False) as running:
        running.spawn()
        wait_until(lambda: daemon_support.connects(f"{tmp_path}/d.sock"), 20)
        result = ctl("status", "--socket", f"{tmp_path}/d.sock", user=NOBODY, group=NOBODY, extra_groups=[])
    assert result.returncode == 1
    assert "no right to connect" in result.stderr and "group" in result.stderr


# ---- which daemon


def test_no_daemon_is_exit_code_3_and_starts_none(runtime_dir):
    result = ctl("status")
    assert result.returncode == 3 and result.stdout == ""
    assert str(runtime_dir / "none.sock") in result.stderr
    assert str(runtime_dir / "loaderd" / "loaderd.sock") in result.stderr
    assert "start one" in result.stderr and "--socket" in result.stderr
    assert not (runtime_dir / "loaderd").exists()


def test_dead_daemons_socket_is_told_from_one_that_is_not_there(daemon):
    daemon.kill()
    result = ctl("sessions", "--socket", daemon.socket)
    assert result.returncode == 3
    assert f"{daemon.socket} (nobody listens)" in result.stderr


def test_daemon_of_the_environment_is_asked_before_the_users(daemon, user_daemon):
    assert ctl_json("status")["pid"] == user_daemon.pid
    assert ctl_json("status", env={"LOADERD_SOCKET": daemon.socket})["pid"] == daemon.pid
    assert ctl_json("status", env={"LOADERD_SYSTEM_SOCKET": daemon.socket})["pid"] == daemon.pid


def test_socket_path_that_is_too_long_is_told_with_the_limit(tmp_path):
    result = ctl("status", "--socket", f"/tmp/{'d' * 110}.sock")
    assert result.returncode == 2 and "107" in result.stderr


# ---- cat


def test_cat_writes_the_first_samples_exactly(daemon, photos, tmp_path):
    out = tmp_path / "out"
    result = ctl("cat", "--data", photos, "--batch", 6, "--out", out, "--socket", daemon.socket)
    assert result.returncode == 0, result.stderr
    assert "6 of 60 samples" in result.stdout and str(out / "images.npy") in result.stdout
    images = np.load(out / "images.npy")
    assert images.dtype == np.uint8
    assert np.array_equal(images, np.stack([evaluated(path) for path in files_of(photos)[:6]]))
    assert np.load(out / "index.npy").tolist() == [0, 1, 2, 3, 4, 5]
    assert np.load(out / "labels.npy").tolist() == [0] * 6
    assert np.load(out / "pad.npy").dtype == np.bool_


def test_cat_by_index_gives_those_samples_in_that_order(daemon, photos, tmp_path):
    told = ctl_json("cat", "--data", photos, "--index", "59,0,20", "--size", 32, "--out", tmp_path, "--socket", daemon.socket)
    assert told["count"] == 3 and told["num_samples"] == 60 and told["bad"] == 0
    assert {field["name"]: field["shape"] for field in told["fields"]}["images"] == [3, 32, 32, 3]
    assert np.load(tmp_path / "index.npy").tolist() == [59, 0, 20]
    assert np.load(tmp_path / "labels.npy").tolist() == [2, 0, 1]


def test_cat_draws_a_contact_sheet_of_the_same_pixels(daemon, photos, tmp_path):
    sheet, out = tmp_path / "sheet.png", tmp_path / "out"
    arguments = ("--data", photos, "--batch", 5, "--size", 40, "--png", sheet, "--out", out)
    assert ctl("cat", *arguments, "--socket", daemon.socket).returncode == 0
    drawn = np.asarray(Image.open(sheet))
    assert drawn.shape == (82, 124, 3)
    images = np.load(out / "images.npy")
    for number, (top, left) in enumerate([(0, 0), (0, 42), (0, 84), (42, 0), (42, 42)]):
        assert np.array_equal(drawn[top : top + 40, left : left + 40], images[number])
    assert (drawn[42:, 84:] == 255).all()


@pytest.mark.parametrize(("dtype", "stored"), [("float32", "float32"), ("float16", "float16"), ("bfloat16", "uint16")])
def test_cat_writes_every_dtype_that_a_recipe_ends_in(daemon, photos, tmp_path, dtype, stored):
    steps = [{"resize": {"size": [16, 16]}}, {"pil_to_tensor": {}}, {"convert_image_dtype": {"dtype": dtype}}]
    arguments = ("--data", photos, "--batch", 2, "--transform", json.dumps(steps), "--out", tmp_path)
    result = ctl("cat", *arguments, "--socket", daemon.socket)
    assert result.returncode == 0, result.stderr
    images = np.load(tmp_path / "images.npy")
    assert images.shape == (2, 3, 16, 16) and images.dtype == np.dtype(stored)


def test_cat_says_what_is_wrong(daemon, photos, tmp_path):
    to_socket = ("--socket", daemon.socket)
    assert ctl("cat", "--data", photos, *to_socket).returncode == 2
    missing = ctl("cat", "--data", tmp_path / "missing", "--out", tmp_path, *to_socket)
    assert missing.returncode == 1 and str(tmp_path / "missing") in missing.stderr
    unknown = ctl("cat", "--data", photos, "--transform", '[{"rotate": {}}]', "--out", tmp_path, *to_socket)
    assert unknown.returncode == 2 and "--transform" in unknown.stderr and "rotate" in unknown.stderr
    floats = ctl("cat", "--data", photos, "--transform", '[{"resize": {"size": [8, 8]}}, {"to_tensor": {}}]',
                 "--png", tmp_path / "a.png", *to_socket)  # fmt: skip
    assert floats.returncode == 2 and "uint8" in floats.stderr
    beyond = ctl("cat", "--data", photos, "--index", "60", "--out", tmp_path, *to_socket)
    assert beyond.returncode != 0 and "60" in beyond.stderr
    name = ctl("cat", "--data", "no-such-name", "--out", tmp_path, *to_socket)
    assert name.returncode == 1 and "no-such-name" in name.stderr


def test_cat_names_the_file_that_is_no_image(daemon, tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "broken.jpg").write_bytes(b"no image")
    result = ctl("cat", "--data", tmp_path / "data", "--out", tmp_path / "out", "--socket", daemon.socket)
    assert result.returncode == 1 and "broken.jpg" in result.stderr


# ---- bench


def test_bench_by_epochs_reads_each_sample_of_them(daemon, photos):
    result = ctl_json("bench", "--data", photos, "--batch", 16, "--size", 64, "--epochs", 2, "--socket", daemon.socket)
    assert result["images"] == 120 and result["batches"] == 8 and result["bad_samples"] == 0
    assert result["images_per_s"] > 0 and result["first_batch_s"] > 0
    assert result["daemon_cpu_s_per_1000_images"] > 0 and result["other_sessions"] == 0
    assert ctl_json("status", "--socket", daemon.socket)["samples_delivered"] == 120


def test_bench_by_time_ends_in_time_and_draws_nothing_in_a_pipe(daemon, photos):
    begin = time.monotonic()
    result = ctl("bench", "--data", photos, "--batch", 8, "--size", 64, "--seconds", 0.5, "--socket", daemon.socket)
    assert result.returncode == 0 and result.stderr == ""
    assert "img/s" in result.stdout and "CPU per 1,000 images" in result.stdout and "first batch" in result.stdout
    assert time.monotonic() - begin < 15
    assert daemon.process.poll() is None


def test_bench_draws_a_bar_on_a_terminal(daemon, photos):
    leader, follower = os.openpty()
    command = [daemon_support.loaderctl(), "bench", "--data", str(photos), "--seconds", "1", "--size", "64", "--batch", "4",
               "--socket", daemon.socket]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower) as process:
        os.close(follower)
        drawn = b""
        while True:
            try:
                drawn += os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait(60) == 0
    os.close(leader)
    assert b"[" in drawn and b"%" in drawn and b"img/s" in drawn
    assert drawn.endswith(b"\r\x1b[K")


def private_daemons(folder):
    """Processes whose command line names something in `folder`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"--idle-exit" in line and str(folder).encode() in line:
                found.append(int(entry.name))
    return found


def test_bench_with_a_private_daemon_leaves_nothing_behind(photos, tmp_path, runtime_dir):
    temporary = tmp_path / "t"
    temporary.mkdir()
    arguments = ("--data", photos, "--epochs", 1, "--size", 64, "--batch", 16, "--fleet-threads", 1)
    result = ctl_json("bench", *arguments, env={"TMPDIR": str(temporary)})
    assert result["images"] == 60 and result["fleet_threads"] == 1 and result["private_daemon"] is True
    assert os.listdir(temporary) == [] and private_daemons(temporary) == []
    assert not (runtime_dir / "loaderd").exists()


def test_interrupted_bench_stops_its_daemon(photos, tmp_path):
    temporary = tmp_path / "t"
    temporary.mkdir()
    command = [daemon_support.loaderctl(), "bench", "--data", str(photos), "--seconds", "60", "--private"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: private_daemons(temporary), 20)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 1 and "interrupted" in told
    assert os.listdir(temporary) == [] and private_daemons(temporary) == []


# ---- config check, and the command line


def test_config_check_passes_the_daemons_verdict_through(tmp_path):
    good, bad = tmp_path / "good.txtpb", tmp_path / "bad.txtpb"
    good.write_text("fleet { threads: 2 }\n")
    bad.write_text("fleet { threads: 2 }\nlimits { no_such_field: 1 }\n")
    assert ctl("config", "check", good).returncode == 0
    refused = ctl("config", "check", bad)
    direct = subprocess.run(
        [daemon_support.loaderd(), "--check", "--config", str(bad)], capture_output=True, text=True, timeout=30
    )
    assert refused.returncode == direct.returncode != 0
    assert "bad.txtpb" in refused.stderr and "no_such_field" in refused.stderr
    told = json.loads(ctl("config", "check", bad, "--json").stdout)
    assert told["valid"] is False and any("no_such_field" in line for line in told["output"])


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["status", "--nonsense"], ["cat"], ["bench", "--data", "x", "--batch", "0"], ["config", "check"],
     ["bench", "--data", "x", "--private", "--socket", "y"], ["cat", "--data", "x", "--index", "-1"],
     ["fds", "0"], ["fds", "x"], ["fds", "1", "--socket", "y"], ["fds", "1", "--watch", "0"]],
)  # fmt: skip
def test_wrong_arguments_are_exit_code_2(arguments):
    result = ctl(*arguments)
    assert result.returncode == 2 and result.stderr


def test_help_names_every_command_with_its_shared_options():
    overview = ctl("--help")
    assert overview.returncode == 0 and "Exit codes" in overview.stdout
    for command in ("status", "sessions", "datasets", "fds", "doctor", "cat", "bench", "config", "drain"):
        assert f"\n  {command} " in overview.stdout
    for command in (["status"], ["sessions"], ["datasets"], ["fds"], ["doctor"], ["cat"], ["bench"], ["config", "check"],
                    ["drain"]):  # fmt: skip
        told = ctl(*command, "--help").stdout
        assert "--json" in told and "--socket" in told
