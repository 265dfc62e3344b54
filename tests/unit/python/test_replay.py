# SPDX-License-Identifier: Apache-2.0
import pytest

import loaderd.transforms as T
from loaderd import random

KEY = {"seed": 11, "epoch": 2, "index": 5}


def replay(*steps, height=60, width=90, **options):
    return random.replay(list(steps), height, width, **{**KEY, **options})


def names(calls):
    return [call.function for call in calls]


def test_steps_without_chance_are_the_calls_of_torchvisions_functions():
    calls = replay(T.Resize(32), T.CenterCrop(32), T.ToTensor(), T.Normalize(0.5, 0.25))
    assert calls == [
        ("resize", {"size": [32], "interpolation": 2, "max_size": None}),
        ("center_crop", {"output_size": [32, 32]}),
        ("to_tensor", {}),
        ("normalize", {"mean": [0.5], "std": [0.25]}),
    ]


def test_boxes_are_those_of_the_place_and_of_the_image_as_it_is_there():
    calls = replay(T.RandomVerticalFlip(1.0), T.Resize(30, max_size=40), T.RandomCrop(20))
    assert names(calls) == ["vflip", "resize", "crop"]
    box = random.random_crop_box(*KEY.values(), 2, 26, 40, (20, 20))  # 30 x 45, at most 40 long
    assert calls[2].arguments == box._asdict()


def test_a_padded_image_is_cut_at_its_new_size():
    calls = replay(T.RandomCrop((80, 100), (3, 5), pad_if_needed=True, padding_mode="edge"))
    assert names(calls) == ["pad", "pad", "pad", "crop"]
    assert [call.arguments["padding"] for call in calls[:3]] == [[3, 5, 3, 5], [4, 0, 4, 0], [0, 10, 0, 10]]
    assert calls[0].arguments["fill"] == [0] and calls[0].arguments["padding_mode"] == "edge"
    assert calls[3].arguments == random.random_crop_box(*KEY.values(), 0, 90, 104, (80, 100))._asdict()


@pytest.mark.parametrize("happens", [0.0, 1.0])
def test_steps_after_those_that_hold_others_have_the_same_place_whatever_happened(happens):
    held = T.RandomApply([T.RandomHorizontalFlip(1.0), T.RandomInvert(1.0)], happens)
    calls = replay(held, T.RandomRotation(40))
    assert names(calls[:-1]) == (["hflip", "invert"] if happens else [])
    assert calls[-1].arguments["angle"] == random.random_rotation_angle(*KEY.values(), 3, (-40, 40))


def test_held_steps_have_their_places_in_whichever_order_they_come():
    turns = [T.RandomRotation(10), T.RandomRotation(20), T.RandomRotation(30)]
    order = random.random_order(*KEY.values(), 0, 3)
    calls = replay(T.RandomOrder(turns))
    wanted = [random.random_rotation_angle(*KEY.values(), 1 + k, turns[k].degrees) for k in order]
    assert [call.arguments["angle"] for call in calls] == wanted


def test_an_image_that_grows_when_turned_is_cut_at_its_new_size():
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from PIL import Image

    for index in range(200):
        for center in (None, (3, 70)):
            turn, cut = replay(T.RandomRotation(400, expand=True, center=center), T.RandomCrop(1), index=index)
            turned = Image.new("L", (90, 60)).rotate(turn.arguments["angle"], 0, True, center)
            box = random.random_crop_box(KEY["seed"], KEY["epoch"], index, 1, turned.height, turned.width, (1, 1))
            assert cut.arguments == box._asdict()


def test_noise_has_a_number_for_each_element_of_the_box_in_each_channel():
    for channels in (1, 3):
        (_, erase) = replay(T.ToTensor(), T.RandomErasing(1.0, value="random"), channels=channels)
        arguments = erase.arguments
        assert len(arguments["v"]) == channels * arguments["h"] * arguments["w"]
    (_, erase) = replay(T.ToTensor(), T.RandomErasing(1.0, value=4))
    assert erase.arguments["v"] == [4.0, 4.0, 4.0]
