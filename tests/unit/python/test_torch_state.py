# SPDX-License-Identifier: Apache-2.0
"""state_dict and load_state_dict of loaderd.torch.DataLoader: torch's samplers and their generators."""

import json
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from test_torch import image_folder  # noqa: E402

import loaderd  # noqa: E402
import loaderd.torch  # noqa: E402


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index


class Drawing:
    """Draws from torch's global generator as soon as it is iterated."""

    def __len__(self):
        return 10

    def __iter__(self):
        return iter(torch.randperm(10).tolist())


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def used(seed):
    generator = seeded(seed)
    torch.rand(3, generator=generator)
    return generator


data = torch.utils.data
JOBS = {
    "sequential": lambda: {},
    "shuffle": lambda: {"shuffle": True},
    "drop_last": lambda: {"shuffle": True, "drop_last": True},
    "generator": lambda: {"shuffle": True, "generator": seeded(5)},
    "used generator": lambda: {"shuffle": True, "generator": used(5)},
    "sampler's generator": lambda: {"sampler": data.RandomSampler(Numbers(), generator=seeded(5))},
    "two generators": lambda: {"sampler": data.RandomSampler(Numbers(), generator=seeded(5)), "generator": used(6)},
    "one for each": lambda: {"sampler": data.RandomSampler(Numbers()), "generator": seeded(6)},
    "weighted": lambda: {"sampler": data.WeightedRandomSampler([0.1 * k for k in range(10)], 13)},
    "subset": lambda: {"sampler": data.SubsetRandomSampler(range(10))},
    "eager": lambda: {"sampler": Drawing()},
    "distributed": lambda: {"sampler": data.DistributedSampler(Numbers(), num_replicas=2, rank=1)},
    "replacement": lambda: {"sampler": data.RandomSampler(Numbers(), replacement=True, num_samples=13)},
    "batch_sampler": lambda: {
        "batch_size": 1,
        "batch_sampler": data.BatchSampler(data.RandomSampler(Numbers()), 3, False),
    },
}


def loader(job, **more):
    return loaderd.torch.DataLoader(loaderd.ImageFolder("/photos"), **{"batch_size": 2, **JOBS[job](), **more})


def epoch(batches, number):
    if isinstance(batches.sampler, data.DistributedSampler):
        batches.sampler.set_epoch(number)
    for _ in batches:
        yield batches.last.epoch, batches.last.step, batches.last.index.tolist()


def run(batches, epochs):
    return [batch for number in epochs for batch in epoch(batches, number)]


@pytest.mark.parametrize("taken", [0, 1, 3, 5])
@pytest.mark.parametrize("job", JOBS)
def test_the_rest_of_the_run_is_that_of_a_run_without_a_stop(library, job, taken):
    torch.manual_seed(11)
    expected = run(loader(job), range(3))

    torch.manual_seed(11)
    batches = loader(job)
    got = run(batches, [0])
    iterator = epoch(batches, 1)
    for _ in range(taken):
        got += [batch] if (batch := next(iterator, None)) else []
    if taken == 0:  # begun, and nothing taken
        iterator = iter(batches)
    state, randomness = json.dumps(batches.state_dict()), torch.get_rng_state()

    torch.manual_seed(99)
    batches = loader(job, num_workers=3, prefetch_factor=7)
    batches.load_state_dict(json.loads(state))
    torch.set_rng_state(randomness)
    assert got + run(batches, range(json.loads(state)["epoch"], 3)) == expected
    assert len(state) < 10_000


@pytest.mark.parametrize("job", ["shuffle", "weighted", "eager", "sequential", "replacement"])
def test_going_on_draws_nothing_from_torchs_generator(library, job):
    batches = loader(job)
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    batches = loader(job)
    batches.load_state_dict(state)
    before = torch.get_rng_state()
    list(batches)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("job", ["generator", "used generator", "two generators"])
def test_between_epochs_the_generators_are_kept(library, job):
    expected = run(loader(job), range(3))
    batches = loader(job)
    got = run(batches, range(2))
    state = json.dumps(batches.state_dict())
    batches = loader(job)
    batches.load_state_dict(json.loads(state))
    assert got + run(batches, [2]) == expected


