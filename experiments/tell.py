"""What a teacher finds in texts that nobody labelled: lessons for a smaller model.

`base` tells the aspects of lines of pros and cons and what is felt about each; a line whose side
contradicts it, or of which it is not sure, is left out. The rest is read as any labelled file is.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from capsar import load
from capsar.data.catalog import find_file
from capsar.labels import Polarity
from lessons import FOLDER, PROS_CONS, read_pros_cons

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from capsar import AspectSentiment

LEAST_CONFIDENCE = 0.6
_OPPOSITE = {Polarity.POSITIVE: Polarity.NEGATIVE, Polarity.NEGATIVE: Polarity.POSITIVE}


def write_told(teacher: str, most: int) -> int:
    """Write what a model tells of at most so many lines; return how many it is believed in."""
    lines = read_pros_cons(find_file(PROS_CONS, "text"))
    sides = {line: side for side, some in lines.items() for line in some}
    chosen = sorted(sides, key=lambda line: sha256(line.encode()).hexdigest())[:most]
    analyzer = load(teacher)
    believed = 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "told-by-base.jsonl").open("w", encoding="utf-8") as stream:
        for line, told in zip(chosen, analyzer.analyze_stream(chosen), strict=True):
            if is_believed(told, sides[line]):
                believed += 1
                stream.writelines(json.dumps(row) + "\n" for row in rows_of(line, told))
    return believed


def is_believed(told: Sequence[AspectSentiment], side: Polarity) -> bool:
    """Tell whether all aspects of a line are sure, and none is felt as the line's side is not."""
    return all(
        (aspect.confidence or 0) >= LEAST_CONFIDENCE and aspect.polarity != _OPPOSITE[side]
        for aspect in told
    )


def rows_of(line: str, told: Sequence[AspectSentiment]) -> Iterator[dict[str, str | int]]:
    """Yield a line once for each aspect, or once if it has none."""
    if not told:
        yield {"text": line}
    for aspect in told:
        yield {
            "text": line,
            "aspect": line[aspect.start : aspect.end],
            "start": aspect.start,
            "end": aspect.end,
            "polarity": aspect.polarity,
        }
