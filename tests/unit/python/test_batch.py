# SPDX-License-Identifier: Apache-2.0
import copy
import pickle

import numpy as np
import pytest

from loaderd.batch import BadSample, Batch, Facts, batch_type


@pytest.fixture
def batch():
    facts = Facts(np.arange(2), np.zeros(2, bool), (BadSample(1, "a.jpg: truncated", None),), 3, 4)
    return batch_type(("images", "labels"))([np.zeros((2, 4, 4, 3), np.uint8), np.array([5, 6])], facts)


def test_batch_is_a_tuple_with_its_fields_by_place_and_name(batch):
    images, labels = batch
    assert isinstance(batch, tuple) and isinstance(batch, Batch)
    assert batch[0] is images is batch.images
    assert batch[1] is labels is batch.labels


def test_batch_tells_its_facts(batch):
    assert batch.index.tolist() == [0, 1]
    assert batch.pad.tolist() == [False, False]
    assert batch.bad[0].reason == "a.jpg: truncated"
    assert (batch.epoch, batch.step) == (3, 4)


def test_batch_survives_being_remade_from_its_fields(batch):
    again = type(batch)(iter(batch))
    assert type(again) is type(batch)
    assert again.images is batch.images and again.labels is batch.labels
    assert (again.index, again.bad, again.epoch) == (None, (), None)


@pytest.mark.parametrize("remake", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_batch_is_copied_and_pickled_whole(batch, remake):
    again = remake(batch)
    assert type(again) is type(batch)
    assert np.array_equal(again.labels, batch.labels)
    assert again.index.tolist() == [0, 1] and again.bad == batch.bad and again.step == 4


def test_an_unknown_name_is_an_attribute_error_that_tells_the_fields(batch):
    with pytest.raises(AttributeError, match="images, labels"):
        batch.masks  # noqa: B018
    assert not hasattr(batch, "_fields")  # what torch takes for a namedtuple


def test_repr_is_short(batch):
    assert repr(batch) == "Batch(images=uint8[2, 4, 4, 3], labels=int64[2], epoch=3, step=4)"
