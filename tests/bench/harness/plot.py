# SPDX-License-Identifier: Apache-2.0
"""python -m harness.plot RESULTS.json: bar charts with their spread as SVG, beside it. Needs matplotlib."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (after the choice of its output)

from harness import registry, report, stats  # noqa: E402

OURS, OTHERS, OTHER_FILES = "#1b6e5a", "#8a97a8", "#d3d8de"
CHARTS = {
    "images_per_s": ("rate", "images per second"),
    "cpu_s_per_1000_images": ("cpu", "CPU seconds per 1,000 images, all processes"),
    "boundary_wait_s": ("boundary", "longest wait at an epoch boundary, seconds"),
    "first_batch_s": ("first", "seconds to the first batch"),
}


def bars(document: Mapping, recipe: str, key: str) -> list[tuple[registry.Peer, stats.Spread]]:
    found = []
    for name in document["settings"]["peers"]:
        mine = report.of(document["results"], what="peer", peer=name, recipe=recipe)
        spread = stats.of_key(report.accounts(mine), key)
        if spread:
            found.append((registry.BY_NAME[name], spread))
    return sorted(found, key=lambda item: item[1].median, reverse=key != "images_per_s")


def chart(document: Mapping, recipe: str, key: str, target: Path) -> None:
    found = bars(document, recipe, key)
    if not found:
        return
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.34 * len(found)))
    for place, (peer, spread) in enumerate(found):
        colour = OURS if peer.name == "loaderd" else OTHERS if peer.same_files else OTHER_FILES
        error = [[spread.median - spread.low], [spread.high - spread.median]]
        axes.barh(place, spread.median, color=colour, xerr=error, ecolor="#333333", capsize=2, height=0.7)
    axes.set_yticks(range(len(found)), [peer.title.strip("*") for peer, _ in found])
    limit = stats.of_key(report.accounts(report.limit_results(document, recipe)), key)
    if limit:
        axes.axvline(limit.median, color="#b0413e", linewidth=1)
        axes.annotate(f"bare {registry.LIMIT_OF[recipe]} decode", (limit.median, len(found) - 0.45), color="#b0413e",
                      fontsize=8, ha="right", annotation_clip=False)  # fmt: skip
    settings = document["settings"]
    axes.set_title(registry.RECIPES[recipe], fontsize=10, loc="left", pad=14)
    axes.set_xlabel(
        f"{CHARTS[key][1]}; median, lowest and highest of {settings['rounds']} interleaved rounds, "
        f"{settings['threads']} threads",
        fontsize=8,
    )
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    source = Path(sys.argv[1])
    document = json.loads(source.read_text())
    plt.rcParams["svg.fonttype"] = "none"
    plt.rcParams["svg.hashsalt"] = "loaderd"
    for recipe in document["settings"]["recipes"]:
        for key, (name, _) in CHARTS.items():
            chart(document, recipe, key, source.parent / f"{name}-{recipe}.svg")


if __name__ == "__main__":
    main()
