# SPDX-License-Identifier: Apache-2.0
"""tally.py [--failed] KIND=JUNIT_XML...: a table of what the test runners reported, and `N passed, N failed, N skipped`.

Exit code 1 where a test failed, where --failed says that a runner did, where a report is missing, or where nothing ran at all.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def read(path: Path) -> tuple[Counts, list[str]]:
    """The counts of one JUnit report, and the reasons of what was skipped."""
    passed = failed = skipped = 0
    seconds = 0.0
    reasons = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        seconds += float(case.get("time") or 0)
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None:
            skipped += 1
            said = [line for line in (case.findtext("system-out") or "").splitlines() if "Skipped" in line or "skip" in line]
            reasons.append(f"{case.get('name')}: {skip.get('message') or ''} {said[-1].strip() if said else ''}".strip())
        else:
            passed += 1
    return Counts(passed, failed, skipped, seconds), reasons


def main(arguments: list[str]) -> int:
    bad = "--failed" in arguments
    rows: list[tuple[str, Counts]] = []
    skipped: list[str] = []
    for argument in arguments:
        kind, _, file = argument.partition("=")
        if not file:
            continue
        if not Path(file).exists():
            print(f"tally: {kind}: the runner left no report", file=sys.stderr)
            bad = True
            continue
        counts, reasons = read(Path(file))
        rows.append((kind, counts))
        skipped += reasons
    for reason in skipped:
        print(f"skipped: {reason}")
    print(f"{'kind':<18} {'passed':>7} {'failed':>7} {'skipped':>8} {'test time':>10}")
    for kind, c in rows:
        print(f"{kind:<18} {c.passed:>7} {c.failed:>7} {c.skipped:>8} {c.seconds:>8.1f} s")
    total = [sum(column) for column in zip(*(c[:3] for _, c in rows), strict=True)] if rows else [0, 0, 0]
    if sum(total) == 0:
        print("tally: no test ran", file=sys.stderr)
        bad = True
    if bad and total[1] == 0:
        print("tally: a test runner failed; see above", file=sys.stderr)
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped", flush=True)
    return 1 if bad or total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
