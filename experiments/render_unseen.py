"""The part of `docs/results.md` on the models that ship: sets that they never met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cells import interval, number, paragraph, spread, table
from interval import difference_of
from shipped import SEEN, SHIPPED, UNSEEN

if TYPE_CHECKING:
    from entries import Entries
    from summary_values import Entry

_COLUMNS = ("accuracy", "macro_f1", "ece", "span_f1", "joint_f1", "ars")
_LABELS = {name: f"`{name}`" for name in SHIPPED} | {"majority": "most frequent"}
_JUDGED_ON = {"": "test part", "rest_": "training rows not drawn"}
_IN_DOMAIN = {"capsar": "CAPSAR trained on it", "capsar-bert": "CAPSAR-BERT trained on it"}


def section(found: Entries) -> str:
    """Return the section, or nothing where no model has been judged."""
    if not any(found.find("unseen", row=row) for row in SHIPPED):
        return ""
    rows = [
        row for dataset, shown in (UNSEEN | SEEN).items() for row in _rows(found, dataset, shown)
    ]
    header = ["set", "model", "accuracy", "95 %", "macro-F1", "ECE", "span F1", "span + polarity"]
    said = paragraph(
        """`base` and `fast` as they ship, one model each, on test parts that neither was trained or
        tuned on; SemEval Restaurant is of the source of MAMS: *same domain, unseen*. Sentences that
        a set shares with their training data were dropped from it before training. Intervals are
        those of other examples (bootstrap). *Most frequent*: whoever always gives the answer that
        the set holds most often. ARS: share of ARTS sentences right in all their variants. Span F1
        is exact, over distinct sentences; sets other than SemEval's hold only sentences with an
        aspect. MAMS was trained on; its test part was not."""
    )
    parts = ["## Models that ship, on sets they never met", said]
    parts.append(table([*header, "ARS"], rows))
    parts.append(_limit(found))
    return "\n\n".join(part for part in [*parts, _few(found)] if part)


def _rows(found: Entries, dataset: str, shown: str) -> list[list[str]]:
    shown = f"{shown} (trained on)" if dataset in SEEN else shown
    rows = []
    for row, label in _LABELS.items():
        own = {e["metric"]: e for e in found.find("unseen", row=row, dataset=dataset)}
        if own:
            cells = [number(own[name]["mean"]) if name in own else "" for name in _COLUMNS]
            rows.append([shown, label, cells[0], _bounds(own), *cells[1:]])
    for row, label in _IN_DOMAIN.items():
        which = {"row": row, "dataset": dataset, "protocol": "ours"}
        for entry in found.find("table2", metric="accuracy", **which):
            (macro,) = found.find("table2", metric="macro_f1", encoder=entry["encoder"], **which)
            if entry["mean"] is not None:
                named = f"{label} ({entry['encoder']})"
                rows.append([shown, named, spread(entry), "", spread(macro), "", "", "", ""])
    return rows


def _bounds(own: dict[str, Entry]) -> str:
    if "accuracy_low" not in own:
        return ""
    return f"{number(own['accuracy_low']['mean'])} to {number(own['accuracy_high']['mean'])}"


def _limit(found: Entries) -> str:
    def neutral(dataset: str, metric: str = "neutral_share") -> str:
        (entry,) = found.find("unseen", row="base", dataset=dataset, metric=metric)
        return number(entry["mean"])

    told = {name: neutral(name, "told_neutral_share") for name in ("restaurant", "laptop")}
    return paragraph(
        f"""**What limits them.** Neutral. MAMS is the one source of neutral aspects whose licence
        lets a model be passed on; {neutral("mams")} of its aspects are neutral, and all are of
        restaurants. So `base` calls {told["restaurant"]} of Restaurant's aspects neutral where
        {neutral("restaurant")} are, and {told["laptop"]} of Laptop's where {neutral("laptop")}
        are."""
    )


def _few(found: Entries) -> str:
    metrics = ("accuracy", "macro_f1", "span_f1", "joint_f1")
    entries = found.find("unseen", row="base-200-rows", dataset="laptop")
    own = {entry["metric"]: entry for entry in entries}
    rows = []
    for prefix, shown in _JUDGED_ON.items():
        if f"{prefix}accuracy" in own:
            gaps = [interval(difference_of(own[f"{prefix}{m}_vs_base"])) for m in metrics]
            rows.append([shown, "after", *(spread(own[f"{prefix}{m}"]) for m in metrics)])
            rows.append([shown, "minus `base` untouched", *gaps])
    if not rows:
        return ""
    said = paragraph(
        f"""**200 rows of one's own.** `capsar train --from base` on 200 labelled rows of Laptop's
        training part, {own["accuracy"]["n"]} draws, the epoch chosen on a fifth of them; 95 %
        intervals over draws. Rows that were not drawn choose nothing either, and are of the very
        source of those that were."""
    )
    header = ["judged on", "", "accuracy", "macro-F1", "span F1", "span + polarity"]
    return f"{said}\n\n{table(header, rows)}"
