# SPDX-License-Identifier: Apache-2.0
"""loaderctl bench beside a bare libjpeg-turbo loop, over the same files, in turns.

    python compare.py [--build DIR] [--data DIR] [--seconds N] [--rounds N] [--threads N ...]

Prints a table and the machine's facts; each result goes to BUILD/bench/*.json, all of them to BUILD/bench/compare.json.
Without --data: shared/data/imagenet-sample-400 beside the source root (LOADERD_SHARED names another place for shared/), else 400
made photos. The two do not do the same: the bare loop decodes whole images from memory; the loader reads files, decodes, crops,
resamples to 224 x 224, flips and delivers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import photos  # noqa: E402 (found by the line above)


def facts(build: Path) -> dict[str, str]:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")),
        platform.processor(),
    )
    cache = dict(
        line.split("=", 1) for line in (build / "CMakeCache.txt").read_text().splitlines() if "=" in line and line[0] not in "#/"
    )
    compiler = subprocess.run([cache["CMAKE_CXX_COMPILER:STRING"] if "CMAKE_CXX_COMPILER:STRING" in cache else "c++", "--version"],
                              capture_output=True, text=True).stdout.splitlines()[0]
    jpeg = subprocess.run(["dpkg-query", "-W", "-f=${Version}", "libjpeg62-turbo"], capture_output=True, text=True).stdout
    release = platform.freedesktop_os_release()
    return {
        "cpu": cpu,
        "cores": str(len(os.sched_getaffinity(0))),
        "load_before": f"{os.getloadavg()[0]:.2f}",
        "kernel": platform.release(),
        "system": release.get("PRETTY_NAME", ""),
        "compiler": compiler,
        "build_type": cache.get("CMAKE_BUILD_TYPE:STRING", ""),
        "libjpeg_turbo": jpeg,
        "loaderctl": subprocess.run([build / "bin" / "loaderctl", "--version"], capture_output=True, text=True).stdout.strip(),
    }


@contextlib.contextmanager
def data_folder(named: Path | None) -> Iterator[Path]:
    sample = Path(os.environ.get("LOADERD_SHARED", ROOT.parent / "shared")) / "data" / "imagenet-sample-400"
    if named is not None or sample.is_dir():
        yield named or sample
        return
    print(f"bench: {sample} is absent: making 400 photos", flush=True)
    with tempfile.TemporaryDirectory(prefix="loaderd-bench-") as folder:
        photos.generate(folder, 400)
        yield Path(folder)


def run_json(command: list[str | Path]) -> dict:
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with code {result.returncode}")
    return json.loads(result.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench", description="images per second beside a bare libjpeg-turbo loop")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="an image folder")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="decode threads, of the bare loop and of the fleet")
    options = parser.parse_args()

    machine = facts(options.build)
    results = options.build / "bench"
    results.mkdir(exist_ok=True)
    rounds = []
    with data_folder(options.data) as data:
        for turn in range(1, options.rounds + 1):
            for threads in options.threads:
                bare = run_json([options.build / "bin" / "bare_decode", data, str(threads), str(options.seconds)])
                ours = run_json(
                    [options.build / "bin" / "loaderctl", "bench", "--json", "--data", data, "--seconds", str(options.seconds),
                     "--fleet-threads", str(threads)]
                )
                (results / f"bare_decode-{threads}-{turn}.json").write_text(json.dumps(bare, indent=1) + "\n")
                (results / f"loaderctl-{threads}-{turn}.json").write_text(json.dumps(ours, indent=1) + "\n")
                rounds.append({"round": turn, "threads": threads, "bare_decode": bare, "loaderctl": ours})
                print(f"round {turn}, {threads} threads: bare {bare['images_per_s']:.1f} img/s, "
                      f"loaderd {ours['images_per_s']:.1f} img/s", flush=True)

    summary = []
    print(f"\n{'threads':>7} {'bare img/s':>11} {'loaderd img/s':>14} {'ratio':>6}   CPU s per 1,000 images: bare, daemon, trainer")
    for threads in options.threads:
        mine = [r for r in rounds if r["threads"] == threads]
        bare = statistics.median(r["bare_decode"]["images_per_s"] for r in mine)
        ours = statistics.median(r["loaderctl"]["images_per_s"] for r in mine)
        ratio = statistics.median(r["loaderctl"]["images_per_s"] / r["bare_decode"]["images_per_s"] for r in mine)
        cpu = [
            statistics.median(r["bare_decode"]["cpu_s_per_1000_images"] for r in mine),
            statistics.median(r["loaderctl"]["daemon_cpu_s_per_1000_images"] for r in mine),
            statistics.median(r["loaderctl"]["trainer_cpu_s_per_1000_images"] for r in mine),
        ]
        print(f"{threads:>7} {bare:>11.1f} {ours:>14.1f} {ratio:>6.2f}   {cpu[0]:.2f}, {cpu[1]:.2f}, {cpu[2]:.3f}")
        summary.append({"threads": threads, "bare_images_per_s": bare, "loaderd_images_per_s": ours, "ratio": ratio})
    print("\n" + "\n".join(f"{name}: {value}" for name, value in machine.items()))
    print(f"medians of {options.rounds} rounds of {options.seconds:g} s; results in {results}")
    (results / "compare.json").write_text(json.dumps({"machine": machine, "medians": summary, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
