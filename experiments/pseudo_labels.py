"""Unlabeled lines of pros and cons, and files of examples to train on."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

from capsar.schema import Polarity
from run import CONFIGS, WORK, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from capsar import Example

PROS_CONS = "bing-liu-pros-cons"
_SIDES = {Polarity.POSITIVE: "IntegratedPros.txt", Polarity.NEGATIVE: "IntegratedCons.txt"}
_TAG = re.compile(r"</?(?:Pros|Cons)>")
HELD = CONFIGS / "held-sentences.json"
"""Hashes of labeled sentences that also occur in a test set of the paper."""


def labels_path(name: str) -> Path:
    """Return the file of pseudo-labels with this name."""
    return WORK / "pseudo-labels" / f"{name}.jsonl"


def read_pros_cons(path: Path) -> dict[Polarity, list[str]]:
    """Return the distinct lines of pros and of cons, without tags."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for side, name in _SIDES.items():
            text = archive.read(f"pros_cons/{name}").decode("latin-1")
            lines = (_TAG.sub("", line).strip() for line in text.splitlines())
            # A few lines hold HTML entities.
            found[side] = list(dict.fromkeys(line for line in lines if line and "&" not in line))
    return found


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSON Lines, atomically: a file that exists is complete."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def row_of(example: Example) -> dict[str, Any]:
    """Return an example with one span as a row of a file."""
    (span,) = example.spans
    return {
        "text": example.text,
        "aspect": example.aspect,
        "start": span.start,
        "end": span.end,
        "polarity": str(example.polarity),
    }
