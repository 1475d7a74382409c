"""The part of `docs/results.md` about the settings that were searched for."""

from __future__ import annotations

import json
from typing import Any

from cells import number, paragraph, signed, table
from entries import DATASETS
from runs import EXPERIMENTS

_SEARCH = EXPERIMENTS / "results" / "search.json"
_SHOWN = 6
"""Trials that are shown, besides those that were given."""
_GIVEN = 3


def section() -> str:
    """Return the section, or nothing where nothing was searched."""
    if not _SEARCH.is_file():
        return ""
    study: dict[str, Any] = json.loads(_SEARCH.read_text(encoding="utf-8"))
    trials: list[dict[str, Any]] = study["trials"]
    faithful = trials[0]
    whole = [trial for trial in trials if trial["value"] is not None]
    best = sorted(whole[_GIVEN:], key=lambda trial: -float(trial["value"]))[:_SHOWN]
    rows = [
        [
            str(trial["number"]),
            _changes(trial["settings"], faithful["settings"]),
            *(number(trial[name]) for name in DATASETS if name in trial),
            number(trial["value"]),
        ]
        for trial in (*whole[:_GIVEN], *best)
    ]
    said = paragraph(
        f"""{len(trials)} trials of the Bi-GRU without a teacher and without other data
        ({study["seconds"] / 3600:.1f} hours of one core; optuna's study is
        `experiments/results/search.jsonl`): {study["folds"]}-fold cross-validation on training
        parts, in figures that are the mean of accuracy and macro-F1. After Laptop,
        {len(trials) - len(whole)} were no better than the median and went no further. The first is
        the faithful row, the third what `capsar-best` has; then settings were searched, the best
        of which are shown. No test part was open."""
    )
    shown = [DATASETS[name] for name in DATASETS if name in faithful]
    header = ["trial", "changed", *shown, "mean"]
    parts = ["### What was searched", said, table(header, rows)]
    if best:
        gains = [signed(best[0]["value"] - trial["value"]) for trial in whole[:_GIVEN]]
        parts.append(paragraph(
            f"""The best one is {gains[0]} above the faithful settings and {gains[-1]} above those
            of `capsar-best`: the best of many, so that this flatters it."""
        ))  # fmt: skip
    return "\n\n".join(parts)


def _changes(settings: dict[str, Any], faithful: dict[str, Any]) -> str:
    told = [
        f"`{name} = {f'{value:.2g}' if isinstance(value, float) else json.dumps(value)}`"
        for name, value in settings.items()
        if value != faithful[name]
    ]
    return ", ".join(told) or "none"
