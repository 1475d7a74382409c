"""Data frames in, data frames out: pandas, Polars and Arrow alike, by narwhals."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from capsar.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import AspectSentiment

_COLUMNS = (
    "aspect", "start", "end", "polarity", "confidence", "aspect_confidence", "opinions",
)  # fmt: skip
_THEME_COLUMNS = ("theme", "theme_confidence", "implicit")
_PROGRESS_ROWS = 500
"""Smaller frames show no progress."""


def analyze_frame(
    analyzer: Analyzer,
    frame: Any,  # noqa: ANN401  (of any library)
    text: str,
    *,
    progress: bool | None,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return one row per mention; see `Analyzer.analyze_frame`."""
    try:
        import narwhals as nw
    except ImportError as error:
        raise MissingExtraError("analyst", "analyze_frame") from error
    if hasattr(frame, "collect") and not hasattr(frame, "to_dict"):
        raise DataError("The frame is lazy; call .collect() first")
    try:
        table = nw.from_native(frame, eager_only=True)
        names = [str(name) for name in table.columns]
    except (TypeError, nw.exceptions.NarwhalsError) as error:
        raise DataError(
            f"Expected a data frame of pandas, Polars or Arrow, got {type(frame).__name__}: {error}"
        ) from error
    columns = _COLUMNS + (("abstained",) if options.get("min_confidence") else ())
    columns += _THEME_COLUMNS if options.get("themes") is not None else ()
    if text not in table.columns:
        raise DataError(f"The frame has no column {text!r}; it has {', '.join(names)}")
    taken = [name for name in columns if name in table.columns]
    if taken:
        raise DataError(
            f"The frame has a column {taken[0]!r}, which the result uses; rename it, for example "
            f"to {'review_' + taken[0]!r}"
        )
    column = table[text]
    pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
    # A missing value is null, or NaN in a column that also holds text.
    texts = ("" if missing or _is_nan(value) else value for value, missing in pairs)
    found = analyzer.analyze_stream(texts, **options)
    rows: list[int] = []
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for row, mentions in enumerate(_show_progress(found, len(table), progress)):
        for mention in mentions:
            rows.append(row)
            for name in columns:
                values[name].append(_value(mention, name))
    types = {"start": nw.Int64, "end": nw.Int64, "confidence": nw.Float64, "implicit": nw.Boolean}
    types |= {"aspect_confidence": nw.Float64, "theme_confidence": nw.Float64}
    types["abstained"] = nw.Boolean
    backend = table.implementation
    series = [
        nw.new_series(name, values[name], types.get(name, nw.String), backend=backend)
        for name in columns
    ]
    chosen = table[rows]
    if backend.is_pandas_like():  # narwhals aligns by index
        chosen = nw.maybe_reset_index(chosen)
    return chosen.with_columns(*series).to_native()


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _value(mention: AspectSentiment, name: str) -> object:
    if name == "aspect":
        return mention.text
    if name == "polarity":
        return str(mention.polarity)
    if name == "opinions":
        return "; ".join(opinion.text for opinion in mention.opinions or ())
    return getattr(mention, name)


def _show_progress(
    found: Iterable[list[AspectSentiment]], rows: int, progress: bool | None
) -> Iterator[list[AspectSentiment]]:
    """Yield results, with a progress bar on a terminal and in a notebook."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    in_notebook = "ipykernel" in sys.modules
    shown = progress
    if progress is None:
        shown = rows >= _PROGRESS_ROWS and (console.is_terminal or in_notebook)
    yield from track(
        found,
        "analyzing",
        total=rows,
        console=None if in_notebook else console,
        disable=not shown,
        transient=True,
    )
