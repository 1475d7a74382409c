"""Every failure a user can meet.

```
CapsarError
├── ConfigError            a setting that cannot be used
├── DataError
│   ├── FormatError        a record that cannot be read: names file, record and reason
│   └── AspectNotFoundError
├── ArtifactError          a saved file (model, tokenizer, cache) that cannot be used
│   └── VersionMismatchError
└── MissingExtraError      an optional part that is not installed
```
"""

from __future__ import annotations


class CapsarError(Exception):
    """The root of all errors raised on purpose by this package."""


class ConfigError(CapsarError, ValueError):
    """A setting that cannot be used."""


class DataError(CapsarError, ValueError):
    """Data that cannot be used."""


class FormatError(DataError):
    """A record that cannot be read.

    Attributes:
        path: The file as the user named it.
        record: The place in it, in words: a line, a sentence, a key.
        reason: What was expected, what came, what to do.
        polarity: The label of the bad record (a `Polarity`), where at least that could be read.
    """

    def __init__(self, path: str, record: str, reason: str, *, polarity: str | None = None) -> None:
        super().__init__(f"{path}: {record}: {reason}")
        self.path = path
        self.record = record
        self.reason = reason
        self.polarity = polarity


class AspectNotFoundError(DataError, LookupError):
    """An aspect given as text that does not occur in the sentence."""


class ArtifactError(CapsarError, ValueError):
    """A saved file (model, tokenizer, cache) that cannot be used."""


class VersionMismatchError(ArtifactError):
    """A saved file that another version wrote."""


class MissingExtraError(CapsarError, ImportError):
    """An optional part that is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra {extra!r}: pip install 'capsar[{extra}]'")
        self.extra = extra
