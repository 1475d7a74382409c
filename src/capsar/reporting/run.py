"""Report on a scored folder."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import ConfigError, MissingExtraError
from capsar.reporting.aspect_names import merge_names
from capsar.reporting.content import ReportData, make_content
from capsar.reporting.model_info import find_model_info
from capsar.reporting.options import ReportOptions
from capsar.reporting.periods import make_periods
from capsar.reporting.phrases import PhraseCounter
from capsar.reporting.query import (
    MentionCounter,
    connect,
    count_totals,
    load_keys,
    load_mentions,
    open_scored_folder,
)
from capsar.reporting.render import render_csv, render_page
from capsar.reporting.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

    from capsar.reporting.query import ScoredFolder

FORMATS = ("html", "json", "csv")
_SENTENCES = 12
"""Per aspect and polarity, over all groups; each group has at least two."""


def report(
    scored: str | Path,
    output: str | Path | None = None,
    options: ReportOptions | None = None,
    *,
    format: str | None = None,  # noqa: A002  (the name of the option)
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Report on a scored folder and return the content in its JSON form.

    Args:
        scored: The folder that `capsar score` wrote, or one Parquet file of it.
        output: The file to write; without it nothing is written.
        options: What to compare and how much to show.
        format: `html`, a self-contained page; `json`; or `csv`. By default the suffix of `output`,
            or else `html`.
        on_progress: Called with the number of rows counted so far and the number of all rows.

    Raises:
        DataError: If the files are not the output of `capsar score`, or a column does not exist.
        ConfigError: If the format is unknown or contradicts the suffix of `output`.
        MissingExtraError: If the extra `report` is not installed.
    """
    format = _check_format(output, format)  # noqa: A001
    if not all(map(find_spec, ("duckdb", "snowballstemmer", "symspellpy"))):
        raise MissingExtraError("report", "A report")
    options = options or ReportOptions()
    with connect(options) as database:
        data = _read(database, open_scored_folder(database, scored), options, on_progress)
    content = make_content(data, options, detailed=format != "html")
    if output is not None:
        Path(output).write_text(_render(content, format), encoding="utf-8", newline="\n")
    return content


def _check_format(output: str | Path | None, format: str | None) -> str:  # noqa: A002
    suffix = Path(output or "").suffix.lower().removeprefix(".")
    if format is None:
        return suffix if suffix in FORMATS else FORMATS[0]
    if format not in FORMATS:
        raise ConfigError(f"Unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    if suffix in FORMATS and suffix != format:
        raise ConfigError(
            f"{str(output)!r} has the suffix of {suffix}, but the format is {format}; name it "
            f"{Path(output or '').with_suffix(f'.{format}').name!r}, or omit the format"
        )
    return format


def _render(content: dict[str, Any], format: str) -> str:  # noqa: A002
    if format == "json":
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
    return render_csv(content) if format == "csv" else render_page(content)


def _read(
    database: DuckDBPyConnection,
    scored: ScoredFolder,
    options: ReportOptions,
    on_progress: Callable[[int, int], None] | None,
) -> ReportData:
    model = find_model_info(scored, options)
    text_column = options.text_column or scored.text_column
    if text_column is not None:
        scored.column(text_column, "--text-column")
    totals = count_totals(database, scored, options)
    periods = make_periods(database, scored, options)
    aspects = merge_names(totals.names)[: options.aspects]
    numbers = {name: number for number, one in enumerate(aspects) for name in one.spellings}
    load_keys(database, scored, numbers, totals.groups)
    counter = MentionCounter(
        len(aspects), len(totals.groups), len(periods.starts), options.min_confidence
    )
    per_group = max(2, -(-_SENTENCES // max(1, len(totals.groups))))
    sampler = Sampler(database, per_group, options.min_confidence)
    phrase_counter = PhraseCounter(database, options.min_confidence)
    rows = 0
    for batch in scored.batches():
        load_mentions(database, scored, batch, options.by, periods.sql)
        counter.add(database)
        sampler.add()
        phrase_counter.add()
        rows += sum(scored.rows[number] for number in batch)
        if on_progress is not None:
            on_progress(rows, totals.rows)
    phrases = phrase_counter.phrases()
    sentences = sampler.sentences(scored, text_column, phrases) if text_column else []
    return ReportData(
        scored, totals, aspects, counter, periods, phrases, sentences, text_column, model
    )
