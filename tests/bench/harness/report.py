# SPDX-License-Identifier: Apache-2.0
"""results.json to Markdown: what was measured, how, each aim with what was reached, and what did not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import aims, registry, stats

Rows = Sequence[Sequence[str]]


def table(head: Sequence[str], rows: Rows) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def of(results: Iterable[Mapping], **wanted: Any) -> list[Mapping]:
    """The results that have these values."""
    return [result for result in results if all(result.get(key) == value for key, value in wanted.items())]


def accounts(results: Iterable[Mapping]) -> list[Mapping]:
    return [result["account"] for result in results if "account" in result]


def cell(spread: stats.Spread | None, digits: int = 0, scale: float = 1) -> str:
    if spread is None:
        return ""
    return stats.Spread(*(value * scale for value in spread[:3]), spread.count).text(digits)


def median(results: Iterable[Mapping], key: str, digits: int = 0, scale: float = 1) -> str:
    found = stats.of_key(accounts(results), key)
    return "" if found is None else f"{found.median * scale:,.{digits}f}"


def limit_results(document: Mapping, recipe: str) -> list[Mapping]:
    return of(
        document["results"],
        what="limit",
        recipe=recipe,
        mode=registry.LIMIT_OF[recipe],
        threads=document["settings"]["threads"],
    )


def ratio_to_limit(document: Mapping, results: Sequence[Mapping], recipe: str, key: str = "images_per_s"):
    base = stats.by_round(limit_results(document, recipe), key)
    return stats.paired_ratio(stats.by_round(results, key), base)


def rates(document: Mapping) -> str:
    """A row for each peer, fastest first, the limits above."""
    recipes = document["settings"]["recipes"]
    head = ["img/s, and its ratio to the bare decode in bold"]
    for recipe in recipes:
        head.append(f"{registry.RECIPES[recipe]} (held against: {registry.LIMIT_OF[recipe]})")
    rows = []
    threads = document["settings"]["threads"]
    for mode in ("crop", "full"):
        row = [f"bare decode, {mode}, {threads} threads"]
        for recipe in recipes:
            limits = of(document["results"], what="limit", recipe=recipe, mode=mode, threads=threads)
            row.append(cell(stats.of_key(accounts(limits), "images_per_s")))
        rows.append(row)
    ranked = []
    for name in document["settings"]["peers"]:
        peer = registry.BY_NAME[name]
        row, order = [peer.title + ("" if peer.same_files else " †")], 0.0
        for recipe in recipes:
            mine = of(document["results"], what="peer", peer=name, recipe=recipe)
            found = stats.of_key(accounts(mine), "images_per_s")
            ratio = ratio_to_limit(document, mine, recipe)
            order = max(order, found.median if found and not order else 0)
            text = cell(found)
            row.append(text + (f" **{ratio.median:.2f}**" if ratio else "") if found else "did not run")
        ranked.append((order, row))
    ranked.sort(key=lambda item: -item[0])
    return table(head, rows + [row for _, row in ranked])


COSTS = (
    ("CPU s / 1,000", "cpu_s_per_1000_images", 2, 1),
    ("first batch s", "first_batch_s", 2, 1),
    ("longest wait at an epoch boundary s", "boundary_wait_s", 2, 1),
    ("median wait s", "median_wait_s", 2, 1),
    ("trainer's peak RSS MB", "trainer_peak_rss_bytes", 0, 1e-6),
    ("trainer's PSS MB", "trainer_pss_bytes", 0, 1e-6),
    ("with children MB", "trainer_and_children_pss_bytes", 0, 1e-6),
    ("service's PSS MB", "service_pss_bytes", 0, 1e-6),
    ("descriptors", "trainer_descriptors", 0, 1),
    ("threads", "trainer_threads", 0, 1),
    ("children", "trainer_children", 0, 1),
    ("mean of the first batch", "first_batch_mean", 3, 1),
)


def costs(document: Mapping, recipe: str) -> str:
    rows = []
    limits = limit_results(document, recipe)
    if limits:
        empty = [""] * (len(COSTS) - 1)
        rows.append([f"bare decode, {registry.LIMIT_OF[recipe]}", median(limits, "cpu_s_per_1000_images", 2), *empty])
    for name in document["settings"]["peers"]:
        mine = of(document["results"], what="peer", peer=name, recipe=recipe)
        if accounts(mine):
            row = [registry.BY_NAME[name].title]
            rows.append(row + [median(mine, key, digits, scale) for _, key, digits, scale in COSTS])
    return table([registry.RECIPES[recipe], *(title for title, *_ in COSTS)], rows)


def absent(document: Mapping) -> str:
    """What did not run, and why; one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for result in document["results"]:
        if "error" in result:
            name = result.get("peer", result.get("what", ""))
            where = reasons.setdefault(f"{name}: {result['error']}", [])
            if result.get("recipe") and result["recipe"] not in where:
                where.append(result["recipe"])
    return "\n".join(f"- {reason}" + (f" ({', '.join(where)})" if where else "") for reason, where in reasons.items())


def extras(document: Mapping) -> str:
    rows = []
    for result in document.get("extras", []):
        account = result.get("account", {})
        shown = [f"{key} {value:,.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in account.items()]
        rows.append([result["what"], result.get("error", "; ".join(shown))])
    return table(["measurement", "result (medians)"], rows) if rows else ""


def markdown(document: Mapping) -> str:
    settings = document["settings"]
    facts = "\n".join(f"- {name}: {value}" for name, value in document["machine"].items())
    versions = "\n".join(
        f"- {name}: " + ", ".join(f"{package} {version}" for package, version in found.items())
        for name, found in document["versions"].items()
    )
    parts = [
        "# Measured by `./run bench`",
        f"{settings['rounds']} interleaved rounds of {settings['seconds']:g} s a measurement, batches of "
        f"{settings['batch']}, {settings['threads']} threads or workers, {settings['data']}. Medians over the rounds, with "
        "the lowest and the highest; a ratio is the median of the ratios of each round. The machine drifts: compare within "
        "one table, never across two.",
        *(
            f"Made by `{run['command']}` at commit {run['commit']}, {run['made']}."
            for run in [*document.get("earlier", []), document]
        ),
        "## Rates",
        rates(document),
    ]
    if any(not registry.BY_NAME[name].same_files for name in settings["peers"]):
        parts.append("† reads other files: smaller ones, made of these before, which is not measured.")
    found = aims.judged(document)
    if found:
        parts += ["## Aims", table(["aim", "asked", "reached", ""], found)]
    parts.append("## Costs")
    parts += [costs(document, recipe) for recipe in settings["recipes"]]
    parts.append(
        "CPU seconds are of trainer, its children and its service together. The first batch is counted from the making of the "
        "loader, all imported; loaderd's daemon runs by then and does not know the folder. Waits are those of a trainer that "
        "does nothing else; several workers hand over several batches at a time, which makes their median wait short. "
        "The mean of the first batch shows that all make the same of the same images: exactly only without randomness, with the "
        "same filter, from the same files in the same order."
    )
    if more := extras(document):
        parts += ["## More", more]
    if missing := absent(document):
        parts += ["## Did not run", missing]
    parts += ["## Machine", facts, "## Versions", versions]
    return "\n\n".join(parts) + "\n"
