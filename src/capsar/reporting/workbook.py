"""Render a report as an Excel workbook."""

from __future__ import annotations

import re
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any

from capsar.reporting.aspect_names import strip_invisible
from capsar.reporting.drivers import SIGNS
from capsar.reporting.render import COLUMNS, share_rows
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MAX_WIDTH = 60
_MAX_ROWS, _MAX_CHARS = 1_048_575, 32_767
"""Limits of Excel: rows below the header, and characters of a cell."""
_BREAK = re.compile(r"[\t\r\n]+")
_Row = list[str | float | None]


def render_workbook(content: dict[str, Any]) -> bytes:
    """Return summary, themes, aspects, shares, phrases and sentences as sheets of an Excel file."""
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    topics = [("theme", one) for one in content["themes"]]
    topics += [("aspect", one) for one in content["aspects"]]
    _add_sheet(book, "Summary", ("", ""), _summary(content))
    for kind in ("theme", "aspect"):
        above = "parent" if kind == "theme" else "theme"
        rows = [
            [one["name"], "" if one[above] is None else content["themes"][one[above]]["name"],
             *_overview(one)]
            for name, one in topics
            if name == kind and one["mentions"]
        ]  # fmt: skip
        if rows:
            _add_sheet(book, f"{kind.title()}s", (kind, above, *_OVERVIEW), rows)
    _add_sheet(book, "Shares", COLUMNS, ([*names, *row] for names, row in share_rows(content)))
    _add_sheet(book, "Phrases", ("kind", "name", "polarity", "phrase", "mentions"), (
        [kind, one["name"], polarity, phrase["text"], phrase["mentions"]]
        for kind, one in topics
        for polarity, phrases in one["phrases"].items()
        for phrase in phrases
    ))  # fmt: skip
    _add_sheet(book, "Sentences", ("kind", "name", "polarity", "group", "confidence", "sentence"), (
        [kind, one["name"], sentence["polarity"],
         content["groups"]["names"][sentence["group"]] if sentence["group"] >= 0 else "",
         sentence["confidence"], sentence["text"]]
        for kind, one in topics
        for sentence in one["sentences"]
    ))  # fmt: skip
    stream = BytesIO()
    book.save(stream)
    return stream.getvalue()


_OVERVIEW = (
    "mentions", "reviews", "implicit mentions", "negative", "neutral", "positive", "net",
    *(f"rating, {sign}{part}" for sign in SIGNS for part in ("", " low", " high")),
)  # fmt: skip


def _overview(topic: dict[str, Any]) -> _Row:
    effects: _Row = []
    for sign in SIGNS:
        effect = topic.get("rating", {}).get(str(sign))
        effects += effect["effect"] if effect else [None] * 3
    shares = [topic[str(one)][0] for one in (*CLASSES, "net")]
    counts = [topic["mentions"], topic["reviews"], topic.get("implicit", 0)]
    return [*counts, *shares, *effects]


def _summary(content: dict[str, Any]) -> Iterator[_Row]:
    yield ["Title", content["title"]]
    for name, value in content["totals"].items():
        yield [name.replace("_", " ").capitalize(), value]
    for name, value in (content["quality"] or {}).items():
        shown = value if name != "languages" else ", ".join(f"{k} {n}" for k, n in value.items())
        yield [name.replace("_", " ").capitalize(), shown]
    for name in ("criticized", "praised", "more_criticized_than_praised"):
        yield [name.replace("_", " ").capitalize(), ", ".join(content["summary"][name])]
    yield ["Model", content["model"]["name"]]
    yield ["Shares", "Those of the predictions, with 95 % intervals for sampling error."]


def _add_sheet(book: Any, name: str, columns: Sequence[str], rows: Iterable[_Row]) -> None:  # noqa: ANN401
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    sheet = book.create_sheet(name)
    sheet.freeze_panes = "A2"
    for number, column in enumerate(columns, 1):
        width = min(_MAX_WIDTH, max(len(column) + 2, 80 if column == "sentence" else 14))
        sheet.column_dimensions[get_column_letter(number)].width = width

    def cell(value: str | float | None, *, bold: bool = False) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return value
        # Without a type, openpyxl makes a formula of a text that begins with =.
        made = WriteOnlyCell(sheet, strip_invisible(_BREAK.sub(" ", value))[:_MAX_CHARS])
        made.data_type = "s"
        made.font = Font(bold=bold)
        return made

    sheet.append([cell(column, bold=True) for column in columns])
    for row in islice(rows, _MAX_ROWS):
        sheet.append([cell(value) for value in row])
