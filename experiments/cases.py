"""The paper's five case sentences (its table 3), by dataset and sentence id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One aspect of one case sentence, and what the paper says each model made of it."""

    name: str
    dataset: str
    sentence: str
    """The sentence's id in the published test file."""
    aspect: str
    polarity: str
    paper: dict[str, str]


def _told(*predicted: str) -> dict[str, str]:
    return dict(zip(("CAPSAR", "ANTM", "MGAN", "RAM"), predicted, strict=True))


_POS, _NEU, _NEG = "positive", "neutral", "negative"
CASES = (
    Case("1a", "restaurant", "33072753#1351349#0", "chocolate raspberry cake", _POS,
         _told(_POS, _POS, _NEG, _POS)),
    Case("1b", "restaurant", "33072753#1351349#0", "flavor", _POS, _told(_POS, _NEG, _POS, _NEG)),
    Case("2a", "restaurant", "15094232#1295193#2", "entrees", _NEU, _told(_NEU, _POS, _POS, _POS)),
    Case("2b", "restaurant", "15094232#1295193#2", "duck", _POS, _told(_POS, _POS, _POS, _POS)),
    Case("3", "laptop", "792:2", "baterry", _POS, _told(_POS, _NEG, _POS, _NEG)),
    Case("4", "laptop", "787:272", "Startup times", _NEG, _told(_NEG, _NEG, _POS, _POS)),
    Case("5", "laptop", "927:1", "shipping", _NEG, _told(_NEU, _NEU, _POS, _POS)),
)  # fmt: skip
LONG_PAIR = ("3", "4")
"""The target-sensitive pair: one adjective, good of one aspect and bad of the other."""
