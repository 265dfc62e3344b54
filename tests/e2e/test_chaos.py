# SPDX-License-Identifier: Apache-2.0
"""A short run of ./run chaos, and that its verdict sees what it is there to see."""

import copy
import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

CHAOS = pathlib.Path(__file__).resolve().parent / "chaos"
sys.path.append(str(CHAOS))

import verdict  # noqa: E402 (found by the line above)

LENGTHS = (3, 2)


def answer(epoch, step):
    return {"index": [step], "pad": [False], "crc": 100 * epoch + step, "bad": []}


ANSWERS = [[answer(epoch, step) for step in range(length)] for epoch, length in enumerate(LENGTHS)]


def log(epochs=4):
    """Of a run without a fault: epochs come in turn."""
    return [
        {"n": n, "step": step, "what": answer(n % 2, step), "wait": 0.5, "end": 10.0 * n + step}
        for n in range(epochs)
        for step in range(LENGTHS[n % 2])
    ]


def judged(lines):
    account = verdict.judge(lines, ANSWERS)
    return account.lost, account.repeated, len(account.wrong)


def test_answers_are_those_of_the_run_in_peace():
    assert verdict.answers_of([{"start": {}}, *log(2)]) == ANSWERS
    with pytest.raises(ValueError, match="epoch 0, step 2"):
        verdict.answers_of([log(2)[k] for k in (0, 2, 1, 3, 4)])


def test_a_whole_run_is_right():
    account = verdict.judge(log(), ANSWERS)
    assert (account.batches, account.lost, account.repeated, account.wrong) == (10, 0, 0, [])


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda lines: lines.pop(4), (1, 0, 0)),
        (lambda lines: lines.pop(), (1, 0, 0)),  # its last epoch is not whole
        (lambda lines: lines.pop(0), (1, 0, 0)),
        (lambda lines: [lines.pop(3) for _ in range(5)], (5, 0, 0)),
        (lambda lines: lines.insert(4, lines[4]), (0, 1, 0)),
        (lambda lines: lines.__setitem__(slice(1, 3), lines[2:0:-1]), (1, 1, 0)),
        (lambda lines: lines[5]["what"].update(crc=1), (0, 0, 1)),
        (lambda lines: lines[5]["what"].update(index=[9]), (0, 0, 1)),
        (lambda lines: lines.insert(3, {**lines[2], "step": 3}), (0, 1, 1)),  # a step that the epoch has not
    ],
)
def test_what_is_lost_repeated_or_wrong_is_counted(spoil, expected):
    lines = copy.deepcopy(log())
    spoil(lines)
    assert judged(lines) == expected


def test_errors_and_faults_are_told():
    lines = [*log(), {"error": "UnavailableError", "text": "", "end": 0.0}, {"fault": "a batch changed"}]
    account = verdict.judge(lines, ANSWERS)
    assert (account.errors, account.faults) == ({"UnavailableError": 1}, ["a batch changed"])


def test_a_pause_is_counted_without_the_time_that_the_trainer_was_stopped():
    lines = log(1)
    lines[1].update(wait=5.0, end=20.0)
    assert verdict.judge(lines, ANSWERS[:1]).longest_pause_s == 5.0
    stops = [(1.0, 2.0), (14.0, 16.0), (17.0, 18.5), (19.5, 30.0)]
    assert verdict.judge(lines, ANSWERS[:1], stops).longest_pause_s == 2.0


def test_what_comes_twice_in_an_epoch_is_seen_padding_and_stand_ins_apart():
    steps = [
        {"index": [1, 2], "pad": [False, False], "bad": []},
        {"index": [3, 1], "pad": [False, True], "bad": []},
        {"failed": ["0004.jpg"]},
        {"index": [2, 5], "pad": [False, False], "bad": [[9, 2]]},
    ]
    assert verdict.twice(steps) == []
    steps.append({"index": [5], "pad": [False], "bad": []})
    assert verdict.twice(steps) == [5]


def test_trainers_lose_and_repeat_nothing_in_a_short_chaos(tmp_path):
    out = tmp_path / "summary.json"
    command = [sys.executable, CHAOS / "chaos.py", "--minutes", "0.6", "--seed", "7", "--out", out]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=400)
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(out.read_text())
    assert (summary["lost"], summary["repeated"], summary["wrong"], summary["faults"]) == (0, 0, 0, [])
    assert all(
        summary["done"][what] > 0 for what in ("trainer kills", "trainer stops", "files replaced", "files added")
    )
