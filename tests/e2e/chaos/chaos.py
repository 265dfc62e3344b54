# SPDX-License-Identifier: Apache-2.0
"""./run chaos: trainers that go on while a script kills and stops them, kills and restarts their daemon, fills its budgets,
changes their files and sends strangers.

Every step of every trainer and its successors is compared with a run in peace: each sample of each epoch once, in its order, with
its pixels. At the end the daemon has to hold no more than after the peace. Exit code 1 where anything is not so.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[3]
os.environ.setdefault("LOADERD_BUILD_DIR", str(ROOT / "build"))
sys.path[:0] = [str(ROOT / "client" / "python"), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "e2e" / "chaos")]

import daemon as daemon_support  # noqa: E402 (found by the line above)

os.environ["LOADERD_LIBRARY"] = str(daemon_support.build_dir() / "lib" / "libloaderd_client.so")
os.environ["LOADERD_DAEMON"] = daemon_support.loaderd()

import subprocess  # noqa: E402

import damage  # noqa: E402
import jobs  # noqa: E402
import verdict  # noqa: E402

TRAINERS = 8
CONFIG = "limits { max_sessions: 60 slot_bytes: 402653184 }"
# How much more than after the peace the daemon may have at the end. Threads: gRPC's come and go with its load.
LEEWAY = {"descriptors": 0, "threads": 8, "resident_bytes": 96 << 20}
REPORTS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:", "Assertion", "terminate called")


def status(daemon: daemon_support.Daemon) -> dict[str, Any]:
    command = [daemon_support.loaderctl(), "status", "--json", "--socket", daemon.socket]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def held(daemon: daemon_support.Daemon) -> dict[str, int]:
    """What the daemon holds."""
    told = status(daemon)
    budgets = {row["name"] + " granted": row["used"] for row in told["budget"]}
    return {
        "sessions": told["sessions"],
        "connections": told["connections"],
        **budgets,
        "descriptors": len(os.listdir(f"/proc/{daemon.pid}/fd")),
        "threads": told["threads"],
        "resident_bytes": told["resident_bytes"],
    }


def excess(now: dict[str, int], base: dict[str, int]) -> dict[str, int]:
    return {name: now[name] - base[name] for name in base if now[name] > base[name] + LEEWAY.get(name, 0)}


def settle(daemon: daemon_support.Daemon, base: dict[str, int], timeout: float) -> dict[str, int]:
    """Waits until no more than the base is held; what is held then."""
    deadline = time.monotonic() + timeout
    while excess(now := held(daemon), base) and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def say(text: str) -> None:
    print(f"chaos: {text}", file=sys.stderr, flush=True)


class Chaos:
    def __init__(self, place: pathlib.Path, seed: int, seconds: float, daemon_kills: bool) -> None:
        self.place = place
        self.seed = seed
        self.seconds = seconds
        self.daemon_kills = daemon_kills
        self.folder = place / "train"
        (place / "staging").mkdir()
        (place / "run").mkdir(mode=0o700)
        jobs.make_folder(self.folder, seed)
        paths = [ROOT / "client" / "python", ROOT / "tests" / "support"]
        self.environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
        self.daemon = daemon_support.Daemon(
            folder=place / "run", config=CONFIG, env={"XDG_STATE_HOME": str(place / "state")}, start=False
        )

    def lineages(self, peace: bool, states: list[Any]) -> list[damage.Lineage]:
        made = []
        for number, state in enumerate(states):
            spec = {
                "job": jobs.make_job(self.seed, number),
                "folder": str(self.folder),
                "socket": self.daemon.socket,
                "log": str(self.place / f"{'peace' if peace else 'chaos'}{number}"),
                "state": state,
                "peace": peace,
                "stop": str(self.place / "stop"),
            }
            made.append(damage.Lineage(number, self.seed, spec, self.environment))
        return made

    def peace(self) -> tuple[list[list[list[Any]]], list[Any]]:
        """(Answers of each trainer, the state that each begins with: of these samples, whatever comes to the folder)."""
        trainers = self.lineages(True, [None] * TRAINERS)
        self.run(trainers, lambda: None, 300)
        answers, states = [], []
        for trainer in trainers:
            lines = list(trainer.lines())
            if trainer.left:
                raise RuntimeError(f"a trainer left in peace: {self.stderr_of(trainer)}")
            answers.append(verdict.answers_of(lines))
            for number, epoch in enumerate(answers[-1]):
                if again := verdict.twice(epoch):
                    raise RuntimeError(f"in peace epoch {number} of trainer {trainer.number} has twice: {again}")
            last = next(line for line in reversed(lines) if "what" in line)["state"]
            start = next(line["start"] for line in lines if "start" in line)
            states.append({**start, "samples": last["samples"], "order_fingerprint": last["order_fingerprint"]})
        return answers, states

    def run(self, trainers: list[damage.Lineage], meanwhile: Any, timeout: float) -> None:
        try:
            for trainer in trainers:
                trainer.start()
            meanwhile()
            for trainer in trainers:
                trainer.finish(timeout)
        finally:
            for trainer in trainers:
                trainer.kill()

    def stderr_of(self, trainer: damage.Lineage) -> str:
        return pathlib.Path(trainer.spec["log"] + ".stderr").read_text()[-2000:]

    def war(self, trainers: list[damage.Lineage]) -> damage.Damage:
        done = damage.Damage(self.seed, self.daemon, trainers, self.folder, self.place / "staging")

        def meanwhile() -> None:
            done.begin(self.daemon_kills)
            try:
                time.sleep(self.seconds * 0.75)
                done.spare_the_daemon()  # one that lives long has more to lose
                time.sleep(self.seconds * 0.25)
            finally:
                done.end()
                (self.place / "stop").touch()

        self.run(trainers, meanwhile, 180)
        return done

    def summary(self) -> dict[str, Any]:
        with self.daemon:
            self.daemon.start()
            say(f"{TRAINERS} trainers in peace, for the answers")
            answers, states = self.peace()
            base = held(self.daemon)
            deadline = time.monotonic() + 20
            while base["sessions"] + base["connections"] > 1 and time.monotonic() < deadline:  # its own is one
                time.sleep(0.1)
                base = held(self.daemon)
            trainers = self.lineages(False, states)
            say(f"the same in chaos, for {self.seconds:.0f} s, seed {self.seed}")
            done = self.war(trainers)
            say("done; waiting for what the daemon holds to go")
            if self.daemon.process.poll() is None:
                end = settle(self.daemon, base, 30)
            else:
                done.faults.append(f"the daemon left by itself with {self.daemon.process.returncode}")
                end = base
        if self.daemon.returncode != 0:
            done.faults.append(f"the daemon left with {self.daemon.returncode} at the end")
        log = self.daemon.log()
        done.faults += [f"the daemon's log has: {word}" for word in REPORTS if word in log]
        done.faults += [f"a core dump: {path}" for path in self.place.glob("**/core*")]
        return self.tell(answers, trainers, done, base, end)

    def tell(
        self,
        answers: list[list[list[Any]]],
        trainers: list[damage.Lineage],
        done: damage.Damage,
        base: dict[str, int],
        end: dict[str, int],
    ) -> dict[str, Any]:
        accounts = []
        for trainer in trainers:
            account = verdict.judge(trainer.lines(), answers[trainer.number], trainer.stops)
            accounts.append(account)
            done.faults += [f"trainer {trainer.number}: {fault}" for fault in account.faults]
            if trainer.left:
                done.faults.append(f"trainer {trainer.number} left with {trainer.left}: {self.stderr_of(trainer)}")
        errors: dict[str, int] = {}
        for account in accounts:
            for name, count in account.errors.items():
                errors[name] = errors.get(name, 0) + count
        wrong = [f"trainer {number}: {text}" for number, account in enumerate(accounts) for text in account.wrong]
        result = {
            "seed": self.seed,
            "seconds": self.seconds,
            "trainers": TRAINERS,
            "daemon_kills": self.daemon_kills,
            "done": dict(sorted(done.counts.items())),
            "batches": sum(account.batches for account in accounts),
            "fewest_batches": min(account.batches for account in accounts),
            "lost": sum(account.lost for account in accounts),
            "repeated": sum(account.repeated for account in accounts),
            "wrong": len(wrong),
            "wrong_first": wrong[:5],
            "longest_pause_s": round(max(account.longest_pause_s for account in accounts), 3),
            "errors": errors,  # that a trainer saw
            "refused": sum(account.refused for account in accounts),
            "after_peace": base,
            "at_end": end,
            "excess": excess(end, base),
            "faults": done.faults,
        }
        # A trainer may be refused while the budgets are full. Nothing else may reach it.
        unexpected = set(errors) - {"ResourceExhaustedError"}
        bad = [result["lost"], result["repeated"], wrong, result["excess"], done.faults, unexpected]
        result["good"] = not any(bad) and result["fewest_batches"] > 0
        return result


def in_words(result: dict[str, Any]) -> str:
    done = "\n".join(f"    {count:7} {name}" for name, count in result["done"].items())
    lines = [
        f"chaos, seed {result['seed']}: {'good' if result['good'] else 'BAD'}",
        f"  {result['trainers']} trainers, {result['seconds']:.0f} s, in which came",
        done,
        f"  {result['batches']} batches: {result['lost']} lost, {result['repeated']} repeated, {result['wrong']} wrong",
        f"  longest pause of a step: {result['longest_pause_s']} s",
        f"  errors that trainers saw: {result['errors'] or 'none'}; opened while no daemon was there, and came again: {result['refused']}",
        "  held by the daemon after the peace, and at the end:",
        *(f"    {name:22} {result['after_peace'][name]:>12} {result['at_end'][name]:>12}" for name in result["at_end"]),
        *(f"  wrong: {text}" for text in result["wrong_first"]),
        *(f"  more than after the peace: {name}, by {by}" for name, by in result["excess"].items()),
        *(f"  fault: {text}" for text in result["faults"]),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-daemon-kills", action="store_true", help="leave the daemon alone")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the summary as JSON")
    parser.add_argument("--keep", type=pathlib.Path, help="an empty folder for logs and files, which stay")
    arguments = parser.parse_args()
    place = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="loaderd-chaos-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        result = Chaos(place, arguments.seed, arguments.minutes * 60, not arguments.no_daemon_kills).summary()
    finally:
        if arguments.keep is None:
            shutil.rmtree(place, ignore_errors=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(in_words(result))
    return 0 if result["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
