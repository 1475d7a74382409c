"""A report as CSV: one line for each share."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING, Any

from capsar.labels import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = (
    "aspect", "group", "period", "mentions", "reviews", "unsure",
    *(f"{one}{part}" for one in CLASSES for part in ("", "_low", "_high", "_told")),
    "net", "net_low", "net_high", "corrected",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(content: dict[str, Any]) -> str:
    """Return the shares of all aspects, and of each in every group, period and both.

    An empty `aspect` is all of them, an empty `group` or `period` likewise.
    """
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for names, cell in _cells(content):
        if cell["mentions"]:
            writer.writerow([*map(_safe, names), *_numbers(cell)])
    return stream.getvalue()


def _cells(content: dict[str, Any]) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    groups, starts = content["groups"]["names"], content["periods"]["starts"]
    for aspect, where in [("", content["overall"]), *((a["name"], a) for a in content["aspects"])]:
        yield (aspect, "", ""), where
        for group, cell in zip(groups, where["by_group"], strict=True):
            yield (aspect, group, ""), cell
        for start, cell in zip(starts, where["by_period"], strict=True):
            yield (aspect, "", start), cell
    if groups and starts:
        for aspect, by_group in zip(content["aspects"], content["cells"], strict=True):
            for group, by_period in zip(groups, by_group, strict=True):
                for start, cell in zip(starts, by_period, strict=True):
                    yield (aspect["name"], group, start), cell


def _numbers(cell: dict[str, Any]) -> list[float | str]:
    numbers: list[float | str] = [cell["mentions"], cell["reviews"], cell["unsure"]]
    for polarity, told in zip(CLASSES, cell["told"], strict=True):
        numbers += [*cell[str(polarity)], told]
    return [*numbers, *cell["net"], "yes" if cell["corrected"] else "no"]


def _safe(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
