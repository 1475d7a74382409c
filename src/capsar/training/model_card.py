"""The model card of a bundle: `model_card.md` filled in with the facts of a run."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from capsar.calibration import FEW_EXAMPLES, max_confidence
from capsar.config import list_sources
from capsar.training.initialize import RANDOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capsar.config import RunConfig
    from capsar.evaluation.confidence import CalibrationMetrics
    from capsar.evaluation.evaluate import Evaluation
    from capsar.evaluation.spans import Extraction

_TEMPLATE = Path(__file__).with_name("model_card.md")
_HUB_LICENSES = {"Apache-2.0": "apache-2.0", "CC BY 4.0, (C) Bing Liu": "cc-by-4.0"}
"""Hub names of the data licenses under which a model may be redistributed."""
_OTHER_LICENSE = "other\nlicense_name: that-of-the-training-data"
_UNKNOWN_LICENSE = "that of its owner; it is not in the catalog"
_PREDICTED_BY = """Each example was predicted by one of {} networks with the same settings, which
was not trained on it; this network was trained on all examples.
"""
_BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Metrics on the validation set; None for what was not measured."""

    evaluation: Evaluation | None = None
    span_f1: float | None = None
    """Exact-span F1 of the aspects found by capsules."""
    extraction: Extraction | None = None
    """Metrics of the span extraction head."""
    calibration: CalibrationMetrics | None = None


def render_card(
    run_config: RunConfig,
    facts: Mapping[str, Any],
    *,
    epoch: int,
    num_epochs: int,
    report: ValidationReport,
) -> str:
    """Return the model card.

    Args:
        run_config: The configuration of the run.
        facts: Facts about the data (`TrainingData.facts`).
        epoch: The epoch whose weights were saved, from 0.
        num_epochs: The number of trained epochs.
        report: Metrics on the validation set.
    """
    parts = re.split(r"<!-- part: \w+ -->\n", _TEMPLATE.read_text(encoding="utf-8"))
    metrics = "None: there was no validation set. `capsar evaluate` computes them."
    if report.evaluation:
        metrics = _fill(parts[1], _metrics(report.evaluation, report, run_config, facts)).rstrip()
    confidence = "None: there was too little validation data to fit a calibration."
    if report.calibration:
        confidence = _fill(parts[2], _confidence(report.calibration)).rstrip()
    span_f1 = report.span_f1
    # Strings are written as JSON, which is valid YAML.
    datasets = "".join(f"- {dumps(name)}\n" for name in facts["dataset"].split(", ") if name)
    settings = [
        f"| `{section}.{key}` | {_cell(value) or '(empty)'} |"
        for section, values in (("model", run_config.model), ("train", run_config.train))
        for key, value in asdict(values).items()
    ]
    values: dict[str, object] = {
        "hub_license": _HUB_LICENSES.get(facts["license"], _OTHER_LICENSE),
        "datasets": f"datasets:\n{datasets}" if datasets else "",
        "metrics": metrics,
        "confidence": confidence,
        "or_confidence": "; `confidence` is one" if report.calibration else "",
        "capsule_f1": f"has a validation F1 of {span_f1:.4f}"
        if span_f1 is not None
        else "was not measured",
        "settings": "\n".join(settings),
        "epoch": f"{epoch + 1} of {num_epochs}",
        "seed": run_config.train.seed,
        "teachers": ", ".join(list_sources(run_config.train.teacher)),
    }
    return _fill(parts[0], values | _data(run_config, facts))


