"""Settings of the service and its API keys, validated once at startup."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import TYPE_CHECKING

from capsar.bundle import DEFAULT_MODEL
from capsar.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LOG_LEVELS = ("debug", "info", "warning", "error")
_KEY_LINE = re.compile(r"([0-9a-fA-F]{64})\s+(\S+)\s*")


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """SHA-256 digests of the accepted API keys, and the name of each key's owner."""

    names: tuple[str, ...]
    digests: tuple[bytes, ...]

    def name_of(self, key: bytes) -> str | None:
        """Return the owner of a key, or None; compares all digests in constant time.

        >>> keys = ApiKeys(("shop",), (sha256(b"a long random string").digest(),))
        >>> keys.name_of(b"a long random string"), keys.name_of(b"a guess")
        ('shop', None)
        """
        digest = sha256(key).digest()
        owner = None
        for name, known in zip(self.names, self.digests, strict=True):
            if hmac.compare_digest(digest, known):
                owner = name
        return owner


def read_api_keys(path: Path) -> ApiKeys:
    """Read a file of hashed keys: one SHA-256 and name per line, as `sha256sum` prints them.

    Empty lines and lines that start with # are skipped.

    Raises:
        ConfigError: If the file cannot be read, a line is malformed, or there is no key in it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the API keys in {str(path)!r}: {error}") from error
    names, digests = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _KEY_LINE.fullmatch(line)
        if match is None:
            # The message does not quote the line: it may be a key that was not hashed.
            raise ConfigError(
                f"{str(path)!r}, line {number}: expected the SHA-256 of a key in 64 hexadecimal "
                "digits, a space and a name"
            )
        digests.append(bytes.fromhex(match[1]))
        names.append(match[2])
    if not digests:
        raise ConfigError(
            f"{str(path)!r} contains no API key, so every request would be refused. Add one."
        )
    return ApiKeys(tuple(names), tuple(digests))


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of a request, and of the queue of a worker."""

    queue_chars: int = 65_536
    """Characters of work that may be queued or in progress; also the maximum of one request."""
    text_chars: int = 20_000
    """Characters of one text."""
    texts: int = 512
    """Texts per request."""
    aspects: int = 64
    """Given aspects per text."""
    body_bytes: int = 524_288
    """Bytes of a request's body."""
    bodies_bytes: int = 67_108_864
    """Bytes of all bodies that are being received."""
    header_bytes: int = 32_768
    """Bytes of a request's line and headers."""
    connections: int = 1000
    """Open connections per worker."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts, in seconds."""

    batch_wait: float = 0.002
    """Maximum wait for a batch to fill, when there is more than one client."""
    deadline: float = 30.0
    """From the arrival of a request to its response."""
    headers: float = 10.0
    """From the start of a connection or request to the end of its headers."""
    body: float = 20.0
    """From the end of the headers to the end of the body."""
    idle: float = 30.0
    """A connection between two requests."""
    linger: float = 1.0
    """For a client to read a response sent before its request was complete, or to send one more
    request on an open connection during shutdown."""
    grace: float = 20.0
    """From SIGTERM to the end of the process, even if requests are still running."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Maximum size of one batch."""

    chars: int = 16_384
    texts: int = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a service."""

    model: str = DEFAULT_MODEL
    backend: str = "onnxruntime"
    """Runs the encoder: `onnxruntime` or `openvino`."""
    threads: int = 1
    """CPU threads for inference, per worker."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    api_keys: ApiKeys | None = None
    """Accepted API keys; None allows every client."""
    origins: tuple[str, ...] = ()
    """Origins of other web pages that may call the service (CORS)."""
    log_level: str = "info"
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    batch_size: BatchSize = BatchSize()

    def __post_init__(self) -> None:
        for name in ("threads", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be 1 or more, got {getattr(self, name)}")
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}")
        if self.log_level not in LOG_LEVELS:
            known = ", ".join(LOG_LEVELS)
            raise ConfigError(f"--log-level must be one of {known}, got {self.log_level!r}")
        for origin in self.origins:
            if origin == "*" or not origin.startswith(("http://", "https://")):
                raise ConfigError(
                    f"--allow-origin takes an origin such as https://shop.example, got {origin!r}"
                )
        for part in (self.limits, self.timeouts, self.batch_size):
            for field in fields(part):
                if getattr(part, field.name) < 0:
                    raise ConfigError(f"{field.name} must not be negative")
