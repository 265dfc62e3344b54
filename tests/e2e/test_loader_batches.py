# SPDX-License-Identifier: Apache-2.0
"""What a batch is made of, and how long it lives."""

import gc
import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import wait_until

import loaderd
import loaderd.transforms as T

CROP = T.RandomResizedCrop(32)


@pytest.fixture
def loader(photos, daemon):
    def make(batch_size=3, **arguments):
        arguments.setdefault("transform", CROP)
        return loaderd.DataLoader(loaderd.ImageFolder(photos), batch_size, socket=daemon.socket, **arguments)

    return make


def checksums(batches):
    return [(batch.index.tolist(), int(batch.images.sum()), batch.labels.tolist()) for batch in batches]


def mapped(array):
    """The line of /proc/self/maps that the array's memory lies in."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                return line
    return ""


@pytest.mark.parametrize(
    ("steps", "dtype", "shape"),
    [
        ([CROP], "uint8", (32, 32, 3)),
        ([CROP, T.Grayscale()], "uint8", (32, 32, 1)),
        ([CROP, T.PILToTensor()], "uint8", (3, 32, 32)),
        ([CROP, T.ToTensor()], "float32", (3, 32, 32)),
        ([CROP, T.ToTensor(), T.ConvertImageDtype("float16")], "float16", (3, 32, 32)),
    ],
)
def test_shape_and_dtype_follow_the_transform(loader, steps, dtype, shape):
    batch = next(iter(loader(transform=T.Compose(steps))))
    assert batch.images.shape == (3, *shape) and batch.images.dtype == dtype
    assert batch.labels.shape == (3,) and batch.labels.dtype == np.int64


def test_bfloat16_keeps_its_bits(loader):
    steps = [T.Resize((16, 16)), T.ToTensor()]
    exact = next(iter(loader(transform=T.Compose(steps)))).images
    rounded = next(iter(loader(transform=T.Compose([*steps, T.ConvertImageDtype("bfloat16")])))).images
    assert rounded.itemsize == 2
    bits = rounded.view(np.uint16).astype(np.uint32) << 16
    assert np.abs(bits.view(np.float32) - exact).max() <= 2**-9


def test_grey_mode_has_one_channel(photos, daemon):
    folder = loaderd.ImageFolder(photos, mode="L")
    assert next(iter(loaderd.DataLoader(folder, 2, transform=CROP, socket=daemon.socket))).images.shape == (
        2,
        32,
        32,
        1,
    )


def test_fields_are_views_of_the_mapped_segment(loader):
    batch = next(iter(loader()))
    assert "memfd:" in mapped(batch.images) and "memfd:" in mapped(batch.labels)
    assert batch.images.flags.writeable and not batch.images.flags.owndata
    assert "memfd:" not in mapped(batch.index)


def test_a_plain_loop_copies_nothing(loader, control):
    batches = loader(batch_size=1, shuffle=True)
    iterator = iter(batches)
    for step, batch in enumerate(iterator):
        assert "memfd:" in mapped(batch.images)
        if step == 20:
            break
    session = control.session()
    assert session["batches_delivered"] >= 20 and session.get("batches_copied", 0) == 0


def test_a_change_in_place_is_never_seen_in_a_later_batch(loader):
    expected = [checksums(loader(seed=epoch)) for epoch in range(2)]
    for epoch in range(2):
        got = []
        for batch in loader(seed=epoch):
            got += checksums([batch])
            for field in batch:
                field[:] = 1
        assert got == expected[epoch]


def test_list_of_a_loader_holds_every_batch(loader, control):
    expected = checksums(loader(batch_size=1))
    batches = loader(batch_size=1)
    held = list(batches)
    assert len(held) == 60 and checksums(held) == expected
    assert control.session().get("batches_copied", 0) > 0


def test_epochs_differ_and_repeat_by_their_number(loader):
    batches = loader(shuffle=True)
    first, second = checksums(batches), checksums(batches)
    assert first != second and sorted(sum((b[0] for b in second), [])) == list(range(60))
    batches.set_epoch(0)
    assert checksums(batches) == first
    assert checksums(batches) == second


def test_one_session_spans_the_epochs_and_ends_with_its_loader(loader, control):
    batches = loader()
    list(batches)
    name = control.session()["session"]
    list(batches)
    assert control.session()["session"] == name
    del batches
    wait_until(lambda: not control.sessions())


def test_two_iterators_over_one_loader_do_not_disturb_each_other(loader, control):
    batches = loader(shuffle=True)
    expected = [checksums(batches), checksums(batches)]
    batches = loader(shuffle=True)
    first, second = iter(batches), iter(batches)
    got = [[], []]
    for _ in range(20):
        for k, iterator in enumerate((first, second)):
            got[k] += checksums([next(iterator)])
    assert len(control.sessions()) == 2
    assert got == expected


def test_dropping_an_iterator_half_way_ends_its_session_and_the_loader_goes_on(loader, control):
    batches = loader()
    for batch in batches:
        if batch.step == 2:
            break
    assert len(control.sessions()) == 0  # the loop's iterator is gone; only the last batch is still held
    assert batch.images.sum() > 0
    assert len(list(batches)) == 20


def test_an_exception_out_of_the_loop_ends_its_session(loader, control):
    def train(batches):
        for batch in batches:
            raise ArithmeticError(batch.step)

    batches = loader()
    with pytest.raises(ArithmeticError):
        train(batches)
    gc.collect()
    wait_until(lambda: not control.sessions())


def test_a_held_batch_outlives_its_session_and_its_loader(loader, control):
    batches = loader()
    held = next(iter(batches))
    before = checksums([held])
    del batches
    wait_until(lambda: not control.sessions())
    list(loader(batch_size=7, seed=5))
    assert checksums([held]) == before


def test_timeout_raises_and_the_next_call_goes_on(loader, daemon):
    batches = loader(timeout=0.3)
    expected = checksums(batches)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        batches.set_epoch(0)
        iterator = iter(batches)
        started = time.monotonic()
        for _ in range(2):
            with pytest.raises(TimeoutError, match="timeout=0.3"):
                next(iterator)
        assert 0.5 < time.monotonic() - started < 10
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert checksums(iterator) == expected


def test_batches_may_be_released_from_other_threads(loader, control):
    batches = loader(batch_size=1)
    handed = []

    def drop():
        while handed or alive.is_set():
            if handed:
                handed.pop()
            time.sleep(0.001)

    alive = threading.Event()
    alive.set()
    threads = [threading.Thread(target=drop) for _ in range(3)]
    for thread in threads:
        thread.start()
    steps = []
    for _ in range(3):
        for batch in batches:
            steps.append(batch.step)
            handed.append(batch)
    alive.clear()
    for thread in threads:
        thread.join()
    del batch
    assert steps == list(range(60)) * 3
    wait_until(lambda: control.session().get("slots_lent", 0) == 0)


def test_threads_may_share_an_iterator(loader):
    iterator = iter(loader(batch_size=1))
    seen = []

    def take():
        for batch in iterator:
            seen.extend(batch.index.tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(60))


def test_a_sampler_and_a_batch_sampler_give_the_order(loader):
    order = [5, 59, 0, 0, 17, -1]
    assert [batch.index.tolist() for batch in loader(sampler=order)] == [[5, 59, 0], [0, 17, 59]]
    sizes = [[k] * (1 + k) for k in range(25)]  # each larger than the last
    batches = loader(batch_size=1, batch_sampler=sizes)
    for _ in range(2):
        got = [(batch.step, batch.index.tolist()) for batch in batches]
        assert got == list(enumerate(sizes))


def test_an_explicit_order_gives_the_pixels_of_its_indices(loader):
    by_index = {}
    for batch in loader(transform=T.Resize((20, 20))):
        by_index.update(zip(batch.index.tolist(), batch.images.copy(), strict=True))
    for batch in loader(transform=T.Resize((20, 20)), sampler=[7, 3, 3, 40]):
        for index, pixels in zip(batch.index.tolist(), batch.images, strict=True):
            assert np.array_equal(pixels, by_index[index])


def test_an_index_outside_of_the_dataset_is_an_index_error(loader, control):
    with pytest.raises(IndexError, match="60; the dataset has 60 samples"):
        list(loader(sampler=[0, 60]))
    gc.collect()
    wait_until(lambda: not control.sessions())


def test_ranks_share_an_epoch(loader):
    arguments = {"world_size": 7, "shuffle": True, "seed": 9}
    shares = [[index for batch in loader(rank=rank, **arguments) for index in batch.index] for rank in range(7)]
    assert {len(share) for share in shares} == {9}
    assert set(sum(shares, [])) == set(range(60))
    uneven = [sum(len(batch.index) for batch in loader(rank=rank, shard="uneven", **arguments)) for rank in range(7)]
    assert sorted(uneven) == [8, 8, 8, 9, 9, 9, 9]


def test_the_dataset_of_a_loader_asks_the_loaders_daemon(loader, runtime_dir):
    batches = loader()
    assert len(batches.dataset) == 60 and batches.dataset.classes == ["class_00", "class_01", "class_02"]
    assert not (runtime_dir / "loaderd").exists()  # none was started besides


def test_len_agrees_with_what_comes(loader):
    for arguments in ({}, {"batch_size": 7}, {"batch_size": 7, "drop_last": True}, {"rank": 1, "world_size": 4}):
        batches = loader(**arguments)
        assert len(batches) == len(list(batches))
