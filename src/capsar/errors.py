"""Every error that this package raises on purpose.

```
CapsarError
├── ConfigError            an invalid setting
├── DataError              unusable data
│   ├── FormatError        an unreadable record: names file, record and reason
│   └── AspectNotFoundError
├── ArtifactError          an unusable saved file (model, tokenizer, cache)
│   └── VersionMismatchError
└── MissingExtraError      an optional dependency that is not installed
```
"""

from __future__ import annotations


class CapsarError(Exception):
    """Base class of all errors raised by this package."""


class ConfigError(CapsarError, ValueError):
    """An invalid setting."""


class DataError(CapsarError, ValueError):
    """Data that cannot be used."""


class FormatError(DataError):
    """A record that cannot be read.

    Attributes:
        path: The file, as the user named it.
        record: The position in the file: a line, a sentence or a key.
        reason: What was expected, what was found and what to do.
        polarity: The label (a `Polarity`) of the bad record, if it could be read.
        fields: The fields of a bad CSV record, if its columns could be separated; U+FFFD replaces
            bytes that could not be decoded.
    """

    def __init__(self, path: str, record: str, reason: str, *, polarity: str | None = None) -> None:
        super().__init__(f"{path}: {record}: {reason}")
        self.path = path
        self.record = record
        self.reason = reason
        self.polarity = polarity
        self.fields: dict[str, str] = {}


class AspectNotFoundError(DataError, LookupError):
    """An aspect given as text that does not occur in the sentence."""


class ArtifactError(CapsarError, ValueError):
    """A saved file (model, tokenizer, cache) that cannot be used."""


class VersionMismatchError(ArtifactError):
    """A saved file written by an incompatible version."""


class MissingExtraError(CapsarError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra {extra!r}: pip install 'capsar[{extra}]'")
        self.extra = extra
