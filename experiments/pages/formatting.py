"""How results are written in Markdown: numbers, intervals, tables, and the names of rows."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from metrics.interval import Difference, difference_of, gap_to_paper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from summarize import Entry, Results

SEEDS = 5
DATASETS = {"restaurant": "Restaurant", "laptop": "Laptop", "twitter": "Twitter"}
ROWS = {
    "capsar-wo-r": "CAPSAR w/o R",
    "capsar-wo-h": "CAPSAR w/o H",
    "capsar": "CAPSAR",
    "centroid": "centroid control",
}
ENCODER_ROWS = {
    "bert": "BERT",
    "bert-mean": "BERT, mean-pooled",
    "capsar-bert": "CAPSAR-BERT",
    "capsar-bert-pair": "CAPSAR-BERT, aspect also as second segment",
}
"""Rows on a pre-trained encoder."""
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
"""Columns of the robustness tables."""
_WIDTH = 120


class Number(float):
    """A number that templates write without the zero before the decimal point.

    >>> f"{Number(0.7562):.4f} {Number(-0.02):.2f} {Number(2184.3):,.0f} {Number(0.5):.1f}"
    '.7562 −.02 2,184 0.5'
    """

    def __format__(self, spec: str) -> str:
        """Drop the zero if at least two decimal places are shown."""
        text = float.__format__(self, spec).replace("-", "−")
        decimals = spec.partition(".")[2].removesuffix("f")
        drops_zero = decimals.isdigit() and int(decimals) > 1 and abs(self) < 1
        return text.replace("0.", ".", 1) if drops_zero else text


def paragraph(text: str, indent: str = "") -> str:
    """Wrap a text to the width of a page."""
    return textwrap.fill(
        " ".join(text.split()), _WIDTH, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def bullets(lines: Iterable[str]) -> str:
    """Return a Markdown list."""
    return "\n".join(paragraph(f"- {line}", "  ") for line in lines)


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def number(value: float) -> str:
    """Return four decimal places, without the zero before the point."""
    return ("−" if round(value, 4) < 0 else "") + f"{Number(abs(value)):.4f}"


def signed(value: float) -> str:
    """Return a number with its sign."""
    return ("−" if round(value, 4) < 0 else "+") + number(abs(value))


def spread(entry: Entry | None) -> str:
    """Return mean ± standard deviation, or nothing without an entry."""
    if entry is None:
        return ""
    return number(entry["mean"]) + (f" ± {number(entry['sd'])}" if entry["sd"] is not None else "")


def interval(difference: Difference) -> str:
    """Return a difference with its interval."""
    if difference.half_width is None:
        return signed(difference.mean)
    low, high = difference.mean - difference.half_width, difference.mean + difference.half_width
    return f"{signed(difference.mean)} [{signed(low)}, {signed(high)}]"


def gap(entry: Entry) -> str:
    """Return the interval of the difference that an entry holds."""
    return interval(difference_of(entry))


def difference_cells(metric: str, entry: Entry) -> list[str]:
    """Return five cells: metric, difference, number of pairs, the paper's difference, verdict."""
    printed = "" if entry["paper"] is None else signed(entry["paper"])
    found = difference_of(entry)
    return [METRICS[metric], interval(found), str(entry["n"]), printed, found.verdict]


def compared(entry: Entry | None) -> list[str]:
    """Return three cells: our mean, the paper's value, and the difference with its interval."""
    if entry is None:
        return ["", "", ""]
    printed = number(entry["paper"]) if entry["paper"] is not None else ""
    if entry["mean"] is None:
        return ["", printed, ""]
    return [spread(entry), printed, interval(gap_to_paper(entry)) if printed else ""]


def seeds(entry: Entry, planned: int = SEEDS) -> str:
    """Return how many seeds there are, unless there are all."""
    return "" if entry["n"] == planned else f" ({entry['n']} of {planned} seeds)"


def counted(values: Iterable[str]) -> str:
    """Return the distinct values with the number of runs that have each."""
    counts = Counter(values)
    if len(counts) == 1:
        return next(iter(counts))
    found = sorted(counts.items())
    return ", ".join(f"{value} ({number} run{'s' * (number > 1)})" for value, number in found)


def listed(names: list[str]) -> str:
    """Return names as a sentence lists them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def by_verdict(named: Iterable[tuple[str, Difference]]) -> str:
    """Return which differences are significantly higher, lower, or neither, in one sentence."""
    verdicts: dict[str, list[str]] = {}
    for name, difference in named:
        verdicts.setdefault(difference.verdict, []).append(name)
    order = ("higher", "lower", "not significantly different", "too few seeds")
    return "; ".join(f"{verdict}: {listed(verdicts[verdict])}" for verdict in order
                     if verdict in verdicts)  # fmt: skip


def each(
    results: Results,
    name: str,
    metrics: Sequence[str],
    rows: dict[str, str],
    *,
    optional: Sequence[str] = (),
    dataset: str | None = None,
    **facts: object,
) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield dataset, label and entries of some rows, for every encoder and protocol.

    Args:
        results: The results.
        name: A table of the summary.
        metrics: The metrics that must all be there.
        rows: Rows of that table and their labels.
        optional: Further metrics, None where missing.
        dataset: Only this dataset.
        facts: Other fields of the entries.
    """
    found = results.summary
    for key in [dataset] if dataset else DATASETS:
        for row, label in rows.items():
            for first in found.find(name, metric=metrics[0], row=row, dataset=key, **facts):
                fields = ("row", "dataset", "encoder", "protocol", "gold")
                which = {field: first[field] for field in fields}
                entries = found.all_of(name, metrics, **which)
                if entries:
                    further = [found.one(name, metric=metric, **which) for metric in optional]
                    yield DATASETS[key], label, [*entries, *further]
