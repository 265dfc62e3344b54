# SPDX-License-Identifier: Apache-2.0
import os

import bench
import pytest
from harness import data, facts
from PIL import Image

import loaderd.random


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "photos"
    for number, (name, size) in enumerate((("a/1.jpg", (40, 30)), ("a/2.jpg", (17, 90)), ("b/3.jpg", (64, 64)))):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number, 0, 0)).save(root / name)
    return root


def test_names_are_multiplied_evenly(folder, tmp_path):
    data.multiply(folder, tmp_path / "many", 7)
    names = sorted(os.listdir(tmp_path / "many" / "a")) + sorted(os.listdir(tmp_path / "many" / "b"))
    assert names == ["1_0.jpg", "1_1.jpg", "1_2.jpg", "2_0.jpg", "2_1.jpg", "3_0.jpg", "3_1.jpg"]
    assert os.path.samefile(tmp_path / "many" / "a" / "1_2.jpg", folder / "a" / "1.jpg")


def test_boxes_are_those_of_the_loader(folder, tmp_path):
    (folder / "b" / "no.jpg").write_text("not an image")
    assert data.write_boxes(folder, tmp_path / "boxes") == 3 * data.EPOCHS
    lines = (tmp_path / "boxes").read_text().splitlines()
    top, left, height, width, path = lines[4].split(" ", 4)  # the second sample of the second epoch
    box = loaderd.random.random_resized_crop_box(data.SEED, 1, 1, 0, 90, 17)
    assert (int(top), int(left), int(height), int(width)) == (box.top, box.left, box.height, box.width)
    assert path == str(folder / "a" / "2.jpg")


def test_a_fingerprint_changes_with_the_files(folder):
    before = data.fingerprint(folder)
    assert data.fingerprint(folder) == before
    with open(folder / "a" / "1.jpg", "ab") as file:
        file.write(b"more")
    assert data.fingerprint(folder) != before


def test_a_default_folder_is_made_once(folder, tmp_path):
    shared = tmp_path / "shared"
    (shared / "data").mkdir(parents=True)
    folder.rename(shared / "data" / "imagenet-sample-400")
    made, what = data.folder(None, 5, shared, tmp_path)
    assert sum(len(names) for *_, names in os.walk(made)) == 5 and what.startswith("5 names")
    assert data.folder(None, 5, shared, tmp_path)[0] == made


def test_large_photographs_have_the_size_asked_for(folder, tmp_path):
    data.write_large(folder, tmp_path / "large", 0.2, 2)
    for path in (tmp_path / "large").rglob("*.jpg"):
        with Image.open(path) as image:
            assert image.width * image.height == pytest.approx(200_000, rel=0.02)


def test_the_build_is_told_from_cmakes_cache():
    text = "# comment\n//help=x\nCMAKE_BUILD_TYPE:STRING=Release\nCMAKE_CXX_COMPILER:FILEPATH=/usr/bin/c++\n"
    assert facts.cache_entries(text) == {"CMAKE_BUILD_TYPE": "Release", "CMAKE_CXX_COMPILER": "/usr/bin/c++"}


@pytest.mark.parametrize("words", (["--peers", "dolly"], ["--recipes", "eval"], ["--rounds", "0"], ["--data", "/nowhere"]))
def test_wrong_options_are_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.arguments(words)
    assert ended.value.code == 2 and words[0].strip("-") in capsys.readouterr().err


def test_quick_is_one_short_round():
    options = bench.arguments(["--quick", "--peers", "loaderd,limit"])
    assert (options.rounds, options.recipes, options.extras, options.limit) == (1, ["crop_uint8"], [], True)