def test_the_seed_of_augmentation_goes_with_the_state(library):
    torch.manual_seed(11)
    batches = loader("sequential")
    next(iter(batches))
    state = batches.state_dict()
    assert state["job"]["seed"] == 11
    torch.manual_seed(99)
    fresh, used_before = loader("sequential"), loader("sequential")
    list(used_before)
    for again in (fresh, used_before):
        again.load_state_dict(state)
        list(again)
        assert library.jobs[-1]["order"]["seed"] == "11"
        assert library.started[-1] == (0, 1)
    with pytest.raises(loaderd.StateError, match="seed was 11 and is 12"):
        loader("sequential", seed=12).load_state_dict(state)


def test_a_distributed_sampler_is_told_its_epoch_and_another_one_wins(library):
    batches = loader("distributed")
    batches.sampler.set_epoch(4)
    expected = [batch for _, _, batch in run(loader("distributed"), [4])]
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    batches = loader("distributed")
    batches.load_state_dict(state)
    assert [batches.last.index.tolist() for _ in batches] == expected[1:]
    batches.load_state_dict(state)
    whole = [batch for _, _, batch in run(loader("distributed"), [5])]
    assert [batch for _, _, batch in epoch(batches, 5)] == whole
    assert library.started[-1] == (0, 0)


@pytest.mark.parametrize(
    ("job", "other", "text"),
    [
        ("sequential", "shuffle", "order was 'sequential' and is 'explicit'"),
        (
            "shuffle",
            "distributed",
            "sampler was BatchSampler of RandomSampler and is BatchSampler of DistributedSampler",
        ),
        ("shuffle", "drop_last", "drop_last was False and is True"),
        ("shuffle", "replacement", "RandomSampler's len was 10 and is 13; .*replacement was False and is True"),
    ],
)
def test_another_order_is_refused(library, job, other, text):
    batches = loader(job)
    next(iter(batches))
    with pytest.raises(loaderd.StateError, match=text):
        loader(other).load_state_dict(batches.state_dict())


def test_another_rank_or_world_of_a_distributed_sampler_is_refused(library):
    batches = loader("distributed")
    next(iter(batches))
    for world, rank, text in ((4, 1, "num_replicas was 2 and is 4.*set_epoch"), (2, 0, "rank was 1 and is 0")):
        sampler = data.DistributedSampler(Numbers(), num_replicas=world, rank=rank)
        with pytest.raises(loaderd.StateError, match=text):
            loader("distributed", sampler=sampler).load_state_dict(batches.state_dict())


def test_a_shuffle_over_more_files_is_refused(library):
    batches = loader("shuffle")
    next(iter(batches))
    library.num_samples = 11
    with pytest.raises(loaderd.StateError, match="RandomSampler's len was 10 and is 11"):
        loader("shuffle").load_state_dict(batches.state_dict())


def test_a_damaged_generator_state_is_refused(library):
    batches = loader("used generator")
    next(iter(batches))
    state = batches.state_dict()
    state["at"]["generators"][0]["state"] = "nonsense"
    batches = loader("used generator")
    batches.load_state_dict(state)
    with pytest.raises(loaderd.StateError, match="damaged"):
        iter(batches)


def test_torchvisions_folder_with_more_files_is_refused(library):
    batches = loaderd.torch.DataLoader(image_folder(), batch_size=2)
    next(iter(batches))
    state = batches.state_dict()
    loaderd.torch.DataLoader(image_folder(), batch_size=2).load_state_dict(state)
    more = loaderd.torch.DataLoader(image_folder(samples=[("x.jpg", 0)] * 11), batch_size=2)
    with pytest.raises(loaderd.StateError, match="it had 10 samples, and now it has 11"):
        more.load_state_dict(state)


def test_len_is_that_of_whole_epochs(library):
    batches = loader("sequential")
    next(iter(batches))
    again = loader("sequential")
    again.load_state_dict(batches.state_dict())
    library.num_samples = 100
    assert len(again) == 5


def test_a_loader_is_pickled_with_what_it_loaded(library):
    batches = loader("shuffle")
    next(iter(batches))
    again = loader("shuffle")
    again.load_state_dict(batches.state_dict())
    list(pickle.loads(pickle.dumps(again)))
    assert library.started[-1] == (0, 1)
