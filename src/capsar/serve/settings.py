"""Settings of the service and its API keys, validated once at startup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from capsar.bundle import DEFAULT_MODEL, name_of
from capsar.errors import ConfigError
from capsar.inference.sessions import num_cores

if TYPE_CHECKING:
    from pathlib import Path

TEXT_CHARS = 20_000
"""Maximum characters of one text."""
TEXTS = 512
"""Maximum texts of one request."""
ASPECTS = 64
"""Maximum given aspects of one text."""
BODY_BYTES = 524_288
"""Maximum bytes of a request's body."""
API_PATHS = ("/v1/analyze", "/v1/classify", "/v1/explain")
"""Routes of requests for work."""
_MODEL = re.compile(r"(?:([^/=]+)=)?(.+)")
"""A model with or without its name; a folder can contain `=` too."""
_KEY_LINE = re.compile(r"([0-9a-fA-F]{64})\s+(\S+)\s*")


def read_api_keys(path: Path) -> dict[str, str]:
    """Read a file of hashed keys: one SHA-256 and name per line, as `sha256sum` prints them.

    Empty lines and lines that start with # are skipped.

    Returns:
        The name of each key's owner, by the SHA-256 of the key.

    Raises:
        ConfigError: If the file cannot be read, a line is malformed, or there is no key in it.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the API keys in {str(path)!r}: {error}") from error
    owners = {}
    for number, line in enumerate(lines, start=1):
        if match := _KEY_LINE.fullmatch(line):
            owners[match[1].lower()] = match[2]
        elif line.strip() and not line.startswith("#"):
            # The message does not quote the line: it may be a key that was not hashed.
            raise ConfigError(
                f"{str(path)!r}, line {number}: expected the SHA-256 of a key in 64 hexadecimal "
                "digits, a space and a name"
            )
    if not owners or sha256(b"").hexdigest() in owners:
        raise ConfigError(f"{str(path)!r} has no API key, or the hash of an empty one: add a key")
    return owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a service; `capsar serve --help` describes them."""

    models: tuple[str, ...] = (DEFAULT_MODEL,)
    """`NAME=MODEL` or a model alone; the first is the default of requests."""
    backend: str = "onnxruntime"
    threads: int = 0
    """Inference threads; 0 for one per CPU of this process."""
    host: str = "127.0.0.1"
    port: int = 8000
    root_path: str = ""
    """The path under which a proxy serves the service."""
    proxies: str = "127.0.0.1"
    """Addresses of proxies whose `X-Forwarded-*` headers are used, separated by commas."""
    api_keys: dict[str, str] | None = None
    """Owners by the SHA-256 of their API key; None allows every client."""
    origins: tuple[str, ...] = ()
    """Origins of other web pages that may call the service (CORS)."""
    queue_chars: int = 65_536
    """Characters of work that may be queued or in progress; also the maximum of one request."""
    deadline: float = 30.0
    """Seconds from the end of a request's body to the response."""
    body_timeout: float = 20.0
    """Seconds from the headers of a request to the end of its body."""
    grace: float = 20.0
    """Seconds from SIGTERM to the end of the process, even if requests are still running; at least
    four."""
    log_level: str = "info"

    def __post_init__(self) -> None:
        for origin in self.origins:
            if not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ConfigError(
                    f"--allow-origin takes an origin such as https://shop.example, got {origin!r}"
                )
        if not self.models or len(self.sources) < len(self.models):
            raise ConfigError("--model needs one or several models with different names")

    @property
    def sources(self) -> dict[str, str]:
        """The served models by name, the default first.

        >>> Settings(models=("base", "phones=owner/phones")).sources
        {'base': 'base', 'phones': 'owner/phones'}
        """
        pairs = (_MODEL.fullmatch(model) for model in self.models)
        return {pair[1] or name_of(pair[2]): pair[2] for pair in pairs if pair}

    @property
    def num_threads(self) -> int:
        """The number of inference threads."""
        return self.threads or num_cores()
