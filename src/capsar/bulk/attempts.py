"""What an engine does with a fragment whose worker died: again, with more care, or no more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from capsar.bulk.output import Report

if TYPE_CHECKING:
    from capsar.bulk.fragments import Fragment

_CAREFUL_AFTER = 2
_HOPELESS_AFTER = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """A fragment, and how many workers have died while they scored it."""

    fragment: Fragment
    deaths: int = 0

    @property
    def is_careful(self) -> bool:
        """Whether its rows should be scored in a process of their own: it may be what kills."""
        return self.deaths >= _CAREFUL_AFTER

    def next(self) -> Attempt | None:
        """Return what to do after one more death; nothing when there is no hope."""
        again = replace(self, deaths=self.deaths + 1)
        return again if again.deaths < _HOPELESS_AFTER else None

    def given_up(self) -> Report:
        """Return the report of a fragment that was given up."""
        reason = f"{self.fragment.address}: {self.deaths + 1} workers died of {self.fragment.name}"
        fragment = self.fragment
        return Report(fragment.name, fragment.address, fragment.size, unreadable=reason)
