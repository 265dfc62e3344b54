# SPDX-License-Identifier: Apache-2.0
"""state_dict and load_state_dict of loaderd.DataLoader."""

import copy
import json
import pickle
import threading

import pytest

import loaderd
from loaderd import errors


def loader(**arguments):
    return loaderd.DataLoader(loaderd.ImageFolder("/photos"), **{"batch_size": 4, **arguments})


def indices(batches):
    return [batch.index.tolist() for batch in batches]


def saved(batches):
    """Its state, through JSON."""
    return json.loads(json.dumps(batches.state_dict()))


def resumed(state, **arguments):
    batches = loader(**arguments)
    batches.load_state_dict(state)
    return batches


def state_after(taken, **arguments):
    """The state of a loader of which so many batches were taken, over all epochs."""
    batches = loader(**arguments)
    iterator = iter(batches)
    for _ in range(taken):
        if next(iterator, None) is None:
            iterator = iter(batches)
            next(iterator)
    return saved(batches)


def test_a_state_counts_the_batches_taken_and_is_small(library):
    batches = loader(shuffle=True, seed=7, rank=0, world_size=1)
    iterator = iter(batches)
    assert (saved(batches)["epoch"], saved(batches)["step"]) == (0, 0)
    next(iterator)
    next(iterator)
    state = saved(batches)
    assert state == {
        "version": 1,
        "epoch": 0,
        "step": 2,
        "job": {
            "order": "torch_shuffle",
            "batch_size": 4,
            "drop_last": False,
            "seed": 7,
            "rank": 0,
            "world_size": 1,
            "shard": "pad",
        },
        "samples": 10,
        "order_fingerprint": "f",
    }
    assert len(json.dumps(state)) + 63 < 300


def test_the_first_iter_after_a_load_goes_on_and_epochs_follow(library):
    batches = resumed(state_after(5))
    assert indices(batches) == [[8, 9]]
    assert indices(batches) == indices(loader())
    assert library.started[-3:-1] == [(1, 2), (2, 0)]
    assert library.expected[-2:] == ["f", ""]


def test_steps_and_epochs_of_batches_go_on(library):
    assert [(batch.epoch, batch.step) for batch in resumed(state_after(4))] == [(1, 1), (1, 2)]


def test_an_ended_epoch_means_the_next_from_its_beginning(library):
    batches = loader()
    list(batches)
    state = saved(batches)
    assert (state["epoch"], state["step"]) == (1, 0)
    list(resumed(state))
    assert library.started[-1] == (1, 0)


def test_a_state_at_the_last_batch_has_nothing_left_of_its_epoch(library):
    state = state_after(3)
    assert (state["epoch"], state["step"]) == (0, 3)
    batches = resumed(state)
    assert indices(batches) == [] and len(indices(batches)) == 3
    assert library.started[-2:] == [(0, 3), (1, 0)]


def test_a_loop_that_was_left_keeps_its_place_in_the_state(library):
    batches = loader()
    for _ in batches:
        break
    state = saved(batches)
    assert (state["epoch"], state["step"]) == (0, 1)
    list(batches)  # and itself begins the next
    assert library.started[-1] == (1, 0)


def test_the_newest_iterator_counts(library):
    batches = loader()
    first, second = iter(batches), iter(batches)
    next(first), next(first), next(second)
    assert (saved(batches)["epoch"], saved(batches)["step"]) == (1, 1)


def test_a_loader_that_began_nothing_has_a_state(library):
    batches = loader()
    batches.set_epoch(3)
    state = saved(batches)
    assert (state["epoch"], state["step"]) == (3, 0) and "samples" not in state
    list(resumed(state))
    assert library.started == [(3, 0)] and library.expected == [""]


def test_a_loaded_state_is_the_state_until_iter(library):
    state = state_after(2)
    assert saved(resumed(state)) == state
    batches = resumed(state)
    iter(batches)
    assert saved(batches) == state


@pytest.mark.parametrize(("epoch", "began"), [(0, (0, 2)), (1, (1, 0)), (5, (5, 0))])
def test_set_epoch_after_a_load_wins_where_it_names_another(library, epoch, began):
    batches = resumed(state_after(2))
    batches.set_epoch(epoch)
    list(batches)
    assert library.started[-1] == began


