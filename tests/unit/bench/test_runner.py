# SPDX-License-Identifier: Apache-2.0
import os
import sys
import time

import pytest
from harness import registry, runner, venvs


def python(code):
    return [sys.executable, "-c", code]


def test_the_account_is_the_last_line_of_the_output():
    assert runner.run(python("print('a warning'); print('{\"images_per_s\": 5}')"), 30) == {"images_per_s": 5}


def test_a_failure_is_told_by_the_last_line_of_the_errors():
    with pytest.raises(runner.Failed, match="exit code 1: ModuleNotFoundError: No module named 'nowhere'"):
        runner.run(python("import nowhere"), 30)


def test_an_output_without_account_is_a_failure():
    with pytest.raises(runner.Failed, match="gave no account: done"):
        runner.run(python("print('done')"), 30)
    with pytest.raises(runner.Failed, match="no output"):
        runner.run(python(""), 30)


def test_what_takes_too_long_is_ended_with_its_children():
    code = "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(60)"
    begin = time.monotonic()
    with pytest.raises(runner.Failed, match="took longer than 1 s"):
        runner.run(python(code), 1)
    assert time.monotonic() - begin < 30


def test_what_a_peer_leaves_behind_is_ended(tmp_path):
    pid_file = tmp_path / "pid"
    code = (
        "import os, sys, time\n"
        "if not os.fork():\n"
        "    os.close(1); os.close(2)\n"
        f"    open({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        f"while not os.path.exists({str(pid_file)!r}) or not open({str(pid_file)!r}).read(): time.sleep(0.01)\n"
        "print('{}', flush=True)\n"
        "os._exit(0)\n"
    )
    assert runner.run(python(code), 30) == {}
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_names_of_peers_are_checked():
    limit, peers = registry.chosen("loaderd,limit")
    assert limit and [peer.name for peer in peers] == ["loaderd"]
    limit, peers = registry.chosen("all")
    assert limit and peers == list(registry.PEERS)
    with pytest.raises(ValueError, match="no peer 'dolly'"):
        registry.chosen("dali,dolly")


def test_every_peer_has_a_script_and_a_family():
    for peer in registry.PEERS:
        assert (runner.PEERS / f"{peer.script}.py").is_file()
        assert not peer.family or peer.family in registry.FAMILIES


def test_the_reason_of_a_failed_install_is_pips_error():
    log = "Collecting x\nERROR: Could not find a version\nERROR: No matching distribution found for x\n\nnotice\n"
    assert venvs.reason(log) == "ERROR: No matching distribution found for x"
    assert venvs.reason("") == "pip said nothing"


def test_an_environment_that_fails_is_tried_once(tmp_path, monkeypatch):
    monkeypatch.delenv("LOADERD_BENCH_PYTHON_GRAIN", raising=False)
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\necho tried >> {tmp_path}/tries\necho 'ERROR: no venv'\nexit 1\n")
    broken.chmod(0o755)
    environments = venvs.Venvs(tmp_path / "venvs", str(broken))
    for _ in range(2):
        with pytest.raises(venvs.NotInstalled, match="does not install: ERROR: no venv"):
            environments.python("grain")
    assert (tmp_path / "tries").read_text() == "tried\n"


def test_a_named_interpreter_serves_a_family(tmp_path, monkeypatch):
    monkeypatch.setenv("LOADERD_BENCH_PYTHON_TORCH", "/opt/python")
    assert venvs.Venvs(tmp_path).python("torch") == "/opt/python"
    assert venvs.Venvs(tmp_path).python("") == sys.executable
    assert not os.listdir(tmp_path)
