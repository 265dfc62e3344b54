# SPDX-License-Identifier: Apache-2.0
"""Every random transform, delivered by the daemon and made again outside: loaderd.random says what was done, Pillow does it."""

import collections
import itertools
import random

import numpy as np
import pytest
import remake
from conftest import files_of
from PIL import Image, __version__

import loaderd
import loaderd.random
import loaderd.transforms as T

BICUBIC, BILINEAR = T.InterpolationMode.BICUBIC, T.InterpolationMode.BILINEAR
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EPOCHS, BATCH = (0, 1, 9), 16
SEED = 2**33 + 5
WITHOUT_CHANCE = {
    "Resize",
    "CenterCrop",
    "Grayscale",
    "PILToTensor",
    "ToTensor",
    "ConvertImageDtype",
    "Normalize",
    "Pad",
}

RECIPES = {
    "crop, flip, erase": [
        T.RandomResizedCrop(176, interpolation=BICUBIC),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(0.3),
        T.ToTensor(),
        T.Normalize(MEAN, STD),
        T.RandomErasing(0.7, value=(0.5, -1.0, 2.0)),
    ],
    "erase by noise": [T.RandomResizedCrop((60, 84), (0.3, 0.9)), T.ToTensor(), T.RandomErasing(1.0, value="random")],
    "erase bytes": [T.RandomResizedCrop(128), T.PILToTensor(), T.RandomErasing(0.8, value=77)],
    "half floats": [
        T.RandomResizedCrop(64),
        T.RandomInvert(),
        T.ToTensor(),
        T.Normalize(MEAN, STD),
        T.ConvertImageDtype("float16"),
    ],
    "padded crops": [
        T.RandomChoice(
            [
                T.RandomCrop(160, 30, pad_if_needed=True, fill=(9, 80, 200)),
                T.RandomCrop(160, (40, 7), pad_if_needed=True, padding_mode="reflect"),
                T.RandomCrop(160, (1, 2, 3, 400), padding_mode="edge", pad_if_needed=True),
                T.RandomCrop(160, padding_mode="symmetric", pad_if_needed=True),
                T.Compose([T.Resize((50, 70)), T.RandomCrop(160, pad_if_needed=True, fill=7)]),
            ]
        )
    ],
    "turned": [
        T.RandomRotation(180, BILINEAR, expand=True, fill=(1, 2, 3)),
        T.Resize(150, max_size=170),
        T.RandomRotation((-20, 75), center=(10, 90)),
        T.CenterCrop(144),
    ],
    "affine and perspective": [
        T.Resize((140, 180), BICUBIC),
        T.RandomAffine((-30, 60), (0.1, 0.3), (0.6, 1.7), (-15, 15, -8, 20), BILINEAR, fill=30),
        T.RandomPerspective(0.6, 0.8, BICUBIC, fill=(0, 255, 9)),
        T.RandomAffine(0, shear=12, center=(3, 4)),
    ],
    "colours": [
        T.RandomResizedCrop(100),
        T.ColorJitter(0.4, 0.5, 0.6, 0.2),
        T.RandomGrayscale(0.3),
        T.RandomPosterize(3),
        T.RandomSolarize(150.0),
        T.RandomAdjustSharpness(2.5),
        T.RandomAutocontrast(),
        T.RandomEqualize(0.4),
        T.ColorJitter(hue=(-0.5, 0.1)),
    ],
    "blur": [T.RandomResizedCrop(112), T.ColorJitter(0.3), T.GaussianBlur((9, 5), (0.2, 4.0))],
    "rand augment": [T.RandomResizedCrop(120), T.RandAugment(3, 14, interpolation=BILINEAR, fill=(90, 7, 60))],
    "trivial augment": [T.Resize((110, 140)), T.TrivialAugmentWide(), T.TrivialAugmentWide(11, BICUBIC)],
    "auto augment": [
        T.RandomResizedCrop(120),
        T.RandomChoice([T.AutoAugment(policy, fill=20) for policy in T.AutoAugmentPolicy], (0.2, 0.3, 0.5)),
    ],
    "steps that hold steps": [
        T.Resize((150, 150)),
        T.RandomApply([T.RandomVerticalFlip(), T.ColorJitter(0.9)], 0.6),
        T.RandomOrder(
            [
                T.RandomAffine(20),
                T.Compose([T.RandomSolarize(100), T.RandomHorizontalFlip()]),
                T.RandomApply(
                    [T.RandomChoice([T.RandomInvert(1.0), T.RandomEqualize(1.0), T.AutoAugment("svhn")])], 0.7
                ),
                T.RandomAutocontrast(0.5),
            ]
        ),
        T.RandomResizedCrop(90),
    ],
}

# Those that name no value of three channels.
ALSO_GREY = ("erase by noise", "erase bytes", "blur", "trivial augment", "auto augment", "steps that hold steps")


def names_of(steps):
    """The transforms in a recipe, those in others as well."""
    for step in steps:
        yield type(step).__name__
        yield from names_of(getattr(step, "transforms", ()))


def remade(path, recipe, epoch, index, function, mode):
    """The sample as it must be, and the calls that made it."""
    with Image.open(path) as file:
        picture = file.convert(mode)
    calls = loaderd.random.replay(
        recipe, picture.height, picture.width, seed=SEED, epoch=epoch, index=index, channels=len(picture.getbands())
    )
    for call in calls:
        picture = function(call.function)(picture, **call.arguments)
    pixels = np.asarray(picture)
    return (pixels if pixels.ndim == 3 else pixels[..., None]), calls


