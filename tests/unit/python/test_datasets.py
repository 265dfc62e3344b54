# SPDX-License-Identifier: Apache-2.0
import base64
import os
import pathlib
import pickle

import pytest

import loaderd


def test_classes_and_length_come_from_the_daemon_once(library):
    folder = loaderd.ImageFolder("/photos")
    assert folder.classes == ["cat", "dog"]
    assert folder.class_to_idx == {"cat": 0, "dog": 1}
    library.num_samples = 99
    assert len(folder) == 10


@pytest.mark.parametrize("path", ["photos", b"photos", pathlib.Path("photos")])
def test_a_path_of_any_kind_becomes_absolute(path):
    folder = loaderd.ImageFolder(path)
    assert folder.path == folder.root == os.path.abspath("photos")
    assert folder.to_json() == {"image_folder": {"path": folder.path, "mode": "IMAGE_MODE_RGB"}}


def test_a_name_that_is_not_utf8_goes_as_bytes():
    spec = loaderd.ImageFolder(b"/photos/\xff\xfe").to_json()["image_folder"]
    assert base64.b64decode(spec["path_bytes"]) == b"/photos/\xff\xfe" and "path" not in spec
    assert loaderd.ImageFolder(os.fsdecode(b"/photos/\xff\xfe")).to_json()["image_folder"] == spec


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"path": ""}, "path is empty"),
        ({"path": "a\0b"}, "NUL"),
        ({"path": "a", "mode": "CMYK"}, "mode should be one of RGB, L"),
        ({"path": "a", "wide": "white"}, "wide should be one of scale, clip, not 'white'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        loaderd.ImageFolder(**arguments)


def test_how_images_are_read_goes_into_the_job():
    assert "wide" not in loaderd.ImageFolder("/photos").to_json()["image_folder"]
    spec = loaderd.ImageFolder("/photos", "L", exif_transpose=True, wide="clip").to_json()["image_folder"]
    assert spec == {"path": "/photos", "mode": "IMAGE_MODE_L", "exif_transpose": True, "wide": "WIDE_MODE_CLIP"}


def test_making_testing_and_printing_one_asks_nobody():
    folder = loaderd.ImageFolder("/photos")
    assert folder and repr(folder) == "ImageFolder('/photos', mode='RGB')"
    assert pickle.loads(pickle.dumps(folder)).path == "/photos"


def test_an_error_of_the_daemon_is_raised(library):
    library.open_code = 5
    with pytest.raises(FileNotFoundError, match="the fake's reason"):
        len(loaderd.ImageFolder("/photos"))
