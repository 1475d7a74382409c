"""The saved model: write, verify and find it, in a folder or on the Hugging Face hub.

| file | content |
|---|---|
| `config.json` | schema version, sizes of the network, classes, calibration, training data |
| `tokenizer.json` | words -> ids |
| `encoder.onnx` | ids -> hidden states |
| `capsules.onnx` | hidden states and aspects -> capsule lengths and word scores |
| `spans.onnx`, optional | hidden states and word scores -> aspect tags |
| `opinions.onnx`, optional | hidden states and an aspect -> tags of opinion phrases |
| `themes.safetensors`, optional | weights that match hidden states with themes |
| `model.safetensors` | the weights, for fine-tuning |
| `README.md` | the model card |
| `manifest.json` | sha256 and size of each other file |

A bundle contains no code. Every file is verified before it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError, ConfigError, MissingExtraError, VersionMismatchError
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
ENCODER = "encoder.onnx"
CAPSULES = "capsules.onnx"
SPANS = "spans.onnx"
OPINIONS = "opinions.onnx"
THEMES = "themes.safetensors"
CARD = "README.md"
MANIFEST = "manifest.json"
FILES = (
    MANIFEST, CONFIG, TOKENIZER, ENCODER, CAPSULES, SPANS, OPINIONS, THEMES, WEIGHTS, CARD,
)  # fmt: skip
"""All files of a bundle; no others are downloaded from a hub."""

BUNDLED_MODELS = Path(__file__).parent / "models"
DEFAULT_MODEL = "base"
_RUN_BUNDLE = "bundle"
_RUN_FILES = ("checkpoints", "log.jsonl")
_HUB_ID = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_AGAIN = "Get the bundle again."


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle."""

    folder: Path
    config: dict[str, Any]
    """The content of `config.json`."""
    files: Mapping[str, int]
    """The size of each verified file."""

    def path(self, name: str) -> Path:
        """Return the path of a file of the bundle.

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
        """Return the sha256 of the manifest, which identifies the content of all files."""
        return hashlib.sha256((self.folder / MANIFEST).read_bytes()).hexdigest()


def write_bundle(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write a bundle atomically: readers see the old bundle, the new one or none.

    Args:
        folder: The folder of the bundle; an existing bundle is replaced.
        config: The content of `config.json` without the schema version.
        files: The content of every other file, by name.

    Raises:
        ArtifactError: If it cannot be written, or the folder holds something else.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  (keeps symbolic links)
    aside = folder.with_name(f".{folder.name}-old")
    if aside.is_dir() and not folder.exists():
        aside.rename(folder)  # a process was killed between the two renames below
    if folder.exists() and not _is_bundle(folder):
        raise ArtifactError(
            f"{str(folder)!r} exists and holds something else than a bundle; name another folder"
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
        for left_over in (scratch, aside):  # of a killed process
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
    """Return whether a folder holds a bundle and nothing else, so that it may be replaced."""
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
        links_into: The only folder that symbolic links may point into (the cache of a hub); by
            default links are refused.

    Raises:
        ArtifactError: If a file is missing or damaged.
        VersionMismatchError: If an incompatible version wrote the bundle.
    """
    entries = _read_json(_file(folder, MANIFEST, links_into)).get("files")
    if not isinstance(entries, dict) or not {CONFIG, TOKENIZER} <= set(entries):
        raise ArtifactError(
            f"{str(folder / MANIFEST)!r} does not list the files of a bundle. {_AGAIN}"
        )
    # The version is checked first: other files of a newer release may be unknown here.
    sizes = {CONFIG: _verify(folder, CONFIG, entries[CONFIG], links_into)}
    config = _read_json(folder / CONFIG)
    version = config.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        is_newer = type(version) is int and version > SCHEMA_VERSION
        raise VersionMismatchError(
            f"{CONFIG} of the bundle {str(folder)!r} has schema version {version!r}; this release "
            f"reads {SCHEMA_VERSION}. {'Upgrade capsar.' if is_newer else _AGAIN}"
        )
    for name, entry in entries.items():
        sizes[name] = _verify(folder, name, entry, links_into)
    return Bundle(folder, config, sizes)


def _verify(folder: Path, name: str, entry: object, links_into: Path | None) -> int:
    """Check a file against its entry in the manifest, and return its size."""
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
            f"{str(path)!r} is damaged: its sha256 or size differs from the manifest. {_AGAIN}"
        )
    return size


def _file(folder: Path, name: str, links_into: Path | None) -> Path:
    """Return the path of a file in the bundle, after checking its name, existence and links."""
    if name != os.path.basename(name) or name in ("", ".", ".."):  # noqa: PTH119
        raise ArtifactError(
            f"The {MANIFEST} of {str(folder)!r} names {name!r}, which is not a file name. {_AGAIN}"
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
            f"The {MANIFEST} of {str(folder)!r} lists {name!r}, which is missing. {_AGAIN}"
        )
    if is_link and not (links_into and path.resolve().is_relative_to(links_into.resolve())):
        raise ArtifactError(f"{str(path)!r} is a link, which a bundle must not contain. {_AGAIN}")
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
            f"{str(path)!r} must contain an object, not {type(content).__name__}. {_AGAIN}"
        )
    return content


