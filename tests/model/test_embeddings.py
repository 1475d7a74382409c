"""GloVe files: odd rows, damaged files, the cache, and files of the real size."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sizes import FULL_SIZE, sized

import text as benchmark
from capsar.errors import ArtifactError, FormatError
from capsar.model.embeddings import load_vectors
from measure import RESULTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    path = tmp_path / "glove.txt"
    path.write_bytes(
        b"the 0.1 -0.2 3e-1\n"
        b"The 9 9 9\n"
        b". . . 1 2 3\n"  # words with spaces, as in GloVe 840B
        b"iPhone 4 5 6\n"
        b"caf\xc3\xa9 7 8 9\n"
        b"a\xc2\x85b 1 1 1\n"  # a Unicode line break inside a word
        b"x\ry 2 2 2\n"
        b"the 8 8 8\n"  # a repeated word
        b"\xff\xfe 3 3 3\n"  # not UTF-8
    )
    return path


def test_odd_rows_are_read(glove: Path) -> None:
    vectors = load_vectors(glove)
    assert vectors.words == (
        "the", "The", ". . .", "iPhone", "café", "a\x85b", "x\ry", "\ufffd\ufffd"
    )  # fmt: skip
    np.testing.assert_array_equal(vectors.matrix[0], np.array([0.1, -0.2, 0.3], dtype=np.float32))
    assert vectors.matrix.dtype == np.float32
    assert vectors.source == "glove.txt"


def test_only_needed_rows_are_returned_in_any_case(glove: Path) -> None:
    vectors = load_vectors(glove, ["iphone", "the", "nowhere", "café"])
    assert vectors.words == ("the", "iphone", "café")
    np.testing.assert_array_equal(vectors.matrix[:, 0], np.array([0.1, 4, 7], dtype=np.float32))
    assert load_vectors(glove, []).matrix.shape == (0, 3)
    assert load_vectors(glove, ["IPHONE", "iPhone"]).words == ("IPHONE", "iPhone")


def test_cache_is_used_until_the_file_changes(glove: Path) -> None:
    words = load_vectors(glove).words
    content, status = glove.read_bytes(), glove.stat()
    glove.write_bytes(b"x" * len(content))  # another content under the same size and time
    os.utime(glove, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert load_vectors(glove).words == words
    os.utime(glove, ns=(1, 1))
    with pytest.raises(FormatError, match="line 1"):
        load_vectors(glove)


def test_files_with_equal_names_have_separate_caches(glove: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "glove.txt"
    other.parent.mkdir()
    other.write_bytes(glove.read_bytes().replace(b"the 0.1", b"the 0.7"))
    for path in (glove, other):
        os.utime(path, ns=(1, 1))
    first, second = (load_vectors(path, ["the"]).matrix[0, 0] for path in (glove, other))
    assert (first, second) == (np.float32(0.1), np.float32(0.7))


def test_header_line_of_fasttext_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "wiki.vec"
    path.write_bytes(b"2 3\r\na 1 2 3 \r\n\nb 4 5 6\r\n")
    assert load_vectors(path).words == ("a", "b")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"a 1 2\nb 1\n", "line 2"),
        (b"a 1 2\nb 1 x\n", "line 2"),
        (b"a 1 2\nb 1 nan\n", "line 2"),
        (b"a 1 2\nb 1 1e99\n", "line 2"),
        (b"", "the file"),
        (b"the\t1\t2\nsoup\t3\t4\n", "line 1"),
        (b"a " + b"1 " * 600_000, "line 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_damaged_file_raises_an_error_with_the_line_and_leaves_no_cache(
    tmp_path: Path, content: bytes, place: str
) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=place):
        load_vectors(path)
    assert not list((tmp_path / "home" / "capsar").iterdir())


def test_missing_file_and_damaged_cache_raise_an_error(glove: Path) -> None:
    for path in (glove.parent / "absent.txt", glove.parent):
        with pytest.raises(FormatError, match="not a file"):
            load_vectors(path)
    load_vectors(glove)
    (cache,) = (glove.parent / "home" / "capsar").glob("*.cache")
    (cache / "words.txt").write_bytes(b"\xff")
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        load_vectors(glove)
    (cache / "words.txt").write_bytes(b"3" + b"\nthe" * 4)  # half as many words as vectors
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        load_vectors(glove)
    (cache / "matrix.f32").unlink()
    with pytest.raises(ArtifactError, match="Delete the damaged cache"):
        load_vectors(glove)


@pytest.mark.slow
def test_full_disk_raises_an_error_and_leaves_no_cache(
    glove: Path, small_disk: Callable[[str], Path]
) -> None:
    """A real file system without free space."""
    disk = small_disk("64k")
    benchmark.write_vectors(glove, 1000)
    with pytest.raises(ArtifactError, match=r"Cannot write the vector cache.*No space left"):
        load_vectors(glove, cache_folder=disk)
    assert list(disk.iterdir()) == []


@pytest.mark.slow
def test_large_file_is_read_in_bounded_memory_and_quickly_from_the_cache(tmp_path: Path) -> None:
    metrics = benchmark.vectors(tmp_path, sized(benchmark.VECTOR_ROWS))
    assert metrics["rows_kept"] == 10_000
    assert metrics["first_load_peak_mb"] < (1500 if FULL_SIZE else 150)
    assert metrics["second_load_s"] < metrics["first_load_s"] / 20


def test_recorded_benchmark_has_the_size_of_glove_42b() -> None:
    metrics = json.loads((RESULTS / "vectors.json").read_text())["metrics"]
    assert metrics["file_rows"] == benchmark.VECTOR_ROWS == 1_900_000
    assert metrics["first_load_peak_mb"] < 1500
    assert metrics["second_load_s"] < 2


@pytest.mark.data
def test_glove_subset(shared: Path, tmp_path: Path) -> None:
    path = shared / "vectors" / "glove.840B.300d.subset.txt"
    vectors = load_vectors(path, cache_folder=tmp_path)
    assert vectors.matrix.shape == (8739, 300)
    some = load_vectors(path, ["battery", "n't", "not-a-word"], cache_folder=tmp_path)
    assert set(some.words) == {"battery", "n't"}
