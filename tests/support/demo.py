# SPDX-License-Identifier: Apache-2.0
"""Two trainer processes, two epochs each, fed by one daemon: what each of them gets, and what it costs.

    python demo.py [--data DIR]

Without --data, 2,000 photo-like JPEGs are made. Everything is in a temporary folder, which goes at the end with the daemon.
Exit code 0: both trainers saw each sample exactly once in each epoch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SUPPORT = pathlib.Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
sys.path[:0] = [str(SUPPORT), str(ROOT / "client" / "python")]

import processes  # noqa: E402 (found by the line above)

TRAINERS = 2
EPOCHS = 2
BATCH_SIZE = 64


def train(folder: str, socket: str, seed: int, daemon_pid: int) -> None:
    """One trainer process; prints its account as JSON."""
    import numpy as np

    bare = processes.cost()
    import loaderd
    import loaderd.transforms as T

    loader = loaderd.DataLoader(
        loaderd.ImageFolder(folder),
        batch_size=BATCH_SIZE,
        shuffle=True,
        seed=seed,
        transform=T.Compose(
            [
                T.RandomResizedCrop(224),
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        ),
        socket=socket,
    )
    started = time.monotonic()
    first_batch_s = 0.0
    peak = bare
    daemon = None
    each_once = []
    for _ in range(EPOCHS):
        seen = []
        for batch in loader:
            images, labels = batch
            assert images.shape[1:] == (3, 224, 224) and images.dtype == np.float32 and len(labels) == len(images)
            if not first_batch_s:
                first_batch_s = time.monotonic() - started
                daemon = processes.cost(daemon_pid)
            seen.append(batch.index)
            peak = processes.Cost(*map(max, peak, processes.cost()))
        indices = np.concatenate(seen)
        each_once.append(np.array_equal(np.sort(indices), np.arange(len(loader.dataset))))
    elapsed = time.monotonic() - started
    account = {
        "images": EPOCHS * len(loader.dataset),
        "img_per_s": EPOCHS * len(loader.dataset) / elapsed,
        "first_batch_s": first_batch_s,
        "each_once": all(each_once),
        "before_import": bare,
        "peak": peak,
        "daemon": daemon,
    }
    print(json.dumps(account))


def run_trainers(folder: pathlib.Path, socket: str, daemon_pid: int) -> list[dict]:
    """Runs all trainers at once; their accounts. RuntimeError with the output of one that failed."""
    command = [sys.executable, str(SUPPORT / "demo.py"), "--data", str(folder), "--trainer", socket]
    command += ["--daemon-pid", str(daemon_pid), "--seed"]
    running = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in range(TRAINERS)]
    accounts = []
    try:
        for trainer in running:
            output, _ = trainer.communicate()
            if trainer.returncode:
                raise RuntimeError(f"a trainer left with exit code {trainer.returncode}")
            accounts.append(json.loads(output.splitlines()[-1]))
    finally:
        for trainer in running:
            if trainer.poll() is None:
                trainer.kill()
                trainer.wait()
    return accounts


def show(accounts: list[dict]) -> None:
    rows = [("process", "img/s", "first batch", "descriptors", "threads", "children", "each sample once an epoch")]
    for number, account in enumerate(accounts):
        before, peak = processes.Cost(*account["before_import"]), processes.Cost(*account["peak"])
        rows.append(
            (
                f"trainer {number}",
                f"{account['img_per_s']:.0f}",
                f"{account['first_batch_s'] * 1000:.0f} ms",
                f"{peak.descriptors} (+{peak.descriptors - before.descriptors})",
                f"{peak.threads} (+{peak.threads - before.threads})",
                str(peak.children),
                "yes" if account["each_once"] else "NO",
            )
        )
    daemon = processes.Cost(*map(max, *(account["daemon"] for account in accounts)))
    total = sum(account["img_per_s"] for account in accounts)
    rows.append(("daemon", f"{total:.0f}", "", *map(str, daemon), ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("(+n): more than before `import loaderd`. A trainer's descriptor is its connection to the daemon.")


def demo(data: str | None) -> int:
    import photos
    from daemon import Daemon, build_dir

    os.environ.setdefault("LOADERD_LIBRARY", str(build_dir() / "lib" / "libloaderd_client.so"))

    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(data).resolve() if data else None
        if folder is None:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderd-demo-")))
            started = time.monotonic()
            photos.generate(folder, 2000)
            print(f"made 2,000 photo-like JPEGs in {time.monotonic() - started:.1f} s")
        # Whatever looks for a user's daemon looks in a place that goes with the demo.
        os.environ["XDG_RUNTIME_DIR"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="loaderd-demo-"))
        daemon = stack.enter_context(Daemon())
        print(
            f"{TRAINERS} trainers, {EPOCHS} epochs each, of {folder}: RandomResizedCrop(224), flip, ToTensor, Normalize"
        )
        try:
            accounts = run_trainers(folder, daemon.socket, daemon.pid)
        except RuntimeError as error:
            print(f"{error}\nthe daemon's log:\n{daemon.log()}", file=sys.stderr)
            return 1
        show(accounts)
    return 0 if all(account["each_once"] for account in accounts) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="a folder of yours with a folder of images for each class")
    parser.add_argument("--trainer", metavar="SOCKET", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--daemon-pid", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was made goes
    if args.trainer:
        train(args.data, args.trainer, args.seed, args.daemon_pid)
        return 0
    if args.data and not os.path.isdir(args.data):
        parser.error(f"--data {args.data}: no such folder")
    return demo(args.data)


if __name__ == "__main__":
    sys.exit(main())
