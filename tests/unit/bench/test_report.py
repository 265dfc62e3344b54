# SPDX-License-Identifier: Apache-2.0
import pytest
from harness import aims, report


def limit(turn, mode, rate, cpu=1.0, threads=2, recipe="crop_uint8"):
    account = {"images_per_s": rate, "cpu_s_per_1000_images": cpu}
    return {"what": "limit", "round": turn, "recipe": recipe, "mode": mode, "threads": threads, "account": account}


def peer(turn, name, rate, recipe="crop_uint8", **more):
    account = {"images_per_s": rate, "cpu_s_per_1000_images": 1.5, "boundary_wait_s": 0.2, "median_wait_s": 0.1, **more}
    return {"what": "peer", "round": turn, "recipe": recipe, "peer": name, "account": account}


@pytest.fixture
def document():
    settings = {
        "rounds": 2,
        "seconds": 1.0,
        "batch": 8,
        "threads": 2,
        "recipes": ["crop_uint8"],
        "peers": ["dali", "loaderd", "ffcv-raw", "spdl"],
        "data": "9 photographs",
    }
    results = [
        *(limit(turn, "crop", rate) for turn, rate in ((1, 1000), (2, 500))),
        *(limit(turn, "full", rate) for turn, rate in ((1, 800), (2, 400))),
        limit(1, "crop", 500, threads=1),
        *(peer(turn, "loaderd", rate) for turn, rate in ((1, 950), (2, 470))),
        *(peer(turn, "dali", rate) for turn, rate in ((1, 500), (2, 260))),
        *(peer(turn, "ffcv-raw", rate) for turn, rate in ((1, 2000), (2, 1000))),
        {"what": "peer", "peer": "spdl", "error": "does not install: ERROR: no wheel"},
    ]
    return {
        "command": "./run bench --rounds 2",
        "commit": "abc",
        "made": "today",
        "settings": settings,
        "machine": {"cpu": "a | b"},
        "versions": {"dali": {"nvidia-dali": "2"}},
        "results": results,
        "extras": [{"what": "two threads", "account": {"one": 100.0, "two": 195.0, "ratio": 1.95}}],
    }


def aim(document, begin):
    return next(row for row in aims.judged(document) if row[0].startswith(begin))


def test_a_cell_cannot_break_the_table():
    assert report.table(["a"], [["x|y"]]) == "| a |\n|---|\n| x\\|y |"


def test_peers_stand_fastest_first_with_their_ratio_to_the_limit(document):
    rows = report.rates(document).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [
        "bare decode, crop, 2 threads",
        "bare decode, full, 2 threads",
        "FFCV, uncompressed at 256 pixels †",
        "**loaderd**",
        "DALI CPU",
        "SPDL",
    ]
    assert "710 (470 to 950) **0.94**" in rows[3]
    assert "750 (500 to 1,000)" in rows[0]


def test_a_peer_that_did_not_run_is_told_with_its_reason(document):
    text = report.markdown(document)
    assert "| SPDL | did not run |" in text
    assert "- spdl: does not install: ERROR: no wheel" in text


def test_a_failure_is_told_once_with_its_recipes(document):
    for turn in (1, 2):
        failed = {"what": "peer", "round": turn, "recipe": "crop_uint8", "peer": "dali", "error": "exit code 1: boom"}
        document["results"].append(failed)
    assert report.absent(document).splitlines().count("- dali: exit code 1: boom (crop_uint8)") == 1


def test_costs_have_a_row_for_each_peer_that_ran(document):
    document["results"].append(peer(3, "dali", 500, trainer_pss_bytes=5e6, trainer_descriptors=3))
    rows = report.costs(document, "crop_uint8").splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| bare decode, crop",
        "| DALI CPU",
        "| **loaderd**",
        "| FFCV, uncompressed at 256 pixels",
    ]
    assert rows[0].split(" | ")[1] == "1.00" and rows[1].split(" | ")[6] == "5"


def test_extras_are_told_with_their_reasons(document):
    document["extras"].append({"what": "index", "error": "took longer than 1 s"})
    text = report.extras(document)
    assert "| two threads | one 100.000; two 195.000; ratio 1.950 |" in text and "| index | took longer than 1 s |" in text


def test_aims_are_met_or_not(document):
    assert aim(document, "RandomResizedCrop(224) + flip, uint8: of the bare crop")[2:] == ["0.94 (0.94 to 0.95)", "met"]
    assert aim(document, "CPU seconds")[3] == "not met"  # 1.5 of 1.0
    assert aim(document, "longest wait")[3] == "not met"  # twice the median
    assert aim(document, "two fleet threads")[2:] == ["1.950", "met"]


def test_the_best_peer_reads_the_same_files(document):
    row = aim(document, "RandomResizedCrop(224) + flip, uint8: of the best peer")
    assert row[0].endswith("dali") and row[3] == "met"


def test_aims_without_figures_are_left_out(document):
    assert not any("index" in row[0] or "fidelity" in row[0] for row in aims.judged(document))


def test_a_document_without_limit_or_loaderd_has_tables_all_the_same(document):
    document["results"] = [result for result in document["results"] if result.get("peer") == "dali"]
    text = report.markdown(document)
    assert "DALI CPU" in text and "## Aims" in text and "of the bare" not in text
