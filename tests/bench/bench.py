# SPDX-License-Identifier: Apache-2.0
"""Every loader on the same files, transforms and cores, in turns, beside bare libjpeg-turbo loops. Run it by `./run bench`.

Writes results.json, README.md (tables) and SVG pictures to the folder that --out names. No result is a failure.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parents[1]
sys.path[:0] = [str(BENCH), str(ROOT / "tests" / "support"), str(ROOT / "client" / "python")]

from harness import data, extras, facts, registry, report, runner, venvs  # noqa: E402 (found by the line above)

EXTRAS = ("threads", "first", "fidelity")


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="an image folder (default: 4,000 names of ImageNet "
                        "photographs where ../shared has them, else of made ones)")  # fmt: skip
    parser.add_argument("--images", type=int, default=4000, help="of the default folder (4000)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="or workers, of each peer (cores)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement's window (5)")
    parser.add_argument("--peers", default="all", metavar="A,B", help=f"of limit, {', '.join(registry.BY_NAME)}")
    parser.add_argument("--recipes", default=",".join(registry.RECIPES), metavar="A,B", help=f"of {', '.join(registry.RECIPES)}")
    parser.add_argument("--extras", default=",".join(EXTRAS), metavar="A,B",
                        help=f"measurements of loaderd alone: of {', '.join(EXTRAS)}; none: ''")  # fmt: skip
    parser.add_argument("--index", type=int, default=0, metavar="N", help="also index an image folder of N files, made for it")
    parser.add_argument("--quick", action="store_true", help="one short round of one recipe, no extras: shows that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for the results (tests/bench/results/DATE)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="add rounds, up to --rounds, and the extras that are missing to "
                        "results of the same settings and machine")  # fmt: skip
    parser.add_argument("--build", type=Path, default=ROOT / "build", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    given = sys.argv[1:] if words is None else words
    options.command = shlex.join(["./run", "bench", *itertools.dropwhile(lambda word: word in ("--build", str(options.build)), given)])
    if options.quick:
        options.rounds, options.seconds, options.recipes, options.extras = 1, 0.5, "crop_uint8", ""
        options.images, options.batch = 256, 32
    try:
        options.limit, options.peers = registry.chosen(options.peers)
    except ValueError as error:
        parser.error(str(error))
    for name, known in (("recipes", registry.RECIPES), ("extras", EXTRAS)):
        words = [word for word in getattr(options, name).split(",") if word]
        unknown = [word for word in words if word not in known]
        if unknown:
            parser.error(f"--{name}: no {unknown[0]!r}: there are {', '.join(known)}")
        setattr(options, name, words)
    if options.data is not None and not options.data.is_dir():
        parser.error(f"--data {options.data}: no such folder")
    if min(options.images, options.batch, options.threads, options.rounds) < 1 or options.seconds <= 0:
        parser.error("--images, --batch, --threads, --rounds and --seconds should be positive")
    return options


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cache = options.build / "bench"
        self.cache.mkdir(parents=True, exist_ok=True)
        shared = Path(os.environ.get("LOADERD_SHARED", ROOT.parent / "shared"))
        self.data, self.what = data.folder(options.data, options.images, shared, self.cache)
        work = self.cache / f"files-{data.fingerprint(self.data)}"
        work.mkdir(exist_ok=True)
        boxes = work / "boxes"
        data.write_boxes(self.data, boxes)
        self.environments = venvs.Venvs(self.cache / "venvs")
        self.run = runner.Runner(
            runner.Settings(options.build, self.data, work, boxes, options.batch, options.threads, options.seconds),
            self.environments,
        )
        self.results: list[dict[str, Any]] = []
        self.extras: list[dict[str, Any]] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.earlier: list[dict[str, str]] = []

    def settings(self) -> dict[str, Any]:
        options = self.options
        settings = {name: getattr(options, name) for name in ("seconds", "batch", "threads", "recipes")}
        return settings | {"data": self.what, "peers": [peer.name for peer in options.peers]}

    def resume(self, document: dict[str, Any], machine: dict[str, str]) -> None:
        """Goes on with a document of this kind; ValueError says why it cannot be."""
        for name, value in self.settings().items():
            if document["settings"][name] != value:
                raise ValueError(f"its {name} is {document['settings'][name]!r}, and now it would be {value!r}")
        for name in ("cpu", "cores"):
            if document["machine"].get(name) != machine.get(name):
                raise ValueError(f"it was made on another machine: {name} {document['machine'].get(name)}, and now {machine.get(name)}")
        # What did not install is tried again.
        self.results = [result for result in document["results"] if "round" in result]
        self.extras = document["extras"]
        self.earlier = [*document.get("earlier", []), {name: document[name] for name in ("command", "commit", "made")}]

    def rounds_done(self) -> int:
        return max((result.get("round", 0) for result in self.results), default=0)

    def prepare(self) -> list[registry.Peer]:
        """The peers that run; of the others the reason is kept."""
        ready = []
        for peer in self.options.peers:
            try:
                self.versions[peer.name] = self.run.prepare(peer)["versions"]
                ready.append(peer)
            except (venvs.NotInstalled, runner.Failed) as error:
                print(f"bench: {peer.name} is left out: {error}", flush=True)
                self.results.append({"what": "peer", "peer": peer.name, "error": str(error)})
        return ready

    def note(self, result: dict[str, Any], measure) -> None:
        try:
            account = measure()
            account.pop("versions", None)
            # Five digits are more than any figure has.
            result["account"] = {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in account.items()}
            told = f"{result['account']['images_per_s']:,.0f} img/s"
        except (venvs.NotInstalled, runner.Failed) as error:
            result["error"] = told = str(error)
        self.results.append(result)
        name = result.get("peer") or f"limit {result['mode']} {result['threads']}"
        print(f"round {result['round']}, {result['recipe']}, {name}: {told}", flush=True)

    def round(self, turn: int, peers: list[registry.Peer]) -> None:
        for number, recipe in enumerate(self.options.recipes):
            # One thread alone is measured once a round, what the peers are held against before each recipe.
            counts = sorted({1, self.options.threads}) if number == 0 else [self.options.threads]
            for threads in counts if self.options.limit else []:
                for mode in ("crop", "full"):
                    result = {"what": "limit", "round": turn, "recipe": recipe, "mode": mode, "threads": threads}
                    self.note(result, lambda m=mode, t=threads: self.run.limit(m, t))
            for peer in peers:
                result = {"what": "peer", "round": turn, "recipe": recipe, "peer": peer.name}
                self.note(result, lambda p=peer, r=recipe: self.run.peer(p, r))

    def more(self) -> None:
        rounds, wanted = self.options.rounds, self.options.extras
        measurements = []
        if "threads" in wanted and self.options.threads >= 2:
            measurements.append(("two threads", lambda: extras.two_threads(self.run, rounds)))
        if "first" in wanted:
            measurements.append(("first batch", lambda: extras.first_batch(self.run, rounds)))
        if "fidelity" in wanted:
            for size in extras.LARGE:
                measurements.append(
                    (f"fidelity {size:g} MP", lambda s=size: extras.fidelity(self.run, self.data, self.cache, s, rounds))
                )
        if self.options.index:
            measurements.append(("index", lambda: extras.index(self.run, self.data, self.cache, self.options.index)))
        for what, measure in measurements:
            if any(extra["what"] == what for extra in self.extras):
                continue
            self.extras.append(extras.result_of(what, measure))
            print(f"{what}: {self.extras[-1].get('account', self.extras[-1].get('error'))}", flush=True)

    def document(self, machine: dict[str, str]) -> dict[str, Any]:
        options = self.options
        machine = machine | {"load after": f"{os.getloadavg()[0]:.2f}"}
        settings = self.settings() | {"rounds": self.rounds_done()}
        return {
            "command": options.command,
            "commit": facts.commit(ROOT),
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "settings": settings,
            "machine": machine,
            "versions": self.versions,
            "results": self.results,
            "extras": self.extras,
            "earlier": self.earlier,  # runs that made the first rounds
        }

    def write(self, out: Path, machine: dict[str, str]) -> str:
        """What there is so far: a run that is stopped keeps its whole rounds."""
        document = self.document(machine)
        text = report.markdown(document)
        (out / "results.json").write_text(json.dumps(document, separators=(",", ":")).replace('{"what"', '\n{"what"') + "\n")
        (out / "README.md").write_text(text)
        return text

    def draw(self, results: Path) -> None:
        try:
            python = self.environments.python("plot")
        except venvs.NotInstalled as error:
            print(f"bench: no pictures: {error}", flush=True)
            return
        drawn = subprocess.run([python, "-m", "harness.plot", results], cwd=BENCH)
        if drawn.returncode != 0:
            print("bench: no pictures: see above", flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs ends too
    options = arguments()
    cores = sorted(os.sched_getaffinity(0))
    if options.threads < len(cores):  # no peer is to take more, whatever its name for threads
        os.sched_setaffinity(0, cores[: options.threads])
    machine = facts.machine(options.build)
    bench = Bench(options)
    if options.resume is not None:
        try:
            bench.resume(json.loads((options.resume / "results.json").read_text()), machine)
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"bench: --resume {options.resume}: {error}")
    out = options.resume or options.out or BENCH / "results" / datetime.datetime.now().strftime("%Y-%m-%d-%H%M")
    out.mkdir(parents=True, exist_ok=True)
    peers = bench.prepare()
    for turn in range(bench.rounds_done() + 1, options.rounds + 1):
        bench.round(turn, peers)
        bench.write(out, machine)
    bench.more()
    text = bench.write(out, machine)
    if not options.quick:
        bench.draw(out / "results.json")
    print("\n" + text)
    print(f"bench: results in {out}")


if __name__ == "__main__":
    main()