def bundled_models() -> list[str]:
    """Return the names of the models inside this package."""
    return sorted(path.parent.name for path in BUNDLED_MODELS.glob("*/manifest.json"))


def find_bundle(
    model: str | Path, *, revision: str | None = None, local_files_only: bool = False
) -> Bundle:
    """Find a model by name, folder or hub id, and verify it.

    Args:
        model: The name of a bundled model; the folder of a bundle or of a training run; or, if
            there is no such folder, `owner/name` or `owner/name@revision` on the hub.
        revision: The branch, tag or commit of a hub model; by default its main branch.
        local_files_only: Whether to load a hub model only from the local cache.

    Raises:
        ArtifactError: If the model does not exist, is damaged or of another version.
        ConfigError: If a folder is given with a revision, or a hub model with two.
        MissingExtraError: If it is a hub id and `huggingface_hub` is not installed.
    """
    folder = BUNDLED_MODELS / model if model in bundled_models() else Path(model)
    try:
        is_folder, exists = folder.is_dir(), folder.exists()
    except OSError as error:
        raise ArtifactError(f"{str(model)!r} is not a bundle: {error}") from error
    if is_folder:
        if revision is not None:
            raise ConfigError(f"{str(model)!r} is a folder, which has no revision {revision!r}")
        inside = folder / _RUN_BUNDLE
        if not inside.is_dir():
            _refuse_unfinished(folder)
        return open_bundle(inside if inside.is_dir() else folder)
    if folder.name == _RUN_BUNDLE:
        _refuse_unfinished(folder.parent)
    hub_id = _HUB_ID.fullmatch(model) if isinstance(model, str) else None
    if exists or hub_id is None:
        raise ArtifactError(
            f"{str(model)!r} is not a bundle: no such folder. Pass the folder of a trained model, "
            f"a bundled model ({', '.join(bundled_models())}), or a hub model 'owner/name'."
        )
    if hub_id[2] and revision not in (None, hub_id[2]):
        raise ConfigError(f"{model!r} already names a revision, which is not {revision!r}")
    snapshot = _download(hub_id[1], revision or hub_id[2], local_files_only=local_files_only)
    cached, cache = snapshot.parents[1], snapshot.parents[2]
    try:
        # Files of a snapshot are links into the cache.
        return open_bundle(snapshot, links_into=cache)
    except VersionMismatchError:
        raise
    except ArtifactError as error:
        raise ArtifactError(
            f"{error} It is from the hub model {model!r}: delete {str(cached)!r} to download it "
            "again; if it is still refused, contact the model's owner."
        ) from error


def _refuse_unfinished(folder: Path) -> None:
    """Raise an error if the folder is that of an unfinished training run."""
    is_bundle = (folder / MANIFEST).exists()
    if not is_bundle and any((folder / name).exists() for name in _RUN_FILES):
        raise ArtifactError(
            f"The training run in {str(folder)!r} is not finished: it has no bundle yet. Run its "
            "`capsar train` command again, with the same --out, to resume it."
        )


def _download(model: str, revision: str | None, *, local_files_only: bool) -> Path:
    """Download the files of a bundle into the hub's cache, and return their folder."""
    missing = f"There is no folder {model!r}"
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError as error:
        raise MissingExtraError("hub", f"{missing}; loading it from a hub") from error
    at = "" if revision is None else f" at revision {revision!r}"
    try:
        snapshot = snapshot_download(
            model,
            revision=revision,
            local_files_only=local_files_only,
            allow_patterns=list(FILES),
            library_name="capsar",
            library_version=__version__,
        )
    except errors.RevisionNotFoundError as error:
        raise ArtifactError(
            f"The hub model {model!r} has no revision {revision!r}. Pass a branch, tag or commit."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ArtifactError(
            f"{missing}, and the hub has no such public model. Check the name; for a private "
            "model, log in with `hf auth login`."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        why = "only local files may be used" if local_files_only else "the hub cannot be reached"
        raise ArtifactError(
            f"{missing}, {why}, and the local cache does not contain the model{at}. Load it "
            "once with a connection, or pass a folder."
        ) from error
    except Exception as error:
        raise ArtifactError(
            f"Cannot get {model!r}{at} from the hub: {error}. Try again, or pass a folder."
        ) from error
    return Path(snapshot)


def name_of(source: str) -> str:
    """Return the name of a model without the folders of this machine.

    >>> name_of("base")
    'base'
    """
    path = Path(source)
    if not path.is_dir():
        return source
    return path.resolve().parent.name if path.name == "bundle" else path.name
