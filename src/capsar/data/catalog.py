"""Named datasets: their files, checksums, licenses and sources.

Files are below the folder in the environment variable `CAPSAR_DATA`; the project's own corpus is
also found in a source checkout. Test parts are read by `test_examples`, for evaluation only.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.data.readers import read_examples
from capsar.errors import ConfigError, DataError

if TYPE_CHECKING:
    from capsar.schema import Example

DATA_VARIABLE = "CAPSAR_DATA"
TEST = "test"
_CHECKOUT = Path(__file__).parents[3]
"""The project's root in a source checkout; in an installed package, a folder without a corpus."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a dataset."""

    part: str
    path: str
    """Relative to the data folder."""
    bytes: int
    sha256: str
    source: str
    commit: str
    source_path: str
    sentences: int
    """Number of sentences, of lines (unlabeled text) or of rows (vectors)."""
    labels: dict[str, int] = field(default_factory=dict)
    """Number of annotations by polarity."""

    def where(self) -> str:
        """Return where to get this file."""
        at = f" at commit {self.commit}" if self.commit else ""
        return f"{self.source_path} of {self.source or 'no public source'}{at}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named dataset."""

    name: str
    kind: str
    """`labeled`, `unlabeled` or `vectors`."""
    description: str
    license: str
    home: str
    files: tuple[DataFile, ...]

    def file(self, part: str) -> DataFile:
        """Return the file of one part.

        Raises:
            ConfigError: If there is no such part.
        """
        for candidate in self.files:
            if candidate.part == part:
                return candidate
        parts = ", ".join(candidate.part for candidate in self.files)
        raise ConfigError(f"Dataset {self.name!r} has no part {part!r}; its parts are: {parts}")


@cache
def datasets() -> dict[str, Dataset]:
    """Return all datasets of the catalog by name."""
    content = files("capsar.data").joinpath("catalog.toml").read_text(encoding="utf-8")
    return {
        entry["name"]: Dataset(
            files=tuple(DataFile(**file) for file in entry.pop("file")),
            **entry,
        )
        for entry in tomllib.loads(content)["dataset"]
    }


def dataset(name: str) -> Dataset:
    """Return a dataset by name.

    >>> dataset("mams").license
    'Apache-2.0'

    Raises:
        ConfigError: If it is not in the catalog.
    """
    known = datasets()
    if name not in known:
        raise ConfigError(f"Unknown dataset {name!r}; known are: {', '.join(known)}")
    return known[name]


def data_folder() -> Path:
    """Return the folder of all datasets.

    Raises:
        ConfigError: If it is not set.
    """
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise ConfigError(
            f"Set {DATA_VARIABLE} to the folder that holds your datasets; `capsar data list` shows "
            "the expected files and where to get each"
        )
    return Path(folder)


def expected_path(file: DataFile) -> Path:
    """Return the path of a file in the data folder or, for the corpus, in a source checkout.

    Raises:
        ConfigError: If the data folder is needed and not set.
    """
    in_checkout = _CHECKOUT / file.path
    if file.path.startswith("corpus/") and in_checkout.is_file():
        return in_checkout
    return data_folder() / file.path


def find_file(name: str, part: str) -> Path:
    """Return the path of a dataset's file after verifying its checksum.

    Raises:
        DataError: If the file is missing, or is not the published one.
    """
    file = dataset(name).file(part)
    path = expected_path(file)
    if not path.is_file():
        raise DataError(
            f"{name} ({part}) is not at {str(path)!r}. Get {file.where()}, sha256 {file.sha256}; "
            f"license: {dataset(name).license}"
        )
    if not matches(path, file):
        raise DataError(
            f"{str(path)!r} is not the published file: its sha256 should be {file.sha256}. "
            f"Download it again: {file.where()}"
        )
    return path


def matches(path: Path, file: DataFile) -> bool:
    """Return whether a file on disk is the published one."""
    return path.stat().st_size == file.bytes and digest_file(path) == file.sha256


def digest_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def identify(path: Path) -> tuple[Dataset, DataFile] | None:
    """Return the dataset and file with the same content as a path, or `None`."""
    for candidate in datasets().values():
        for file in candidate.files:
            if matches(path, file):
                return candidate, file
    return None


def training_examples(name: str, part: str = "train") -> list[Example]:
    """Return the examples of a part for training or tuning.

    Known bad records of a published file are skipped; `capsar data check` lists them.

    Args:
        name: The dataset.
        part: Its part, or `part/file` for one file of an archive (without folder and suffix).

    Raises:
        ConfigError: If the part is a test part, or the archive has no such file.
    """
    part, _, member = part.partition("/")
    if part == TEST:
        raise ConfigError(
            f"The test set of {name!r} cannot be used for training or validation, "
            "only for evaluation"
        )
    examples = list(read_examples(find_file(name, part), errors="skip"))
    if not member:
        return examples
    own = [example for example in examples if _archive_member(example) == member]
    if not own:
        known = ", ".join(sorted({_archive_member(example) for example in examples} - {""}))
        raise ConfigError(
            f"{name}:{part} has no file {member!r}; "
            f"its files are: {known or 'none, it is not an archive'}"
        )
    return own


def _archive_member(example: Example) -> str:
    """Return the file of an archive that an example comes from, without folder and suffix."""
    file, found, _ = example.id.rpartition(", line ")
    return Path(file).stem if found else ""


def test_examples(name: str) -> list[Example]:
    """Return the examples of a test part, for evaluation only."""
    return list(read_examples(find_file(name, TEST), errors="skip"))


def present(dataset: Dataset) -> list[str]:
    """Return the parts of a dataset whose file exists with the expected size."""
    found = []
    for file in dataset.files:
        try:
            path = expected_path(file)
        except ConfigError:
            continue
        if path.is_file() and path.stat().st_size == file.bytes:
            found.append(file.part)
    return found
