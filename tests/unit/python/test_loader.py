# SPDX-License-Identifier: Apache-2.0
import gc
import pickle
import signal
import weakref

import numpy as np
import pytest

import loaderd
import loaderd.transforms as T
from loaderd import errors


def loader(**arguments):
    return loaderd.DataLoader(loaderd.ImageFolder("/photos"), **{"batch_size": 4, **arguments})


def indices(batches):
    return [batch.index.tolist() for batch in batches]


def test_an_epoch_has_each_batch_in_order(library):
    batches = list(loader())
    assert indices(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch.step for batch in batches] == [0, 1, 2]
    assert batches[1].images.shape == (4, 2, 2, 3) and batches[1].images.dtype == np.uint8
    assert batches[1].images[:, 0, 0, 0].tolist() == [4, 5, 6, 7]
    assert batches[2].labels.tolist() == [0, 1] and batches[2].labels.dtype == np.int64


def test_the_job_has_every_argument(library):
    dataset = loaderd.ImageFolder("/photos", mode="L")
    arguments = dict(seed=2**63 + 1, drop_last=True, rank=1, world_size=3, shard="drop", prefetch_factor=5)
    steps = T.Compose([T.CenterCrop(8)])
    list(loaderd.DataLoader(dataset, 2, True, transform=steps, on_bad_sample="skip", reference="pillow12", **arguments))
    assert library.jobs == [
        {
            "dataset": {"image_folder": {"path": "/photos", "mode": "IMAGE_MODE_L"}},
            "transform": [{"center_crop": {"size": [8, 8]}}],
            "order": {
                "kind": "ORDER_KIND_TORCH_SHUFFLE",
                "seed": "9223372036854775809",
                "rank": 1,
                "world_size": 3,
                "shard": "SHARD_RULE_DROP",
            },
            "batch_size": 2,
            "drop_last": True,
            "prefetch_factor": 5,
            "on_bad_sample": "BAD_SAMPLE_POLICY_SKIP",
            "reference": "REFERENCE_PILLOW12",
        }
    ]


def test_views_are_writable_and_the_last_one_dropped_releases_the_batch(library):
    batches = iter(loader())
    images, labels = next(batches)
    part = images[1:, 0]
    part[:] = 77
    assert images[1, 0, 0, 0] == 77
    del images, labels
    assert len(library.live) == 1
    del part
    assert not library.live


def test_facts_pin_no_batch_memory(library):
    batch = next(iter(loader()))
    index, pad, facts = batch.index, batch.pad, batch.facts
    del batch
    assert not library.live
    assert index.tolist() == [0, 1, 2, 3] and pad.tolist() == [False] * 4 and facts.epoch == 0


def test_epochs_follow_one_another_in_one_session(library):
    batches = loader()
    for _ in range(3):
        assert len(indices(batches)) == 3
    assert library.started == [(0, 0), (1, 0), (2, 0)]
    assert len(library.jobs) == 1 and not library.closed


def test_set_epoch_holds_for_the_next_iter_and_counting_goes_on_from_it(library):
    batches = loader()
    batches.set_epoch(5)
    for _ in range(2):
        list(batches)
    batches.set_epoch(2)
    batches.set_epoch(3)
    list(batches)
    assert [epoch for epoch, _ in library.started] == [5, 6, 3]


def test_dropping_the_loader_ends_its_session(library):
    batches = loader()
    list(batches)
    del batches
    assert library.closed == [1]


def test_two_live_iterators_have_a_session_and_an_epoch_each(library):
    batches = loader()
    first, second = iter(batches), iter(batches)
    assert next(first).epoch == 0 and next(second).epoch == 1
    assert len(library.jobs) == 2
    assert len(indices(first)) == len(indices(second)) == 2
    assert library.closed == [2]  # one is enough between epochs


def test_leaving_a_loop_half_way_ends_its_session(library):
    batches = loader()
    for _ in batches:
        break
    del _
    assert library.closed == [1] and not library.live
    assert len(indices(batches)) == 3 and len(library.jobs) == 2


def test_an_exception_out_of_the_loop_ends_its_session(library):
    def train(batches):
        for batch in batches:
            raise ArithmeticError(batch.step)

    with pytest.raises(ArithmeticError):
        train(loader())
    gc.collect()
    assert library.closed == [1] and not library.live


def test_an_exhausted_iterator_stays_exhausted(library):
    batches = iter(loader())
    list(batches)
    assert next(batches, None) is None


