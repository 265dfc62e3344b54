# SPDX-License-Identifier: Apache-2.0
"""What loaderd wants to reach, and whether a document of results shows it. No aim fails a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import registry, report, stats

LOADERD = "loaderd"
MET, MISSED = "met", "not met"


def _peer(document: Mapping, name: str, recipe: str) -> list[Mapping]:
    return report.of(document["results"], what="peer", peer=name, recipe=recipe)


def _ratio_to_peer(document: Mapping, name: str, recipe: str) -> stats.Spread | None:
    ours = stats.by_round(_peer(document, LOADERD, recipe), "images_per_s")
    return stats.paired_ratio(ours, stats.by_round(_peer(document, name, recipe), "images_per_s"))


def _best_peer(document: Mapping, recipe: str) -> tuple[str, stats.Spread] | None:
    """The fastest peer on the same files, and loaderd's ratio to it."""
    best = None
    for name in document["settings"]["peers"]:
        rate = stats.of_key(report.accounts(_peer(document, name, recipe)), "images_per_s")
        if name != LOADERD and registry.BY_NAME[name].same_files and rate and (best is None or rate.median > best[0]):
            best = (rate.median, name)
    if best is None:
        return None
    ratio = _ratio_to_peer(document, best[1], recipe)
    return (best[1], ratio) if ratio else None


def _row(aim: str, asked: float, reached: stats.Spread | None, at_least: bool = True, digits: int = 2) -> list[str] | None:
    if reached is None:
        return None
    met = reached.median >= asked if at_least else reached.median <= asked
    return [aim, f"{'at least' if at_least else 'at most'} {asked:g}", reached.text(digits), MET if met else MISSED]


def _rates(document: Mapping) -> list[list[str] | None]:
    rows = []
    asked = {"crop_uint8": (0.90, 1.0), "crop_float32": (0.87, 1.3), "eval_float32": (1.0, 1.7)}
    for recipe, (of_limit, of_best) in asked.items():
        title = registry.RECIPES[recipe]
        ours = _peer(document, LOADERD, recipe)
        limit = f"{title}: of the bare {registry.LIMIT_OF[recipe]} decode"
        rows.append(_row(limit, of_limit, report.ratio_to_limit(document, ours, recipe)))
        if best := _best_peer(document, recipe):
            rows.append(_row(f"{title}: of the best peer on the same files, {best[0]}", of_best, best[1]))
    for name, factor in (("dali", 1.6), ("torch-pil", 2.2)):
        rows.append(_row(f"{registry.RECIPES['crop_uint8']}: of {name}", factor, _ratio_to_peer(document, name, "crop_uint8")))
    return rows


def _cpu(document: Mapping) -> list[list[str] | None]:
    ours = _peer(document, LOADERD, "crop_uint8")
    reached = report.ratio_to_limit(document, ours, "crop_uint8", "cpu_s_per_1000_images")
    return [_row("CPU seconds per 1,000 images, of the bare crop decode's", 1.12, reached, at_least=False)]


def _boundary(document: Mapping) -> list[list[str] | None]:
    rows = []
    for recipe in document["settings"]["recipes"]:
        ours = report.accounts(_peer(document, LOADERD, recipe))
        reached = stats.spread(account["boundary_wait_s"] / account["median_wait_s"] for account in ours)
        rows.append(_row(f"longest wait at an epoch boundary, of the median wait: {recipe}", 1.5, reached, at_least=False))
    return rows


EXTRAS: dict[str, tuple[str, str, float, bool]] = {
    # what: (number of its account, aim, asked, at least)
    "two threads": ("ratio", "two fleet threads against one", 1.9, True),
    "first batch": ("beyond_decode_s", "first batch, index warm: seconds beyond its own decode time", 0.05, False),
    "fidelity 12 MP": ("fast_over_exact", 'fidelity="fast" on 12-megapixel photographs, of exact', 2.5, True),
    "index": ("of_walk", "first index of many files, of the time of a plain walk with stat", 1.1, False),
}


def _extras(document: Mapping) -> list[list[str] | None]:
    rows = []
    for result in document.get("extras", []):
        account = result.get("account", {})
        if result["what"] in EXTRAS:
            key, aim, asked, at_least = EXTRAS[result["what"]]
            rows.append(_row(aim, asked, stats.spread([account[key]] if key in account else []), at_least, 3))
        if "bytes_per_sample" in account:
            reached = stats.spread([account["bytes_per_sample"]])
            rows.append(_row("index: bytes a sample beside names", 64, reached, at_least=False, digits=0))
    return rows


def judged(document: Mapping) -> list[list[str]]:
    """A row for each aim that the document has figures for."""
    parts: tuple[Callable[[Mapping], list[list[str] | None]], ...] = (_rates, _cpu, _extras, _boundary)
    return [row for part in parts for row in part(document) if row is not None]
