# SPDX-License-Identifier: Apache-2.0
import os
import time

import numpy as np
import pytest
from peers import trainer


class Fake(trainer.Loader):
    """A batch each millisecond; the first of an epoch takes `gap_s` longer."""

    batches = 10

    def __init__(self, options, gap_s=0.0, images=4):
        self._gap_s = gap_s
        self._images = np.full((images, 2, 2, 3), 7, np.uint8)
        self.closed = False

    def epoch(self, number):
        time.sleep(self._gap_s)
        for _ in range(self.batches):
            time.sleep(0.001)
            yield self._images, None


@pytest.fixture
def folder(tmp_path):
    for name in ("b", "B", "a"):
        (tmp_path / name).mkdir()
    for number in range(40):
        (tmp_path / "b" / f"{number}.jpg").touch()
    return tmp_path


@pytest.fixture
def options(folder, tmp_path):
    return trainer.Options(folder, tmp_path, "crop_uint8", 4, 2, 0.05, "", 0, "")


def test_samples_stand_in_the_order_of_torchvision(tmp_path):
    for path in ("b/1.jpg", "a/2.jpg", "a/10.jpg", "B/0.jpg"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    paths, labels = trainer.samples(tmp_path)
    assert [os.path.relpath(path, tmp_path) for path in paths] == ["B/0.jpg", "a/10.jpg", "a/2.jpg", "b/1.jpg"]
    assert labels == [0, 1, 1, 2]


def test_the_account_has_what_the_tables_ask_for(options):
    account = trainer.measure(Fake, options)
    assert 0 < account["images_per_s"] <= 4 / 0.001
    assert account["window_images"] % (4 * options.threads) == 0
    assert account["window_s"] >= options.seconds
    assert account["trainer_descriptors"] > 0 and account["trainer_threads"] > 0
    assert account["trainer_pss_bytes"] > 0 and account["trainer_peak_rss_bytes"] > account["trainer_pss_bytes"] / 2
    assert account["checksum"] > 0 and account["first_batch_mean"] == 7


def test_the_wait_at_the_boundary_is_no_part_of_the_rate(options):
    gap_s = 0.2

    class Gap(Fake):
        def __init__(self, options):
            super().__init__(options, gap_s)

        def stream(self):
            for _ in iter(int, 1):
                time.sleep(0.001)
                yield self._images, None

    account = trainer.measure(Gap, options)
    assert account["boundary_wait_s"] >= gap_s > 10 * account["median_wait_s"]
    assert account["first_batch_s"] >= gap_s
    assert account["images_per_s"] > 4 / gap_s


def test_a_batch_of_another_size_is_refused(options):
    with pytest.raises(ValueError, match="a batch of 3 images, not 4"):
        trainer.measure(lambda options: Fake(options, images=3), options)


def test_an_epoch_that_lacks_batches_is_refused(options):
    class Short(Fake):
        batches = 9

    with pytest.raises(ValueError, match="9 batches, not 10"):
        trainer.measure(Short, options)


def test_a_stream_that_ends_too_early_is_refused(options):
    class Ends(Fake):
        def stream(self):
            return self.epoch(0)

    with pytest.raises(ValueError, match="the stream ended"):
        trainer.measure(Ends, options._replace(seconds=5))


def test_a_folder_of_less_than_two_batches_is_refused(options):
    with pytest.raises(ValueError, match="fewer than two batches"):
        trainer.measure(Fake, options._replace(batch=32))


def test_processor_time_of_a_process_grows_with_its_work():
    before = trainer.total_cpu(0)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert trainer.total_cpu(0) - before >= 0.05


def test_what_has_ended_costs_nothing():
    gone = 2**22 + 1
    assert trainer.cpu_seconds(gone) == 0 and trainer.pss_bytes(gone) == 0 and trainer.descendants(gone) == []