def _data(run_config: RunConfig, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the values about the data."""
    number, source = facts["validation_examples"], facts["validation"]
    chosen_on, shared = "the last one; there was no validation set", "0"
    if run_config.train.checkpoint_selection == "last" and (number or "folds" in facts):
        chosen_on = "the last one, by setting"
    elif number:
        origin = f"of {source}" if source else "split from the training data by sentence"
        chosen_on = f"{number} validation examples, {origin}"
    elif "folds" in facts:
        chosen_on = f"all examples, by {facts['folds']}-fold cross-validation"
    if source:
        counts = ", ".join(f"{count} {kind}" for kind, count in facts["shared_by_kind"].items())
        shared = f"{facts['shared_sentences_dropped']} ({counts})"
    values = {
        "train": f"{facts['train']}, {facts['train_examples']} examples",
        "partially_annotated": "",
        "init_from": "",
        "license": facts["license"] or _UNKNOWN_LICENSE,
        "vectors": f"{facts['vectors']}; {facts['words']} words",
        "vectors_license": facts["vectors_license"] or _UNKNOWN_LICENSE,
        "chosen_on": chosen_on,
        "shared": shared,
        "excluded": str(facts["test_sentences_dropped"]),
    }
    if facts["vectors"] == RANDOM:
        values["vectors_license"] = "none needed"
    if "partially_annotated" in facts:
        count = facts["partially_annotated_examples"]
        values["partially_annotated"] = f"{facts['partially_annotated']}, {count} examples"
    if "init_from" in facts:
        data = facts["init_trained_on"] or "unnamed data"
        license_ = facts["init_license"] or _UNKNOWN_LICENSE
        values["init_from"] = f"{facts['init_from']}, trained on {data}; license: {license_}"
    return {name: _cell(value) for name, value in values.items()}


def _metrics(
    evaluation: Evaluation,
    report: ValidationReport,
    run_config: RunConfig,
    facts: Mapping[str, Any],
) -> dict[str, object]:
    """Return the values of the part about metrics; empty ones for what was not measured."""
    found, folds = report.extraction, facts.get("folds")
    metrics, intervals = evaluation.metrics, evaluation.intervals
    false = found.false_per_100 if found else None
    selects = run_config.train.checkpoint_selection == "best"
    return {
        "accuracy": metrics.accuracy,
        "accuracy_interval": "{:.4f} to {:.4f}".format(*intervals.accuracy),
        "macro_f1": metrics.macro_f1,
        "macro_f1_interval": "{:.4f} to {:.4f}".format(*intervals.macro_f1),
        "head_f1": found.spans.f1 if found else "",
        "joint_f1": found.joint.f1 if found else "",
        "false_per_100": "" if false is None else f"{false:.1f}",
        "capsule_f1": "" if report.span_f1 is None else report.span_f1,
        "num_examples": metrics.num_examples,
        "chosen": f"{'epoch, the ' if selects else ''}thresholds and the calibration",
        "predicted_by": _PREDICTED_BY.format(folds) if folds else "",
    }


def _confidence(metrics: CalibrationMetrics) -> dict[str, object]:
    """Return the values of the part about confidence."""
    number, cap, diagram = metrics.num_examples, "", []
    if number < FEW_EXAMPLES:
        cap = (
            f"\nWith only {number} examples, confidence is capped at {max_confidence(number):.2f}."
        )
    for row in metrics.bins:
        filled = round(row.accuracy * _BAR_WIDTH)
        bar = ["#" if step < filled else " " for step in range(_BAR_WIDTH + 1)]
        bar[round(row.confidence * _BAR_WIDTH)] = "|"
        line = f"{row.confidence:>10.3f}  {row.accuracy:>8.3f}  {row.number:>8}  {''.join(bar)}"
        diagram.append(line.rstrip())
    risks = metrics.risk_coverage
    return asdict(metrics) | {
        "cap": cap,
        "diagram": "\n".join(diagram),
        "coverage": " | ".join(f"{float(share):.0%}" for share in risks),
        "rule": "---|" * len(risks),
        "risk": " | ".join(f"{risk:.3f}" for risk in risks.values()),
    }


def _fill(template: str, values: Mapping[str, object]) -> str:
    """Fill in a template, and drop the rows of tables that have no value."""
    shown = {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in values.items()}
    return re.sub(
        r"^\| [^|\n]+ \|  (\| )?\|\n", "", Template(template).substitute(shown), flags=re.M
    )


def _cell(value: object) -> str:
    """Return a value as the cell of a table; a file name may hold bars and line breaks."""
    return " ".join(str(value).split()).replace("|", r"\|")
