"""All that a report says, as one JSON object; how it is shown is the matter of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar import __version__
from capsar.labels import CLASSES
from capsar.reporting.contrasts import FEWEST_REVIEWS, compare, false_discovery_rates
from capsar.reporting.knowledge import HOW_TO_MEASURE
from capsar.reporting.names import shown
from capsar.reporting.shares import LEVEL, Shares, estimate_shares

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from capsar.reporting.calendar import Calendar
    from capsar.reporting.confusion import Confusion
    from capsar.reporting.counting import Counted, Totals
    from capsar.reporting.knowledge import Knowledge
    from capsar.reporting.merging import Aspect
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.sampling import Sentence
    from capsar.reporting.scored import Scored
    from capsar.reporting.tally import Tally

SCHEMA_VERSION = 1
_LEAST_PERIODS_TO_COMPARE = 4
_BYTES_OF_SENTENCES = 2_400_000
"""A page of them all should stay below 5 MB."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found in a corpus, before anything is estimated from it."""

    scored: Scored
    totals: Totals
    aspects: Sequence[Aspect]
    counted: Counted
    calendar: Calendar | None
    sentences: list[Sentence]
    text_column: str | None
    knowledge: Knowledge


def make_content(findings: Findings, options: ReportOptions, *, finest: bool) -> dict[str, Any]:
    """Return all that a report says.

    Args:
        findings: What was found.
        options: What was asked for.
        finest: Whether to tell every aspect in every group and period, too.
    """
    tally, everything = findings.counted.aspects, findings.counted.everything
    groups, periods = len(findings.totals.groups), _num_periods(findings)
    confusion, misfit = _that_fits(everything.sum((0, 1)), findings.knowledge.confusion)
    content = _facts(findings, options)
    content["model"]["uncorrected"] += misfit
    content["overall"] = _cells(everything.sum((0, 1))[None], confusion, of_aspects=False)[0]
    for axis, parts in (
        ("by_group", everything.sum(1)[:groups]),
        ("by_period", everything.sum(0)[:periods]),
    ):
        content["overall"][axis] = _cells(parts, confusion, of_aspects=False)
    wholes = _cells(tally.sum((1, 2)), confusion)
    by_group = _cells(tally.sum(2)[:, :groups], confusion)
    by_period = _cells(tally.sum(1)[:, :periods], confusion)
    content["aspects"] = [
        {"name": aspect.name, "variants": aspect.variants, "spellings": len(aspect.surfaces)}
        | whole
        | {"by_group": in_groups, "by_period": in_periods}
        for aspect, whole, in_groups, in_periods in zip(
            findings.aspects, wholes, by_group, by_period, strict=True
        )
    ]
    content["differences"] = _differences(tally.sum(2), findings.totals, confusion)
    content["changes"] = _changes(tally.sum(1)[:, :periods], confusion)
    content["sentences"] = _sentences(findings)
    if finest:
        content["cells"] = _cells(tally[:, :groups, :periods], confusion)
    return content


def _that_fits(tally: Tally, confusion: Confusion | None) -> tuple[Confusion | None, str]:
    """Return the confusion if it can explain what was told of the whole corpus, or why not."""
    if confusion is None or not tally.total or estimate_shares(tally[None], confusion).corrected[0]:
        return confusion, ""
    told = zip(CLASSES, tally.observed(), strict=True)
    shares = ", ".join(f"{share:.0%} {polarity}" for polarity, share in told)
    return None, (
        f"The confusion measured on {confusion.source} does not fit these reviews: whatever people "
        f"feel, by it the model would not tell {shares}. {HOW_TO_MEASURE}"
    )


def _num_periods(findings: Findings) -> int:
    return len(findings.calendar.starts) if findings.calendar else 0


def _facts(findings: Findings, options: ReportOptions) -> dict[str, Any]:
    totals, calendar, known = findings.totals, findings.calendar, findings.knowledge
    errors = sum(number for _, number in totals.errors)
    shown_mentions = sum(aspect.mentions for aspect in findings.aspects)
    return {
        "schema_version": SCHEMA_VERSION,
        "capsar_version": __version__,
        "title": shown(options.title) or f"What {totals.rows - errors:,} reviews say",
        "source": {
            "name": findings.scored.path.resolve().name,
            "files": len(findings.scored.files),
            "is_whole": findings.scored.is_whole,
            "text_column": findings.text_column,
        },
        "totals": {
            "rows": totals.rows,
            "reviews": totals.rows - errors,
            "errors": errors,
            "without_aspect": totals.without_aspect,
            "mentions": totals.mentions,
            "names": totals.num_names,
            "mentions_shown": shown_mentions,
            "unsure": int(findings.counted.everything.unsure.sum()),
        },
        "errors": [{"kind": shown(kind)[:200], "rows": rows} for kind, rows in totals.errors],
        "groups": {
            "column": options.by,
            "names": [shown(name)[:80] for name in totals.groups],
            "in_all": totals.num_groups,
        },
        "periods": {
            "column": options.over,
            "unit": calendar.unit if calendar else None,
            "starts": [str(start) for start in calendar.starts] if calendar else [],
            "undated": calendar.undated if calendar else 0,
        },
        "surety": {
            "limit": options.min_confidence,
            "bins": findings.counted.surety,
            "unknown": findings.counted.without_surety,
        },
        "model": {
            "name": known.model,
            "figures": known.figures,
            "limits": known.limits,
            "confusion": known.confusion.counts if known.confusion else None,
            "confusion_source": known.confusion.source if known.confusion else None,
            "confusion_warnings": list(known.confusion.warnings) if known.confusion else [],
            "uncorrected": known.uncorrected,
        },
        "level": LEVEL,
        "fewest_reviews": FEWEST_REVIEWS,
    }


