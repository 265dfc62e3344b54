# SPDX-License-Identifier: Apache-2.0
import json
import math
import pathlib
import re

import pytest

import loaderd
import loaderd.transforms as T
from loaderd import random

ROOT = pathlib.Path(__file__).resolve().parents[3]


def job_of(library, **arguments):
    iter(loaderd.DataLoader(loaderd.ImageFolder("/photos"), 2, **arguments))
    return library.jobs[-1]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (None, None),
        (T.MixUp(num_classes=7), {"mix_up": {"alpha": 1.0, "num_classes": 7}}),
        (T.CutMix(alpha=0.2, num_classes=7), {"cut_mix": {"alpha": 0.2, "num_classes": 7}}),
        (
            T.RandomChoice([T.CutMix(num_classes=7), T.MixUp(num_classes=7)]),
            {
                "random_choice": {
                    "transforms": [
                        {"cut_mix": {"alpha": 1.0, "num_classes": 7}},
                        {"mix_up": {"alpha": 1.0, "num_classes": 7}},
                    ]
                }
            },
        ),
        (
            T.RandomChoice([T.MixUp(num_classes=7)], p=[2]),
            {"random_choice": {"transforms": [{"mix_up": {"alpha": 1.0, "num_classes": 7}}], "p": [2.0]}},
        ),
    ],
)
def test_a_batch_transform_becomes_json_by_the_schemas_names(step, expected):
    assert T.batch_step_of(step) == expected
    proto = (ROOT / "proto" / "loaderd" / "v1" / "job.proto").read_text()
    names = set(re.findall(r"(\w+) = \d+;", proto[proto.index("message BatchStep") :]))
    assert set(re.findall(r'"(\w+)":', json.dumps(expected))) <= names


def test_the_job_has_the_batch_transform_and_only_where_it_is_given(library):
    assert job_of(library, batch_transform=T.MixUp(num_classes=3))["batch_transform"] == {
        "mix_up": {"alpha": 1.0, "num_classes": 3}
    }
    assert "batch_transform" not in job_of(library)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: T.MixUp(alpha=0, num_classes=2), ValueError, "alpha should be positive"),
        (lambda: T.CutMix(alpha=math.nan, num_classes=2), ValueError, "alpha should be positive"),
        (lambda: T.MixUp(num_classes=2, labels_getter=len), TypeError, "labels_getter cannot run"),
        (lambda: T.batch_step_of(T.MixUp()), ValueError, "num_classes must be passed"),
        (lambda: T.batch_step_of(T.RandomChoice([T.MixUp(num_classes=2), T.CutMix()])), ValueError, "num_classes must be"),
        (lambda: T.batch_step_of(T.RandomInvert()), TypeError, "supported are MixUp, CutMix and RandomChoice of them"),
        (lambda: T.batch_step_of([T.MixUp(num_classes=2)]), TypeError, "supported are MixUp"),
        (lambda: T.batch_step_of(T.RandomChoice([T.RandomInvert()])), TypeError, "supported are MixUp"),
        (lambda: T.steps_of(T.MixUp(num_classes=2)), TypeError, "give it to the DataLoader as batch_transform="),
        (lambda: T.steps_of([T.RandomChoice([T.CutMix(num_classes=2)])])[0].to_json(), TypeError, "batch_transform="),
        (lambda: T.MixUp(num_classes=2)(1, 2), TypeError, "give it to a DataLoader as batch_transform="),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_do(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_lam_and_box_are_those_that_the_daemons_own_tests_assert():
    import make_batch_answers

    known = json.loads(make_batch_answers.FILE.read_text())["parameters"]
    assert json.loads(json.dumps(make_batch_answers.all_parameters())) == known


def test_the_known_batches_are_torchvisions():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import real_torchvision

    try:
        real_torchvision.load()
    except ImportError:
        pytest.skip("torchvision is not installed")
    import make_batch_answers

    with torch.random.fork_rng():
        assert make_batch_answers.all_mixed() == json.loads(make_batch_answers.FILE.read_text())["batches"]


def test_a_cut_lies_in_the_image_and_lam_is_the_part_that_stays():
    for step in range(300):
        cut = random.cut_mix(1, 2, step, 20, 33)
        assert 0 <= cut.x0 <= cut.x1 <= 33 and 0 <= cut.y0 <= cut.y1 <= 20
        assert cut.lam == 1 - (cut.x1 - cut.x0) * (cut.y1 - cut.y0) / (20 * 33)


def test_batches_draw_apart_from_samples_and_from_each_other():
    keys = [(s, e, b, n, r) for s in range(2) for e in range(2) for b in range(4) for n in range(2) for r in range(2)]
    lams = {random.mix_up_lam(s, e, b, number=n, rank=r) for s, e, b, n, r in keys}
    assert len(lams) == len(keys)
    assert len({random.draw(1, 2, 3, place) for place in (0, 1, 32768, 32769)}) == 4