def test_a_bad_sample_counts_as_taken(library):
    batches = loader()
    iterator = iter(batches)
    library.script = [errors.DATA_LOSS]
    with pytest.raises(loaderd.BadSampleError):
        next(iterator)
    assert saved(batches)["step"] == 1


def test_an_epoch_that_failed_can_be_resumed_at_its_batch(library):
    batches = loader()
    iterator = iter(batches)
    next(iterator)
    library.script = [errors.UNAVAILABLE]
    with pytest.raises(loaderd.UnavailableError):
        next(iterator)
    del iterator
    assert (saved(batches)["epoch"], saved(batches)["step"]) == (0, 1)


def test_an_iter_that_fails_loses_neither_its_place_nor_its_epoch(library):
    batches = resumed(state_after(5))
    library.open_code = errors.UNAVAILABLE
    for _ in range(2):
        with pytest.raises(loaderd.UnavailableError):
            iter(batches)
    library.open_code = 0
    assert indices(batches) == [[8, 9]]


def test_len_stays_that_of_a_whole_epoch(library):
    batches = resumed(state_after(2))
    assert len(batches) == 3
    next(iter(batches))
    library.num_samples = 100  # found since
    assert len(batches) == 3


def test_a_state_may_be_taken_while_next_waits(library):
    batches = loader()
    iterator = iter(batches)
    next(iterator)
    waits, go_on = threading.Event(), threading.Event()

    def wait():
        waits.set()
        assert go_on.wait(30)

    library.before_next = wait
    trainer = threading.Thread(target=next, args=(iterator,))
    trainer.start()
    try:
        assert waits.wait(30)
        assert saved(batches)["step"] == 1
    finally:
        go_on.set()
        trainer.join()
    assert saved(batches)["step"] == 2


def test_prefetch_transform_and_policies_may_change(library):
    state = state_after(1)
    assert indices(resumed(state, prefetch_factor=9, on_bad_sample="skip", timeout=5)) == [[4, 5, 6, 7], [8, 9]]


SAVED = dict(shuffle=True, seed=7, rank=1, world_size=2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"batch_size": 8}, "batch_size was 4 and is 8"),
        ({"seed": 8}, "seed was 7 and is 8"),
        ({"shuffle": False}, "order was 'torch_shuffle' and is 'sequential'"),
        ({"world_size": 4}, "world_size was 2 and is 4.*set_epoch"),
        ({"rank": 0}, "rank was 1 and is 0"),
        ({"shard": "drop"}, "shard was 'pad' and is 'drop'"),
        ({"drop_last": True}, "drop_last was False and is True"),
        ({"seed": 8, "batch_size": 2}, "batch_size was 4 and is 2; seed was 7 and is 8"),
        ({"shuffle": False, "sampler": [1], "rank": None, "world_size": None}, "order was .* is 'explicit'"),
    ],
)
def test_a_state_of_another_job_is_refused_with_each_difference(library, change, text):
    state = state_after(1, **SAVED)
    batches = loader(**{**SAVED, **change})
    before = saved(batches)
    with pytest.raises(ValueError, match=text) as caught:
        batches.load_state_dict(state)
    assert isinstance(caught.value, loaderd.StateError)
    assert saved(batches) == before


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda state: None, TypeError, "not NoneType"),
        (lambda state: {}, ValueError, "version is None"),
        (lambda state: {**state, "version": 2}, ValueError, "version is 2, not 1"),
        (lambda state: {**state, "step": -1}, ValueError, "step=-1"),
        (lambda state: {**state, "epoch": "1"}, ValueError, "epoch should be an integer"),
        (lambda state: {key: value for key, value in state.items() if key != "job"}, ValueError, "'job'"),
        (
            lambda state: {key: value for key, value in state.items() if key != "order_fingerprint"},
            ValueError,
            "order_f",
        ),
    ],
)
def test_what_is_no_state_is_refused(library, spoil, error, text):
    with pytest.raises(error, match=text):
        loader().load_state_dict(spoil(state_after(1)))


