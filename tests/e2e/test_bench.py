# SPDX-License-Identifier: Apache-2.0
"""./run bench runs from end to end, and its yardsticks say what they counted. No figure is judged."""

import json
import pathlib
import subprocess
import sys

import pytest

import daemon as daemon_support

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "support" / "fixtures"
BIN = daemon_support.build_dir() / "bin"


def run(*command, code=0):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert result.returncode == code, result.stderr
    return result


@pytest.fixture
def boxes(tmp_path):
    def write(*lines):
        (tmp_path / "boxes").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / "boxes"

    return write


def test_bench_writes_tables_of_loaderd_beside_the_bare_decode(tmp_path):
    bench = [sys.executable, ROOT / "tests" / "bench" / "bench.py", "--build", daemon_support.build_dir()]
    run(*bench, "--quick", "--peers", "loaderd,limit", "--threads", 2, "--out", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert not [result for result in document["results"] if "error" in result]
    accounts = {result.get("peer") or (result["mode"], result["threads"]): result["account"] for result in document["results"]}
    assert set(accounts) == {"loaderd", ("crop", 1), ("full", 1), ("crop", 2), ("full", 2)}
    assert all(account["images_per_s"] > 0 and account["cpu_s_per_1000_images"] > 0 for account in accounts.values())
    assert accounts["loaderd"]["trainer_children"] == 0 and accounts["loaderd"]["service_pss_bytes"] > 0
    text = (tmp_path / "out" / "README.md").read_text()
    assert "| **loaderd** |" in text and "## Aims" in text and "## Machine" in text

    # A second round, later; and not with other settings.
    more = [*bench, "--peers", "loaderd,limit", "--images", 256, "--batch", 32, "--recipes", "crop_uint8", "--extras", ""]
    more += ["--threads", 2, "--rounds", 2, "--resume", tmp_path / "out"]
    refused = run(*more, "--seconds", 0.25, code=1)
    assert "its seconds is 0.5, and now it would be 0.25" in refused.stderr
    run(*more, "--seconds", 0.5)
    again = json.loads((tmp_path / "out" / "results.json").read_text())
    assert again["results"][: len(document["results"])] == document["results"]
    assert sorted(result["round"] for result in again["results"]) == [1] * 5 + [2] * 5
    assert again["settings"]["rounds"] == 2 and len(again["earlier"]) == 1
    text = (tmp_path / "out" / "README.md").read_text()
    assert text.count("Made by `") == 2 and "2 interleaved rounds" in text


def test_limit_decodes_whole_images_and_boxes(boxes):
    samples = boxes(
        f"0 0 300 400 {FIXTURES}/large.jpg",
        f"13 170 200 101 {FIXTURES}/large.jpg",
        f"7 9 20 20 {FIXTURES}/grey.jpg",
        f"1 1 30 82 {FIXTURES}/colour_422.jpg",
        f"20 3 30 31 {FIXTURES}/progressive.jpg",
    )
    for mode in ("full", "crop"):
        account = json.loads(run(BIN / "limit", mode, samples, 1, 0.05).stdout)
        assert account["samples"] == 5 and account["images"] >= 1 and account["images_per_s"] > 0


def test_limit_leaves_out_what_does_not_decode_and_boxes_outside_the_image(boxes):
    fits = f"0 0 300 400 {FIXTURES}/large.jpg"
    samples = boxes(fits, f"0 1 300 400 {FIXTURES}/large.jpg", f"1 0 300 400 {FIXTURES}/large.jpg",
                    f"0 0 0 4 {FIXTURES}/large.jpg", f"0 0 4294967295 4 {FIXTURES}/large.jpg",
                    f"0 0 1 1 {FIXTURES}/empty.jpg", f"0 0 1 1 {FIXTURES}/truncated_header.jpg")  # fmt: skip
    assert json.loads(run(BIN / "limit", "crop", samples, 1, 0.05).stdout)["samples"] == 1


def test_limit_names_what_it_cannot_use(boxes, tmp_path):
    assert "no sample" in run(BIN / "limit", "full", boxes(), 1, 0.05, code=1).stderr
    assert "cannot be read" in run(BIN / "limit", "full", tmp_path / "none", 1, 0.05, code=1).stderr
    assert "cannot be read" in run(BIN / "limit", "full", boxes("0 0 1 1 /nowhere.jpg"), 1, 0.05, code=1).stderr
    assert "a line is not" in run(BIN / "limit", "full", boxes("0 0 one 1 a.jpg"), 1, 0.05, code=1).stderr
    assert "usage" in run(BIN / "limit", "half", boxes(), 1, 0.05, code=2).stderr


def test_walk_counts_files_and_the_bytes_of_their_names(tmp_path):
    for name in ("a/one.jpg", "a/deep/two.jpg", "b/three.jpg"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).touch()
    for mode in ("stat", "names"):
        account = json.loads(run(BIN / "walk", mode, tmp_path / "images", 2).stdout)
        assert (account["folders"], account["files"], account["name_bytes"]) == (2, 3, len("one.jpgtwo.jpgthree.jpg"))
    assert "usage" in run(BIN / "walk", tmp_path, 2, code=2).stderr
