"""What teachers told, in the user's cache: for the next seed, and for the rest of a stopped run."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from capsar.errors import ArtifactError
from capsar.hub import find_bundle
from capsar.model.vectors import user_cache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def cache_of(teacher: str, kind: str) -> Path:
    """Return where what a teacher told is kept.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    digest = hashlib.sha256(find_bundle(teacher).fingerprint().encode())
    return user_cache() / kind / digest.hexdigest()[:32]


def key_of(question: str) -> bytes:
    """Return what an answer is found by."""
    return hashlib.sha256(question.encode()).hexdigest()[:32].encode()


def keep_block(folder: Path, keys: Sequence[bytes], **told: NDArray[np.generic]) -> None:
    """Keep what was told of some questions as a file of its own, whole or not at all.

    Raises:
        ArtifactError: If it cannot be written.
    """
    name = hashlib.sha256(b"".join(keys)).hexdigest()[:32] + ".npz"
    arrays: dict[str, Any] = {"keys": np.array(keys)} | told
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".capsar-", dir=folder) as scratch:
            np.savez(Path(scratch) / name, **arrays)
            (Path(scratch) / name).replace(folder / name)
    except OSError as error:
        raise ArtifactError(
            f"Cannot keep what a teacher told in {str(folder)!r}: {error}. Make room, or set "
            "XDG_CACHE_HOME to another folder; what was kept before is not asked for again."
        ) from error


def kept_blocks(folder: Path, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of each block, and the arrays of these names.

    Raises:
        ArtifactError: If a file is damaged.
    """
    for path in sorted(folder.glob("*.npz")):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
                block = (kept["keys"].tolist(), *(kept[name] for name in names))
            if len(block[0]) != len(block[1]):
                raise ValueError(f"{len(block[0])} keys of {len(block[1])} answers")
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ArtifactError(f"Delete the damaged cache {str(path)!r}: {error}") from error
        yield block
