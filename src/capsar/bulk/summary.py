"""How far a job is, and what became of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.bulk.fragments import Fragment
    from capsar.bulk.output import Report

_ERRORS_NAMED = 100


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    rows: int
    """Scored, in earlier runs too."""
    errors: int
    fragments_done: int
    fragments: int
    rows_per_second: float
    """Of this run."""
    seconds_left: float | None
    """Reckoned from bytes of input; nothing before the first fragment is done."""
    workers: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of a job."""

    output: str
    rows: int
    rows_with_error: int
    errors: dict[str, int]
    """Rows with an error, by kind."""
    named: list[dict[str, str]]
    """The first rows with an error: file, place, error."""
    unreadable: list[dict[str, str]]
    """Files, or parts of files, that could not be read: file, output that is missing, reason."""
    ignored: list[str]
    """Files whose format is not known, of which nothing was read."""
    fragments: int
    fragments_skipped: int
    """Finished in an earlier run."""
    fragments_begun_again: int
    """Begun in vain: whoever scored them died."""
    seconds: float
    rows_per_second: float

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """Counts reports as they come."""

    fragments: Sequence[Fragment]
    workers: int
    began: float = field(default_factory=time.monotonic)
    rows: int = 0
    rows_now: int = 0
    done: int = 0
    skipped: int = 0
    bytes_now: int = 0
    bytes_left: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    named: list[dict[str, str]] = field(default_factory=list)
    unreadable: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes_left = sum(fragment.size for fragment in self.fragments)

    def count(self, report: Report, *, is_new: bool) -> None:
        """Count one report, of this run or of an earlier one."""
        self.done += 1
        self.bytes_left -= report.size
        if report.unreadable:
            where = {"file": report.address, "missing": report.name}
            self.unreadable.append(where | {"reason": report.unreadable})
            return
        self.rows += report.rows
        self.skipped += not is_new
        if is_new:
            self.rows_now += report.rows
            self.bytes_now += report.size
        self.errors.update(report.errors)
        for place, error in report.named[: _ERRORS_NAMED - len(self.named)]:
            self.named.append({"file": report.address, "place": place, "error": error})

    def progress(self) -> Progress:
        """Return how far the job is."""
        seconds = max(1e-9, time.monotonic() - self.began)
        left = seconds * self.bytes_left / self.bytes_now if self.bytes_now else None
        return Progress(
            rows=self.rows,
            errors=self.errors.total(),
            fragments_done=self.done,
            fragments=len(self.fragments),
            rows_per_second=self.rows_now / seconds,
            seconds_left=left,
            workers=self.workers,
        )

    def summary(self, output: str, ignored: list[str], begun_again: int) -> Summary:
        """Return what became of the job."""
        seconds = time.monotonic() - self.began
        return Summary(
            output=output,
            rows=self.rows,
            rows_with_error=self.errors.total(),
            errors=dict(self.errors.most_common()),
            named=self.named,
            unreadable=self.unreadable,
            ignored=ignored,
            fragments=len(self.fragments),
            fragments_skipped=self.skipped,
            fragments_begun_again=begun_again,
            seconds=round(seconds, 3),
            rows_per_second=round(self.rows_now / max(1e-9, seconds), 1),
        )
