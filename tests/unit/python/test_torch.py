# SPDX-License-Identifier: Apache-2.0
import pickle
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import loaderd  # noqa: E402
import loaderd.torch  # noqa: E402
import loaderd.transforms as T  # noqa: E402
from loaderd import errors  # noqa: E402


def loader(**arguments):
    return loaderd.torch.DataLoader(loaderd.ImageFolder("/photos"), **{"batch_size": 4, **arguments})


def indices(batches):
    return [batches.last.index.tolist() for _ in batches]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


def test_a_batch_is_what_default_collate_makes(library):
    batches = loader()
    batch = next(iter(batches))
    assert type(batch) is list and [type(part) for part in batch] == [torch.Tensor] * 2
    images, labels = batch
    assert images.dtype == torch.uint8 and labels.dtype == torch.int64
    assert images[:, 0, 0, 0].tolist() == [0, 1, 2, 3] and labels.tolist() == [0, 1, 0, 1]
    assert (batches.last.epoch, batches.last.step) == (0, 0)


def test_tensors_are_views_and_the_last_one_dropped_releases_the_batch(library):
    images, labels = next(iter(loader()))
    part = images[2:].permute(0, 3, 1, 2)
    del images, labels
    assert len(library.live) == 1
    part.zero_()
    del part
    assert not library.live


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "arguments",
    [
        lambda: {"shuffle": True},
        lambda: {"shuffle": True, "drop_last": True},
        lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(5)},
        lambda: {"sampler": torch.utils.data.WeightedRandomSampler([0.1 * k for k in range(10)], 13)},
        lambda: {"sampler": torch.utils.data.DistributedSampler(Numbers(), num_replicas=3, rank=1)},
        lambda: {"sampler": torch.utils.data.RandomSampler(Numbers(), replacement=True, num_samples=7)},
        lambda: {
            "batch_size": 1,
            "batch_sampler": torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(Numbers()), 3, False),
        },
        lambda: {},
    ],
)
def test_indices_and_later_draws_are_those_of_torchs_loader(library, arguments, workers):
    def run(make, collect):
        torch.manual_seed(11)
        batches = make()
        order = [collect(batches) for _ in range(3)]
        return order, torch.rand(1).item()

    theirs = run(
        lambda: torch.utils.data.DataLoader(Numbers(), **{"batch_size": 4, **arguments()}),
        lambda batches: [batch.tolist() for batch in batches],
    )
    ours = run(lambda: loader(num_workers=workers, **arguments()), indices)
    assert ours == theirs


def test_len_is_torchs(library):
    for arguments in (
        {},
        {"drop_last": True},
        {"sampler": [1, 2, 3, 4, 5]},
        {"batch_size": 1, "batch_sampler": [[1], [2]]},
    ):
        theirs = torch.utils.data.DataLoader(Numbers(), **{"batch_size": 4, **arguments})
        assert len(loader(**arguments)) == len(theirs)


def test_the_seed_of_augmentation_is_torchs_unless_it_is_given(library):
    torch.manual_seed(77)
    list(loader())
    list(loader(seed=5))
    assert [job["order"]["seed"] for job in library.jobs] == ["77", "5"]


def test_set_epoch_reaches_the_daemon(library):
    batches = loader()
    batches.set_epoch(4)
    list(batches)
    assert library.started == [(4, 0)]


def test_bfloat16_arrives_as_bfloat16():
    values = np.array([0x3F80, 0x4000], np.uint16)
    tensor = loaderd.torch._tensor(values, True)
    assert tensor.dtype == torch.bfloat16 and tensor.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"collate_fn": list}, TypeError, "collate_fn cannot run in the daemon"),
        ({"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
        ({"sampler": [1], "shuffle": True}, ValueError, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]]}, ValueError, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None}, ValueError, "batch_size=None"),
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
    ],
)
def test_wrong_arguments_are_refused_as_torch_does(library, arguments, error, text):
    with pytest.raises(error, match=text):
        loader(**arguments)


def test_arguments_for_workers_are_accepted(library):
    many = dict(num_workers=4, worker_init_fn=print, persistent_workers=True, prefetch_factor=4, pin_memory=True)
    assert len(indices(loader(**many))) == 3
    assert library.jobs[0]["prefetch_factor"] == 4


def test_a_python_dataset_is_refused_with_what_is_supported():
    with pytest.raises(TypeError, match=r"Numbers cannot run in the daemon; this version supports loaderd.ImageFolder"):
        loaderd.torch.DataLoader(Numbers())


def test_a_loader_is_pickled_without_its_session(library):
    batches = loader()
    list(batches)
    list(pickle.loads(pickle.dumps(batches)))
    assert len(library.jobs) == 2


def test_a_bad_sample_is_an_error_and_the_next_call_goes_on(library):
    batches = loader(shuffle=True)
    iterator = iter(batches)
    library.script = [errors.DATA_LOSS]
    with pytest.raises(loaderd.BadSampleError):
        next(iterator)
    next(iterator)
    assert batches.last.step == 1


def default_loader(path):
    raise AssertionError(path)


default_loader.__module__ = "torchvision.datasets.folder"


def image_folder(**attributes):
    """What torchvision's ImageFolder looks like from outside."""
    kind = type(
        "ImageFolder", (), {"__module__": "torchvision.datasets.folder", "__len__": lambda self: len(self.samples)}
    )
    dataset = kind()
    dataset.__dict__.update(
        root="/photos",
        loader=default_loader,
        extensions=(".jpg",),
        classes=["cat", "dog"],
        samples=[("x.jpg", 0)] * 10,
        transform=T.Compose([T.CenterCrop(2)]),
        target_transform=None,
    )
    dataset.__dict__.update(attributes)
    return dataset


def test_torchvisions_image_folder_is_read_by_the_daemon(library, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", types.SimpleNamespace(__version__="12.3.0"))
    batches = loaderd.torch.DataLoader(image_folder(), batch_size=5)
    assert [len(labels) for _, labels in batches] == [5, 5]
    job = library.jobs[0]
    assert job["dataset"]["image_folder"]["path"] == "/photos"
    assert job["transform"] == [{"center_crop": {"size": [2, 2]}}]
    assert job["reference"] == "REFERENCE_PILLOW12"


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"loader": print}, "only torchvision's default_loader"),
        ({"target_transform": abs}, "target_transform"),
        ({"extensions": None}, "is_valid_file"),
        ({"transform": print}, "cannot run in the daemon"),
    ],
)
def test_what_of_an_image_folder_the_daemon_cannot_do_is_refused_by_name(attributes, text):
    with pytest.raises(TypeError, match=text):
        loaderd.torch.DataLoader(image_folder(**attributes))


def test_an_image_folder_that_was_changed_after_torchvision_read_it_is_refused(library):
    with pytest.raises(ValueError, match="has 9 samples in 2 classes, the daemon finds 10 in 2"):
        iter(loaderd.torch.DataLoader(image_folder(samples=[("x.jpg", 0)] * 9)))


def test_without_torch_the_import_says_what_to_install(monkeypatch):
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "loaderd.torch")
    with pytest.raises(ImportError, match=r"pip install 'loaderd\[torch\]'"):
        importlib.import_module("loaderd.torch")
