"""Report on a scored folder."""

from __future__ import annotations

import json
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import ConfigError, DataError, MissingExtraError
from capsar.reporting.aspect_names import merge_names, normalize_name
from capsar.reporting.content import ReportData, make_content
from capsar.reporting.counting import EXCLUDED, MentionCounter, load_keys, load_mentions
from capsar.reporting.drivers import MAX_DRIVERS, DriverCounter
from capsar.reporting.model_info import find_model_info
from capsar.reporting.options import ReportOptions
from capsar.reporting.periods import make_periods
from capsar.reporting.phrases import PhraseCounter
from capsar.reporting.quality import check_quality
from capsar.reporting.query import connect, count_totals, number_files, open_scored_folder
from capsar.reporting.render import render_csv, render_page
from capsar.reporting.sampling import Sampler
from capsar.reporting.themes import ReportThemes, given_themes, scored_themes
from capsar.reporting.workbook import render_workbook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duckdb import DuckDBPyConnection

    from capsar.reporting.aspect_names import MergedAspect
    from capsar.reporting.query import ScoredFolder

FORMATS = ("html", "json", "csv", "xlsx")
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
        format: `html`, a self-contained page; `json`; `csv`; or `xlsx`. By default the suffix of
            `output`, or else `html`.
        on_progress: Called with the number of rows counted so far and the number of all rows.

    Raises:
        DataError: If the files are not the output of `capsar score`, or a column does not exist.
        ConfigError: If the format is unknown or contradicts the suffix of `output`.
        MissingExtraError: If the extra `report` is not installed.
    """
    format = _check_format(output, format)  # noqa: A001
    if not all(map(find_spec, ("duckdb", "py3langid", "snowballstemmer", "symspellpy"))):
        raise MissingExtraError("report", "A report")
    if format == "xlsx" and find_spec("openpyxl") is None:
        raise MissingExtraError("analyst", "An Excel file")
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise ConfigError(f"There is no folder {str(Path(output).parent)!r} to write to")
    options = options or ReportOptions()
    with connect(options) as database:
        data = _read(database, open_scored_folder(database, scored), options, on_progress)
    content = make_content(data, options, detailed=format != "html")
    if output is not None:
        Path(output).write_bytes(_render(content, format))
    return content


def _check_format(output: str | Path | None, format: str | None) -> str:  # noqa: A002
    suffix = Path(output or "").suffix.lower().removeprefix(".")
    if format is None:
        if suffix not in ("", "htm", *FORMATS):
            raise ConfigError(
                f"{str(output)!r}: a report is written as {', '.join(FORMATS)}, not as {suffix}. A "
                "browser prints an HTML page as PDF."
            )
        return suffix if suffix in FORMATS else FORMATS[0]
    if format not in FORMATS:
        raise ConfigError(f"Unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    if suffix in FORMATS and suffix != format:
        raise ConfigError(
            f"{str(output)!r} has the suffix of {suffix}, but the format is {format}; name it "
            f"{Path(output or '').with_suffix(f'.{format}').name!r}, or omit the format"
        )
    return format


def _render(content: dict[str, Any], format: str) -> bytes:  # noqa: A002
    if format == "xlsx":
        return render_workbook(content)
    if format == "json":
        text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)
        return f"{text}\n".encode(errors="backslashreplace")
    return (render_csv(content) if format == "csv" else render_page(content)).encode()


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
    elif options.drop:
        raise DataError(
            f"drop: {options.drop[0]} are found by the text of reviews, which was not kept. Score "
            "with --keep and its column, or name it with --text-column."
        )
    number_files(database, scored)
    quality = check_quality(database, scored, text_column, options) if text_column else None
    themes = ReportThemes() if options.themes else scored_themes(database, scored)
    totals = count_totals(database, scored, options, implicit=themes.has_implicit)
    periods = make_periods(database, scored, options)
    merged = merge_names(totals.names)
    kept, excluded = _exclude(merged, options.exclude)
    if options.themes:
        themes = given_themes(options, kept)
    aspects = kept[: options.aspects]
    first, groups = len(themes.names), totals.groups
    keys = {name: first + n for n, aspect in enumerate(aspects) for name in aspect.spellings}
    keys |= dict.fromkeys((name for aspect in excluded for name in aspect.spellings), EXCLUDED)
    load_keys(database, keys, groups, themes)
    counter = MentionCounter(
        first, len(aspects), len(groups), len(periods.starts), options.min_confidence
    )
    per_group = max(2, -(-_SENTENCES // max(1, len(groups))))
    sampler = Sampler(database, per_group, options.min_confidence)
    phrase_counter = PhraseCounter(database, options.min_confidence)
    driver_counter = _count_drivers(database, scored, options, themes, len(aspects))
    rows = 0
    for batch in scored.batches():
        load_mentions(database, scored, batch, options.by, periods.sql, themes)
        counter.add(database)
        sampler.add()
        phrase_counter.add()
        if driver_counter is not None:
            driver_counter.add(scored, batch)
        rows += sum(scored.rows[number] for number in batch)
        if on_progress is not None:
            on_progress(rows, totals.rows)
    phrases = phrase_counter.phrases()
    sentences = sampler.sentences(scored, text_column, phrases) if text_column else []
    return ReportData(
        scored=scored,
        totals=totals,
        quality=quality,
        themes=themes,
        aspects=aspects,
        excluded=sum(one.mentions for one in excluded),
        counter=counter,
        periods=periods,
        phrases=phrases,
        sentences=sentences,
        drivers=None if driver_counter is None else driver_counter.drivers(),
        text_column=text_column,
        model=model,
    )


def _exclude(
    aspects: list[MergedAspect], names: Sequence[str]
) -> tuple[list[MergedAspect], list[MergedAspect]]:
    """Return the aspects to count, and those that have one of the names.

    Raises:
        ConfigError: If no aspect has a name.
    """
    wanted = {normalize_name(name) for name in names}
    forms = {aspect.name: set(map(normalize_name, aspect.spellings)) for aspect in aspects}
    known = set().union(*forms.values())
    for name in sorted(wanted - known):
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"exclude: no aspect has the name {name!r}{hint}")
    excluded = [aspect for aspect in aspects if forms[aspect.name] & wanted]
    return [aspect for aspect in aspects if not forms[aspect.name] & wanted], excluded


def _count_drivers(
    database: DuckDBPyConnection,
    scored: ScoredFolder,
    options: ReportOptions,
    themes: ReportThemes,
    num_aspects: int,
) -> DriverCounter | None:
    """Return a counter for the themes without a parent or else for the most frequent aspects."""
    if options.rating is None:
        return None
    rating = f"TRY_CAST({scored.column(options.rating, '--rating')} AS DOUBLE)"
    is_rated, origin = database.execute(
        f"""SELECT count(*) FILTER (isfinite(rating)) * 2 >= count(*),
                   coalesce(avg(rating) FILTER (isfinite(rating)), 0)
            FROM {scored.select(rating=rating)}""",  # noqa: S608
        {"files": scored.files},
    ).fetchall()[0]
    if not is_rated:
        raise DataError(
            f"--rating: fewer than half of the values of {options.rating!r} are numbers"
        )
    topics = [number for number, parent in enumerate(themes.parents) if parent is None]
    return DriverCounter(database, topics or range(num_aspects)[:MAX_DRIVERS], rating, origin)
