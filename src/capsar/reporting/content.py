"""The content of a report as one JSON object."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.reporting.aspect_names import strip_invisible
from capsar.reporting.drivers import SIGNS
from capsar.reporting.statistics import (
    LEVEL,
    MIN_REVIEWS,
    Shares,
    adjust_p_values,
    compare_shares,
    estimate_rates,
    estimate_shares,
)
from capsar.schema import CLASSES, Polarity
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.reporting.aspect_names import MergedAspect
    from capsar.reporting.counting import MentionCounter
    from capsar.reporting.drivers import Drivers
    from capsar.reporting.model_info import ModelInfo
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.periods import Periods
    from capsar.reporting.phrases import Phrase
    from capsar.reporting.quality import Quality
    from capsar.reporting.query import ScoredFolder, Totals
    from capsar.reporting.sampling import Sentence
    from capsar.reporting.statistics import AspectCounts
    from capsar.reporting.themes import ReportThemes

SCHEMA_VERSION = 2
_NUM_SUMMARIZED = 3
_MAX_PARTS = 15
"""Aspects per theme."""
_MIN_PERIODS_TO_COMPARE = 4
_SENTENCE_BYTES = 2_400_000
"""Keeps a page with all its sentences below 5 MB."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that was read from a scored folder."""

    scored: ScoredFolder
    totals: Totals
    quality: Quality | None
    themes: ReportThemes
    aspects: list[MergedAspect]
    excluded: int
    """Mentions that were not counted."""
    counter: MentionCounter
    periods: Periods
    phrases: list[Phrase]
    sentences: list[Sentence]
    drivers: Drivers | None
    text_column: str | None
    model: ModelInfo


def make_content(data: ReportData, options: ReportOptions, *, detailed: bool) -> dict[str, Any]:
    """Return the content of a report.

    Args:
        data: What was read.
        options: What to compare and how much to show.
        detailed: Whether to include every topic in every group and period.
    """
    groups, periods = len(data.totals.groups), len(data.periods.starts)
    counts, overall = data.counter.topics[:-1], data.counter.overall
    first = len(data.themes.names)  # themes come first
    content = _facts(data, options)
    content["overall"] = _cells(overall.sum((0, 1))[None])[0] | {
        "by_group": _cells(overall.sum(1)[:groups]),
        "by_period": _cells(overall.sum(0)[:periods]),
    }
    topics = [
        facts | cell | rates | {"by_group": by_group, "by_period": by_period} | shown
        for facts, cell, rates, by_group, by_period, shown in zip(
            [*_theme_facts(data), *_aspect_facts(data)],
            _cells(counts.sum((1, 2))),
            _rates(counts.sum((1, 2)), data.totals.reviews),
            _cells(counts.sum(2)[:, :groups]),
            _cells(counts.sum(1)[:, :periods]),
            _shown(data),
            strict=True,
        )
    ]
    if detailed:
        for topic, cells in zip(topics, _cells(counts[:, :groups, :periods]), strict=True):
            topic["by_group_and_period"] = cells
    content["themes"], content["aspects"] = topics[:first], topics[first:]
    content["summary"] = _summarize(topics, first)
    content["differences"], content["changes"] = [], []
    is_pair = content["groups"]["is_pair"]
    for level, rows in (("theme", slice(0, first)), ("aspect", slice(first, None))):
        content["differences"] += _differences(counts[rows].sum(2), groups, level, is_pair=is_pair)
        content["changes"] += _changes(counts[rows].sum(1)[:, :periods], level)
    return content


def _theme_facts(data: ReportData) -> Iterator[dict[str, Any]]:
    """Yield the name of each theme, its place among the others, and its aspects."""
    parents = np.array([-1 if one is None else one for one in data.themes.parents], dtype=int)
    for number, name in enumerate(data.themes.names):
        inside = (np.arange(len(parents)) == number) | (parents == number)
        counts = data.counter.by_theme[inside, :-1].sum(0)  # (A, C)
        order = np.argsort(-counts.sum(1), kind="stable")[:_MAX_PARTS]
        yield {
            "name": strip_invisible(name),
            "parent": data.themes.parents[number],
            "implicit": int(data.counter.implicit[inside].sum()),
            "aspects": [
                {"aspect": int(one), "counts": counts[one].tolist()}
                for one in order
                if counts[one].any()
            ],
        }


