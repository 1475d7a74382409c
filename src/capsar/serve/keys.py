"""API keys: who may ask. Only their SHA-256 is stored; a key is a long random string.

The file has a line per key, as `sha256sum` writes it: 64 hexadecimal digits, blanks, a name.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from capsar.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_LINE = re.compile(r"([0-9a-fA-F]{64})\s+(\S+)\s*")


@dataclass(frozen=True, slots=True)
class Keys:
    """The digests of all keys, and whose they are."""

    names: tuple[str, ...]
    digests: tuple[bytes, ...]

    def name_of(self, key: bytes) -> str | None:
        """Return whose key it is, in a time that does not depend on how nearly it fits.

        >>> keys = Keys(("shop",), (sha256(b"a long random string").digest(),))
        >>> keys.name_of(b"a long random string"), keys.name_of(b"a guess")
        ('shop', None)
        """
        digest = sha256(key).digest()
        found = None
        for name, known in zip(self.names, self.digests, strict=True):
            if hmac.compare_digest(digest, known):
                found = name
        return found


def read_keys(path: Path) -> Keys:
    """Read a file of hashed keys; empty lines and those that start with # are left out.

    Raises:
        ConfigError: If it cannot be read, a line is not as it should be, or it holds no key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the keys of {str(path)!r}: {error}") from error
    names, digests = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            # The line is not shown: it may be a key that someone forgot to hash.
            raise ConfigError(
                f"{str(path)!r}, line {number}: expected the key's SHA-256 in 64 hexadecimal "
                "digits, blanks and a name"
            )
        digests.append(bytes.fromhex(match[1]))
        names.append(match[2])
    if not digests:
        raise ConfigError(f"{str(path)!r} holds no key, so nobody could ask anything")
    return Keys(tuple(names), tuple(digests))
