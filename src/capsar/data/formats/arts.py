"""ARTS: one JSON object, `key -> {sentence, term, polarity, id, from, to}`.

The key's suffix names the variant: `_adv1` the target's sentiment reversed, `_adv2` the others'
reversed, `_adv3` opposite aspects added, none the original. `Example.group` is the field `id`.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import Example
from capsar.data.rows import Notice, Row, describe_decode_error, parse_label, resolve_span
from capsar.errors import DataError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE_BYTES = 64 * 2**20
"""One JSON object must be read whole; the largest ARTS file has 1 MB."""
_SUFFIX = re.compile(r"_(adv[123])['\"]?$")


class Variant(StrEnum):
    """How a sentence was rewritten."""

    ORIGINAL = "original"
    TARGET_REVERSED = "adv1"
    OTHERS_REVERSED = "adv2"
    OPPOSITE_ADDED = "adv3"


def variant_of(record: str) -> Variant:
    """Return the variant that a record's name tells.

    >>> variant_of("key '0:14_0_adv2'")
    <Variant.OTHERS_REVERSED: 'adv2'>
    """
    found = _SUFFIX.search(record)
    return Variant(found[1]) if found else Variant.ORIGINAL


def read_arts(stream: BinaryIO, path: str) -> Iterator[Row]:
    """Yield the rows of an ARTS file."""
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        yield FormatError(path, "the file", f"a JSON file of more than {MAX_FILE_BYTES} bytes")
        return
    try:
        records = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        yield FormatError(path, "the file", describe_decode_error(error))
        return
    except json.JSONDecodeError as error:
        hint = "; rename it to .jsonl if each line is a record" if error.msg == "Extra data" else ""
        place = f"line {error.lineno}, column {error.colno}"
        yield FormatError(path, place, f"not JSON: {error.msg}{hint}")
        return
    except (
        RecursionError,
        ValueError,
    ) as error:  # nested too deep, or a number with too many digits
        yield FormatError(path, "the file", f"not readable as JSON: {error}")
        return
    if not isinstance(records, dict):
        reason = f"expected one object of records by key, got {type(records).__name__}"
        yield FormatError(path, "the file", reason)
        return
    for key, fields in records.items():
        yield from _read_record(f"key {key!r}", fields, path)


def _read_record(record: str, fields: object, path: str) -> Iterator[Row]:
    match fields:
        case {
            "sentence": str(text),
            "term": str(term),
            "polarity": str(label),
            "from": int(start),
            "to": int(end),
            **rest,
        }:
            group = rest.get("id", "")
        case _:
            reason = "expected an object with sentence, term, polarity, from, to"
            yield FormatError(path, record, reason)
            return
    polarity = parse_label(path, record, label)
    if isinstance(polarity, FormatError):
        yield polarity
        return
    try:
        span, kind, detail = resolve_span(text, term, start, end)
    except DataError as error:
        yield FormatError(path, record, str(error), polarity=polarity)
        return
    yield Example(text, (span,), polarity, record, str(group))
    if kind:
        yield Notice(record, kind, detail)
