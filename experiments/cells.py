"""How figures are written in Markdown: numbers, spreads, intervals, tables, paragraphs."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from interval import difference_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from interval import Difference
    from summary_values import Entry

SEEDS = 5
_WIDTH = 120


def paragraph(text: str, indent: str = "") -> str:
    """Fold a text to the width of the page."""
    return textwrap.fill(
        " ".join(text.split()), _WIDTH, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def counted(values: Iterable[str]) -> str:
    """Name values with how many runs have each, or the only one alone."""
    counts = Counter(values)
    if len(counts) == 1:
        return next(iter(counts))
    found = sorted(counts.items())
    return ", ".join(f"{value} ({number} run{'s' * (number > 1)})" for value, number in found)


def compared(entry: Entry | None) -> list[str]:
    """Return three cells: ours, the paper's, and the difference."""
    if entry is None:
        return ["", "", ""]
    printed = number(entry["paper"]) if entry["paper"] is not None else ""
    if entry["mean"] is None:
        return ["", printed, ""]
    gap = signed(entry["mean"] - entry["paper"]) if printed else ""
    return [spread(entry), printed, gap]


def seeds(entry: Entry, planned: int = SEEDS) -> str:
    """Say how many seeds there are, unless all are."""
    return "" if entry["n"] == planned else f" ({entry['n']} of {planned} seeds)"


def spread(entry: Entry) -> str:
    """Return mean and standard deviation."""
    spread = f" ± {number(entry['sd'])}" if entry["sd"] is not None else ""
    return number(entry["mean"]) + spread


def interval(difference: Difference) -> str:
    """Return a difference with its interval."""
    if difference.half_width is None:
        return signed(difference.mean)
    low, high = difference.mean - difference.half_width, difference.mean + difference.half_width
    return f"{signed(difference.mean)} [{signed(low)}, {signed(high)}]"


def number(value: float) -> str:
    """Four digits, without the zero before the point."""
    text = f"{abs(value):.4f}"
    sign = "−" if round(value, 4) < 0 else ""
    return sign + (text.removeprefix("0") if text.startswith("0.") else text)


def signed(value: float) -> str:
    """Return a number with its sign."""
    sign = "−" if round(value, 4) < 0 else "+"
    return sign + number(abs(value))


def listed(names: list[str]) -> str:
    """Return names as a sentence lists them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def by_verdict(named: Iterable[tuple[str, Entry]], words: dict[str, str]) -> list[str]:
    """Return a sentence's part for each verdict on differences: its words, and what it holds for.

    Args:
        named: Differences, and what each is called.
        words: How a verdict is told.
    """
    verdicts: dict[str, list[str]] = {}
    for name, entry in named:
        verdicts.setdefault(difference_of(entry).verdict, []).append(name)
    return [f"{words[verdict]} {listed(verdicts[verdict])}" for verdict in words
            if verdict in verdicts]  # fmt: skip


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
