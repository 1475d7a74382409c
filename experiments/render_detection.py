"""The part of `docs/results.md` about aspect detection (the paper's table 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cells import by_verdict, interval, listed, number, paragraph, seeds, spread, table
from entries import DATASETS, METRICS, RANKING, ROWS
from interval import difference_of
from summarize import GOLDS, SCORES

if TYPE_CHECKING:
    from entries import Entries


_MAIN = {"row": "capsar", "protocol": "ours"}


def table4(found: Entries) -> str:
    """Return the section, or nothing where there are no figures."""
    datasets = [d for d in ("restaurant", "laptop") if found.find("table4", dataset=d)]
    if not datasets:
        return ""
    parts = [
        "## Table 4: aspect detection",
        paragraph(
            """Nobody names the aspect: every active capsule (longer than .5; where none is, the
            longest) ranks the words of the sentence. Gold *all*: the words of all terms;
            *same-polarity*: a capsule is right only on terms of its own polarity, and wrong where
            there is none. The control ranks words by their likeness to the mean aspect vector of
            the training data, with no network. Words are scored by cosine, or by the dot product
            in which only the reconstruction (or the mean aspect vector) is normalised; in bold the
            score that has the better mAP on dev, for the control as for the capsules."""
        ),
    ]
    for dataset in datasets:
        parts += [f"### {DATASETS[dataset]}", _rankings(found, dataset), _facts(found, dataset)]
    return "\n\n".join([*parts, _control(found)])


def in_short(found: Entries) -> list[str]:
    """Return what holds, in sentences."""
    lines = []
    for dataset in ("restaurant", "laptop"):
        entries = found.all_of("table4", RANKING, dataset=dataset, gold="all", **_MAIN)
        told = [f"{METRICS[e['metric']]} {spread(e)} (paper {number(e['paper'])})" for e in entries]
        if told:
            lines.append(f"Detection on {DATASETS[dataset]}, all terms: {listed(told)}.")
    named = [
        (f"{DATASETS[dataset]} {METRICS[metric]}", entry)
        for dataset in ("restaurant", "laptop")
        for metric in RANKING
        for entry in found.all_of(
            "table4", [f"{metric}_vs_centroid"], dataset=dataset, gold="all", **_MAIN
        )
    ]
    words = {
        "rises": "beat it in",
        "falls": "are below it in",
        "cannot be told": "cannot be told from it in",
    }
    told = by_verdict(named, words)
    if told:
        control = "Against the centroid control, which has no network, the capsules"
        lines.append(f"{control} {'; they '.join(told)}.")
    return lines


def _rankings(found: Entries, dataset: str) -> str:
    rows = []
    facts = {"dataset": dataset, "gold": "all"}
    paper = found.all_of("table4", RANKING, **facts, **_MAIN)
    if paper:
        printed = [number(entry["paper"]) for entry in paper]
        rows.append(["CAPSAR in the paper", "", "not said", "not said", *printed])
    for gold in GOLDS:
        for row in ("capsar", "capsar-wo-h", "centroid"):
            for protocol in ("ours", "fixed"):
                which = {"row": row, "protocol": protocol, "dataset": dataset, "gold": gold}
                best = found.all_of("table4", RANKING, **which)
                for score in SCORES:
                    names = [f"{metric}_{score}" for metric in RANKING]
                    entries = found.all_of("table4", names, **which)
                    if not entries:
                        continue
                    chosen = [e["mean"] for e in entries] == [e["mean"] for e in best]
                    mark = "**" if chosen else ""
                    cells = [f"{mark}{spread(entry)}{mark}" for entry in entries]
                    run = protocol + seeds(entries[0])
                    rows.append([ROWS[row], run, gold, f"{mark}{score}{mark}", *cells])
    return table(["ranking", "protocol", "gold", "word score", "P@1", "R@5", "mAP"], rows)


def _facts(found: Entries, dataset: str) -> str:
    which = {"dataset": dataset, **_MAIN}
    names = ("gold_words", "sentence_words", "none_active", "active_capsules")
    entries = found.all_of("table4", names, **which)
    ceilings = [
        entry
        for gold in GOLDS
        for entry in found.all_of("table4", ["r_at_5_ceiling"], gold=gold, **which)
    ]
    if not entries or len(ceilings) != len(GOLDS):
        return ""
    words, length, none, active = entries
    return paragraph(
        f"""A sentence has {words["mean"]:.2f} gold words of {length["mean"]:.2f} (paper:
        {words["paper"]:g} of {length["paper"]:g}). R@5 cannot pass {number(ceilings[0]["mean"])}
        (gold *all*), nor {number(ceilings[1]["mean"])} (*same-polarity*, given which capsules are
        active). {active["mean"]:.2f} capsules rank a sentence; in {none["mean"] * 100:.1f} % of
        sentences none is active."""
    )


def _control(found: Entries) -> str:
    rows = []
    for dataset in ("restaurant", "laptop"):
        for gold in GOLDS:
            which = {"dataset": dataset, "gold": gold, **_MAIN}
            shown: list[list[float]] = []
            for suffix, label in (
                ("_cosine", "both cosine"),
                ("_dot", "both dot"),
                ("", "in bold"),
            ):
                names = [f"{metric}{suffix}_vs_centroid" for metric in RANKING]
                entries = found.all_of("table4", names, **which)
                means = [entry["mean"] for entry in entries]
                if entries and means not in shown:  # the ones in bold may have the same score
                    shown.append(means)
                    cells = [interval(difference_of(entry)) for entry in entries]
                    rows.append([DATASETS[dataset], gold, label, *cells])
    if not rows:
        return ""
    said = "CAPSAR minus the control, same seed, with 95 % intervals over seeds (Student's t)."
    header = ["dataset", "gold", "word score", "P@1", "R@5", "mAP"]
    return f"### Do the capsules beat the control?\n\n{said}\n\n{table(header, rows)}"
