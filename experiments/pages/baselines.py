"""Blocks of `docs/baselines.md`: our models beside SetFit-ABSA and a BERT pair classifier.

Metrics of models that were trained over several seeds are those of `summary.json`; all others are
in `benchmarks/results/baselines.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pages.formatting import Number, listed, paragraph, table
from pretrained.sets import BUNDLED

if TYPE_CHECKING:
    from summarize import Entry, Results

ENCODER = "all-MiniLM-L6-v2"
OURS = {"base": "`base`", "fast": "`fast`", "restaurant": "CAPSAR-BERT"}
THEIRS = {"setfit": "SetFit-ABSA", "bert": "BERT pair"}
SYSTEMS = OURS | THEIRS
TARGET_RATIOS = {"fast": 50, "base": 4}
"""The speed relative to SetFit-ABSA, aspects extracted, that we aim at."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    metric: str
    label: str
    digits: int
    more_is_better: bool = True
    unsupported: tuple[str, ...] = ()
    """Systems without this capability."""


ROWS = (
    Row("accuracy", "accuracy, aspects given", 4),
    Row("macro_f1", "macro-F1, aspects given", 4),
    Row("span_f1", "aspects extracted: exact-span F1", 4, unsupported=("bert",)),
    Row("joint_f1", "aspects extracted, with polarity: F1", 4, unsupported=("bert",)),
    Row("sentences_per_s", "sentences/s, aspects extracted", 0, unsupported=("bert",)),
    Row("given_sentences_per_s", "sentences/s, aspects given", 0),
    Row("peak_mb", "peak memory, MB", 0, more_is_better=False),
    Row("install_mb", "install, MB", 0, more_is_better=False),
    Row("model_mb", "models besides the install, MB", 0, more_is_better=False),
    Row("cold_start_s", "process start to first result, s", 1, more_is_better=False),
    Row("lines", "lines of user code", 0, more_is_better=False),
)


def _entry(results: Results, system: str, metric: str) -> Entry | None:
    """Return the summary's entry of a bundled model, or of a row trained on Restaurant."""
    if system in BUNDLED:
        tables = [("out-of-domain", metric)]
        facts = {"row": system, "dataset": "restaurant"}
    else:
        rows = {"restaurant": results.read("baselines")["restaurant"], "bert": "bert"}
        tables = [("table2", metric), ("spans", metric), ("spans", f"{metric}_capsules")]
        facts = {"row": rows.get(system, ""), "encoder": ENCODER, "dataset": "restaurant"}
    found = (results.summary.one(table, metric=name, **facts) for table, name in tables)
    return next((entry for entry in found if entry and entry["n"]), None)


def _value(results: Results, system: str, metric: str) -> float | None:
    measured: float | None = results.read("baselines")["metrics"].get(f"{system}_{metric}")
    entry = _entry(results, system, metric)
    return measured if measured is not None or entry is None else entry["mean"]


def comparison(results: Results) -> str:
    """Return the table, whose last column names the systems that beat ours."""
    rows = []
    for row in ROWS:
        values = {system: _value(results, system, row.metric) for system in SYSTEMS}
        if any(value is not None for value in values.values()):
            cells = [
                f"{Number(value):,.{row.digits}f}" if value is not None
                else "none" if system in row.unsupported else "–"
                for system, value in values.items()
            ]  # fmt: skip
            rows.append([row.label, *cells, _losses(row, values)])
    return table(["", *SYSTEMS.values(), "ours that are worse"], rows)


def _losses(row: Row, values: dict[str, float | None]) -> str:
    """Return which of ours are worse than which baselines, at the precision that is shown."""
    sign = 1 if row.more_is_better else -1
    known = {name: sign * round(v, row.digits) for name, v in values.items() if v is not None}
    behind: dict[str, list[str]] = {}
    for own, label in OURS.items():
        better = [
            theirs
            for name, theirs in THEIRS.items()
            if own in known and known.get(name, known[own]) > known[own]
        ]
        if better:
            behind.setdefault(listed(better), []).append(label)
    return "; ".join(f"{listed(ours)} than {theirs}" for theirs, ours in sorted(behind.items()))


def speed_ratios(results: Results) -> str:
    """Return our speed relative to SetFit-ABSA, beside the target."""
    rows = []
    for name, target in TARGET_RATIOS.items():
        ratio = results.read("baselines")["metrics"].get(f"{name}_over_setfit")
        if ratio is not None:
            verdict = "reached" if ratio >= target else "**not reached**"
            rows.append([OURS[name], f"{ratio:.1f}", target, verdict])
    return table(["", "times the sentences/s of SetFit-ABSA", "target", ""], rows)


def setfit(results: Results) -> str:
    """Return how SetFit-ABSA was trained, and the number of seeds behind our rows."""
    metrics = results.read("baselines")["metrics"]
    names = ("rows", "steps", "batch", "aspect_examples", "polarity_examples", "cpu_minutes")
    rows, steps, batch, aspects, polarities, minutes = (
        f"{metrics[f'setfit_{name}']:,.0f}" for name in names
    )
    labels = {"restaurant": "CAPSAR-BERT", "bert": "BERT pair"}
    seeds = [
        f"{label} {entry['n']}"
        for system, label in labels.items()
        if (entry := _entry(results, system, "accuracy"))
    ]
    return paragraph(
        f"""SetFit-ABSA was trained once, on {rows} labeled terms: {steps} steps of contrastive
        learning on {batch} pairs each for either model, then its heads on {aspects} candidate
        aspects and {polarities} polarities, in {minutes} minutes of one core. Seeds behind the mean
        quality: {listed(seeds)}."""
    )


def excluded(results: Results) -> str:
    """Return which systems are not compared, and why."""
    reasons = results.read("baselines")["absent"].items()
    return "\n\n".join(paragraph(f"**{name}** is not compared. {why}") for name, why in reasons)


def environments(results: Results) -> str:
    """Return the machine and the versions of every environment."""
    content = results.read("baselines")
    versions = "; ".join(
        f"*{name}*: " + ", ".join(f"{package} {version}" for package, version in own.items())
        for name, own in content["environments"].items()
    )
    return paragraph(f"{content['machine']}. {versions}.")
