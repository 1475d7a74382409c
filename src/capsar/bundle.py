"""The saved model on disk: a folder of JSON and safetensors, with the sha256 of each file.

| file | what |
|---|---|
| `config.json` | schema version, the network's sizes, the classes, what else is here |
| `tokenizer.json` | words -> ids |
| `encoder.onnx` | words -> hidden states |
| `capsules.onnx` | hidden states and aspects -> capsule lengths and word scores |
| `spans.onnx`, optional | hidden states and word scores -> aspect tags |
| `model.safetensors` | the weights, for training further |
| `README.md` | the model card |
| `manifest.json` | sha256 and size of each of these |

Nothing in it is code, and nothing is read before its checksum has been verified. An older schema is
brought to this release's, one version at a time; a newer one is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError, VersionMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA_VERSION = 1
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
ENCODER = "encoder.onnx"
CAPSULES = "capsules.onnx"
SPANS = "spans.onnx"
CARD = "README.md"
MANIFEST = "manifest.json"
_AGAIN = "Get the bundle again."


FILES = (MANIFEST, CONFIG, TOKENIZER, ENCODER, CAPSULES, SPANS, WEIGHTS, CARD)
"""Every file a bundle may hold: what is asked of a hub, and no more."""

Config = dict[str, Any]
_MIGRATIONS: dict[int, Callable[[Config], Config]] = {}
"""For each older schema version n, the step that turns a configuration of n into one of n + 1."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle."""

    folder: Path
    config: Config
    """What `config.json` says, brought to this release's schema."""
    files: Mapping[str, int]
    """The size of each file that the manifest lists. These, and nothing else, were verified."""
    schema_version: int
    """Of the files on disk."""

    def path(self, name: str) -> Path:
        """Return the path of one of the bundle's files.

        Raises:
            ArtifactError: If the bundle has no such file.
        """
        if name not in self.files:
            raise ArtifactError(
                f"The manifest of the bundle {str(self.folder)!r} has no {name}. "
                "Export the model again."
            )
        return self.folder / name

    def fingerprint(self) -> str:
        """Return the sha256 of the manifest, which holds that of every file of the model."""
        return hashlib.sha256((self.folder / MANIFEST).read_bytes()).hexdigest()


def write_bundle(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write a bundle whole under another name, then rename it: no reader sees half of one.

    Args:
        folder: Where it will be; a bundle that is there is replaced in one step.
        config: What `config.json` holds besides the schema version.
        files: The content of every other file, by name.

    Raises:
        ArtifactError: If it cannot be written, or something else is in its place.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  (links are left as they are)
    aside = folder.with_name(f".{folder.name}-old")
    if aside.is_dir() and not folder.exists():
        aside.rename(folder)  # a process was killed between the two renames below
    if folder.exists() and not _is_bundle(folder):
        raise ArtifactError(
            f"{str(folder)!r} is there already and holds something else than a bundle; name another"
        )
    settings = {"schema_version": SCHEMA_VERSION, **config}
    content = {CONFIG: json.dumps(settings, indent=1).encode() + b"\n", **files}
    manifest = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in content.items()
    }
    content[MANIFEST] = json.dumps({"files": manifest}, indent=1).encode() + b"\n"
    scratch = folder.with_name(f".{folder.name}-new-{os.getpid()}")
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


def _is_bundle(folder: Path) -> bool:
    """Tell whether a folder holds a bundle and nothing else, so that it may be replaced."""
    try:
        entries = _read_json(folder / MANIFEST).get("files")
        present = {path.name for path in folder.iterdir()}
    except (ArtifactError, OSError):
        return False
    return isinstance(entries, dict) and CONFIG in entries and present <= {*entries, *FILES}


