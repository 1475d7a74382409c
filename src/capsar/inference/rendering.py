"""Results that show themselves in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from capsar.schema import AspectSentiment, Polarity

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLORS = {
    Polarity.NEGATIVE: "rgba(200, 60, 60, .35)",
    Polarity.NEUTRAL: "rgba(120, 120, 120, .3)",
    Polarity.POSITIVE: "rgba(40, 140, 70, .35)",
}


class AnalyzedText(list[AspectSentiment]):
    """The aspects of a text: a list that a notebook shows as marked text."""

    def __init__(self, text: str, aspects: Iterable[AspectSentiment]) -> None:
        super().__init__(aspects)
        self.text = text

    def _repr_html_(self) -> str:
        parts, position = [], 0
        for found in sorted(self, key=lambda aspect: aspect.start):
            if found.implicit or found.start < position:
                continue
            parts.append(escape(self.text[position : found.start]))
            color = "transparent" if found.abstained else _COLORS[found.polarity]
            words = [str(found.polarity), *(f"“{o.text}”" for o in found.opinions or ())]
            parts.append(
                f'<mark style="background: {color}; color: inherit" '
                f'title="{escape(_title(found, words))}">{escape(found.text)}</mark>'
            )
            position = found.end
        parts.append(escape(self.text[position:]))
        rows = "".join(f"<li>{escape(_line(found))}</li>" for found in self)
        return f"<p>{''.join(parts)}</p><ul>{rows}</ul>"


def _title(found: AspectSentiment, words: list[str]) -> str:
    return ", ".join([*words, *([found.theme] if found.theme else [])])


def _line(found: AspectSentiment) -> str:
    name = f"({found.theme})" if found.implicit else found.text
    theme = f" [{found.theme}]" if found.theme and not found.implicit else ""
    polarity = "uncertain" if found.abstained else str(found.polarity)
    reasons = "".join(f", “{opinion.text}”" for opinion in found.opinions or ())
    return f"{name}{theme}: {polarity}{reasons}"
