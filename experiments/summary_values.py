"""What an entry of the summary is made of: values by seed, their mean and spread."""

from __future__ import annotations

from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

RunFile = dict[str, Any]
Entry = dict[str, Any]
Values = dict[int, float]
"""A figure by seed."""


def make_entry(
    table: str,
    metric: str,
    values: Iterable[float],
    *,
    run: RunFile | None = None,
    paper_value: float | None = None,
    **facts: str | None,
) -> Entry:
    """Return the entry of one figure: mean and spread, and what it is about."""
    some = list(values)
    about = run or {}
    return {
        "table": table,
        "row": facts.get("row") or about.get("row"),
        "encoder": facts.get("encoder", about.get("encoder")),
        "vectors": about.get("vectors"),
        "extra_data": _extra_data(about),
        "dataset": facts.get("dataset") or about.get("dataset"),
        "protocol": facts.get("protocol") or about.get("protocol"),
        "gold": facts.get("gold"),
        "metric": metric,
        "mean": round(mean(some), 6) if some else None,
        "sd": round(stdev(some), 6) if len(some) > 1 else None,
        "n": len(some),
        "paper": paper_value,
        "config_hash": about.get("config_hash"),
    }


def _extra_data(run: RunFile) -> str | None:
    """Say what a run was given besides the training part."""
    config = run.get("config", {})
    names = config.get("data", {}).get("polarity_only") or ()
    told = [
        f"reviews told by {', '.join(config['train']['teacher'])}" if "told/" in name else name
        for name in ([names] if isinstance(names, str) else names)
    ]
    if config.get("train", {}).get("teacher") and not any("told by" in one for one in told):
        told.append(f"taught by {', '.join(config['train']['teacher'])}")
    return ", ".join(told) or None


def by_seed(runs: list[RunFile], *path: str) -> Values:
    """Return one figure of each run that has it, found by the names that lead to it."""
    found: Values = {}
    for run in sorted(runs, key=lambda run: int(run["seed"])):
        value: Any = run
        for name in path:
            value = value.get(name) if value else None
        if value is not None:
            found[run["seed"]] = value
    return found


def paired(ours: Values, theirs: Values) -> list[float]:
    """Return the differences of the seeds that both have."""
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
