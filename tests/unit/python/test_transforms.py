# SPDX-License-Identifier: Apache-2.0
import enum
import json
import pathlib
import re

import numpy as np
import pytest

import loaderd.transforms as T

ROOT = pathlib.Path(__file__).resolve().parents[3]


def as_json(transform):
    return [step.to_json() for step in T.steps_of(transform)]


def test_steps_have_the_names_of_the_job_schema():
    proto = (ROOT / "proto" / "loaderd" / "v1" / "job.proto").read_text()
    messages = dict(re.findall(r"message (\w+) \{(.*?)\n?\}", proto, re.S))
    steps = dict(re.findall(r"(\w+) (\w+) = \d+;", messages["TransformStep"]))
    by_field = {field: message for message, field in steps.items()}
    every = [
        T.Resize(2, max_size=3),
        T.CenterCrop(2),
        T.RandomResizedCrop(2),
        T.RandomHorizontalFlip(),
        T.Grayscale(),
        T.PILToTensor(),
        T.ToTensor(),
        T.ConvertImageDtype("float16"),
        T.Normalize(0.5, 0.5),
        T.Pad(1),
        T.RandomCrop(2, padding=1),
        T.RandomVerticalFlip(),
        T.RandomRotation(5, center=(1, 2)),
        T.RandomAffine(5, (0.1, 0.2), (0.5, 2), 3, center=(1, 2)),
        T.RandomPerspective(),
        T.ColorJitter(0.1, 0.1, 0.1, 0.1),
        T.RandomGrayscale(),
        T.GaussianBlur(3),
        T.RandomErasing(value="random"),
        T.RandAugment(),
        T.TrivialAugmentWide(),
        T.AutoAugment(),
        T.RandomInvert(),
        T.RandomPosterize(2),
        T.RandomSolarize(128),
        T.RandomAdjustSharpness(2),
        T.RandomAutocontrast(),
        T.RandomEqualize(),
        T.RandomApply([T.RandomInvert()]),
        T.RandomChoice([T.RandomInvert()], p=[1]),
        T.RandomOrder([T.RandomInvert()]),
    ]
    assert len(every) == len(steps)
    for step in every:
        ((name, fields),) = step.to_json().items()
        known = set(re.findall(r"(\w+) = \d+;", messages[by_field[name]]))
        assert set(fields) <= known
    for mode in T.InterpolationMode:
        interpolation = T.Resize(2, mode).to_json()["resize"]["interpolation"]
        assert re.search(rf"\b{interpolation} = ", proto)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (T.Resize(256), {"resize": {"size": [256], "interpolation": "INTERPOLATION_BILINEAR"}}),
        (T.Resize((3, 5), 3), {"resize": {"size": [3, 5], "interpolation": "INTERPOLATION_BICUBIC"}}),
        (
            T.Resize([8], T.InterpolationMode.NEAREST_EXACT, max_size=9),
            {"resize": {"size": [8], "interpolation": "INTERPOLATION_NEAREST", "max_size": 9}},
        ),
        (T.CenterCrop(7.0), {"center_crop": {"size": [7, 7]}}),
        (T.CenterCrop([7]), {"center_crop": {"size": [7, 7]}}),
        (
            T.RandomResizedCrop(224),
            {
                "random_resized_crop": {
                    "size": [224, 224],
                    "scale": [0.08, 1.0],
                    "ratio": [3 / 4, 4 / 3],
                    "interpolation": "INTERPOLATION_BILINEAR",
                }
            },
        ),
        (T.RandomHorizontalFlip(0), {"random_horizontal_flip": {"p": 0.0}}),
        (T.Grayscale(3), {"grayscale": {"num_output_channels": 3}}),
        (T.PILToTensor(), {"pil_to_tensor": {}}),
        (T.ToTensor(), {"to_tensor": {}}),
        (T.ConvertImageDtype(np.float16), {"convert_image_dtype": {"dtype": "float16"}}),
        (T.Normalize(0.5, (1, 2, 3)), {"normalize": {"mean": [0.5], "std": [1.0, 2.0, 3.0]}}),
    ],
)
def test_step_becomes_json(transform, expected):
    assert as_json(transform) == [expected]


