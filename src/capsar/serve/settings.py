"""`Settings`: everything a service can be told, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from capsar.errors import ConfigError
from capsar.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from capsar.serve.keys import Keys


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask for, and how much may wait."""

    queue_chars: int = 65_536
    """Characters that may wait or be worked on; one request may hold no more."""
    text_chars: int = 20_000
    """Characters of one text."""
    texts: int = 512
    """Texts of one request."""
    aspects: int = 64
    """Aspects asked about in one text."""
    body_bytes: int = 524_288
    """Bytes of a request's body."""
    bodies_bytes: int = 67_108_864
    """Bytes of all bodies that are being received."""
    header_bytes: int = 32_768
    """Bytes of a request's line and headers."""
    connections: int = 1000
    """Open connections of a worker."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long anything may take, in seconds."""

    batch_wait: float = 0.002
    """Waiting for a batch to fill, where more than one client is there."""
    deadline: float = 30.0
    """From a request's arrival to its answer."""
    headers: float = 10.0
    """From a connection's or request's first moment to the end of its headers."""
    body: float = 20.0
    """From the headers to the end of the body."""
    idle: float = 30.0
    """A connection between two requests."""
    linger: float = 1.0
    """For a client to read an answer that came before it had sent all, or to use a connection
    once more while the service ends."""
    grace: float = 20.0
    """From SIGTERM to the end, whatever is still running."""


@dataclass(frozen=True, slots=True)
class Batches:
    """How much is worked on at once."""

    chars: int = 16_384
    texts: int = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a service can be told."""

    model: str = DEFAULT_MODEL
    backend: str = "onnxruntime"
    """What runs the encoder: `onnxruntime` or `openvino`."""
    threads: int = 1
    """CPU threads of the engine, in each worker."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    keys: Keys | None = None
    """Who may ask; without, everyone."""
    origins: tuple[str, ...] = ()
    """Web pages of other origins that may ask (CORS)."""
    log_level: str = "info"
    limits: Limits = Limits()
    times: Times = Times()
    batches: Batches = Batches()

    def __post_init__(self) -> None:
        for name in ("threads", "workers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be 1 or more, got {getattr(self, name)}")
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}")
        if self.log_level not in LOG_LEVELS:
            known = ", ".join(LOG_LEVELS)
            raise ConfigError(f"--log-level is one of {known}, got {self.log_level!r}")
        for origin in self.origins:
            if origin == "*" or not origin.startswith(("http://", "https://")):
                raise ConfigError(
                    f"--allow-origin takes an origin such as https://shop.example, got {origin!r}"
                )
        for part in (self.limits, self.times, self.batches):
            for field in fields(part):
                if getattr(part, field.name) < 0:
                    raise ConfigError(f"{field.name} must not be negative")


LOG_LEVELS = ("debug", "info", "warning", "error")