def _aspect_facts(data: ReportData) -> Iterator[dict[str, Any]]:
    """Yield the name of each aspect, how it is written, and the theme of most of its mentions."""
    by_theme = data.counter.by_theme.sum(2)  # (T, A + 1)
    for number, aspect in enumerate(data.aspects):
        mentions = by_theme[:, number]
        without = aspect.mentions - mentions.sum()
        has_theme = mentions.any() and mentions.max() >= without
        yield {
            "name": aspect.name,
            "variants": aspect.variants,
            "spellings": len(aspect.spellings),
            "theme": int(mentions.argmax()) if has_theme else None,
        }


def _shown(data: ReportData) -> Iterator[dict[str, Any]]:
    """Yield the phrases, sentences and effects on the rating of each topic."""
    number = len(data.themes.names) + len(data.aspects)
    phrases: list[dict[str, list[dict[str, Any]]]] = [
        {str(Polarity.NEGATIVE): [], str(Polarity.POSITIVE): []} for _ in range(number)
    ]
    for phrase in data.phrases:
        phrases[phrase.topic].setdefault(phrase.polarity, []).append(phrase.as_dict())
    effects = data.drivers.effects if data.drivers else {}
    for topic, sentences in enumerate(_sentences(data, number)):
        shown: dict[str, Any] = {"phrases": phrases[topic], "sentences": sentences}
        found = {str(one): effects.get((topic, str(one))) for one in SIGNS}
        if any(found.values()):
            shown["rating"] = {
                name: effect.as_dict() for name, effect in found.items() if effect is not None
            }
        yield shown


def _summarize(topics: list[dict[str, Any]], first: int) -> dict[str, Any]:
    """Return the most criticized and praised themes or aspects, and those with a negative balance.

    The former are ranked by mentions, the latter by net sentiment, of those whose interval is
    below 0. If no theme is mentioned, they are aspects.
    """
    main = [one for one in topics[:first] if one["mentions"] and one["parent"] is None]
    level = "theme" if main else "aspect"
    main = main or topics[first:]
    summary: dict[str, Any] = {"level": level}
    for name, polarity in (("criticized", Polarity.NEGATIVE), ("praised", Polarity.POSITIVE)):
        index = CLASSES.index(polarity)
        top = sorted(main, key=lambda one: -one["counts"][index])[:_NUM_SUMMARIZED]
        summary[name] = [one["name"] for one in top if one["counts"][index]]
    below = [one for one in main if one["reviews"] >= MIN_REVIEWS and one["net"][2] < 0]
    below.sort(key=lambda one: one["net"][0])
    summary["more_criticized_than_praised"] = [one["name"] for one in below[:_NUM_SUMMARIZED]]
    return summary


