"""The content of a report as one JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.reporting.aspect_names import strip_invisible
from capsar.reporting.statistics import (
    LEVEL,
    MIN_REVIEWS,
    Shares,
    adjust_p_values,
    compare_shares,
    estimate_shares,
)
from capsar.schema import CLASSES, Polarity
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.reporting.aspect_names import MergedAspect
    from capsar.reporting.model_info import ModelInfo
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.periods import Periods
    from capsar.reporting.phrases import Phrase
    from capsar.reporting.query import MentionCounter, ScoredFolder, Totals
    from capsar.reporting.sampling import Sentence
    from capsar.reporting.statistics import AspectCounts

SCHEMA_VERSION = 1
_MIN_PERIODS_TO_COMPARE = 4
_SENTENCE_BYTES = 2_400_000
"""Keeps a page with all its sentences below 5 MB."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that was read from a scored folder."""

    scored: ScoredFolder
    totals: Totals
    aspects: list[MergedAspect]
    counter: MentionCounter
    periods: Periods
    phrases: list[Phrase]
    sentences: list[Sentence]
    text_column: str | None
    model: ModelInfo


def make_content(data: ReportData, options: ReportOptions, *, detailed: bool) -> dict[str, Any]:
    """Return the content of a report.

    Args:
        data: What was read.
        options: What to compare and how much to show.
        detailed: Whether to include every aspect in every group and period.
    """
    groups, periods = len(data.totals.groups), len(data.periods.starts)
    counts, overall = data.counter.aspects[:-1], data.counter.overall
    content = _facts(data, options)
    content["overall"] = _cells(overall.sum((0, 1))[None])[0] | {
        "by_group": _cells(overall.sum(1)[:groups]),
        "by_period": _cells(overall.sum(0)[:periods]),
    }
    content["aspects"] = [
        {"name": aspect.name, "variants": aspect.variants, "spellings": len(aspect.spellings)}
        | cell
        | {"by_group": by_group, "by_period": by_period}
        for aspect, cell, by_group, by_period in zip(
            data.aspects,
            _cells(counts.sum((1, 2))),
            _cells(counts.sum(2)[:, :groups]),
            _cells(counts.sum(1)[:, :periods]),
            strict=True,
        )
    ]
    content["differences"] = _differences(counts.sum(2), data.totals)
    content["changes"] = _changes(counts.sum(1)[:, :periods])
    content["phrases"] = _phrases(data)
    content["sentences"] = _sentences(data)
    if detailed:
        content["by_group_and_period"] = _cells(counts[:, :groups, :periods])
    return content


def _facts(data: ReportData, options: ReportOptions) -> dict[str, Any]:
    totals, periods = data.totals, data.periods
    errors = sum(number for _, number in totals.errors)
    confidences = [int(number) for number in data.counter.confidences]
    return {
        "schema_version": SCHEMA_VERSION,
        "capsar_version": __version__,
        "title": strip_invisible(options.title)
        or f"Aspects and sentiment in {totals.rows - errors:,} reviews",
        "source": {
            "name": data.scored.path.resolve().name,
            "files": len(data.scored.files),
            "is_complete": data.scored.is_complete,
            "text_column": data.text_column,
        },
        "totals": {
            "rows": totals.rows,
            "reviews": totals.rows - errors,
            "errors": errors,
            "without_aspect": totals.without_aspect,
            "mentions": totals.mentions,
            "names": totals.num_names,
            "mentions_shown": sum(aspect.mentions for aspect in data.aspects),
            "low_confidence": int(data.counter.overall.low_confidence.sum()),
        },
        "errors": [
            {"kind": strip_invisible(kind)[:200], "rows": rows} for kind, rows in totals.errors
        ],
        "groups": {
            "column": options.by,
            "names": [strip_invisible(name)[:80] for name in totals.groups],
            "total": totals.num_groups,
        },
        "periods": {
            "column": options.over,
            "unit": periods.unit,
            "starts": [str(start) for start in periods.starts],
            "undated": periods.undated,
        },
        "confidence": {
            "minimum": options.min_confidence,
            "bins": confidences[:-1],
            "unknown": confidences[-1],
        },
        "model": {
            "name": data.model.name,
            "metrics": data.model.metrics,
            "limits": data.model.limits,
        },
        "interval_level": LEVEL,
        "min_reviews": MIN_REVIEWS,
    }


