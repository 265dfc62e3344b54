# SPDX-License-Identifier: Apache-2.0
"""What a sample costs the daemon in system calls."""

import loaderd
import photos as generator
import strace
from loaderd import transforms as T

FOLDERS, EPOCHS, BATCH = 400, 10, 64


def test_a_sample_costs_its_files_open_stat_read_and_close(user_daemon, tmp_path):
    folder = generator.generate(tmp_path / "photos", FOLDERS, seed=5, classes=2)
    loader = loaderd.DataLoader(
        loaderd.ImageFolder(folder),
        BATCH,
        shuffle=True,
        transform=T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()]),
    )
    assert len(list(loader)) > 0  # indexed, and all has grown
    samples = 0
    with strace.counted(user_daemon.process.pid, tmp_path / "strace") as counts:
        for _ in range(EPOCHS):
            for batch in loader:
                samples += len(batch.index)
        calls = counts()
    each = {name: number / samples for name, number in calls.items()}
    print({name: round(number, 3) for name, number in sorted(each.items(), key=lambda item: -item[1])})
    assert samples == EPOCHS * FOLDERS
    # A session's slots are made ahead: some were before, some are of the epoch after.
    ahead = 6 * BATCH / samples
    opened = each.get("open", 0) + each.get("openat", 0) + each.get("openat2", 0)
    stated = sum(each.get(name, 0) for name in ("stat", "fstat", "newfstatat", "statx"))
    assert abs(opened - 1) <= ahead
    assert abs(stated - 1) <= ahead
    assert abs(each.pop("close") - 1) <= ahead
    # Events are read as well, some times a batch.
    assert abs(each.pop("read") - 1) <= ahead + 0.25
    files = {"open", "openat", "openat2", "stat", "fstat", "newfstatat", "statx"}
    assert sum(number for name, number in each.items() if name not in files) < 1