def open_bundle(folder: Path, *, links_into: Path | None = None) -> Bundle:
    """Verify every file of a bundle and read its configuration.

    Args:
        folder: The bundle.
        links_into: The one folder that its files may be links into (a hub's cache); by default they
            may not be links at all.

    Raises:
        ArtifactError: If a file is missing or is not what was written, naming it.
        VersionMismatchError: If another version wrote it, and this one cannot read it.
    """
    manifest = _read_json(_file(folder, MANIFEST, links_into))
    entries = manifest.get("files")
    if not isinstance(entries, dict) or not {CONFIG, TOKENIZER} <= set(entries):
        raise ArtifactError(
            f"{str(folder / MANIFEST)!r} does not list the files of a bundle. {_AGAIN}"
        )
    # The configuration first: what a newer release wrote is told from what is damaged.
    sizes = {CONFIG: _verify(folder, CONFIG, entries[CONFIG], links_into)}
    written = _read_json(folder / CONFIG)
    config = _migrate(folder, written)
    for name, entry in entries.items():
        sizes[name] = _verify(folder, name, entry, links_into)
    return Bundle(folder, config, sizes, written["schema_version"])


def _migrate(folder: Path, config: Config) -> Config:
    """Bring a configuration to this release's schema, one version at a time."""
    version = config.get("schema_version")
    found = f"{CONFIG} of the bundle {str(folder)!r} has schema version {version!r}"
    if type(version) is not int or version < 1:
        raise VersionMismatchError(f"{found}, which no release has written. {_AGAIN}")
    if version > SCHEMA_VERSION:
        raise VersionMismatchError(
            f"{found}; this release reads {SCHEMA_VERSION} at most. Upgrade capsar."
        )
    for step in range(version, SCHEMA_VERSION):
        if step not in _MIGRATIONS:
            raise VersionMismatchError(
                f"{found}, which this release no longer reads. Export the model again with a "
                "release that does, and then with this one."
            )
        try:
            config = _MIGRATIONS[step](dict(config)) | {"schema_version": step + 1}
        except (LookupError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"{found}, but does not hold what that version holds ({error!r}). {_AGAIN}"
            ) from error
    return config


def _verify(folder: Path, name: str, entry: object, links_into: Path | None) -> int:
    """Check one file against its entry in the manifest, and return its size."""
    expected = entry if isinstance(entry, dict) else {}
    path = _file(folder, name, links_into)
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
    except OSError as error:
        raise ArtifactError(
            f"Cannot read {name} of the bundle {str(folder)!r}: {error}. {_AGAIN}"
        ) from error
    if (found, size) != (expected.get("sha256"), expected.get("bytes")):
        raise ArtifactError(
            f"{str(path)!r} is damaged: its sha256 or size is not the manifest's. {_AGAIN}"
        )
    return size


def _file(folder: Path, name: str, links_into: Path | None) -> Path:
    """Return the path of a file that lies in the bundle itself, or where its links may lead."""
    if name != os.path.basename(name) or name in ("", ".", ".."):  # noqa: PTH119
        raise ArtifactError(
            f"The {MANIFEST} of {str(folder)!r} names {name!r}, which is no file of it. {_AGAIN}"
        )
    path = folder / name
    try:
        is_file, is_link = path.is_file(), path.is_symlink()
    except OSError as error:
        raise ArtifactError(f"Cannot read {str(path)!r}: {error}. {_AGAIN}") from error
    if not is_file:
        if name == MANIFEST:
            raise ArtifactError(f"{str(folder)!r} is not a bundle: it has no {name}. {_AGAIN}")
        raise ArtifactError(
            f"The {MANIFEST} of {str(folder)!r} lists {name!r}, which is not there. {_AGAIN}"
        )
    if is_link and not (links_into and path.resolve().is_relative_to(links_into.resolve())):
        raise ArtifactError(f"{str(path)!r} is a link; a bundle holds its files itself. {_AGAIN}")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"Cannot read {str(path)!r}: {error}. {_AGAIN}") from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{str(path)!r} is not JSON: {error}. {_AGAIN}") from error
    if not isinstance(content, dict):
        raise ArtifactError(
            f"{str(path)!r} must hold an object, not {type(content).__name__}. {_AGAIN}"
        )
    return content
