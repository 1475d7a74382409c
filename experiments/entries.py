"""Entries of the summary, found by what they are about; and the names that people see."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from summary_values import Entry

DATASETS = {"restaurant": "Restaurant", "laptop": "Laptop", "twitter": "Twitter"}
ROWS = {
    "capsar-wo-r": "CAPSAR w/o R",
    "capsar-wo-h": "CAPSAR w/o H",
    "capsar": "CAPSAR",
    "centroid": "centroid control",
}
ENCODER_ROWS = {
    "bert": "BERT",
    "capsar-bert": "CAPSAR-BERT",
    "capsar-bert-pair": "CAPSAR-BERT, aspect as second segment too",
}
"""Rows on a pre-trained encoder."""
FOLD_ROWS = {"capsar-folds": "CAPSAR, averaged, cross-validated"}
"""Rows without one dev part."""
SPAN_ROWS = {
    "capsar-spans": "CAPSAR with a head, Bi-GRU",
    "capsar-spans-folds": "CAPSAR with a head, Bi-GRU, averaged, cross-validated",
    "capsar-bert-spans": "CAPSAR-BERT with a head, MiniLM",
}
"""Rows with an extraction head."""
BEST_ROWS = {
    "capsar-best": "CAPSAR, Bi-GRU",
    "capsar-bert-best": "CAPSAR-BERT: the teacher",
}
"""Rows with more than the training part."""
BEST_ABLATIONS = {
    "capsar-best-wo-told": "reviews that a teacher told of",
    "capsar-best-wo-teacher": "any teacher, its reviews too",
    "capsar-best-wo-imitation": "imitation of its states",
    "capsar-best-wo-both": "imitation of its states, and MAMS",
    "capsar-best-wo-labelled": "other labelled reviews",
    "capsar-best-wo-average": "the running mean of weights",
    "capsar-best-wo-settings": "other settings than the paper's",
}
"""Each without one of the changes, on Restaurant."""
METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "p_at_1": "P@1",
    "r_at_5": "R@5",
    "map": "mAP",
}
VARIANTS = {
    "accuracy_original": "original",
    "accuracy_adv1": "target reversed",
    "accuracy_adv2": "others reversed",
    "accuracy_adv3": "opposites added",
    "ars": "all variants (ARS)",
    "mixed_accuracy": "mixed polarity",
}
"""Columns of the table of robustness."""
RANKING = ("p_at_1", "r_at_5", "map")
RIVALS = ("random", "gradient", "gradient_norm")


class Entries:
    """What `summary.json` holds."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def find(self, table: str, **facts: object) -> list[Entry]:
        """Return the entries of a table that have these values."""
        return [
            entry
            for entry in self._entries
            if entry["table"] == table and all(entry[k] == v for k, v in facts.items())
        ]

    def one(self, table: str, **facts: object) -> Entry | None:
        """Return the only such entry, or nothing."""
        found = self.find(table, **facts)
        if len(found) > 1:
            raise ValueError(f"{len(found)} entries of {table} for {facts}")
        return found[0] if found else None

    def all_of(self, table: str, metrics: Sequence[str], **facts: object) -> list[Entry]:
        """Return one entry for each metric, or nothing if one is missing or has no runs."""
        found = [self.one(table, metric=metric, **facts) for metric in metrics]
        return [entry for entry in found if entry] if all(e and e["n"] for e in found) else []
