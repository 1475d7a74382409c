"""The parts of `docs/results.md` that the paper has not: found spans, and confidences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cells import interval, number, paragraph, spread, table
from entries import DATASETS, ENCODER_ROWS, FOLD_ROWS, METRICS, ROWS, SPAN_ROWS
from interval import difference_of
from summarize_spans import BASES, FOUND, TASK

if TYPE_CHECKING:
    from entries import Entries
    from summary_values import Entry

_LABELS = ROWS | FOLD_ROWS | ENCODER_ROWS | SPAN_ROWS
_BINS = 15
_FEW = ("span_f1", "joint_f1", "false_per_100")


def spans(found: Entries) -> str:
    """Return the section on found spans, or nothing where there are no figures."""
    rows = _found_rows(found)
    if not rows:
        return ""
    header = ["dataset", "model", "by", "seeds", "span P", "span R", "span F1",
              "F1, sentences with terms", "span + polarity F1", "false per 100"]  # fmt: skip
    said = paragraph(
        """Nobody names the aspect. *spans*: an extraction head on the same encoder; *capsules*: the
        paper's way, opened capsules name words. Exact spans over all distinct test sentences, with
        and without terms; *conflict* counts as a span, and not for span + polarity. The last
        column: aspects told per 100 sentences that have none. The head's bias was chosen on dev, by
        F1 over sentences with and without terms. `capsar evaluate BUNDLE --dataset
        semeval14-restaurants --spans` prints it for any model."""
    )
    parts = ["## Spans: aspects found without being named", said, table(header, rows)]
    return "\n\n".join(part for part in [*parts, _on_dev(found), _task(found)] if part)


def _found_rows(found: Entries) -> list[list[str]]:
    rows = []
    for dataset, shown in DATASETS.items():
        for row, label in _LABELS.items():
            for mode, suffix in (("spans", ""), ("capsules", "_capsules")):
                names = [f"{metric}{suffix}" for metric in _ordered()]
                for entries in _each(found, "spans", names, row=row, dataset=dataset):
                    *shares, false = entries
                    rows.append([
                        shown, _named(label, entries[0]), mode, str(false["n"]),
                        *map(spread, shares), _plain(false),
                    ])  # fmt: skip
    return rows


def _ordered() -> list[str]:
    first = ["span_precision", "span_recall", "span_f1"]
    return first + [metric for metric in FOUND if metric not in first]


def _on_dev(found: Entries) -> str:
    """What was seen while choosing: dev figures of the head."""
    told = []
    for dataset, shown in DATASETS.items():
        for row, label in SPAN_ROWS.items():
            names = [f"dev_{metric}" for metric in _FEW]
            for f1, joint, false in _each(found, "spans", names, row=row, dataset=dataset):
                told.append(
                    f"{shown}, {label}: span F1 {spread(f1)}, with polarity {spread(joint)}, "
                    f"{_plain(false)} false per 100."
                )
    return paragraph("On dev: " + " ".join(told)) if told else ""


def _task(found: Entries) -> str:
    rows = []
    for dataset, shown in DATASETS.items():
        for row, label in SPAN_ROWS.items():
            for metric in TASK:
                names = [metric, f"{metric}_vs_{BASES[row]}"]
                for own, gap in _each(found, "spans", names, row=row, dataset=dataset):
                    rows.append([
                        shown, label, METRICS[metric], spread(own), interval(difference_of(gap)),
                        str(gap["n"]),
                    ])  # fmt: skip
    if not rows:
        return ""
    header = ["dataset", "model", "task A", "with the head", "minus without it", "pairs"]
    said = "The aspect given, same seed, with 95 % intervals over seeds (Student's t)."
    return f"### Does the head cost anything in task A?\n\n{said}\n\n{table(header, rows)}"


def confidence(found: Entries) -> str:
    """Return the section on confidences, or nothing where there are no figures."""
    rows = []
    names = ["ece", "ece_bound", "ece_uncalibrated", "brier", "brier_uncalibrated", "log_loss",
             "log_loss_uncalibrated", "accuracy", "accuracy_at_80"]  # fmt: skip
    for dataset, shown in DATASETS.items():
        for row, label in _LABELS.items():
            for entries in _each(found, "confidence", names, row=row, dataset=dataset):
                cells = [number(entry["mean"]) for entry in entries]
                named = [shown, _named(label, entries[0]), str(entries[0]["protocol"])]
                rows.append([*named, str(entries[0]["n"]), *cells])
    if not rows:
        return ""
    header = ["dataset", "model", "protocol", "seeds", "ECE", "bound", "uncalibrated"]
    header += ["Brier", "uncalibrated", "log loss", "uncalibrated", "accuracy", "surest 80 %"]
    said = paragraph(
        f"""The aspect given. The calibration was fitted on dev; for *cross-validated* rows on all
        training sentences, each answered by a network that had not learnt from it. Figures are of
        the test part, means over seeds. ECE: {_BINS} bins of equal mass; *bound*: what a perfectly
        calibrated model of that size and those confidences stays below 19 times in 20 (simulated).
        Uncalibrated: each capsule length's share of their sum. Where dev is easier than the test
        part, confidences fitted on it are too high, and where it is harder, too low: no choice may
        look at the test part to mend that."""
    )
    return f"## Confidence\n\n{said}\n\n{table(header, rows)}"


def _each(
    found: Entries, name: str, metrics: list[str], **facts: object
) -> list[tuple[Entry, ...]]:
    """The entries of these metrics, for every encoder and protocol that has all of them."""
    which = dict.fromkeys(
        (entry["encoder"], entry["protocol"])
        for entry in found.find(name, metric=metrics[0], **facts)
    )
    sets = (
        found.all_of(name, metrics, encoder=encoder, protocol=protocol, **facts)
        for encoder, protocol in which
    )
    return [tuple(entries) for entries in sets if entries]


def _named(label: str, entry: Entry) -> str:
    """A row's name, and its encoder where several rows have that name."""
    return f"{label}, {entry['encoder']}" if entry["row"] in ENCODER_ROWS else label


def _plain(entry: Entry) -> str:
    """A number above one, with its spread."""
    spread = "" if entry["sd"] is None else f" ± {entry['sd']:.1f}"
    return f"{entry['mean']:.1f}{spread}"
