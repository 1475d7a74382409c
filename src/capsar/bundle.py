"""The saved model on disk: a folder of JSON and safetensors, with the sha256 of each file.

| file | what |
|---|---|
| `config.json` | schema version, the network's sizes, the classes, what else is here |
| `tokenizer.json` | words -> ids |
| `encoder.onnx` | words -> hidden states |
| `capsules.onnx` | hidden states and aspects -> capsule lengths and word scores |
| `model.safetensors` | the weights, for training further |
| `README.md` | the model card |
| `manifest.json` | sha256 and size of each of these |

Nothing in it is code, and nothing is read before its checksum has been verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError, VersionMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA_VERSION = 1
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
ENCODER = "encoder.onnx"
CAPSULES = "capsules.onnx"
CARD = "README.md"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle."""

    folder: Path
    config: dict[str, Any]
    files: frozenset[str]
    """What the manifest lists, and nothing else, has been verified."""

    def path(self, name: str) -> Path:
        """Return the path of one of the bundle's files.

        Raises:
            ArtifactError: If the bundle has no such file.
        """
        if name not in self.files:
            raise ArtifactError(f"The manifest of the bundle {str(self.folder)!r} has no {name}")
        return self.folder / name


def write_bundle(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write a bundle whole under another name, then rename it.

    Args:
        folder: Where it will be; a bundle that is there is replaced in one step.
        config: What `config.json` holds besides the schema version.
        files: The content of every other file, by name.

    Raises:
        ArtifactError: If it cannot be written, or something else is in its place.
    """
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise ArtifactError(f"{str(folder)!r} is there already and is not a bundle; name another")
    settings = {"schema_version": SCHEMA_VERSION, **config}
    content = {CONFIG: json.dumps(settings, indent=1).encode() + b"\n", **files}
    manifest = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in content.items()
    }
    content[MANIFEST] = json.dumps({"files": manifest}, indent=1).encode() + b"\n"
    scratch = folder.with_name(f".{folder.name}-new")
    aside = folder.with_name(f".{folder.name}-old")
    try:
        for left_over in (scratch, aside):  # of a process that was killed here
            shutil.rmtree(left_over, ignore_errors=True)
        scratch.mkdir(parents=True)
        for name, data in content.items():
            with (scratch / name).open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        if folder.exists():
            folder.rename(aside)
        scratch.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise ArtifactError(f"Cannot write the bundle {str(folder)!r}: {error}") from error


def open_bundle(folder: Path) -> Bundle:
    """Verify every file of a bundle and read its configuration.

    Raises:
        ArtifactError: If a file is missing or is not what was written, naming it.
        VersionMismatchError: If the bundle was written by a newer version.
    """
    manifest = _read_json(folder / MANIFEST)
    files = manifest.get("files")
    if not isinstance(files, dict) or not {CONFIG, TOKENIZER} <= set(files):
        raise ArtifactError(f"{str(folder / MANIFEST)!r} does not list the files of a bundle")
    for name, entry in files.items():
        _verify(folder, name, entry)
    config = _read_json(folder / CONFIG)
    version = config.get("schema_version")
    if version != SCHEMA_VERSION:
        raise VersionMismatchError(
            f"The bundle {str(folder)!r} has schema version {version!r}; this release reads "
            f"{SCHEMA_VERSION}. Upgrade capsar, or export the model again."
        )
    return Bundle(folder, config, frozenset(files))


def _verify(folder: Path, name: str, entry: object) -> None:
    if name != os.path.basename(name) or name in ("", ".", "..", MANIFEST):  # noqa: PTH119
        raise ArtifactError(
            f"The manifest of {str(folder)!r} names {name!r}, which is no file of it"
        )
    expected = entry.get("sha256") if isinstance(entry, dict) else None
    path = folder / name
    try:
        if path.is_symlink():
            raise ArtifactError(f"{str(path)!r} is a link; a bundle holds its files itself")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"Cannot read {name} of the bundle {str(folder)!r}: {error}") from error
    if found != expected:
        raise ArtifactError(
            f"{str(path)!r} is damaged: its sha256 is not the manifest's. Get the bundle again."
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"{str(path.parent)!r} is not a bundle: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{str(path)!r} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"{str(path)!r} must hold an object, not {type(content).__name__}")
    return content