def test_every_random_transform_is_in_a_recipe():
    used = set(names_of(itertools.chain.from_iterable(RECIPES.values())))
    assert used - WITHOUT_CHANCE - {"Compose"} == {step.__name__ for step in T._SUPPORTED} - WITHOUT_CHANCE


@pytest.mark.parametrize(
    ("pictures", "by", "mode", "batches"),
    [
        ("imagenet", "Pillow", "RGB", 2),
        ("imagenet", "torchvision", "RGB", 1),
        ("photos", "Pillow", "RGB", 2),
        ("photos", "Pillow", "L", 1),
    ],
)
def test_samples_can_be_made_again_outside(request, daemon, pictures, by, mode, batches):
    pictures = request.getfixturevalue(pictures)
    function = getattr(remake, f"by_{by.lower()}")
    try:
        function("hflip")
    except ImportError as error:
        pytest.skip(f"torchvision is not installed ({error})")
    files = files_of(pictures)
    reference = "pillow13" if int(__version__.split(".")[0]) >= 13 else "pillow12"
    made, happened, blurred, wrong = collections.Counter(), collections.Counter(), 0, []
    for title in RECIPES if mode == "RGB" else ALSO_GREY:
        recipe = RECIPES[title]
        loader = loaderd.DataLoader(
            loaderd.ImageFolder(pictures, mode),
            BATCH,
            True,
            transform=recipe,
            seed=SEED,
            socket=daemon.socket,
            reference=reference,
        )
        for epoch in EPOCHS:
            loader.set_epoch(epoch)
            for batch in itertools.islice(loader, batches):
                for index, got in zip(batch.index, batch.images, strict=True):
                    wanted, calls = remade(files[index], recipe, epoch, int(index), function, mode)
                    made[title] += 1
                    happened.update(call.function for call in calls)
                    assert got.shape == wanted.shape and got.dtype == wanted.dtype, title
                    apart = np.abs(got.astype(float) - wanted.astype(float)).max()
                    blurred += title == "blur" and apart == 1
                    if apart > (1 if title == "blur" else 0):
                        wrong.append((title, epoch, int(index), apart, [call.function for call in calls]))
    equal = made.total() - len(wrong) - blurred
    print(
        f"{mode}, by {by}: {equal} of {made.total()} samples equal, {blurred} blurred ones within 1; {dict(happened)}"
    )
    assert wrong == []
    assert made.total() == len(made) * len(EPOCHS) * BATCH * batches
    if mode == "RGB":
        assert set(happened) >= remake.NAMES
        assert made.total() >= 600 * batches


def any_recipe(rng: random.Random) -> list:
    """Steps in an order that nobody thought of: something that cuts or resizes, what may follow it, a fixed size, a few more."""

    def side(least=24, most=200):
        return rng.randint(least, most)

    def cut():
        return rng.choice(
            (
                lambda: T.CenterCrop((side(), side())),
                lambda: T.RandomCrop((side(), side()), rng.choice((None, 5, (30, 2))), pad_if_needed=True),
                lambda: T.RandomResizedCrop((side(), side()), interpolation=rng.choice((BILINEAR, BICUBIC))),
                lambda: T.Resize((side(), side()), rng.choice((BILINEAR, BICUBIC))),
            )
        )()

    def any_step():
        return rng.choice(
            (
                cut,
                lambda: T.Pad((side(0, 30), side(0, 30), side(0, 30), side(0, 30)), rng.choice((0, (9, 80, 200)))),
                lambda: T.Pad(side(1, 20), padding_mode=rng.choice(("edge", "reflect", "symmetric"))),
                lambda: T.RandomHorizontalFlip(rng.choice((0.0, 0.5, 1.0))),
                lambda: T.RandomVerticalFlip(rng.choice((0.5, 1.0))),
                lambda: T.RandomRotation(rng.choice((30, 180)), expand=rng.random() < 0.5),
                lambda: T.RandomAffine(20, (0.1, 0.1)),
                lambda: T.RandomPerspective(0.4, 1.0),
                lambda: T.ColorJitter(0.3, 0.3, 0.3, 0.1),
                lambda: T.RandomGrayscale(0.5),
                lambda: T.RandomInvert(),
                lambda: T.RandomAdjustSharpness(2.0),
                lambda: T.RandomEqualize(),
            )
        )()

    steps = [cut(), *(any_step() for _ in range(rng.randint(0, 5)))]
    last = rng.choice(
        ([T.CenterCrop((70, 70))], [T.Resize((40, 44))], [T.CenterCrop((40, 50)), T.RandomVerticalFlip()])
    )
    return steps + last


def test_steps_in_any_order_can_be_made_again_outside(imagenet, daemon):
    files = files_of(imagenet)
    reference = "pillow13" if int(__version__.split(".")[0]) >= 13 else "pillow12"
    rng = random.Random(11)
    function = remake.by_pillow
    wrong, made = [], 0
    for number in range(100):
        recipe = any_recipe(rng)
        loader = loaderd.DataLoader(
            loaderd.ImageFolder(imagenet),
            6,
            True,
            transform=recipe,
            seed=SEED + number,
            socket=daemon.socket,
            reference=reference,
        )
        loader.set_epoch(number)
        batch = next(iter(loader))
        for index, got in zip(batch.index, batch.images, strict=True):
            with Image.open(files[index]) as file:
                picture = file.convert("RGB")
            for call in loaderd.random.replay(
                recipe, picture.height, picture.width, seed=SEED + number, epoch=number, index=int(index), channels=3
            ):
                picture = function(call.function)(picture, **call.arguments)
            made += 1
            if got.shape != np.asarray(picture).shape or (got != np.asarray(picture)).any():
                wrong.append((number, int(index), [repr(step) for step in recipe]))
    assert wrong == [] and made == 600
