"""Blocks of `docs/results/extensions.md`: pre-trained encoders, extracted spans, confidences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pages import formatting as fmt
from pages.formatting import ENCODER_ROWS, METRICS, ROWS, VARIANTS, number, spread, table
from summarize import BERT_BASELINES, RANKING, SPAN_BASES, TASK

if TYPE_CHECKING:
    from summarize import Entry, Results

SPAN_ROWS = {
    "capsar-spans": "CAPSAR with a head, Bi-GRU",
    "capsar-spans-folds": "CAPSAR with a head, Bi-GRU, EMA, cross-validated",
    "capsar-bert-spans": "CAPSAR-BERT with a head",
}
"""Rows with an extraction head."""
_ALL_ROWS = {**ROWS, "capsar-folds": "CAPSAR, EMA, cross-validated", **ENCODER_ROWS, **SPAN_ROWS}
_SPAN_METRICS = ("span_precision", "span_recall", "span_f1", "span_f1_with_terms", "joint_f1",
                 "false_per_100")  # fmt: skip
_CONFIDENCE = ("ece", "ece_bound", "ece_uncalibrated", "brier", "brier_uncalibrated", "log_loss",
               "log_loss_uncalibrated", "accuracy", "accuracy_at_80")  # fmt: skip


def bert_accuracy(results: Results) -> str:
    """Return accuracy and macro-F1 of BERT and CAPSAR-BERT."""
    rows = [
        [shown, own["encoder"], label, own["n"], *fmt.compared(own), *fmt.compared(macro),
         spread(validation)]
        for shown, label, (own, macro, validation) in fmt.each(
            results, "table2", [*TASK, "validation_macro_f1"], ENCODER_ROWS
        )
        if own["encoder"]
    ]  # fmt: skip
    header = ["dataset", "encoder", "model", "seeds", "accuracy", "paper", "Δ", "macro-F1",
              "paper", "Δ", "validation macro-F1"]  # fmt: skip
    return table(header, rows)


def bert_differences(results: Results) -> str:
    """Return the differences to both BERT baselines with the same seeds."""
    rows = [
        [shown, entry["encoder"], label, ENCODER_ROWS[base], *fmt.difference_cells(metric, entry)]
        for base in BERT_BASELINES
        for shown, label, entries in fmt.each(
            results, "table2", [f"{metric}_vs_{base}" for metric in TASK], ENCODER_ROWS
        )
        for metric, entry in zip(TASK, entries, strict=True)
    ]
    header = ["dataset", "encoder", "model", "minus", "metric", "difference", "pairs", "paper",
              "ours"]  # fmt: skip
    return table(header, rows)


def bert_arts(results: Results) -> str:
    """Return accuracy on the ARTS variants."""
    rows = [
        [shown, entries[0]["encoder"], label, *map(spread, entries)]
        for shown, label, entries in fmt.each(results, "arts", list(VARIANTS), ENCODER_ROWS)
    ]
    return table(["dataset", "encoder", "model", *VARIANTS.values()], rows)


def bert_detection(results: Results) -> str:
    """Return aspect detection in the space of the encoder's input subwords."""
    rows = [
        [shown, entries[0]["encoder"], label, entries[0]["gold"], *map(spread, entries),
         fmt.gap(control)]
        for shown, label, (*entries, control) in fmt.each(
            results, "table4", [*RANKING, "map_vs_centroid"], ENCODER_ROWS
        )
    ]  # fmt: skip
    header = ["dataset", "encoder", "model", "gold", "P@1", "R@5", "mAP", "mAP minus control"]
    return table(header, rows)


def bert_trials(results: Results) -> str:
    """Return the learning rates that were tried on validation sets."""
    trials: list[dict[str, Any]] = results.read("bert-trials").get("trials", [])
    trials = sorted(trials, key=lambda one: (one["row"], one["encoder_learning_rate"], one["seed"]))
    rows = [
        [ENCODER_ROWS[one["row"]], f"{one['encoder_learning_rate']:g}", one["seed"],
         number(one["validation_accuracy"]), number(one["validation_macro_f1"])]
        for one in trials
    ]  # fmt: skip
    header = ["model", "encoder learning rate", "seed", "validation accuracy", "macro-F1"]
    return table(header, rows)


def _plain(entry: Entry) -> str:
    """Return a number above one, with its spread."""
    return f"{entry['mean']:.1f}" + ("" if entry["sd"] is None else f" ± {entry['sd']:.1f}")


def _label(label: str, entry: Entry) -> str:
    return label if entry["encoder"] == "bigru" else f"{label}, {entry['encoder']}"


def spans(results: Results) -> str:
    """Return precision, recall and F1 of extracted spans."""
    rows = []
    for mode, suffix in (("spans", ""), ("capsules", "_capsules")):
        names = [f"{metric}{suffix}" for metric in _SPAN_METRICS]
        for shown, label, (*shares, false) in fmt.each(results, "spans", names, _ALL_ROWS):
            cells = [mode, false["n"], *map(spread, shares), _plain(false)]
            rows.append([shown, _label(label, false), *cells])
    header = ["dataset", "model", "by", "seeds", "span P", "span R", "span F1",
              "F1, sentences with terms", "span + polarity F1", "false per 100"]  # fmt: skip
    return table(header, rows)


def spans_validation(results: Results) -> str:
    """Return the validation metrics of the extraction head."""
    names = [f"validation_{metric}" for metric in ("span_f1", "joint_f1", "false_per_100")]
    rows = [
        [shown, _label(label, f1), spread(f1), spread(joint), _plain(false)]
        for shown, label, (f1, joint, false) in fmt.each(results, "spans", names, SPAN_ROWS)
    ]
    return table(["dataset", "model", "span F1", "span + polarity F1", "false per 100"], rows)


def spans_cost(results: Results) -> str:
    """Return polarity metrics with the head, minus those without it."""
    rows = [
        [shown, _label(label, own), METRICS[metric], spread(own), fmt.gap(difference),
         difference["n"]]
        for row, name in SPAN_ROWS.items()
        for metric in TASK
        for shown, label, (own, difference) in fmt.each(
            results, "spans", [metric, f"{metric}_vs_{SPAN_BASES[row]}"], {row: name}
        )
    ]  # fmt: skip
    header = ["dataset", "model", "metric", "with the head", "minus without it", "pairs"]
    return table(header, rows)


def confidence(results: Results) -> str:
    """Return calibration metrics of every row."""
    rows = [
        [shown, _label(label, entries[0]), entries[0]["protocol"], entries[0]["n"],
         *(number(entry["mean"]) for entry in entries)]
        for shown, label, entries in fmt.each(results, "confidence", _CONFIDENCE, _ALL_ROWS)
    ]  # fmt: skip
    header = ["dataset", "model", "protocol", "seeds", "ECE", "bound", "uncalibrated"]
    header += ["Brier", "uncalibrated", "log loss", "uncalibrated", "accuracy", "top 80 %"]
    return table(header, rows)