def test_a_bad_sample_is_an_error_at_its_step_and_the_next_call_goes_on(library):
    batches = iter(loader())
    library.script = [errors.DATA_LOSS]
    with pytest.raises(loaderd.BadSampleError, match="the fake's reason"):
        next(batches)
    assert next(batches).step == 1


def test_timeout_is_an_error_and_the_next_call_goes_on_waiting(library):
    batches = iter(loader(timeout=0.01))
    library.script = [errors.DEADLINE_EXCEEDED] * 100_000
    with pytest.raises(TimeoutError, match="timeout=0.01") as caught:
        next(batches)
    assert isinstance(caught.value, loaderd.TimeoutError) and isinstance(caught.value, RuntimeError)
    library.script = []
    assert next(batches).step == 0


def test_waiting_is_sliced_so_that_signals_are_seen(library):
    library.script = [errors.DEADLINE_EXCEEDED, errors.INTERRUPTED, errors.DEADLINE_EXCEEDED]
    assert next(iter(loader())).step == 0
    assert max(library.waits) <= 100 and min(library.waits) >= 0


def test_an_interrupt_as_the_batch_arrives_loses_nothing(library):
    def interrupt_after():
        library.before_next = lambda: None
        signal.raise_signal(signal.SIGINT)

    batches = iter(loader())
    library.before_next = interrupt_after
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert [batch.step for batch in batches] == [0, 1, 2]


def test_any_other_error_ends_the_iterator_for_good(library):
    batches = iter(loader())
    library.script = [errors.UNAVAILABLE]
    for _ in range(2):
        with pytest.raises(loaderd.UnavailableError):
            next(batches)
    assert library.closed == [1]


def test_a_daemon_that_went_between_two_epochs_is_asked_for_a_new_session(library):
    batches = loader(sampler=[1, 2, 3])
    list(batches)
    library.gone.add(1)
    assert indices(batches) == [[1, 2, 3]]
    assert library.closed == [1] and len(library.jobs) == 2
    library.gone.add(2)
    library.open_code = errors.UNAVAILABLE
    with pytest.raises(loaderd.UnavailableError):
        iter(batches)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errors.INVALID_ARGUMENT, ValueError),
        (errors.NOT_FOUND, FileNotFoundError),
        (errors.PERMISSION_DENIED, PermissionError),
        (errors.UNAVAILABLE, ConnectionError),
        (errors.UNIMPLEMENTED, NotImplementedError),
        (errors.RESOURCE_EXHAUSTED, loaderd.ResourceExhaustedError),
        (errors.FORKED, loaderd.ForkedError),
        (13, loaderd.Error),
    ],
)
def test_an_open_that_fails_raises_by_its_code(library, code, error):
    library.open_code = code
    with pytest.raises(error, match="the fake's reason") as caught:
        iter(loader())
    assert isinstance(caught.value, loaderd.Error) and caught.value.code == code
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), type(caught.value))


def test_a_sampler_gives_the_order(library):
    batches = loader(sampler=[7, 3, 9, 1, 5])
    assert indices(batches) == [[7, 3, 9, 1], [5]]
    assert len(batches) == 2
    assert indices(loader(sampler=[7, 3, 9, 1, 5], drop_last=True)) == [[7, 3, 9, 1]]
    assert library.jobs[0]["order"]["kind"] == "ORDER_KIND_EXPLICIT"


def test_negative_indices_count_from_the_end_as_in_a_list(library):
    assert indices(loader(sampler=[-1, np.int64(-10)])) == [[9, 0]]


@pytest.mark.parametrize("index", [10, -11])
def test_an_index_outside_of_the_dataset_is_an_index_error(library, index):
    with pytest.raises(IndexError, match=f"{index}; the dataset has 10 samples"):
        list(loader(sampler=[index]))


def test_a_batch_sampler_gives_the_batches(library):
    batches = loader(batch_size=1, batch_sampler=[[1, 2], [3], [4, 5, 6]])
    assert indices(batches) == [[1, 2], [3], [4, 5, 6]]
    assert len(batches) == 3
    assert library.jobs[0]["batch_size"] == 3


def test_a_batch_larger_than_all_before_it_gets_a_larger_session(library):
    sampler = [[k % 10] for k in range(20)] + [[1, 2, 3], [4], [5, 6, 7, 8]]
    batches = loader(batch_size=1, batch_sampler=sampler)
    got = list(batches)
    assert indices(got) == sampler and [batch.step for batch in got] == list(range(23))
    assert [job["batch_size"] for job in library.jobs] == [1, 4]
    assert indices(batches) == sampler and len(library.jobs) == 2  # the larger one is kept


