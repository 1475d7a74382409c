"""Outputs of teachers: capsule lengths and tags, cached on disk or recorded.

A teacher is a trained model, or a file of recorded outputs (`.npz`), which needs no model.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from capsar.bundle import find_bundle
from capsar.config import list_sources
from capsar.data.catalog import digest_file
from capsar.errors import ArtifactError
from capsar.inference.analyzer import load
from capsar.model.embeddings import user_cache
from capsar.schema import Example
from capsar.tokenizer import SEGMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from capsar.config import Sources
    from capsar.inference.analyzer import Analyzer

    Outputs = dict[bytes, NDArray[Any]]

LENGTHS, TAGS = "lengths", "tags"
RECORDED = ".npz"
_OUTPUTS_PER_FILE = 512
_LEVELS = 255
"""Recorded outputs are stored as eight bits."""


def predict_teacher(teacher: str, examples: Sequence[Example]) -> NDArray[np.float32]:
    """Return a teacher's capsule lengths of examples (n, C), from the cache where possible.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    keys = [example_key(example) for example in examples]
    inputs = dict(zip(keys, examples, strict=True))
    lengths = _outputs(teacher, LENGTHS, inputs, lambda m, some: m.predict_lengths(some)[:, None])
    return np.concatenate([lengths[key] for key in keys])