def _cells(counts: AspectCounts) -> Any:  # noqa: ANN401  (nested lists)
    """Return counts and shares of each group, as nested lists of the shape of `counts`."""
    if not counts.reviews.size:
        return counts.reviews.tolist()
    shares = estimate_shares(counts)
    cells = np.empty(counts.reviews.shape, dtype=object)
    for index in np.ndindex(cells.shape):
        cells[index] = _cell(counts[index], shares, index)
    return cells.tolist()


def _cell(counts: AspectCounts, shares: Shares, index: tuple[int, ...]) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "mentions": int(counts.total),
        "reviews": int(counts.reviews),
        "low_confidence": int(counts.low_confidence),
        "counts": [int(number) for number in counts.mentions],
    }
    if cell["mentions"]:
        values = (shares.share[index], shares.low[index], shares.high[index])
        for number, name in enumerate((*map(str, CLASSES), "net")):
            cell[name] = [round(float(value[number]), 4) for value in values]
    return cell


def _differences(counts: AspectCounts, totals: Totals) -> list[dict[str, Any]]:
    """Compare each group with all others, for each aspect (A, G + 1)."""
    groups = len(totals.groups)
    if groups < 2:  # noqa: PLR2004
        return []
    # With only two groups, one test compares both.
    is_pair = groups == totals.num_groups == 2 and not counts.reviews[:, -1].any()  # noqa: PLR2004
    here = counts[:, : 1 if is_pair else groups]
    rest = counts.sum(1)[:, None] - here
    return _compare(rest, here, ("rest", "here"), "group")


def _changes(counts: AspectCounts) -> list[dict[str, Any]]:
    """Compare the later half of the periods with the earlier one, for each aspect (A, P)."""
    periods = counts.reviews.shape[1]
    if periods < _MIN_PERIODS_TO_COMPARE:
        return []
    before = counts[:, : periods // 2].sum(1)[:, None]
    after = counts[:, periods // 2 :].sum(1)[:, None]
    return _compare(before, after, ("before", "after"), "half")


def _compare(
    one: AspectCounts, other: AspectCounts, names: tuple[str, str], axis: str
) -> list[dict[str, Any]]:
    p_values = compare_shares(one, other)
    q_values = adjust_p_values(p_values)
    cells = dict(zip(names, (_cells(one), _cells(other)), strict=True))
    rows = [
        {
            "aspect": aspect,
            axis: number,
            **{name: cells[name][aspect][number] for name in names},
            "p": float(f"{p_values[aspect, number]:.3g}"),
            "q": float(f"{q_values[aspect, number]:.3g}"),
        }
        for aspect, number in np.ndindex(p_values.shape)
        if not np.isnan(p_values[aspect, number])
    ]
    return sorted(rows, key=lambda row: (row["q"], row["p"]))


def _phrases(data: ReportData) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the phrases of each aspect by polarity, most frequent first."""
    by_aspect: list[dict[str, list[dict[str, Any]]]] = [
        {str(Polarity.NEGATIVE): [], str(Polarity.POSITIVE): []} for _ in data.aspects
    ]
    for phrase in data.phrases:
        by_aspect[phrase.aspect].setdefault(phrase.polarity, []).append(phrase.as_dict())
    return by_aspect


def _sentences(data: ReportData) -> list[list[dict[str, Any]]]:
    """Return the sentences of each aspect that fit on a page, most confident first."""
    by_aspect: list[list[Sentence]] = [[] for _ in data.aspects]
    for sentence in sorted(data.sentences, key=lambda one: one.rank):
        by_aspect[sentence.aspect].append(sentence)
    num_bytes = _SENTENCE_BYTES // max(1, len(by_aspect))
    return [
        [
            sentence.as_dict()
            for sentence in sorted(
                _fitting(sentences, num_bytes), key=lambda one: -(one.confidence or 0)
            )
        ]
        for sentences in by_aspect
    ]


def _fitting(sentences: list[Sentence], num_bytes: int) -> Iterator[Sentence]:
    """Yield sentences in order of rank while they fit, so that every group gets its first."""
    for sentence in sentences:
        num_bytes -= sentence.num_bytes
        if num_bytes < 0:
            return
        yield sentence