def _cells(tally: Tally, confusion: Confusion | None, *, of_aspects: bool = True) -> Any:  # noqa: ANN401  (nested lists)
    """Return what is told of each group of a tally, as nested lists of its shape."""
    if not tally.reviews.size:
        return tally.reviews.tolist()
    shares = estimate_shares(tally, confusion, of_aspects=of_aspects)
    flat = [_cell(tally[place], shares, place) for place in np.ndindex(tally.reviews.shape)]
    nested = np.empty(len(flat), dtype=object)
    nested[:] = flat
    return nested.reshape(tally.reviews.shape).tolist()


def _cell(tally: Tally, shares: Shares, place: tuple[int, ...]) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "mentions": int(tally.total),
        "reviews": int(tally.reviews),
        "unsure": int(tally.unsure),
        "told": [int(number) for number in tally.mentions],
        "corrected": bool(shares.corrected[place]),
    }
    if not cell["mentions"]:
        return cell
    for number, polarity in enumerate(CLASSES):
        at = (*place, number)
        cell[str(polarity)] = _rounded(shares.share[at], shares.low[at], shares.high[at])
    cell["net"] = _rounded(shares.net[place], shares.net_low[place], shares.net_high[place])
    return cell


def _rounded(*values: float) -> list[float]:
    return [round(float(value), 4) for value in values]


def _differences(tally: Tally, totals: Totals, confusion: Confusion | None) -> list[dict[str, Any]]:
    """Compare each group with all others, of each aspect (A, G + 1)."""
    groups = len(totals.groups)
    if groups < 2:  # noqa: PLR2004
        return []
    # Of two groups each is all others of the other: one test, and not two.
    tested = 1 if groups == totals.num_groups == 2 and not tally.reviews[:, -1].any() else groups  # noqa: PLR2004
    here = tally[:, :tested]
    rest = tally.sum(1)[:, None] - here
    return _contrasts(rest, here, confusion, ("rest", "here"), "group")


def _changes(tally: Tally, confusion: Confusion | None) -> list[dict[str, Any]]:
    """Compare the later half of the periods with the earlier one, of each aspect (A, P)."""
    periods = tally.reviews.shape[1]
    if periods < _LEAST_PERIODS_TO_COMPARE:
        return []
    before = tally[:, : periods // 2].sum(1)[:, None]
    after = tally[:, periods // 2 :].sum(1)[:, None]
    return _contrasts(before, after, confusion, ("before", "after"), "half")


def _contrasts(
    one: Tally, other: Tally, confusion: Confusion | None, names: tuple[str, str], axis: str
) -> list[dict[str, Any]]:
    chances = compare(one, other)
    rates = false_discovery_rates(chances)
    cells = dict(zip(names, (_cells(one, confusion), _cells(other, confusion)), strict=True))
    found = [
        {
            "aspect": aspect,
            axis: number,
            **{name: cells[name][aspect][number] for name in names},
            "p": float(f"{chances[aspect, number]:.3g}"),
            "q": float(f"{rates[aspect, number]:.3g}"),
        }
        for aspect, number in np.ndindex(chances.shape)
        if not np.isnan(chances[aspect, number])
    ]
    return sorted(found, key=lambda row: (row["q"], row["p"]))


def _sentences(findings: Findings) -> list[list[dict[str, Any]]]:
    """Return the sentences of each aspect that fit on a page, the surest first."""
    by_aspect: list[list[Sentence]] = [[] for _ in findings.aspects]
    for sentence in sorted(findings.sentences, key=lambda one: one.rank):
        by_aspect[sentence.aspect].append(sentence)
    room = _BYTES_OF_SENTENCES // max(1, len(by_aspect))
    return [
        [one.as_dict() for one in sorted(_fitting(few, room), key=lambda one: -(one.sure or 0))]
        for few in by_aspect
    ]


def _fitting(sentences: list[Sentence], room: int) -> Iterator[Sentence]:
    """Yield sentences, the first of every group and polarity before any second, while they fit."""
    for sentence in sentences:
        room -= sentence.num_bytes
        if room < 0:
            return
        yield sentence
