"""Pre-trained word vectors from GloVe's public text files, read as they are.

The first reading of a file turns it into a cache of two files, a matrix that is mapped into memory
and a list of words; every later reading only looks up the rows it needs.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
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
_ROWS_AT_ONCE = 2048
_MAX_LINE_BYTES = 2**20
_CACHE_VERSION = 1
_NPY_HEADER_BYTES = 128
_Row = tuple[int, bytes]
"""A line's number, and the numbers on it as text."""


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Words and their vectors, row by row."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]
    source: str
    """The name of the file, to stand beside every figure."""


def load_vectors(
    path: Path, words: Collection[str] | None = None, *, cache_folder: Path | None = None
) -> WordVectors:
    """Return the vectors of some words, or of all words of a file.

    Where the file has a word only in another case, that row is taken. Words without a vector are
    left out.

    Args:
        path: A GloVe text file (or fastText's `.vec`), `word v1 … vn` on each line.
        words: The spellings that are needed; all of them if not given.
        cache_folder: Where the cache lies; the user's cache folder if not given.

    Raises:
        FormatError: If the file cannot be read, naming the line.
        ArtifactError: If there is no room for the cache.
    """
    cache = _open_cache(path, cache_folder)
    file_words = _read_words(cache)
    if words is None:
        rows = {word: row for row, word in enumerate(file_words)}
    else:
        rows = _find_rows(file_words, words)
    order = sorted(rows, key=rows.__getitem__)  # in the order of the file: its pages are read once
    wanted = np.array([rows[word] for word in order], dtype=np.int64)
    return WordVectors(tuple(order), _read_rows(cache, wanted, len(file_words)), path.name)


def vector_words(
    path: Path, limit: int | None = None, *, cache_folder: Path | None = None
) -> list[str]:
    """Return the words of a file in its own order, in public files the most frequent first."""
    return _read_words(_open_cache(path, cache_folder))[:limit]


def _find_rows(file_words: list[str], words: Collection[str]) -> dict[str, int]:
    """Map each needed word to its row: that of its own spelling, else the first in another case."""
    needed = dict.fromkeys(words)
    lower = {word.lower() for word in needed}
    exact: dict[str, int] = {}
    any_case: dict[str, int] = {}
    for row, word in enumerate(file_words):
        if word in needed:
            exact.setdefault(word, row)
        if (folded := word.lower()) in lower:
            any_case.setdefault(folded, row)
    rows = {word: exact.get(word, any_case.get(word.lower())) for word in needed}
    return {word: row for word, row in rows.items() if row is not None}