def _facts(data: ReportData, options: ReportOptions) -> dict[str, Any]:
    totals, periods = data.totals, data.periods
    confidences = [int(number) for number in data.counter.confidences]
    return {
        "schema_version": SCHEMA_VERSION,
        "capsar_version": __version__,
        "title": strip_invisible(options.title)
        or f"{'Themes' if data.themes.names else 'Aspects'} and sentiment in "
        f"{totals.reviews:,} review{'' if totals.reviews == 1 else 's'}",
        "source": {
            "name": data.scored.path.resolve().name,
            "files": len(data.scored.files),
            "is_complete": data.scored.is_complete,
            "text_column": data.text_column,
        },
        "totals": {
            "rows": totals.rows,
            "reviews": totals.reviews,
            "errors": totals.num_errors,
            "dropped": totals.rows - totals.num_errors - totals.reviews,
            "without_mention": totals.without_mention,
            "mentions": totals.mentions + totals.implicit - data.excluded,
            "implicit": totals.implicit,
            "excluded": data.excluded,
            "names": totals.num_names,
            "mentions_shown": sum(aspect.mentions for aspect in data.aspects),
            "low_confidence": int(data.counter.overall.low_confidence.sum()),
        },
        "quality": data.quality.as_dict() if data.quality else None,
        "rating": None
        if data.drivers is None
        else {
            "column": options.rating,
            "mean": round(data.drivers.mean, 4),
            "reviews": data.drivers.reviews,
        },
        "errors": [
            {"kind": strip_invisible(kind)[:200], "rows": rows} for kind, rows in totals.errors
        ],
        "groups": {
            "column": options.by,
            "names": _unique([strip_invisible(name)[:80] for name in totals.groups]),
            "total": totals.num_groups,
            "is_pair": _is_pair(data),  # then one test compares both
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


def _unique(names: list[str]) -> list[str]:
    """Return names with a number after those that would be shown alike."""
    seen = Counter(names)
    return [
        name if seen[name] == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]


def _is_pair(data: ReportData) -> bool:
    groups = len(data.totals.groups)
    others = data.counter.overall.reviews[-1].any()
    return groups == data.totals.num_groups == 2 and not others  # noqa: PLR2004


def _rates(counts: AspectCounts, reviews: int) -> list[dict[str, Any]]:
    """Return the mentions of each polarity per review, with intervals, of each topic."""
    rates = estimate_rates(counts, reviews)
    values = np.stack([rates.share, rates.low, rates.high], axis=-1).round(6)  # (N, C, 3)
    return [
        {"per_review": {str(one): row[place].tolist() for place, one in enumerate(CLASSES)}}
        for row in values
    ]


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


def _differences(
    counts: AspectCounts, groups: int, level: str, *, is_pair: bool
) -> list[dict[str, Any]]:
    """Compare each group with all others, for each theme or aspect (N, G + 1)."""
    if groups < 2:  # noqa: PLR2004
        return []
    here = counts[:, : 1 if is_pair else groups]
    rest = counts.sum(1)[:, None] - here
    return _compare(rest, here, ("rest", "here"), (level, "group"))


def _changes(counts: AspectCounts, level: str) -> list[dict[str, Any]]:
    """Compare the later half of the periods with the earlier one, for each one (N, P)."""
    periods = counts.reviews.shape[1]
    if periods < _MIN_PERIODS_TO_COMPARE:
        return []
    before = counts[:, : periods // 2].sum(1)[:, None]
    after = counts[:, periods // 2 :].sum(1)[:, None]
    return _compare(before, after, ("before", "after"), (level, "half"))


def _compare(
    one: AspectCounts, other: AspectCounts, names: tuple[str, str], axes: tuple[str, str]
) -> list[dict[str, Any]]:
    p_values = compare_shares(one, other)
    q_values = adjust_p_values(p_values)
    cells = dict(zip(names, (_cells(one), _cells(other)), strict=True))
    rows = [
        {
            axes[0]: topic,
            axes[1]: number,
            **{name: cells[name][topic][number] for name in names},
            "p": float(f"{p_values[topic, number]:.3g}"),
            "q": float(f"{q_values[topic, number]:.3g}"),
        }
        for topic, number in np.ndindex(p_values.shape)
        if not np.isnan(p_values[topic, number])
    ]
    return sorted(rows, key=lambda row: (row["q"], row["p"]))


def _sentences(data: ReportData, num_topics: int) -> list[list[dict[str, Any]]]:
    """Return the sentences of each topic that fit on a page, most confident first."""
    by_topic: list[list[Sentence]] = [[] for _ in range(num_topics)]
    for sentence in sorted(data.sentences, key=lambda one: one.rank):
        by_topic[sentence.topic].append(sentence)
    num_bytes = _SENTENCE_BYTES // max(1, len(by_topic))
    return [
        [
            sentence.as_dict()
            for sentence in sorted(
                _fitting(sentences, num_bytes), key=lambda one: -(one.confidence or 0)
            )
        ]
        for sentences in by_topic
    ]


def _fitting(sentences: list[Sentence], num_bytes: int) -> Iterator[Sentence]:
    """Yield sentences in order of rank while they fit, so that every group gets its first."""
    for sentence in sentences:
        num_bytes -= sentence.num_bytes
        if num_bytes < 0:
            return
        yield sentence
