"""One report, from scored files to the page."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import ConfigError, MissingExtraError
from capsar.reporting.calendar import make_calendar
from capsar.reporting.content import Findings, make_content
from capsar.reporting.counting import Counter, count_totals, load_keys, load_mentions
from capsar.reporting.knowledge import learn
from capsar.reporting.merging import merge
from capsar.reporting.options import ReportOptions
from capsar.reporting.sampling import Sampler
from capsar.reporting.scored import connect, open_scored

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

    from capsar.reporting.scored import Scored

FORMATS = ("html", "json", "csv")
_SENTENCES = 12
"""Of each aspect and polarity, in all groups together; of each group at least two."""


def report(
    scored: str | Path,
    output: str | Path | None = None,
    options: ReportOptions | None = None,
    *,
    form: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Tell what a scored corpus says, and return all of it as JSON holds it.

    Args:
        scored: The folder that `capsar score` wrote, or one Parquet file of it.
        output: Where to write the report; without it nothing is written.
        options: What is compared, and how much is shown.
        form: Of what is written: `html`, one page that needs nothing else; `json`; or `csv`. By
            default what the name of `output` ends with, else `html`.
        on_progress: Called with how many rows are counted, and how many there are.

    Raises:
        DataError: If the files are no scored ones, or do not have a column that is named.
        ConfigError: If the form is not known, or is another than the name of `output` says.
        MissingExtraError: If what a report is made with is not installed.
    """
    form = _form(output, form)
    _check_extra()
    options = options or ReportOptions()
    with connect(options) as database:
        source = open_scored(database, scored)
        findings = _find(database, source, options, on_progress)
    content = make_content(findings, options, finest=form != "html")
    if output is not None:
        Path(output).write_text(render(content, form), encoding="utf-8", newline="\n")
    return content


def _form(output: str | Path | None, form: str | None) -> str:
    suffix = Path(output or "").suffix.lower().removeprefix(".")
    if form is None:
        return suffix if suffix in FORMATS else FORMATS[0]
    if form not in FORMATS:
        raise ConfigError(f"There is no form {form!r}; expected one of {', '.join(FORMATS)}")
    if suffix in FORMATS and suffix != form:
        raise ConfigError(
            f"{str(output)!r} is named as {suffix}, but {form} is asked for; name it "
            f"{Path(output or '').with_suffix(f'.{form}').name!r}, or leave the format out"
        )
    return form


def _check_extra() -> None:
    if not all(map(find_spec, ("altair", "duckdb", "symspellpy"))):
        raise MissingExtraError("report", "A report")


def render(content: dict[str, Any], form: str) -> str:
    """Return a report in one of its forms."""
    if form == "json":
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    if form == "csv":
        from capsar.reporting.tables import render_csv

        return render_csv(content)
    from capsar.reporting.page import render_page

    return render_page(content)


def _find(
    database: DuckDBPyConnection,
    scored: Scored,
    options: ReportOptions,
    on_progress: Callable[[int, int], None] | None,
) -> Findings:
    knowledge = learn(scored, options)
    text_column = options.text_column or scored.text_column
    if text_column is not None:
        scored.column(text_column, "--text-column")
    totals = count_totals(database, scored, options)
    calendar = make_calendar(database, scored, options)
    aspects = merge(totals.names)[: options.aspects]
    load_keys(database, scored, aspects, totals.groups)
    counter = Counter(
        len(aspects),
        len(totals.groups),
        len(calendar.starts) if calendar else 0,
        options.min_confidence,
    )
    parts = max(1, len(totals.groups))
    sampler = Sampler(database, max(2, -(-_SENTENCES // parts)), options.min_confidence)
    rows = 0
    for batch in scored.batches():
        load_mentions(database, scored, batch, options, calendar)
        counter.add(database)
        sampler.add()
        rows += sum(scored.rows[number] for number in batch)
        if on_progress is not None:
            on_progress(rows, totals.rows)
    sentences = sampler.sentences(scored, text_column) if text_column else []
    counted = counter.counted()
    return Findings(scored, totals, aspects, counted, calendar, sentences, text_column, knowledge)
