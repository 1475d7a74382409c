"""A model's name -> its verified bundle: shipped, in a folder, or of the Hugging Face hub.

A model that ships wins, then a folder, and then no network is touched. What a hub gives is verified
against the bundle's manifest exactly as a folder is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from capsar import __version__
from capsar.bundle import FILES, MANIFEST, open_bundle
from capsar.errors import ArtifactError, ConfigError, MissingExtraError, VersionMismatchError

if TYPE_CHECKING:
    from capsar.bundle import Bundle

SHIPPED_MODELS = Path(__file__).parent / "models"
DEFAULT_MODEL = "base"
_BUNDLE_OF_RUN = "bundle"
_LEFT_BY_RUN = ("checkpoints", "log.jsonl")
_HUB_ID = re.compile(r"([a-zA-Z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


def shipped_models() -> list[str]:
    """Return the names of the models inside this package."""
    return sorted(path.parent.name for path in SHIPPED_MODELS.glob("*/manifest.json"))


def find_bundle(
    model: str | Path, *, revision: str | None = None, local_files_only: bool = False
) -> Bundle:
    """Find a model by its name, its folder or its hub id, and verify it.

    Args:
        model: The name of a model that ships, a bundle's folder or that of the run that trained it,
            or `owner/name` where there is no such folder, or `owner/name@revision`.
        revision: The branch, tag or commit of a hub model; by default its main branch.
        local_files_only: Whether to use only what an earlier download left in the hub's cache.

    Raises:
        ArtifactError: If there is no such model, or it is damaged or of another version.
        ConfigError: If a revision of a folder is asked for, or two of a hub model.
        MissingExtraError: If it is a hub id and `huggingface_hub` is not installed.
    """
    folder = SHIPPED_MODELS / model if model in shipped_models() else Path(model)
    try:
        is_folder, is_there = folder.is_dir(), folder.exists()
    except OSError as error:
        raise ArtifactError(f"{str(model)!r} is not a bundle: {error}") from error
    if is_folder:
        if revision is not None:
            raise ConfigError(f"{str(model)!r} is a folder, which has no revision {revision!r}")
        inside = folder / _BUNDLE_OF_RUN
        if not inside.is_dir():
            _refuse_unfinished(folder)
        return open_bundle(inside if inside.is_dir() else folder)
    if folder.name == _BUNDLE_OF_RUN:
        _refuse_unfinished(folder.parent)
    hub_id = _HUB_ID.fullmatch(model) if isinstance(model, str) else None
    if is_there or hub_id is None:
        raise ArtifactError(
            f"{str(model)!r} is not a bundle: no such folder. Name a trained model's folder, a "
            f"model that ships ({', '.join(shipped_models())}), or one of the hub as 'owner/name'."
        )
    if hub_id[2] and revision not in (None, hub_id[2]):
        raise ConfigError(f"{model!r} is to be loaded at revision {revision!r}; name one of them")
    name, at = hub_id[1], revision or hub_id[2]
    snapshot = _download(name, at, local_files_only=local_files_only)
    cached, cache = snapshot.parents[1], snapshot.parents[2]
    try:
        # The cache holds each content once, and snapshots that are links to it.
        return open_bundle(snapshot, links_into=cache)
    except VersionMismatchError:
        raise
    except ArtifactError as error:
        raise ArtifactError(
            f"{error} It came from the hub model {model!r}: remove {str(cached)!r} to download it "
            "anew; if it is still refused, ask the model's owner."
        ) from error


def _refuse_unfinished(folder: Path) -> None:
    """Tell the folder of a training run that was stopped from one that is no model at all."""
    is_bundle = (folder / MANIFEST).exists()
    if not is_bundle and any((folder / name).exists() for name in _LEFT_BY_RUN):
        raise ArtifactError(
            f"The training run in {str(folder)!r} is not finished: it has no bundle yet. Run its "
            "`capsar train` command again, with the same --out: it goes on where it was stopped."
        )


def _download(model: str, revision: str | None, *, local_files_only: bool) -> Path:
    """Bring the files that a bundle may hold, and no other, into the hub's cache."""
    nowhere = f"There is no folder {model!r}"
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError as error:
        raise MissingExtraError("hub", f"{nowhere}; loading it from a hub") from error
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
            f"The hub model {model!r} has no revision {revision!r}. Name a branch, tag or commit "
            "of it."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ArtifactError(
            f"{nowhere}, and the hub shows no such model. Check the name; for a private model, log "
            "in with `hf auth login`."
        ) from error
    except errors.LocalEntryNotFoundError as error:
        why = "only local files may be used" if local_files_only else "the hub cannot be reached"
        raise ArtifactError(
            f"{nowhere}, {why}, and the hub's cache does not hold all of the model{at}. Load it "
            "once with a connection, or name a folder."
        ) from error
    except Exception as error:
        raise ArtifactError(
            f"Cannot get {model!r}{at} from the hub: {error}. Try again, or name a folder."
        ) from error
    return Path(snapshot)


def name_of(source: str) -> str:
    """Return what a model is called without the folders of this machine.

    >>> name_of("base")
    'base'
    """
    path = Path(source)
    if not path.is_dir():
        return source
    return path.resolve().parent.name if path.name == "bundle" else path.name
