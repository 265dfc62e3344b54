# SPDX-License-Identifier: Apache-2.0
import json
import math

import numpy as np
import pytest

from loaderd import random

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the generator's published known answers
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(counter, key, expected):
    assert random.philox4x32(counter, key) == expected


def test_draw_puts_each_part_of_its_key_in_its_own_word():
    seed, epoch, index = 0x1122334455667788, 0x99AABBCCDDEEFF00, 0x123456789ABCDEF0
    expected = random.philox4x32((0x9ABCDEF0, 0x12345678, 0xDDEEFF00, 3 << 16 | 7), (0x55667788, 0x11223344))
    assert random.draw(seed, epoch, index, 3, 7) == expected


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [np.int32, np.int64, np.uint64])
def test_numpys_integers_draw_as_pythons(number):
    """`batch.index[i]` is one."""
    key = (2**31 - 1, 7, 2**31 - 5, 3)
    assert random.draw(*map(number, key)) == random.draw(*key)
    assert random.philox4x32([number(v) for v in key], [number(5)] * 2) == random.philox4x32(key, (5, 5))
    assert random.below(2**32 - 1, number(2**30)) == 2**30 - 1
    assert random.random_crop_box(*map(number, key), number(500), number(400), (9, 9)) == random.random_crop_box(*key, 500, 400, (9, 9))
    assert random.cut_mix(*map(number, (7, 1, 9, 500, 400))) == random.cut_mix(7, 1, 9, 500, 400)
    assert random.mix_up_lam(7, 1, number(9), rank=number(3)) == random.mix_up_lam(7, 1, 9, rank=3)


@pytest.mark.parametrize(("place", "block"), [(65536, 0), (-1, 0), (0, 65536), (0, -1)])
def test_draw_refuses_a_place_or_block_over_16_bits(place, block):
    with pytest.raises(ValueError, match="65535"):
        random.draw(0, 0, 0, place, block)


def test_unit_stays_below_one_and_below_stays_below_n():
    assert random.unit(0) == 0.0
    assert random.unit(ONES) < 1.0
    assert {random.below(word, 3) for word in (0, ONES // 2, ONES)} == {0, 1, 2}


def test_boxes_lie_within_the_image_and_obey_scale_and_ratio():
    for index in range(500):
        box = random.random_resized_crop_box(1, 2, index, 0, 375, 500)
        assert 0 <= box.top <= 375 - box.height
        assert 0 <= box.left <= 500 - box.width
        assert 0.07 < box.height * box.width / (375 * 500) <= 1.0
        assert 0.74 < box.width / box.height < 1.35


def test_boxes_differ_between_samples_epochs_seeds_and_places():
    keys = [(s, e, i, p) for s in range(2) for e in range(2) for i in range(5) for p in range(2)]
    assert len({random.random_resized_crop_box(*key, 375, 500) for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(1000, 10, (493, 0, 13, 10)), (10, 1000, (0, 493, 10, 13)), (10, 12, (0, 0, 10, 12))],
)
def test_box_falls_back_to_the_central_crop_of_the_nearest_ratio(height, width, expected):
    scale = (40.0, 50.0)  # an area that never fits
    assert random.random_resized_crop_box(0, 0, 0, 0, height, width, scale) == expected


def test_box_in_a_scale_of_one_and_ratio_of_one_is_the_whole_square():
    assert random.random_resized_crop_box(5, 6, 7, 8, 64, 64, (1.0, 1.0), (1.0, 1.0)) == (0, 0, 64, 64)


def test_flip_happens_with_its_probability():
    flips = [random.random_horizontal_flip(3, 0, index, 1) for index in range(4000)]
    assert math.isclose(sum(flips) / len(flips), 0.5, abs_tol=0.03)
    assert not any(random.random_horizontal_flip(3, 0, index, 1, 0.0) for index in range(100))
    assert all(random.random_horizontal_flip(3, 0, index, 1, 1.0) for index in range(100))


def test_parameters_are_those_that_the_daemons_own_tests_assert():
    import make_random_answers

    known = json.loads(make_random_answers.FILE.read_text())["answers"]
    assert json.loads(json.dumps(make_random_answers.answers())) == known
