"""Local and remote files, identified by a local path or a URI.

Arrow reads S3, Google Cloud Storage and HDFS itself (`s3://bucket/folder`, with optional settings
such as `?endpoint_override=host:port&scheme=http`). fsspec handles every other scheme.
"""

from __future__ import annotations

import errno
import fnmatch
import logging
import os
import posixpath
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from pyarrow import NativeFile, fs, memory_map

from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ARROW_SCHEMES = ("s3", "gs", "gcs", "hdfs", "viewfs")
_VERSION_FIELDS = (
    *("mtime", "created", "updated", "last_modified", "LastModified", "Last-Modified"),
    *("ETag", "etag"),
)
"""What the file systems of fsspec call the time of the last change, and the ETag."""
JOB_FOLDER = "_job"
"""The folder in the output of a job that holds what is not output."""
_SETTLE_SECONDS = 2.0
"""How long to wait for other processes that create the same file on remote storage."""

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file, with its size and version to detect changes."""

    uri: str
    size: int
    version: str
    """Time of the last change, and the ETag if the file system provides one."""


def is_local(uri: str) -> bool:
    """Return whether a URI is on the local file system."""
    return "://" not in uri or uri.startswith("file://")


def normalize(uri: str) -> str:
    """Return the canonical form of a URI, from which output names are derived."""
    if is_local(uri):
        path = unquote(uri.removeprefix("file://")) if "://" in uri else os.path.expanduser(uri)  # noqa: PTH111
        return os.path.abspath(path)  # noqa: PTH100  (keeps links)
    path, mark, settings = _split(uri)
    return path.rstrip("/") + mark + settings


def join(folder: str, *names: str) -> str:
    """Return the URI of a file in a folder."""
    path, mark, settings = _split(folder)
    return posixpath.join(path, *names) + mark + settings


def base_name(uri: str) -> str:
    """Return the last part of a URI."""
    return posixpath.basename(_split(uri)[0])


def parent(uri: str) -> str:
    """Return the URI of the folder of a file."""
    path, mark, settings = _split(uri)
    return posixpath.dirname(path) + mark + settings


def real_path(uri: str) -> str:
    """Return the path of a local file without links, and other URIs as they are."""
    return os.path.realpath(normalize(uri)) if is_local(uri) else uri


def has_job(folder: str) -> bool:
    """Return whether a folder is the output of a job."""
    return "job.json" in list_names(join(folder, JOB_FOLDER))


def _split(uri: str) -> tuple[str, str, str]:
    """Return the path of a URI, the question mark and the settings; a local path has none."""
    return (uri, "", "") if is_local(uri) else uri.partition("?")


def retry(uri: str, call: Callable[[], T]) -> T:
    """Call until remote storage responds; raise errors of the local disk at once."""
    delays = retry_delays()
    while True:
        try:
            return call()
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            delay = next(delays, None)
            if is_local(uri) or delay is None or "ACCESS_DENIED" in str(error):
                raise
            _LOG.warning("%s; trying again in %g s", error, delay)
            time.sleep(delay)


def retry_delays() -> Iterator[float]:
    """Return the seconds to wait before each retry, about 300 in total."""
    return chain((0.5, 1.0, 2.0, 4.0, 8.0), repeat(15.0, 19))


def open_input(uri: str) -> NativeFile:
    """Open a file for random access."""
    filesystem, path = _locate(uri)
    return filesystem.open_input_file(path)


def list_inputs(uri: str) -> list[InputFile]:
    """Return a file, all files below a folder, or the files that match a pattern, sorted.

    A pattern also matches folders. Files and folders whose names begin with `.`, `_` or `~` are
    ignored.

    Raises:
        DataError: If there are none.
    """
    filesystem, path = _locate(uri)
    try:
        kind = retry(uri, lambda: filesystem.get_file_info(path)).type
        if kind == fs.FileType.File:
            found = [retry(uri, lambda: stat(uri))]
        elif kind == fs.FileType.Directory:
            found = _list_below(uri)
        elif any(sign in base_name(uri) for sign in "*?["):
            found = _list_below(parent(uri), base_name(uri))
        else:
            raise DataError(f"There is no file or folder {uri!r}")
    except UnicodeError as error:
        name = getattr(error, "object", uri)
        raise DataError(f"The file name {name!r:.200} is not UTF-8. Rename the file.") from error
    if not found:
        raise DataError(f"There are no files in {uri!r}")
    return sorted(found, key=lambda file: file.uri)


def stat(uri: str) -> InputFile:
    """Return the current size and version of a file.

    Raises:
        FileNotFoundError: If it does not exist.
    """
    filesystem, path = _locate(uri)
    entry = filesystem.get_file_info(path)
    if not entry.is_file:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", uri)
    return _input_file(normalize(uri), filesystem, entry)


def list_names(folder: str) -> list[str]:
    """Return the names of the files directly in a folder; none if it does not exist."""
    filesystem, path = _locate(folder)
    selector = fs.FileSelector(path, allow_not_found=True)
    entries = retry(folder, lambda: filesystem.get_file_info(selector))
    return [entry.base_name for entry in entries if entry.is_file]


def read_bytes(uri: str) -> bytes | None:
    """Return the content of a file, or `None` if it does not exist."""

    def read() -> bytes:
        with open_input(uri) as stream:
            return bytes(stream.read())

    try:
        return retry(uri, read)
    except FileNotFoundError:
        return None


def write_bytes(uri: str, data: bytes) -> None:
    """Write a small file atomically: readers see all of its content or no file."""
    if is_local(uri):
        with _written_aside(uri, data) as scratch:
            scratch.replace(normalize(uri))
    else:
        retry(uri, lambda: _upload(uri, data))


def create(uri: str, data: bytes) -> bytes:
    """Write a small file unless it exists, and return its content.

    Locally, exactly one of several processes creates the file. Object stores have no exclusive
    creation: the last process wins, and every process sees who did.
    """
    if is_local(uri):
        with _written_aside(uri, data) as scratch, suppress(FileExistsError):
            try:
                os.link(scratch, normalize(uri))
            except PermissionError:  # a disk without hard links, such as exFAT
                with Path(normalize(uri)).open("xb") as stream:
                    stream.write(data)
    elif read_bytes(uri) is None:
        write_bytes(uri, data)
        time.sleep(_SETTLE_SECONDS)
    return read_bytes(uri) or data


def _sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _written_aside(uri: str, data: bytes) -> Iterator[Path]:
    """Yield a file on the disk of a local one that holds its content already."""
    target = Path(normalize(uri))
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=".") as folder:
        scratch = Path(folder, target.name)
        scratch.write_bytes(data)
        _sync(scratch)
        yield scratch


def publish(finished: Path, uri: str) -> None:
    """Make a finished file visible under its final name in one step.

    Locally this is a rename, so `finished` must be on the same disk. Arrow uploads an object in one
    step. On other file systems, the file is written under another name and then moved.
    """
    if is_local(uri):
        _sync(finished)
        Path(normalize(uri)).parent.mkdir(parents=True, exist_ok=True)
        finished.replace(normalize(uri))
        return
    with memory_map(str(finished)) as content:
        _upload(uri, content.read_buffer())


def remove(uri: str) -> None:
    """Remove a file if it exists."""
    filesystem, path = _locate(uri)
    with suppress(FileNotFoundError):
        filesystem.delete_file(path)


def _upload(uri: str, data: Any) -> None:  # noqa: ANN401
    filesystem, path = _locate(uri)
    if not isinstance(filesystem, fs.PyFileSystem):
        # Write all bytes in one call: an exception between two calls would close the stream, and
        # closing it completes the upload of a truncated file.
        with filesystem.open_output_stream(path) as stream:
            stream.write(data)
        return
    store = filesystem.handler.fs
    folder, name = posixpath.split(path)
    aside = posixpath.join(folder, f".{name}-{uuid.uuid4().hex}")
    store.makedirs(folder, exist_ok=True)
    try:
        store.pipe_file(aside, bytes(data))
        store.mv(aside, path)
    except BaseException:
        with suppress(OSError):
            store.rm_file(aside)
        raise


def _list_below(folder: str, pattern: str = "") -> list[InputFile]:
    """Return all files below a folder, or those directly in it, or in folders, that match."""
    folder = normalize(folder)
    filesystem, root = _locate(folder)
    selector = fs.FileSelector(root, recursive=not pattern)
    found = []
    for entry in retry(folder, lambda: filesystem.get_file_info(selector)):
        inside = posixpath.relpath(entry.path, root)
        is_hidden = any(part[0] in "._~" for part in inside.split("/"))
        if is_hidden or not fnmatch.fnmatch(inside, pattern or "*"):
            continue
        if entry.is_file:
            found.append(_input_file(join(folder, inside), filesystem, entry))
        elif pattern and entry.type == fs.FileType.Directory:
            found += _list_below(join(folder, inside))
    return found


def _input_file(uri: str, filesystem: Any, entry: Any) -> InputFile:  # noqa: ANN401
    version = str(entry.mtime_ns)
    if isinstance(filesystem, fs.PyFileSystem):
        info = filesystem.handler.fs.info(entry.path)
        version = "-".join(str(info[name]) for name in _VERSION_FIELDS if name in info)
    return InputFile(uri, entry.size, version)


def _locate(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI and the path in it."""
    if is_local(uri):
        return fs.LocalFileSystem(), normalize(uri)
    scheme, _, rest = uri.partition("://")
    path, _, settings = rest.partition("?")
    if scheme in _ARROW_SCHEMES:
        return _arrow_filesystem(scheme, path.partition("/")[0], settings), path.rstrip("/")
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise DataError(f"Cannot open {uri!r}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


@lru_cache(maxsize=64)
def _arrow_filesystem(scheme: str, bucket: str, settings: str) -> Any:  # noqa: ANN401
    filesystem, _ = fs.FileSystem.from_uri(f"{scheme}://{bucket}?{settings}".rstrip("?"))
    return filesystem