def _open_cache(path: Path, cache_folder: Path | None) -> Path:
    """Return the folder of a file's cache, which is made first if need be."""
    if not path.is_file():
        raise FormatError(str(path), "the file", "is not there, or not a file")
    status = path.stat()
    # The name holds what would make the cache stale, so a changed file never meets an old cache.
    stamp = f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}:{_CACHE_VERSION}"
    digest = hashlib.sha256(stamp.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    target = (cache_folder or user_cache()) / f"{path.name}.{digest}.cache"
    if not target.is_dir():
        _LOG.info("Reading %s for the first time; later it is read from %s", path, target)
        _write_cache(path, target)
    return target


def user_cache() -> Path:
    """Return the folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capsar"


def _read_words(cache: Path) -> list[str]:
    try:
        return (cache / "words.txt").read_bytes().decode("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"Delete the damaged cache {str(cache)!r}: {error}") from error


def _read_rows(cache: Path, rows: NDArray[np.int64], num_words: int) -> NDArray[np.float32]:
    """Copy some rows out of the mapped matrix, giving its pages back every few thousand rows."""
    try:
        with (cache / "matrix.npy").open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        numbers = np.frombuffer(mapped, "<f4", offset=_NPY_HEADER_BYTES)
        matrix = numbers.reshape(num_words, -1)
        if mapped[:_NPY_HEADER_BYTES] != _npy_header(*matrix.shape):
            raise ValueError("its files do not agree")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"Delete the damaged cache {str(cache)!r}: {error}") from error
    found = np.empty((len(rows), matrix.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        found[start : start + _ROWS_AT_ONCE] = matrix[rows[start : start + _ROWS_AT_ONCE]]
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
    return found


def _write_cache(path: Path, target: Path) -> None:
    """Write the cache whole under another name, then rename it: it is there entirely or not."""
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
    """Turn a text file into `matrix.npy` and `words.txt`, a few thousand rows at a time."""
    num_rows = 0
    dim = 0
    with (
        path.open("rb") as source,
        (folder / "matrix.npy").open("wb") as matrix_file,
        (folder / "words.txt").open("w", encoding="utf-8", newline="") as words_file,
    ):
        matrix_file.write(_npy_header(0, 0))
        for words, values in _blocks(source, str(path)):
            words_file.write("\n" * bool(num_rows) + "\n".join(words))
            matrix_file.write(values.tobytes())
            num_rows += len(words)
            dim = values.shape[1]
        if not num_rows:
            raise FormatError(str(path), "the file", "holds no vectors")
        matrix_file.seek(0)
        matrix_file.write(_npy_header(num_rows, dim))


def _npy_header(num_rows: int, dim: int) -> bytes:
    """The header of a NumPy file, of a fixed size so that the shape can be filled in at the end."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({num_rows}, {dim}), }}"
    magic = b"\x93NUMPY\x01\x00"
    body = text.ljust(_NPY_HEADER_BYTES - len(magic) - 3) + "\n"
    return magic + len(body).to_bytes(2, "little") + body.encode()


def _blocks(source: BinaryIO, path: str) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Yield blocks of words and vectors."""
    dim = 0
    seen: set[str] = set()
    words: list[str] = []
    rows: list[_Row] = []
    for line_number, line in _vector_lines(source, path):
        if not dim:
            dim = line.count(b" ")
            if not dim:
                reason = "expected a word and its numbers, with spaces between"
                raise FormatError(path, f"line {line_number}", reason)
        word, numbers = _cut(line, dim)
        text = word.decode("utf-8", "replace")
        if text in seen or not text:
            continue  # a few words stand twice in public files: the first, more frequent one counts
        seen.add(text)
        words.append(text)
        rows.append((line_number, numbers))
        if len(rows) == _ROWS_AT_ONCE:
            yield words, _parse(rows, dim, path)
            words, rows = [], []
    if rows:
        yield words, _parse(rows, dim, path)


def _vector_lines(source: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines without the header that fastText writes and GloVe does not."""
    line_number = 0
    while line := source.readline(_MAX_LINE_BYTES):
        line_number += 1
        if len(line) == _MAX_LINE_BYTES:
            raise FormatError(path, f"line {line_number}", "is too long for a word and its vector")
        line = line.rstrip(b"\r\n ")
        is_header = line_number == 1 and line.count(b" ") == 1 and line.replace(b" ", b"").isdigit()
        if line and not is_header:
            yield line_number, line


def _cut(line: bytes, dim: int) -> tuple[bytes, bytes]:
    """Part a word from its numbers; a few words of GloVe 840B hold spaces themselves."""
    if line.count(b" ") <= dim:
        word, _, values = line.partition(b" ")
        return word, values
    pieces = line.rsplit(b" ", dim)
    return pieces[0], b" ".join(pieces[1:])


def _parse(rows: list[_Row], dim: int, path: str) -> NDArray[np.float32]:
    """Read the numbers of a block at once; only where that fails, find the line to blame."""
    values = _to_floats(b" ".join(numbers for _, numbers in rows))
    if values.size != len(rows) * dim:
        for line_number, numbers in rows:
            if _to_floats(numbers).size != dim:
                reason = f"expected a word and {dim} numbers, got {numbers[:60]!r} after the word"
                raise FormatError(path, f"line {line_number}", reason)
    return values.reshape(len(rows), dim)


def _to_floats(text: bytes) -> NDArray[np.float32]:
    """Return the numbers of a text, or none at all if one of them is no finite number."""
    try:
        values = np.array(text.split(), dtype=np.float32)
    except ValueError:
        return np.empty(0, dtype=np.float32)
    return values if np.isfinite(values).all() else values[:0]