def test_numbers_that_json_lacks_are_spelled_as_the_protobuf_mapping_does():
    step = T.Normalize((float("nan"), float("inf"), -float("inf")), 1.0).to_json()
    assert json.loads(json.dumps(step, allow_nan=False))["normalize"]["mean"] == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: T.Resize("256"), ValueError, "1 or 2 values"),
        (lambda: T.Resize(2.5), TypeError, "Size should be int or sequence"),
        (lambda: T.Resize((1, 2, 3)), ValueError, "1 or 2 values"),
        (lambda: T.Resize((1, 2), max_size=3), ValueError, "max_size should only be passed"),
        (lambda: T.Resize(2, "round"), TypeError, "interpolation"),
        (lambda: T.Resize(2, 17), TypeError, "interpolation"),
        (lambda: T.CenterCrop((1, 2, 3)), ValueError, "only two dimensions"),
        (lambda: T.RandomResizedCrop(2, scale=0.5), TypeError, "Scale should be a sequence"),
        (lambda: T.RandomResizedCrop(2, ratio=0.5), TypeError, "Ratio should be a sequence"),
        (lambda: T.Grayscale(2), ValueError, "either 1 or 3"),
        (lambda: T.ConvertImageDtype("int64"), ValueError, "dtype should be one of"),
    ],
)
def test_wrong_arguments_are_refused_as_torchvision_does(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_scale_the_wrong_way_round_warns_as_torchvision_does():
    with pytest.warns(UserWarning, match=r"\(min, max\)"):
        T.RandomResizedCrop(2, scale=(1.0, 0.5))


def test_repr_is_torchvisions():
    transform = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize((0.5,), (0.25,))])
    assert repr(transform) == (
        "Compose(\n"
        "    Resize(size=256, interpolation=bilinear, max_size=None, antialias=True)\n"
        "    CenterCrop(size=(224, 224))\n"
        "    ToTensor()\n"
        "    Normalize(mean=(0.5,), std=(0.25,))\n"
        ")"
    )
    assert repr(T.RandomResizedCrop(224)) == (
        "RandomResizedCrop(size=(224, 224), scale=(0.08, 1.0), ratio=(0.75, 1.3333), interpolation=bilinear, antialias=True)"
    )


def test_compose_in_compose_and_lists_are_flattened():
    nested = T.Compose([T.Compose([T.Resize(9)]), [T.CenterCrop(8), T.ToTensor()]])
    assert T.steps_of(nested) == [T.Resize(9), T.CenterCrop(8), T.ToTensor()]
    assert T.steps_of(None) == []


def test_calling_a_step_says_where_it_runs():
    with pytest.raises(TypeError, match="runs in the daemon"):
        T.ToTensor()(object())


@pytest.mark.parametrize("thing", [lambda image: image, object(), T.ToTensor])
def test_another_callable_is_refused_with_what_is_supported(thing):
    with pytest.raises(TypeError, match="cannot run in the daemon; supported are Resize, CenterCrop"):
        T.steps_of(T.Compose([T.Resize(2), thing]))


class TheirMode(enum.Enum):
    BICUBIC = "bicubic"


def theirs(name, **attributes):
    """An object as torchvision's would be, known by module, class name and attributes."""
    kind = type(name, (), {"__module__": "torchvision.transforms.transforms"})
    thing = kind()
    thing.__dict__.update(attributes)
    return thing


def test_torchvision_objects_are_read_by_name_and_attributes():
    transform = theirs(
        "Compose",
        transforms=[
            theirs("Resize", size=256, interpolation=TheirMode.BICUBIC, max_size=None, antialias=True),
            theirs("CenterCrop", size=(224, 224)),
            theirs("ToTensor"),
            theirs("Normalize", mean=(0.5,), std=(0.25,), inplace=False),
        ],
    )
    ours = [T.Resize(256, T.InterpolationMode.BICUBIC), T.CenterCrop(224), T.ToTensor(), T.Normalize((0.5,), (0.25,))]
    assert T.steps_of(transform) == ours


def test_a_torchvision_step_that_the_daemon_lacks_is_refused_by_name():
    with pytest.raises(TypeError, match="ElasticTransform"):
        T.steps_of(theirs("ElasticTransform"))
