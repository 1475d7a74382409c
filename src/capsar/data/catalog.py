"""Named datasets: their files, checksums, licences, and where a user gets each of them.

Files are found below the folder that the environment variable `CAPSAR_DATA` names, or, for the
project's own corpus, in the source checkout. Test parts are opened by `test_examples` alone, which
only evaluation calls.
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
    from capsar.data.example import Example

DATA_VARIABLE = "CAPSAR_DATA"
TEST = "test"
_CHECKOUT = Path(__file__).parents[3]
"""The project's root in a source checkout; in an installed package, a folder without a corpus."""
_CORPUS = "corpus/"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a dataset."""

    part: str
    path: str
    """Relative to the folder of all data."""
    bytes: int
    sha256: str
    source: str
    commit: str
    source_path: str
    sentences: int
    """Sentences of a labelled file, lines of an unlabelled one, rows of vectors."""
    labels: dict[str, int] = field(default_factory=dict)
    """How many judgements have each polarity."""

    def where(self) -> str:
        """Say where a user gets this file."""
        at = f" at commit {self.commit}" if self.commit else ""
        return f"{self.source_path} of {self.source or 'nowhere public'}{at}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A named dataset."""

    name: str
    kind: str
    """`labelled`, `unlabelled` or `vectors`."""
    about: str
    licence: str
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
    """Return every dataset the catalog knows, by name."""
    content = files("capsar.data").joinpath("catalog.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(content)["dataset"]
    found = (
        Dataset(
            files=tuple(DataFile(**file) for file in entry.pop("file")),
            **entry,
        )
        for entry in entries
    )
    return {dataset.name: dataset for dataset in found}


def dataset(name: str) -> Dataset:
    """Return a dataset by name.

    >>> dataset("mams").licence
    'Apache-2.0'

    Raises:
        ConfigError: If the catalog does not know it.
    """
    known = datasets()
    if name not in known:
        raise ConfigError(f"Unknown dataset {name!r}; known are: {', '.join(known)}")
    return known[name]


def data_folder() -> Path:
    """Return the folder of all data.

    Raises:
        ConfigError: If it is not set.
    """
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise ConfigError(
            f"Set {DATA_VARIABLE} to the folder that holds your datasets; `capsar data list` shows "
            "which files it looks for below that folder, and where to get each."
        )
    return Path(folder)


def locate(file: DataFile) -> Path:
    """Return where a file is expected: below the data folder.

    The project's own corpus is found in a source checkout, where there is one.

    Raises:
        ConfigError: If the data folder is needed and not set.
    """
    in_checkout = _CHECKOUT / file.path
    if file.path.startswith(_CORPUS) and in_checkout.is_file():
        return in_checkout
    return data_folder() / file.path


def find_file(name: str, part: str) -> Path:
    """Return the path of a dataset's file, once its checksum has been verified.

    Raises:
        DataError: If the file is not there, or is not the published one.
    """
    file = dataset(name).file(part)
    path = locate(file)
    if not path.is_file():
        raise DataError(
            f"{name} ({part}) is not at {str(path)!r}. Get {file.where()}, sha256 {file.sha256}, "
            f"and mind its licence: {dataset(name).licence}"
        )
    if not matches(path, file):
        raise DataError(
            f"{str(path)!r} is not the published file: its sha256 should be {file.sha256}. "
            f"Get it again: {file.where()}"
        )
    return path


def matches(path: Path, file: DataFile) -> bool:
    """Tell whether a file on disk is the published one."""
    if path.stat().st_size != file.bytes:
        return False
    return digest_file(path) == file.sha256


def digest_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def identify(path: Path) -> tuple[Dataset, DataFile] | None:
    """Return the dataset and file that a path is, judged by its content, or nothing."""
    size = path.stat().st_size
    for candidate in datasets().values():
        for file in candidate.files:
            if file.bytes == size and matches(path, file):
                return candidate, file
    return None


def training_examples(name: str, part: str = "train") -> list[Example]:
    """Return the examples of a part that may be trained or tuned on.

    Known slips of a published file are passed over; `capsar data check` names them.

    Args:
        name: Of the dataset.
        part: Of it; of one file of an archive, `part/file`, the file without folder and ending.

    Raises:
        ConfigError: If the part is a test part, or the archive has no such file.
    """
    part, _, member = part.partition("/")
    if part == TEST:
        raise ConfigError(
            f"The test part of {name!r} is not for training or tuning; only evaluation opens it"
        )
    examples = list(read_examples(find_file(name, part), errors="skip"))
    if not member:
        return examples
    own = [example for example in examples if _archived(example) == member]
    if not own:
        known = ", ".join(sorted({_archived(example) for example in examples} - {""}))
        raise ConfigError(
            f"{name}:{part} holds no file {member!r}; its files are: {known or 'none, it is one'}"
        )
    return own


def _archived(example: Example) -> str:
    """The file of an archive that an example comes from, without folder and ending, or nothing."""
    file, found, _ = example.id.rpartition(", line ")
    return Path(file).stem if found else ""


def test_examples(name: str) -> list[Example]:
    """Return the examples of a test part, for evaluation and nothing else."""
    return list(read_examples(find_file(name, TEST), errors="skip"))


def present(dataset: Dataset) -> list[str]:
    """Return the parts of a dataset whose file exists with the expected size."""
    found = []
    for file in dataset.files:
        try:
            path = locate(file)
        except ConfigError:
            continue
        if path.is_file() and path.stat().st_size == file.bytes:
            found.append(file.part)
    return found
