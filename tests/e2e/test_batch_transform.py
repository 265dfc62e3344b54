# SPDX-License-Identifier: Apache-2.0
"""MixUp and CutMix through the real client: each mixed batch is made again outside, from the batch that is not mixed."""

import numpy as np
import pytest

import loaderd
import loaderd.transforms as T
from loaderd import random

TENSORS = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(0.5, 0.25)]
SEED = 11


def soft(labels, lam, classes):
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    return np.roll(one_hot, 1, 0) * np.float32(1 - lam) + one_hot * np.float32(lam)


def mix_up(batch, classes, number=0, rank=0, alpha=1.0):
    lam = random.mix_up_lam(SEED, batch.epoch, batch.step, number, alpha, rank)
    images = np.roll(batch.images, 1, 0) * np.float32(1 - lam) + batch.images * np.float32(lam)
    return images, soft(batch.labels, lam, classes)


def cut_mix(batch, classes, number=0, rank=0, alpha=1.0):
    height, width = batch.images.shape[-2:]
    x0, y0, x1, y1, lam = random.cut_mix(SEED, batch.epoch, batch.step, height, width, number, alpha, rank)
    images = batch.images.copy()
    images[..., y0:y1, x0:x1] = np.roll(batch.images, 1, 0)[..., y0:y1, x0:x1]
    return images, soft(batch.labels, lam, classes)


def either(batch, classes, rank=0):
    chosen = random.batch_choice(SEED, batch.epoch, batch.step, 2, rank=rank)
    return (cut_mix, mix_up)[chosen](batch, classes, number=chosen + 1, rank=rank)


@pytest.fixture
def loader(photos, daemon):
    def make(**arguments):
        defaults = {"batch_size": 7, "shuffle": True, "seed": SEED, "transform": TENSORS, "socket": daemon.socket}
        return loaderd.DataLoader(loaderd.ImageFolder(photos), **{**defaults, **arguments})

    make.classes = len(loaderd.ImageFolder(photos).describe(daemon.socket).class_names)
    return make


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("transform", "again"),
    [
        (lambda n: T.MixUp(num_classes=n), mix_up),
        (lambda n: T.CutMix(num_classes=n), cut_mix),
        (lambda n: T.RandomChoice([T.CutMix(num_classes=n), T.MixUp(num_classes=n)]), either),
    ],
)
def test_every_batch_can_be_made_again_outside(loader, transform, again, rank):
    world = {"rank": rank, "world_size": 3} if rank else {}
    plain = loader(**world)
    mixed = loader(batch_transform=transform(loader.classes), **world)
    count = 0
    for _ in range(2):
        for before, after in zip(plain, mixed, strict=True):
            images, labels = again(before, loader.classes, rank=rank)
            assert (after.index.tolist(), after.step, after.epoch) == (before.index.tolist(), before.step, before.epoch)
            assert after.labels.dtype == np.float32 and after.labels.shape == (len(before.labels), loader.classes)
            np.testing.assert_array_equal(after.images, images)
            np.testing.assert_array_equal(after.labels, labels)
            count += len(after.labels)
    assert count == (40 if rank else 120)


def test_cut_mix_takes_bytes(loader):
    transform = [T.Resize((24, 24)), T.PILToTensor()]
    plain, mixed = loader(transform=transform), loader(transform=transform, batch_transform=T.CutMix(num_classes=loader.classes))
    for before, after in zip(plain, mixed, strict=True):
        images, labels = cut_mix(before, loader.classes)
        assert after.images.dtype == np.uint8
        np.testing.assert_array_equal(after.images, images)
        np.testing.assert_array_equal(after.labels, labels)


def test_what_the_trainer_writes_into_its_batches_is_in_no_later_one(loader):
    expected = [batch.images.copy() for batch in loader(batch_transform=T.MixUp(num_classes=loader.classes))]
    for batch, images in zip(loader(batch_transform=T.MixUp(num_classes=loader.classes)), expected, strict=True):
        np.testing.assert_array_equal(batch.images, images)
        batch.images[:] = np.nan


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_transform": T.MixUp(num_classes=1)}, r"batch_transform\.mix_up\.num_classes: labels must be 0 to 0, and that of "),
        ({"batch_transform": T.MixUp(num_classes=0)}, r"batch_transform\.mix_up\.num_classes: must be 1 to 1048576, is 0"),
        (
            {"batch_transform": T.MixUp(num_classes=99), "transform": [T.CenterCrop(8), T.PILToTensor()]},
            r"batch_transform\.mix_up: needs a float tensor",
        ),
        ({"batch_transform": T.CutMix(num_classes=99), "transform": T.CenterCrop(8)}, r"batch_transform\.cut_mix: needs a tensor"),
    ],
)
def test_what_cannot_be_mixed_is_refused_with_the_field(loader, arguments, text):
    with pytest.raises(loaderd.InvalidArgumentError, match=text):
        iter(loader(**arguments))


def test_torchs_loader_gives_tensors_of_both(photos, daemon):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import loaderd.torch

    folder = loaderd.ImageFolder(photos)
    classes = len(folder.describe(daemon.socket).class_names)
    arguments = {"batch_size": 8, "transform": TENSORS, "seed": SEED, "socket": daemon.socket}
    mixed = loaderd.torch.DataLoader(folder, **arguments, batch_transform=T.MixUp(num_classes=classes))
    for (images, labels), (x, y) in zip(loaderd.torch.DataLoader(folder, **arguments), mixed, strict=True):
        lam = random.mix_up_lam(SEED, mixed.last.epoch, mixed.last.step)
        one_hot = torch.nn.functional.one_hot(labels, classes).float()
        assert torch.equal(x, images.roll(1, 0).mul_(1.0 - lam).add_(images.mul(lam)))
        assert torch.equal(y, one_hot.roll(1, 0).mul_(1.0 - lam).add_(one_hot.mul(lam)))