def test_an_empty_batch_of_a_batch_sampler_is_refused(library):
    with pytest.raises(ValueError, match="without an index"):
        iter(loader(batch_size=1, batch_sampler=[[]]))


def test_an_empty_sampler_is_an_empty_epoch(library):
    assert indices(loader(sampler=[])) == []


def test_a_sampler_is_drawn_only_a_few_batches_ahead(library):
    drawn = []

    def endless():
        while True:
            drawn.append(len(drawn) % 10)
            yield drawn[-1]

    batches = iter(loader(batch_size=2, sampler=endless()))
    assert 0 < len(drawn) <= 2 * (2 * 2 + 3)
    for step in range(50):
        next(batches)
        assert len(drawn) <= 2 * (step + 1 + 2 * 2 + 3)


def test_a_sampler_that_raises_ends_the_epoch_with_its_error(library):
    def broken():
        yield from range(4)
        raise LookupError("out of order")

    with pytest.raises(LookupError, match="out of order"):
        list(loader(sampler=broken()))
    gc.collect()
    assert len(library.closed) == len(library.jobs)


@pytest.mark.parametrize(
    ("arguments", "samples", "batches"),
    [
        ({}, 10, 3),
        ({"drop_last": True}, 10, 2),
        ({"rank": 2, "world_size": 3}, 10, 1),
        ({"rank": 2, "world_size": 3, "batch_size": 3}, 10, 2),
        ({"rank": 2, "world_size": 3, "batch_size": 3, "shard": "drop"}, 10, 1),
        ({"rank": 0, "world_size": 3, "batch_size": 1, "shard": "uneven"}, 10, 4),
        ({"rank": 2, "world_size": 3, "batch_size": 1, "shard": "uneven"}, 10, 3),
        ({"rank": 2, "world_size": 3, "batch_size": 1, "shard": "drop"}, 2, 0),
    ],
)
def test_len_is_the_number_of_batches(library, arguments, samples, batches):
    library.num_samples = samples
    assert len(loader(**arguments)) == batches


def test_len_of_a_loader_whose_sampler_has_none_is_a_type_error(library):
    with pytest.raises(TypeError, match="generator"):
        len(loader(sampler=(k for k in range(3))))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"sampler": [1], "shuffle": True}, ValueError, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]]}, ValueError, "batch_sampler option is mutually exclusive"),
        ({"batch_size": 1, "batch_sampler": [[1]], "drop_last": True}, ValueError, "mutually exclusive"),
        ({"sampler": [1], "rank": 0, "world_size": 1}, ValueError, "mutually exclusive with rank"),
        ({"batch_size": 0}, ValueError, "batch_size=0"),
        ({"batch_size": 2.5}, TypeError, "batch_size should be an integer"),
        ({"batch_size": None}, TypeError, "batch_size should be an integer"),
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
        ({"timeout": float("nan")}, ValueError, "timeout"),
        ({"seed": -1}, ValueError, "seed=-1"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"rank": 0}, ValueError, "given together"),
        ({"rank": 3, "world_size": 3}, ValueError, "rank should be 0 to 2"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor=0"),
        ({"shard": "even"}, ValueError, "shard should be one of 'pad', 'drop', 'uneven'"),
        ({"on_bad_sample": "ignore"}, ValueError, "on_bad_sample should be one of"),
        ({"reference": "pillow11"}, ValueError, "reference should be one of"),
        ({"transform": print}, TypeError, "cannot run in the daemon"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, error, text):
    with pytest.raises(error, match=text):
        loader(**arguments)


def test_a_dataset_of_another_kind_is_refused_with_what_to_write():
    with pytest.raises(TypeError, match=r"loaderd.ImageFolder\(path\)"):
        loaderd.DataLoader([1, 2, 3])


def test_a_name_is_a_dataset_of_the_daemon(library):
    list(loaderd.DataLoader("imagenet", 4))
    assert library.jobs[0]["dataset"] == {"name": "imagenet"}


def test_epoch_must_be_a_number(library):
    with pytest.raises(ValueError, match="epoch=-1"):
        loader().set_epoch(-1)


def test_a_loader_is_pickled_without_its_session(library):
    batches = loader()
    list(batches)
    again = pickle.loads(pickle.dumps(batches))
    list(again)
    assert len(library.jobs) == 2 and library.started[-1] == (1, 0)
    with pytest.raises(TypeError, match="pickle the loader"):
        pickle.dumps(iter(batches))


def test_nothing_keeps_a_finished_loader_alive(library):
    batches = loader()
    list(batches)
    gone = weakref.ref(batches)
    del batches
    assert gone() is None
