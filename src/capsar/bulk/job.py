"""What is to be done: the options of a job, and what makes two jobs the same."""

from __future__ import annotations

import codecs
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar import __version__
from capsar.data.rows import known_encoding
from capsar.errors import ConfigError
from capsar.hub import DEFAULT_MODEL, find_bundle

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYOUT = 1
"""Of the output: raised when its columns, names or files change."""


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What is asked of each row, and how a corpus is cut."""

    text_column: str = "text"
    aspect_column: str | None = None
    """Names the aspects asked about, a text or a list of texts; without it aspects are found."""
    keep: Sequence[str] = ()
    """Columns that go to the output as they are (of CSV and JSONL: as text)."""
    encoding: str = "utf-8"
    """Of CSV and JSONL: UTF-8, or any with ASCII in it and one byte a character, as cp1252."""
    model: str | Path = DEFAULT_MODEL
    """A shipped model's name, a trained model's folder, or a hub id."""
    backend: str = "onnxruntime"
    """What runs the encoder: `onnxruntime` or `openvino`."""
    max_chars: int = 100_000
    """A longer text gets an `error`: one row may not take a worker's memory."""
    fragment_mb: float = 8.0
    """About how much of an input file is one unit of work, and one output file."""

    def __post_init__(self) -> None:
        if isinstance(self.keep, str):
            raise ConfigError(f"keep is a list of names, as ('id', 'date'); got {self.keep!r}")
        object.__setattr__(self, "keep", tuple(self.keep))  # a list has no hash
        if isinstance(self.model, Path):  # a folder, even if a model that ships has its name
            object.__setattr__(self, "model", str(self.model.absolute()))
        object.__setattr__(self, "encoding", _checked_encoding(self.encoding))
        if self.max_chars < 1:
            raise ConfigError(f"max_chars must be 1 or more, got {self.max_chars}")
        if not self.fragment_mb > 0:
            raise ConfigError(f"fragment_mb must be above 0, got {self.fragment_mb}")
        reserved = {"aspects", "error"} & set(self.keep)
        if reserved:
            raise ConfigError(
                f"Cannot keep {sorted(reserved)}: the output has columns of these names itself. "
                "Rename them in the input."
            )
        if len(set(self.keep)) != len(self.keep):
            raise ConfigError(f"keep names a column twice: {', '.join(self.keep)}")

    @property
    def fragment_bytes(self) -> int:
        """The size of a fragment in bytes."""
        return max(1, int(self.fragment_mb * 1_000_000))

    @property
    def columns(self) -> list[str]:
        """Every column that is read."""
        asked = [self.text_column, *([self.aspect_column] if self.aspect_column else [])]
        return list(dict.fromkeys([*asked, *self.keep]))


@dataclass(frozen=True, slots=True)
class Job:
    """Options, where the output goes, and the exact model: all that a worker needs."""

    options: ScoreOptions
    output: str
    model_sha256: str = field(default="")
    """Of the bundle's manifest, which holds the sha256 of every file of the model."""

    @staticmethod
    def make(options: ScoreOptions, output: str) -> Job:
        """Find the model and take its fingerprint.

        Raises:
            ArtifactError: If there is no such model.
        """
        return Job(options, output, model_fingerprint(options.model))

    def identity(self) -> dict[str, Any]:
        """Return what must not change between two runs into one output."""
        options = asdict(self.options) | {"keep": list(self.options.keep)}
        del options["model"]  # its content counts, not its name
        return {
            "layout": LAYOUT,
            "capsar": __version__,
            "model_sha256": self.model_sha256,
            "options": options,
        }

    def to_json(self) -> str:
        """Return the job as workers of any engine receive it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Return the job that `to_json` wrote."""
        fields = json.loads(text)
        return Job(ScoreOptions(**fields["options"]), fields["output"], fields["model_sha256"])


def _checked_encoding(encoding: str) -> str:
    """Return an encoding's own name; refuse one in which files cannot be cut by their bytes."""
    name = known_encoding(encoding)
    if name == "utf-8":
        return name
    try:
        is_ascii = bytes(range(128)).decode(name) == bytes(range(128)).decode("ascii")
        reader = codecs.getincrementaldecoder(name)
        # A byte that is not yet a character has others that belong to it.
        is_single = all(reader("replace").decode(bytes([byte])) for byte in range(256))
    except UnicodeError:
        is_ascii = is_single = False
    if not (is_ascii and is_single):
        raise ConfigError(
            f"Files in {encoding!r} cannot be cut where their records begin; save them as UTF-8 "
            f"(iconv -f {encoding} -t UTF-8 FILE)"
        )
    return name


def model_fingerprint(model: str | Path) -> str:
    """Return the sha256 of a model's manifest."""
    return find_bundle(model).fingerprint()
