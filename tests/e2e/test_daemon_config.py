# SPDX-License-Identifier: Apache-2.0
"""The command line and the configuration of the real `loaderd`."""

from __future__ import annotations

import pathlib
import subprocess

from daemon import ROOT, Daemon, loaderd


def run(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([loaderd(), *args], capture_output=True, text=True, timeout=30, **options)


def test_version_and_help_answer_and_exit_0() -> None:
    version = run("--version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "loaderd")
    answer = run("--help")
    assert answer.returncode == 0
    for word in ("--config", "--user", "--idle-exit", "--socket", "--check", "--detach", "Exit codes", "SIGHUP"):
        assert word in answer.stdout


def test_wrong_command_lines_exit_2_with_a_reason() -> None:
    for args in ([], ["--nonsense"], ["--user", "--idle-exit", "-1"], ["--idle-exit", "3", "--config", "x"], ["extra"]):
        answer = run(*args)
        assert answer.returncode == 2, (args, answer)
        assert answer.stderr.strip(), args


def test_check_says_ok_of_the_default_configuration() -> None:
    answer = run("--config", str(ROOT / "deploy" / "loaderd.txtpb"), "--check")
    assert (answer.returncode, answer.stdout) == (0, "ok\n"), answer.stderr


def test_every_commented_field_of_the_default_configuration_is_valid(tmp_path: pathlib.Path) -> None:
    text = (ROOT / "deploy" / "loaderd.txtpb").read_text()
    fields = [
        line[2:]
        for line in text.splitlines()
        if line.startswith(("# dataset", "# listen {", "# fleet {", "# limits {"))
        or line.startswith(("#   ", "# }", "# stop_deadline_s", "# log_level"))
    ]
    fields = [line for line in fields if not line.startswith("  group:")]  # the group need not exist here
    assert len(fields) > 20
    (tmp_path / "all.txtpb").write_text("\n".join(fields))
    answer = run("--config", str(tmp_path / "all.txtpb"), "--check")
    assert answer.returncode == 0, answer.stderr


def test_all_configuration_errors_are_told_at_once(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "bad.txtpb"
    config.write_text('fleet { threads: "x" }\nstop_deadline_s: 0\nnonsense: 1\ndataset_root: "here"\n')
    (tmp_path / "datasets.d").mkdir()
    (tmp_path / "datasets.d" / "a.txtpb").write_text("\nfleet { }\n")
    for args in (["--check"], []):
        answer = run("--config", str(config), *args)
        assert answer.returncode == 1
        lines = answer.stderr.splitlines()
        assert [line.split(": ")[:2] for line in sorted(lines)] == [
            [f"{config}:1", "fleet.threads"],
            [f"{config}:2", "stop_deadline_s"],
            [f"{config}:3", "nonsense"],
            [f"{config}:4", "dataset_root[0]"],
            [f"{tmp_path}/datasets.d/a.txtpb:2", "fleet"],
        ]


def test_missing_configuration_is_named() -> None:
    answer = run("--config", "/nonexistent/loaderd.txtpb")
    assert answer.returncode == 1
    assert "/nonexistent/loaderd.txtpb" in answer.stderr


def test_sighup_takes_good_definitions_and_keeps_the_old_ones_for_bad(tmp_path: pathlib.Path) -> None:
    import signal

    with Daemon(system=True, config=f'dataset_root: "{tmp_path}"\n') as daemon:
        definitions = daemon.folder / "datasets.d"
        definitions.mkdir()
        (definitions / "a.txtpb").write_text(f'dataset {{ name: "a" image_folder: "{tmp_path}" }}')
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_log("datasets=1")
        (definitions / "b.txtpb").write_text("dataset { nam: 1 }\ndataset { name: 'c d' }")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_log("b.txtpb:2: dataset[1].name")
        assert "b.txtpb:1: dataset.nam" in daemon.log()
        assert daemon.process.poll() is None
        assert daemon.stop() == 0
