"""The options of a scoring job, and the identity that must match between runs."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.bundle import DEFAULT_MODEL, find_bundle
from capsar.data.records import normalize_encoding
from capsar.errors import ConfigError
from capsar.themes.schema import Theme, Themes, as_themes
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYOUT = 5
"""Version of the output layout. Increase it when columns, names or files change."""


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """Options of `score`: the columns to read, the model, and the size of a shard."""

    text_column: str = "text"
    aspect_column: str | None = None
    """Column with the aspects of each row, one string or a list. If `None`, extract aspects."""
    keep: Sequence[str] = ()
    """Columns to copy to the output (as strings, except those of Parquet)."""
    encoding: str = "utf-8"
    """Encoding of CSV and JSON Lines."""
    model: str | Path = DEFAULT_MODEL
    """Name of a bundled model, folder of a trained model, or hub id."""
    backend: str = "onnxruntime"
    """Runtime of the encoder: `onnxruntime` or `openvino`."""
    themes: Themes | Sequence[Theme] | str | Path | None = None
    """Themes to sort mentions into, a `themes.toml`, or the name of ready-made ones."""
    max_chars: int = 100_000
    """Maximum length of a text. A longer text is not scored and its row gets an `error`."""
    shard_mb: float = 8.0
    """Maximum size of a shard in megabytes of input. Each shard becomes one output file."""

    def __post_init__(self) -> None:
        if isinstance(self.keep, str):
            raise ConfigError(
                f"keep must be a list of column names such as ('id', 'date'); got {self.keep!r}"
            )
        object.__setattr__(self, "keep", tuple(self.keep))  # hashable
        if isinstance(self.model, Path):  # a folder, even if a bundled model has the same name
            object.__setattr__(self, "model", str(self.model.absolute()))
        object.__setattr__(self, "encoding", normalize_encoding(self.encoding))
        if self.themes is not None and not isinstance(self.themes, Themes):
            object.__setattr__(self, "themes", as_themes(self.themes))
        if self.themes is not None and self.aspect_column is not None:
            raise ConfigError("themes and aspect_column cannot be combined; give one of them")
        if self.max_chars < 1:
            raise ConfigError(f"max_chars must be 1 or more, got {self.max_chars}")
        if not 0 < self.shard_mb < math.inf:
            raise ConfigError(f"shard_mb must be greater than 0 and finite, got {self.shard_mb}")
        if reserved := {"aspects", "error"} & {name.casefold() for name in self.keep}:
            raise ConfigError(
                f"Cannot keep {sorted(reserved)}: the output uses these column names. "
                "Rename the columns in the input."
            )
        if len(set(self.keep)) != len(self.keep):
            raise ConfigError(f"keep contains a column twice: {', '.join(self.keep)}")

    @property
    def shard_bytes(self) -> int:
        """The size of a shard in bytes."""
        return max(1, int(self.shard_mb * 1_000_000))

    @property
    def columns(self) -> list[str]:
        """All columns to read."""
        inputs = [self.text_column, *([self.aspect_column] if self.aspect_column else [])]
        return list(dict.fromkeys([*inputs, *self.keep]))


@dataclass(frozen=True)
class Job:
    """Everything a worker needs: the options, the output folder and the exact model."""

    options: ScoreOptions
    output: str
    model_sha256: str = ""
    """Checksum of the bundle's manifest, which contains the checksum of every model file."""
    schema: Any = None
    """Arrow schema of the kept columns, the same in all output files."""

    @staticmethod
    def make(options: ScoreOptions, output: str) -> Job:
        """Return a job with the fingerprint of its model.

        Raises:
            ArtifactError: If the model does not exist.
        """
        return Job(options, output, model_fingerprint(options.model))

    def identity(self) -> dict[str, Any]:
        """Return everything that must be the same in all runs with one output folder."""
        options = json.loads(json.dumps(asdict(self.options)))  # as it is read from the manifest
        del options["model"]  # compared by content, not by name
        return {
            "layout": LAYOUT,
            "capsar": __version__,
            "model_sha256": self.model_sha256,
            "options": options,
        }

    @cached_property
    def id(self) -> str:
        """A digest of the identity, which every output name depends on."""
        content = json.dumps(self.identity(), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def model_fingerprint(model: str | Path) -> str:
    """Return the sha256 of a model's manifest."""
    return find_bundle(model).fingerprint()
