"""Pre-trained word vectors from GloVe's public text files (or fastText's `.vec`).

The first reading of a file converts it into a cache: a list of words and a matrix, from which later
readings take only the rows they need.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from capsar.errors import ArtifactError, FormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
_BLOCK_ROWS = 2048
_MAX_LINE_BYTES = 2**20
_CACHE_VERSION = 2
_WORDS, _MATRIX = "words.txt", "matrix.f32"
"""The cache: the size of a vector and the words, one per line; the vectors, row by row."""


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Words and their vectors, row by row."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]
    source: str
    """The name of the file."""


def load_vectors(
    path: Path, words: Collection[str] | None = None, *, cache_folder: Path | None = None
) -> WordVectors:
    """Return the vectors of some words, or of all words of a file, in the order of the file.

    A word that the file has only in another case gets that vector. Words without a vector are
    omitted.

    Args:
        path: A GloVe text file (or fastText's `.vec`), `word v1 … vn` on each line.
        words: The words that are needed; all of them if not given.
        cache_folder: The folder of the cache; by default the user's cache folder.

    Raises:
        FormatError: If the file cannot be read; the error names the line.
        ArtifactError: If the cache cannot be written or is damaged.
    """
    cache = _open_cache(path, cache_folder)
    dim, file_words = _read_words(cache)
    if words is None:
        rows = {word: row for row, word in enumerate(file_words)}
    else:
        rows = _find_rows(file_words, words)
    order = sorted(rows, key=rows.__getitem__)
    matrix = np.empty((len(order), dim), dtype="<f4")
    with (cache / _MATRIX).open("rb") as stream:
        for target, word in zip(matrix, order, strict=True):
            stream.seek(rows[word] * target.nbytes)
            stream.readinto(target.data)
    return WordVectors(tuple(order), matrix, path.name)


def vector_words(
    path: Path, limit: int | None = None, *, cache_folder: Path | None = None
) -> list[str]:
    """Return the words of a file in its order; in public files the most frequent come first."""
    return _read_words(_open_cache(path, cache_folder))[1][:limit]


def user_cache() -> Path:
    """Return the user's folder for files that can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capsar"


def _find_rows(file_words: list[str], words: Collection[str]) -> dict[str, int]:
    """Map each needed word to its row: exact spelling first, else the first in another case."""
    needed = set(words)
    lower = {word.lower() for word in needed}
    exact: dict[str, int] = {}
    any_case: dict[str, int] = {}
    for row, word in enumerate(file_words):
        if word in needed:
            exact[word] = row
        if (folded := word.lower()) in lower:
            any_case.setdefault(folded, row)
    rows = {word: exact.get(word, any_case.get(word.lower())) for word in dict.fromkeys(words)}
    return {word: row for word, row in rows.items() if row is not None}


def _open_cache(path: Path, cache_folder: Path | None) -> Path:
    """Return the folder of a file's cache, creating it on first use."""
    if not path.is_file():
        raise FormatError(str(path), "the file", "does not exist, or is not a file")
    status = path.stat()
    # The name covers everything that would make the cache stale.
    stamp = f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}:{_CACHE_VERSION}"
    digest = hashlib.sha256(stamp.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    target = (cache_folder or user_cache()) / f"{path.name}.{digest}.cache"
    if not target.is_dir():
        _LOG.info("Converting %s once; later readings use %s", path, target)
        _write_cache(path, target)
    return target


def _read_words(cache: Path) -> tuple[int, list[str]]:
    """Return the size of a vector and the words, after checking the size of the matrix."""
    try:
        dim, *words = (cache / _WORDS).read_bytes().decode("utf-8").split("\n")
        if (cache / _MATRIX).stat().st_size != len(words) * int(dim) * 4:
            raise ValueError("the numbers of words and vectors differ")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"Delete the damaged cache {str(cache)!r}: {error}") from error
    return int(dim), words


def _write_cache(path: Path, target: Path) -> None:
    """Write the cache under another name, then rename it, so that it is never incomplete."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".capsar-", dir=target.parent) as scratch:
            folder = Path(scratch) / target.name
            folder.mkdir()
            _convert(path, folder)
            try:
                folder.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was first, with the same content
                    raise
    except OSError as error:
        reason = f"Cannot write the vector cache {str(target)!r}: {error}"
        raise ArtifactError(reason) from error


def _convert(path: Path, folder: Path) -> None:
    """Convert a text file into the files of a cache, a block of rows at a time."""
    is_empty = True
    with (
        path.open("rb") as source,
        (folder / _MATRIX).open("wb") as matrix_file,
        (folder / _WORDS).open("w", encoding="utf-8", newline="") as words_file,
    ):
        for words, vectors in _read_blocks(source, str(path)):
            if is_empty:
                words_file.write(str(vectors.shape[1]))
            words_file.writelines(f"\n{word}" for word in words)
            matrix_file.write(vectors.astype("<f4").tobytes())
            is_empty = False
    if is_empty:
        raise FormatError(str(path), "the file", "has no vectors")


def _read_blocks(source: BinaryIO, path: str) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Yield blocks of words and vectors."""
    dim = 0
    seen: set[str] = set()
    words: list[str] = []
    rows: list[tuple[int, list[bytes]]] = []
    for line_number, line in _read_lines(source, path):
        if not dim:
            dim = line.count(b" ")
            if not dim:
                reason = "expected a word and its numbers, separated by spaces"
                raise FormatError(path, f"line {line_number}", reason)
        word, *numbers = line.rsplit(b" ", dim)  # a few words of GloVe 840B contain spaces
        text = word.decode("utf-8", "replace")
        if text in seen or not text:
            continue  # public files repeat a few words: the first row is the more frequent one
        seen.add(text)
        words.append(text)
        rows.append((line_number, numbers))
        if len(rows) == _BLOCK_ROWS:
            yield words, _parse(rows, dim, path)
            words, rows = [], []
    if rows:
        yield words, _parse(rows, dim, path)


def _read_lines(source: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines, without the header that fastText writes and GloVe does not."""
    line_number = 0
    while line := source.readline(_MAX_LINE_BYTES):
        line_number += 1
        if len(line) == _MAX_LINE_BYTES:
            raise FormatError(path, f"line {line_number}", "is too long for a word and its vector")
        line = line.rstrip(b"\r\n ")
        is_header = line_number == 1 and line.count(b" ") == 1 and line.replace(b" ", b"").isdigit()
        if line and not is_header:
            yield line_number, line


def _parse(rows: list[tuple[int, list[bytes]]], dim: int, path: str) -> NDArray[np.float32]:
    """Return the numbers of a block; if some are wrong, find the line for the error."""
    vectors = _to_floats([numbers for _, numbers in rows], dim)
    if vectors is not None:
        return vectors
    for line_number, numbers in rows:
        if _to_floats([numbers], dim) is None:
            found = b" ".join(numbers)[:60]
            reason = f"expected a word and {dim} finite numbers, got {found!r} after the word"
            raise FormatError(path, f"line {line_number}", reason)
    raise AssertionError("a block of valid rows is valid")  # pragma: no cover


def _to_floats(rows: list[list[bytes]], dim: int) -> NDArray[np.float32] | None:
    """Return rows of numbers as an array, or `None` if one is not `dim` finite numbers."""
    try:
        vectors = np.array(rows, dtype=np.float32).reshape(len(rows), dim)
    except ValueError:
        return None
    return vectors if np.isfinite(vectors).all() else None