def test_other_files_are_refused_with_their_numbers(library):
    state = state_after(1)
    library.order, library.num_samples = "g", 11
    batches = resumed(state)
    with pytest.raises(loaderd.StateError, match="it had 10 samples, and now it has 11: the fake's reason"):
        iter(batches)
    library.num_samples = 10
    with pytest.raises(loaderd.StateError, match="it had 10 samples, and now with other names"):
        iter(batches)


def test_a_kept_session_of_other_files_is_not_used_for_a_state(library):
    state = state_after(1)
    library.order = "g"
    batches = loader()
    list(batches)
    library.order = "f"
    batches.load_state_dict(state)
    assert len(indices(batches)) == 2 and library.expected[-1] == "f"


def test_a_loader_is_pickled_with_what_it_loaded(library):
    batches = pickle.loads(pickle.dumps(resumed(state_after(5))))
    assert indices(batches) == [[8, 9]]


# ---- samplers

ORDER = [7, 1, 2, 9, 4, 4, 0, 8, 3, 5, 6]


class Stateful:
    """Goes on where its state says; counts what was drawn from it."""

    def __init__(self, order):
        self.order = order
        self.at = 0
        self.drawn = 0

    def __len__(self):
        return len(self.order) - self.at

    def __iter__(self):
        while self.at < len(self.order):
            self.at += 1
            self.drawn += 1
            yield self.order[self.at - 1]
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def in_pairs(order):
    return [order[k : k + 2] for k in range(0, len(order), 2)]


@pytest.mark.parametrize("taken", range(7))
@pytest.mark.parametrize("kind", ["sampler", "batch_sampler", "stateful"])
def test_a_sampler_is_brought_back_to_its_batch(library, kind, taken):
    arguments = {
        "sampler": lambda: {"sampler": ORDER, "batch_size": 2},
        "batch_sampler": lambda: {"batch_sampler": in_pairs(ORDER), "batch_size": 1},
        "stateful": lambda: {"sampler": Stateful(ORDER), "batch_size": 2},
    }[kind]
    state = state_after(taken, prefetch_factor=1, **arguments())
    library.sent.clear()
    batches = resumed(state, prefetch_factor=1, **arguments())
    rest = indices(batches)
    assert rest == in_pairs(ORDER)[taken:] == library.sent
    assert indices(batches) == in_pairs(ORDER)


def test_a_sampler_with_its_own_state_gives_nothing_twice(library):
    state = state_after(3, sampler=Stateful(ORDER), batch_size=2)
    assert state["at"]["own"] == {"at": 6}
    sampler = Stateful(ORDER)
    assert sum(indices(resumed(state, sampler=sampler, batch_size=2)), []) == ORDER[6:]
    assert sampler.drawn == 5


def test_between_epochs_a_sampler_tells_its_state_of_now(library):
    sampler = Stateful(ORDER)
    batches = loader(sampler=sampler)
    list(batches)
    sampler.at = 4
    assert saved(batches)["at"] == {"own": {"at": 4}}


def test_a_state_is_no_view_of_the_sampler(library):
    class Lists(Stateful):
        def state_dict(self):
            return self.__dict__

        def load_state_dict(self, state):
            self.__dict__ = state

    batches = loader(sampler=Lists(ORDER), batch_size=2)
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    before = copy.deepcopy(state)
    list(iterator)
    assert state == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sampler": ORDER[1:]}, "list's len was 11 and is 10"),
        ({"sampler": tuple(ORDER)}, "the sampler was list and is tuple"),
        ({"sampler": Stateful(ORDER)}, "the sampler was list and is Stateful"),
    ],
)
def test_another_sampler_is_refused(library, change, text):
    state = state_after(1, sampler=ORDER)
    with pytest.raises(loaderd.StateError, match=text):
        loader(**change).load_state_dict(state)


def test_a_sampler_that_ends_before_the_batch_is_an_error(library):
    state = state_after(3, sampler=(k for k in ORDER), batch_size=2)
    batches = resumed(state, sampler=(k for k in ORDER[:3]), batch_size=2)
    with pytest.raises(loaderd.StateError, match="gave 2 batches; the state is behind 3"):
        iter(batches)


def test_another_epoch_than_the_loaded_one_begins_its_sampler_anew(library):
    batches = resumed(state_after(2, sampler=ORDER), sampler=ORDER)
    batches.set_epoch(1)
    assert sum(indices(batches), []) == ORDER
