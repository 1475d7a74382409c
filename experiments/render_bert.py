"""The part of `docs/results.md` about pre-trained encoders: does CAPSAR-BERT beat BERT?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cells import by_verdict, compared, interval, paragraph, signed, spread, table
from entries import DATASETS, ENCODER_ROWS, METRICS, RANKING, VARIANTS
from interval import difference_of

if TYPE_CHECKING:
    from entries import Entries
    from summary_values import Entry

_TASK = ("accuracy", "macro_f1")
_CLAIM = "capsar-bert"


def section(found: Entries) -> str:
    """Return the section, or nothing where there are no figures."""
    if not _encoders(found):
        return ""
    parts = [
        "## CAPSAR-BERT: pre-trained encoders",
        paragraph(
            """Encoders are those of `all-MiniLM-L6-v2` (22.7 M parameters, a fifth of BERT-base)
            and `all-mpnet-base-v2` (109 M, the paper's weight class). Both were tuned by their
            makers to embed sentences, and neither is the BERT of the paper, whose figures stand
            beside. *BERT* reads sentence and aspect as a pair and judges from the first piece;
            *CAPSAR-BERT* reads the sentence alone, and the aspect enters by proximity. Same data,
            same dev part, same rates (chosen on dev: `bert-dev-trials.json`), same epochs."""
        ),
        _accuracy(found),
        _claim(found),
        _robustness(found),
        _detection(found),
    ]
    return "\n\n".join(part for part in parts if part)


def in_short(found: Entries) -> list[str]:
    """Return what holds of the paper's claim, in sentences."""
    words = {
        "rises": "is above it, with an interval that leaves out 0, in",
        "falls": "is below it, with an interval that leaves out 0, in",
        "cannot be told": "cannot be told from it in",
    }
    lines = []
    for encoder in _encoders(found):
        named = [
            (f"{DATASETS[e['dataset']]} {METRICS[e['metric'].removesuffix('_vs_bert')]}", e)
            for e in _differences(found, _CLAIM, encoder)
        ]
        told = by_verdict(named, words)
        if told:
            lines.append(
                f"CAPSAR-BERT against BERT on {encoder}: the paper says that every figure rises. "
                f"Ours {'; it '.join(told)}."
            )
    return lines


def _encoders(found: Entries) -> list[str]:
    names = (e["encoder"] for row in ENCODER_ROWS for e in found.find("table2", row=row))
    return list(dict.fromkeys(name for name in names if name))


def _rows(found: Entries) -> list[tuple[str, str, str]]:
    """Return dataset, encoder and row of everything that was run."""
    return [
        (dataset, encoder, row)
        for dataset in DATASETS
        for encoder in _encoders(found)
        for row in ENCODER_ROWS
        if found.find("table2", row=row, encoder=encoder, dataset=dataset)
    ]


def _accuracy(found: Entries) -> str:
    rows = []
    for dataset, encoder, row in _rows(found):
        which = {"row": row, "encoder": encoder, "dataset": dataset}
        accuracy, macro, dev = (
            found.one("table2", metric=metric, **which) for metric in (*_TASK, "dev_macro_f1")
        )
        seeds = str(accuracy["n"]) if accuracy else ""
        cells = [*compared(accuracy), *compared(macro), spread(dev) if dev else ""]
        rows.append([DATASETS[dataset], encoder, ENCODER_ROWS[row], seeds, *cells])
    header = ["dataset", "encoder", "model", "seeds",
              "accuracy", "paper", "Δ", "macro-F1", "paper", "Δ", "on dev"]  # fmt: skip
    return table(header, rows)


def _differences(found: Entries, row: str, encoder: str) -> list[Entry]:
    names = [f"{metric}_vs_bert" for metric in _TASK]
    return [
        entry
        for dataset in DATASETS
        for entry in found.all_of("table2", names, row=row, encoder=encoder, dataset=dataset)
    ]


def _claim(found: Entries) -> str:
    rows = []
    for encoder in _encoders(found):
        for row in ENCODER_ROWS:
            for entry in _differences(found, row, encoder):
                difference = difference_of(entry)
                metric = METRICS[entry["metric"].removesuffix("_vs_bert")]
                printed = "" if entry["paper"] is None else signed(entry["paper"])
                rows.append([
                    encoder, ENCODER_ROWS[row], DATASETS[entry["dataset"]], metric,
                    interval(difference), str(entry["n"]), printed, difference.verdict,
                ])  # fmt: skip
    if not rows:
        return ""
    said = "Differences to BERT with the same seed, with 95 % intervals over seeds (Student's t)."
    header = ["encoder", "model", "dataset", "metric", "minus BERT", "pairs", "paper", "ours"]
    return f"### Do the capsules help?\n\n{said}\n\n{table(header, rows)}"


def _robustness(found: Entries) -> str:
    rows = []
    for dataset, encoder, row in _rows(found):
        which = {"row": row, "encoder": encoder, "dataset": dataset}
        entries = found.all_of("arts", list(VARIANTS), **which)
        if entries:
            rows.append([DATASETS[dataset], encoder, ENCODER_ROWS[row], *map(spread, entries)])
    if not rows:
        return ""
    header = ["dataset", "encoder", "model", *VARIANTS.values()]
    return f"### Robustness: ARTS\n\n{table(header, rows)}"


def _detection(found: Entries) -> str:
    rows = []
    for dataset, encoder, row in _rows(found):
        for gold in ("all", "same-polarity"):
            which = {"row": row, "encoder": encoder, "dataset": dataset, "gold": gold}
            entries = found.all_of("table4", RANKING, **which)
            against = found.all_of("table4", [f"{name}_vs_centroid" for name in RANKING], **which)
            if entries:
                gaps = [interval(difference_of(entry)) for entry in against]
                cells = [*map(spread, entries), gaps[-1] if gaps else ""]
                rows.append([DATASETS[dataset], encoder, ENCODER_ROWS[row], gold, *cells])
    if not rows:
        return ""
    said = paragraph(
        """As in table 4, in the space of the encoder's input pieces; a word is scored by its best
        piece, with the score that has the better mAP on dev. The last column is mAP minus that of
        the centroid control in the same space."""
    )
    header = ["dataset", "encoder", "model", "gold", "P@1", "R@5", "mAP", "mAP against control"]
    return f"### Aspect detection\n\n{said}\n\n{table(header, rows)}"
