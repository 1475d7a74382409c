"""Write scored folders from short notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MENTION = pa.struct(
    [
        ("text", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("polarity", pa.string()),
        (
            "scores",
            pa.struct([(name, pa.float32()) for name in ("negative", "neutral", "positive")]),
        ),
        ("confidence", pa.float32()),
        ("aspect_confidence", pa.float32()),
        (
            "opinions",
            pa.list_(
                pa.struct(
                    [
                        ("text", pa.string()),
                        ("start", pa.int32()),
                        ("end", pa.int32()),
                        ("confidence", pa.float32()),
                    ]
                )
            ),
        ),
        ("theme", pa.string()),
        ("theme_confidence", pa.float32()),
        ("implicit", pa.bool_()),
    ]
)
_POLARITIES = {"+": "positive", "o": "neutral", "-": "negative"}


def row(
    notes: str, text: str | None = None, error: str | None = None, **kept: Any
) -> dict[str, Any]:
    """Return a row: `"soup:- staff:+.9"` is two mentions, the second with a confidence.

    `"soup:-|very_cold|bland"` has two opinion phrases, `"soup:-@Food"` a theme, and `"*:-@Service"`
    is an implicit mention: the whole text.
    """
    split = [note.partition("@") for note in notes.split()]
    themes = [theme.replace("_", " ") or None for _, _, theme in split]
    mentioned = [note.rpartition(":") for note, _, _ in split]
    names = [name.replace("_", " ") for name, _, _ in mentioned]
    found = [sign.replace("_", " ").split("|")[1:] for _, _, sign in mentioned]
    mentioned = [(name, colon, sign.partition("|")[0]) for name, colon, sign in mentioned]
    if text is None:
        endings = [" and ".join(phrases) or "here" for phrases in found]
        text = " ".join(f"The {a} {b}." for a, b in zip(names, endings, strict=True))
    mentions, position = [], 0
    for name, (_, _, sign), phrases, theme in zip(names, mentioned, found, themes, strict=True):
        is_implicit = name == "*"
        position = 0 if is_implicit else text.index(name, position)
        end = len(text) if is_implicit else position + len(name)
        polarity = _POLARITIES[sign[0]]
        mentions.append(
            {
                "text": text[position:end],
                "start": position,
                "end": end,
                "polarity": polarity,
                "scores": {one: float(one == polarity) for one in _POLARITIES.values()},
                "confidence": float(sign[1:]) if sign[1:] else None,
                "aspect_confidence": None,
                "opinions": [_opinion(text, phrase, position) for phrase in phrases],
                "theme": theme,
                "theme_confidence": None if theme is None else 0.9,
                "implicit": is_implicit,
            }
        )
        position = 0 if is_implicit else end
    return {**kept, "text": text, "aspects": None if error else mentions, "error": error}


def _opinion(text: str, phrase: str, position: int) -> dict[str, Any]:
    start = text.index(phrase, position)
    return {"text": phrase, "start": start, "end": start + len(phrase), "confidence": 0.5}


def write_rows(
    folder: Path, rows: list[dict[str, Any]], *, files: int = 1, job: dict[str, Any] | None = None
) -> Path:
    """Write rows to some files in the layout of `capsar score`."""
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
