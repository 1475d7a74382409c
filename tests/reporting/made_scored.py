"""Scored files written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MENTION = pa.struct(
    [
        ("surface", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("polarity", pa.string()),
        (
            "scores",
            pa.struct([(name, pa.float32()) for name in ("negative", "neutral", "positive")]),
        ),
        ("confidence", pa.float32()),
        ("aspect_confidence", pa.float32()),
    ]
)
_KINDS = {"+": "positive", "o": "neutral", "-": "negative"}


def row(
    told: str, text: str | None = None, error: str | None = None, **kept: Any
) -> dict[str, Any]:
    """A row from notes: `"soup:- staff:+.9"` is two mentions, the second with a confidence."""
    notes = [note.rpartition(":") for note in told.split()]
    names = [name.replace("_", " ") for name, _, _ in notes]
    text = text if text is not None else " ".join(f"The {name} here." for name in names)
    mentions, place = [], 0
    for name, (_, _, sign) in zip(names, notes, strict=True):
        place = text.index(name, place)
        sure = float(sign[1:]) if sign[1:] else None
        kind = _KINDS[sign[0]]
        mentions.append(
            {
                "surface": name,
                "start": place,
                "end": place + len(name),
                "polarity": kind,
                "scores": {one: float(one == kind) for one in _KINDS.values()},
                "confidence": sure,
                "aspect_confidence": None,
            }
        )
        place += len(name)
    return {**kept, "text": text, "aspects": None if error else mentions, "error": error}


def write_rows(
    folder: Path, rows: list[dict[str, Any]], *, files: int = 1, job: dict[str, Any] | None = None
) -> Path:
    """Write rows in the layout of `capsar score`, into so many files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        part = rows[number::files]
        table = pa.Table.from_pylist(
            [
                {key: value for key, value in one.items() if key not in ("aspects", "error")}
                for one in part
            ]
        )
        table = table.append_column(
            "aspects", pa.array([r["aspects"] for r in part], pa.list_(_MENTION))
        )
        table = table.append_column("error", pa.array([r["error"] for r in part], pa.string()))
        pq.write_table(table, folder / f"part-{number:04d}.parquet")
    if job is not None:
        (folder / "_job").mkdir(exist_ok=True)
        (folder / "_job" / "job.json").write_text(json.dumps(job))
        (folder / "_SUCCESS").touch()
    return folder
