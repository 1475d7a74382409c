"""Blocks of `docs/results/reproduction.md` about aspect detection and attributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages import formatting as fmt
from pages.formatting import DATASETS, number, spread, table
from summarize import BASELINE_RANKERS, GOLDS, RANKING, SCORES

if TYPE_CHECKING:
    from summarize import Results

_ROWS = {row: fmt.ROWS[row] for row in ("capsar", "capsar-wo-h", "centroid")}
_MAIN = {"capsar": "CAPSAR"}
_MODELS = {"capsar": "Bi-GRU", "capsar-bert": "MiniLM"}
_MEASURES = ("comprehensiveness", "sufficiency")
_RANKERS = {
    "": "attributions",
    "_random": "random words",
    "_gradient": "gradient x input, signed",
    "_gradient_norm": "gradient x input, norm",
}


def table4(results: Results) -> str:
    """Return the paper's table 4, one table per dataset."""
    header = ["ranking", "protocol", "gold", "word score", "P@1", "R@5", "mAP"]
    parts = []
    for dataset in ("restaurant", "laptop"):
        rows = [
            ["CAPSAR in the paper", "", "not stated", "not stated",
             *(number(entry["paper"]) for entry in entries)]
            for _, _, entries in fmt.each(
                results, "table4", RANKING, _MAIN, protocol="ours", dataset=dataset, gold="all"
            )
        ]  # fmt: skip
        names = [f"{metric}_{score}" for score in SCORES for metric in RANKING]
        for gold in GOLDS:
            for _, label, entries in fmt.each(
                results, "table4", [*RANKING, *names], _ROWS, dataset=dataset, gold=gold
            ):
                means = [entry["mean"] for entry in entries[:3]]
                for score, own in zip(SCORES, (entries[3:6], entries[6:]), strict=True):
                    mark = "**" if [entry["mean"] for entry in own] == means else ""
                    cells = [f"{mark}{text}{mark}" for text in (score, *map(spread, own))]
                    run = own[0]["protocol"] + fmt.seeds(own[0])
                    rows.append([label, run, gold, *cells])
        parts.append(f"### {DATASETS[dataset]}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def facts(results: Results) -> str:
    """Return the sizes of sentences and gold spans, ceilings, and active capsules."""
    rows = []
    names = ("gold_words", "sentence_words", "active_capsules", "none_active")
    for shown, _, (words, length, active, none) in fmt.each(
        results, "table4", names, _MAIN, protocol="ours"
    ):
        ceilings = [
            number(entry["mean"])
            for gold in GOLDS
            for own, _, (entry,) in fmt.each(
                results, "table4", ["r_at_5_ceiling"], _MAIN, protocol="ours", gold=gold
            )
            if own == shown
        ]
        rows.append([
            shown, f"{words['mean']:.2f} (paper {words['paper']:g})",
            f"{length['mean']:.2f} (paper {length['paper']:g})", *ceilings,
            f"{active['mean']:.2f}", f"{none['mean'] * 100:.1f} %",
        ])  # fmt: skip
    header = ["dataset", "gold words per sentence", "words per sentence", "R@5 ceiling, all",
              "R@5 ceiling, same-polarity", "capsules that rank", "none active"]  # fmt: skip
    return table(header, rows)


def control(results: Results) -> str:
    """Return the differences between capsules and the centroid control."""
    rows = []
    for score in SCORES:
        names = [f"{metric}_{score}_vs_centroid" for metric in RANKING]
        for shown, _, entries in fmt.each(results, "table4", names, _MAIN, protocol="ours"):
            rows.append([shown, entries[0]["gold"], f"both {score}", *map(fmt.gap, entries)])
    rows.sort(key=lambda row: row[:2], reverse=True)
    return table(["dataset", "gold", "word score", "P@1", "R@5", "mAP"], rows)


def faithfulness(results: Results) -> str:
    """Return how much the prediction depends on the words that rank highest."""
    rows = []
    for suffix, ranker in _RANKERS.items():
        names = [f"{measure}{suffix}" for measure in _MEASURES]
        for shown, model, entries in fmt.each(results, "faithfulness", names, _MODELS):
            label = f"{shown}, {model}, {entries[0]['n']} seeds"
            rows.append([label, ranker, *map(spread, entries)])
    return table(["dataset", "words ranked by", *_MEASURES], _grouped(rows))


def faithfulness_differences(results: Results) -> str:
    """Return attributions minus each baseline ranking."""
    rows = []
    for ranker in BASELINE_RANKERS:
        names = [f"{measure}_vs_{ranker}" for measure in _MEASURES]
        for shown, model, entries in fmt.each(results, "faithfulness", names, _MODELS):
            label = f"attributions − {_RANKERS[f'_{ranker}']}"
            rows.append([f"{shown}, {model}", label, *map(fmt.gap, entries)])
    return table(["dataset", "difference", *_MEASURES], _grouped(rows))


def _grouped(rows: list[list[str]]) -> list[list[str]]:
    """Return rows grouped by their first cell, in order of first occurrence."""
    order = list(dict.fromkeys(row[0] for row in rows))
    return sorted(rows, key=lambda row: order.index(row[0]))
