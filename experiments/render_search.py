"""The part of `docs/results.md` about the settings that were searched for."""

from __future__ import annotations

import json
from typing import Any

from cells import number, paragraph, signed, table
from entries import DATASETS
from runs import EXPERIMENTS

_SEARCH = EXPERIMENTS / "results" / "search.json"
_SHOWN = 6
"""Searched trials that are shown, the best ones."""


def section() -> str:
    """Return the section, or nothing where nothing was searched."""
    if not _SEARCH.is_file():
        return ""
    study: dict[str, Any] = json.loads(_SEARCH.read_text(encoding="utf-8"))
    trials: list[dict[str, Any]] = study["trials"]
    whole = [trial for trial in trials if trial["state"] == "complete"]
    given = [trial for trial in whole if trial["given"]]
    searched = [trial for trial in whole if not trial["given"]]
    best = sorted(searched, key=lambda trial: -float(trial["value"]))[:_SHOWN]
    faithful = given[0]
    shown = [name for name in DATASETS if name in faithful]
    rows = [
        [
            str(trial["number"]),
            _changes(trial["settings"], faithful["settings"]),
            *(number(trial[name]) for name in shown),
            number(trial["value"]),
        ]
        for trial in (*given, *best)
    ]
    pruned = sum(trial["state"] == "pruned" for trial in trials)
    said = paragraph(
        f"""{len(trials)} trials of the Bi-GRU without a teacher and without other data
        ({study["seconds"] / 3600:.1f} hours of one core; optuna's study is
        `experiments/results/search.jsonl`): {study["folds"]}-fold cross-validation on training
        parts, at most {study["max_epochs"]} epochs, in figures that are the mean of accuracy and
        macro-F1. After Laptop, {pruned} were worse than the median and went no further. The first
        ones have what the faithful row and `capsar-best` have of the settings that were searched;
        the others shown are the best that were found. No test part was open."""
    )
    header = ["trial", "changed", *(DATASETS[name] for name in shown), "mean"]
    parts = ["### What was searched", said, table(header, rows)]
    if best:
        gains = [signed(best[0]["value"] - trial["value"]) for trial in (given[0], given[-1])]
        parts.append(paragraph(
            f"""The best one differs by {gains[0]} from the settings of the faithful row and by
            {gains[1]} from those of `capsar-best`; as the best of some, it flatters, and nothing
            was taken over from it."""
        ))  # fmt: skip
    return "\n\n".join(parts)


def _changes(settings: dict[str, Any], faithful: dict[str, Any]) -> str:
    told = [
        f"`{name} = {f'{value:.3g}' if isinstance(value, float) else json.dumps(value)}`"
        for name, value in settings.items()
        if value != faithful[name]
    ]
    return ", ".join(told) or "none"