def predict_tags(teacher: str, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    """Return a teacher's tag probabilities of each text's words (W, 3).

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    keys = [text_key(text) for text in texts]

    def predict(model: Analyzer, examples: list[Example]) -> Iterable[NDArray[Any]]:
        for logits in model.predict_tags([example.text for example in examples]):
            yield tag_probabilities(logits)

    inputs = dict(zip(keys, map(Example, texts), strict=True))
    tags = _outputs(teacher, TAGS, inputs, predict)
    return [tags[key] for key in keys]


def has_outputs(teacher: str, kind: str, keys: Sequence[bytes]) -> NDArray[np.bool_]:
    """Return which inputs a teacher has outputs of: a model of all, a file of the recorded ones.

    Args:
        teacher: A model or a file of recorded outputs.
        kind: `LENGTHS` or `TAGS`.
        keys: Keys of examples or of texts.

    Raises:
        ArtifactError: If the file is missing or damaged.
    """
    if not is_recorded(teacher):
        return np.ones(len(keys), dtype=bool)
    recorded = _read_arrays(Path(teacher), kind)[0]
    return np.isin(np.array([_short(key) for key in keys], np.uint64), recorded)


def fingerprint_teachers(teachers: Sources) -> str:
    """Return a hash of all files of all teachers, or an empty string without teachers.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    digest = hashlib.sha256()
    for name in list_sources(teachers):
        if is_recorded(name):
            digest.update(digest_file(Path(name)).encode())
        else:
            digest.update(find_bundle(name).fingerprint().encode())
    return digest.hexdigest() if list_sources(teachers) else ""


def is_recorded(teacher: str) -> bool:
    """Return whether a teacher is a file of recorded outputs instead of a model."""
    return teacher.endswith(RECORDED)


def record_outputs(path: Path, outputs: Mapping[str, Mapping[bytes, NDArray[Any]]]) -> None:
    """Write capsule lengths and tag probabilities as a recorded teacher, in eight bits each.

    Inputs are stored as hashes: the file holds no text.

    Args:
        path: The file, ending in `.npz`.
        outputs: `LENGTHS` and `TAGS`, each by the key of the input.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for kind, own in outputs.items():
        keys = sorted(own)
        values = np.concatenate([own[key] for key in keys])
        arrays[f"{kind}_keys"] = np.array([_short(key) for key in keys], np.uint64)
        arrays[f"{kind}_rows"] = np.array([len(own[key]) for key in keys], np.uint16)
        arrays[f"{kind}_values"] = np.round(values * _LEVELS).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def tag_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the tag probabilities (W, 3) of logits."""
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: NDArray[np.float32] = exponentials / exponentials.sum(-1, keepdims=True)
    return probabilities


def round_outputs(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return outputs as they are after recording."""
    return (np.round(values * _LEVELS) / _LEVELS).astype(np.float32)


def _read_recorded(path: Path, kind: str, wanted: Set[bytes]) -> Outputs:
    """Return the recorded outputs of inputs.

    Raises:
        ArtifactError: If the file is missing or damaged, or an input is not in it.
    """
    keys, rows, values = _read_arrays(path, kind)
    ends = np.cumsum(rows, dtype=np.int64)
    found = dict(zip(keys.tolist(), np.split(values, ends[:-1]), strict=True))
    missing = sum(_short(key) not in found for key in wanted)
    if missing:
        raise ArtifactError(
            f"{str(path)!r} has no {kind} of {missing} of {len(wanted)} inputs: record them with "
            "the teacher, or train without these sources"
        )
    return {key: found[_short(key)].astype(np.float32) / _LEVELS for key in wanted}


def _read_arrays(path: Path, kind: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return keys, rows per key and values of recorded outputs."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            keys, rows, values = (content[f"{kind}_{name}"] for name in ("keys", "rows", "values"))
        if len(keys) != len(rows) or rows.sum(dtype=np.int64) != len(values):
            raise ValueError(f"{len(keys)} keys of {len(rows)} outputs with {len(values)} rows")
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ArtifactError(f"{str(path)!r} is not a file of recorded outputs: {error}") from error
    return keys, rows, values


def _short(key: bytes) -> int:
    return int(key[:16], 16)


def _outputs(
    teacher: str,
    kind: str,
    inputs: dict[bytes, Example],
    predict: Callable[[Analyzer, list[Example]], Iterable[NDArray[Any]]],
) -> Outputs:
    """Return the output of each input, and write those that were not cached to files.

    Files are written one by one, so that other seeds, resumed runs and runs with more examples
    never compute an output twice.
    """
    if is_recorded(teacher):
        return _read_recorded(Path(teacher), kind, inputs.keys())
    folder = _cache_folder(teacher, kind)
    outputs = _read_cache(folder, inputs.keys())

    def order(key: bytes) -> tuple[int, str, bytes]:  # similar lengths, and equal texts, together
        return len(inputs[key].text), inputs[key].text, key

    new = sorted(inputs.keys() - outputs.keys(), key=order)
    if not new:
        return outputs
    model = load(teacher)
    for start in range(0, len(new), _OUTPUTS_PER_FILE):
        block = new[start : start + _OUTPUTS_PER_FILE]
        found = list(predict(model, [inputs[key] for key in block]))
        _write_cache(folder, block, found)
        outputs |= zip(block, found, strict=True)
    return outputs


def _cache_folder(teacher: str, kind: str) -> Path:
    digest = hashlib.sha256(find_bundle(teacher).fingerprint().encode())
    return user_cache() / kind / digest.hexdigest()[:32]


def _key(content: object) -> bytes:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32].encode()


def text_key(text: str) -> bytes:
    """Return the key of a text's outputs per word, which depend on segmentation."""
    return _key([SEGMENTATION, text])


def example_key(example: Example) -> bytes:
    """Return the key of an example's capsule lengths."""
    return _key([example.text, [(s.start, s.end) for s in example.spans]])


def _write_cache(folder: Path, keys: Sequence[bytes], outputs: Sequence[NDArray[Any]]) -> None:
    """Write outputs, of any number of rows each, as one file in one atomic step."""
    name = hashlib.sha256(b"".join(keys)).hexdigest()[:32] + ".npz"
    rows = np.array(list(map(len, outputs)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".capsar-", dir=folder) as scratch:
            path = Path(scratch) / name
            np.savez(path, keys=np.array(keys), rows=rows, values=np.concatenate(outputs))
            path.replace(folder / name)
    except OSError as error:
        raise ArtifactError(
            f"Cannot cache teacher outputs in {str(folder)!r}: {error}. Free some space, or set "
            "XDG_CACHE_HOME to another folder; what was cached before is kept."
        ) from error


def _read_cache(folder: Path, wanted: Set[bytes]) -> Outputs:
    outputs: Outputs = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
                keys, rows, values = (content[name] for name in ("keys", "rows", "values"))
            if len(keys) != len(rows) or rows.sum() != len(values):
                raise ValueError(f"{len(keys)} keys of {len(rows)} outputs with {len(values)} rows")
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ArtifactError(f"Delete the damaged cache {str(path)!r}: {error}") from error
        parts = np.split(values, np.cumsum(rows)[:-1])
        found = zip(keys.tolist(), parts, strict=True)
        outputs |= {key: part.copy() for key, part in found if key in wanted}
    return outputs
