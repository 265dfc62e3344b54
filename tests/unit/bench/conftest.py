# SPDX-License-Identifier: Apache-2.0
"""The harness of `./run bench` is found as bench.py finds it."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / "tests" / "bench"
sys.path[:0] = [str(BENCH), str(ROOT / "tests" / "support"), str(ROOT / "client" / "python")]
