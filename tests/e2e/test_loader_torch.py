# SPDX-License-Identifier: Apache-2.0
"""loaderd.torch.DataLoader beside torch's own, over the same images."""

import numpy as np
import pytest
from conftest import files_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

import real_torchvision  # noqa: E402

import loaderd  # noqa: E402
import loaderd.torch  # noqa: E402
import loaderd.transforms as T  # noqa: E402

SIZE = (24, 40)


class Pictures(torch.utils.data.Dataset):
    """What torchvision's ImageFolder with Resize, PILToTensor would give."""

    def __init__(self, folder):
        self.files = files_of(folder)
        self.classes = sorted({path.parent.name for path in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        with Image.open(path) as image:
            pixels = image.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(pixels)).permute(2, 0, 1), self.classes.index(path.parent.name)


def arguments_of(name, dataset):
    data = torch.utils.data
    return {
        "plain": lambda: {"batch_size": 7},
        "drop_last": lambda: {"batch_size": 7, "drop_last": True},
        "shuffle": lambda: {"batch_size": 7, "shuffle": True},
        "generator": lambda: {"batch_size": 7, "shuffle": True, "generator": torch.Generator().manual_seed(3)},
        "distributed": lambda: {"batch_size": 7, "sampler": data.DistributedSampler(dataset, 3, 1)},
        "weighted": lambda: {"sampler": data.WeightedRandomSampler(torch.arange(1.0, 61.0), 30)},
        "batch_sampler": lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(dataset), 9, False)},
    }[name]()


@pytest.mark.parametrize(
    "name", ["plain", "drop_last", "shuffle", "generator", "distributed", "weighted", "batch_sampler"]
)
def test_batches_equal_torchs(photos, daemon, name):
    pillow = pytest.importorskip("PIL").__version__
    reference = "pillow13" if int(pillow.split(".")[0]) >= 13 else "pillow12"

    def run(make, dataset):
        torch.manual_seed(11)
        arguments = arguments_of(name, dataset)
        batches = make(dataset, **arguments)
        out = []
        for epoch in range(2):
            if name == "distributed":
                arguments["sampler"].set_epoch(epoch)
            out += [(type(batch), *batch) for batch in batches]
        return out

    def ours(dataset, **arguments):
        transform = T.Compose([T.Resize(SIZE), T.PILToTensor()])
        return loaderd.torch.DataLoader(
            dataset, transform=transform, reference=reference, socket=daemon.socket, **arguments
        )

    folder = loaderd.ImageFolder(photos)
    folder.describe(daemon.socket)
    expected, got = run(torch.utils.data.DataLoader, Pictures(photos)), run(ours, folder)
    assert len(got) == len(expected)
    for (kind, images, labels), (their_kind, their_images, their_labels) in zip(got, expected, strict=True):
        assert kind is their_kind
        assert torch.equal(images, their_images) and images.dtype == their_images.dtype
        assert torch.equal(labels, their_labels) and labels.dtype == their_labels.dtype


def test_bfloat16_images_are_bfloat16_tensors(photos, daemon):
    def images(*more):
        transform = T.Compose([T.Resize(SIZE), T.ToTensor(), *more])
        batches = loaderd.torch.DataLoader(loaderd.ImageFolder(photos), 4, transform=transform, socket=daemon.socket)
        return next(iter(batches))[0]

    rounded = images(T.ConvertImageDtype(torch.bfloat16))
    assert rounded.dtype == torch.bfloat16
    assert torch.equal(rounded, images().to(torch.bfloat16))


def test_tensors_can_be_changed_in_place_and_held(photos, daemon):
    transform = T.Compose([T.Resize(SIZE), T.ToTensor()])
    batches = loaderd.torch.DataLoader(loaderd.ImageFolder(photos), 2, transform=transform, socket=daemon.socket)
    held = [images.mul_(2) for images, _ in batches]
    fresh = [images for images, _ in batches]
    assert all(torch.equal(a, b * 2) for a, b in zip(held, fresh, strict=True))
    assert batches.last.step == 29 and batches.last.epoch == 1


def test_torchvisions_own_dataset_and_transforms_give_torchvisions_batches(photos, user_daemon):
    try:
        real_torchvision.load()
        from torchvision import datasets, transforms
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}")
    transform = transforms.Compose(
        [
            transforms.Resize(64),
            transforms.CenterCrop(56),
            transforms.ToTensor(),
            transforms.Normalize((0.5,) * 3, (0.25,) * 3),
        ]
    )
    dataset = datasets.ImageFolder(photos, transform)

    def run(make):
        torch.manual_seed(3)
        return list(make(dataset, batch_size=7, shuffle=True))

    for ours, theirs in zip(run(loaderd.torch.DataLoader), run(torch.utils.data.DataLoader), strict=True):
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(ours, theirs, strict=True))
