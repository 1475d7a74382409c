"""Files by their address: of this machine, or of any store that Arrow or fsspec knows.

Arrow speaks to S3, Google Cloud Storage and HDFS itself (`s3://bucket/folder`; settings may follow,
as in `?endpoint_override=host:port&scheme=http`); every other scheme is fsspec's.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import time
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyarrow import fs, memory_map

from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ARROW_SCHEMES = ("s3", "gs", "gcs", "hdfs", "viewfs")
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 15.0
PATIENCE_SECONDS = 300.0
"""How long a store that does not answer is asked again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file and what tells that it has changed."""

    address: str
    size: int
    version: str
    """When it was last written, and its ETag where the store tells it."""


def is_local(address: str) -> bool:
    """Tell whether an address is of this machine's file system."""
    return "://" not in address or address.startswith("file://")


def normal(address: str) -> str:
    """Return an address in the one form that names of outputs are made from."""
    if is_local(address):
        return os.path.abspath(address.removeprefix("file://"))  # noqa: PTH100  (links stay)
    path, mark, settings = address.partition("?")
    return path.rstrip("/") + mark + settings


def join(folder: str, *names: str) -> str:
    """Return the address of a file in a folder."""
    path, mark, settings = folder.partition("?") if not is_local(folder) else (folder, "", "")
    return posixpath.join(path, *names) + mark + settings


def base_name(address: str) -> str:
    """Return the last part of an address."""
    path = address if is_local(address) else address.partition("?")[0]
    return posixpath.basename(path)


def retried(address: str, call: Callable[[], T]) -> T:
    """Call until a store answers; what this machine's disk says is taken at once."""
    waits = waiting_times()
    while True:
        try:
            return call()
        except (FileNotFoundError, PermissionError):
            raise
        except OSError:
            wait = next(waits, None)
            if is_local(address) or wait is None:
                raise
            time.sleep(wait)


def waiting_times() -> Iterator[float]:
    """Yield how long to wait before each new try, until patience ends."""
    wait, waited = _FIRST_WAIT_SECONDS, 0.0
    while waited < PATIENCE_SECONDS:
        yield wait
        waited += wait
        wait = min(wait * 2, _LONGEST_WAIT_SECONDS)


def open_input(address: str) -> Any:  # noqa: ANN401  (Arrow has no types)
    """Open a file for reading at any place."""
    store, path = _locate(address)
    return store.open_input_file(path)


def find_inputs(address: str) -> list[InputFile]:
    """Return a file, the files below a folder, or those whose names fit a pattern, in order.

    Files and folders whose names begin with `.` or `_` are left out, as everywhere in this field.

    Raises:
        DataError: If there are none.
    """
    if any(sign in base_name(address) for sign in "*?[") and not _kind(address):
        pattern = base_name(address)
        folder = normal(address)[: -len(pattern)] if is_local(address) else address[: -len(pattern)]
        below = _below(folder or "/", recursive=False)
        found = [file for file in below if fnmatch.fnmatch(base_name(file.address), pattern)]
    elif _kind(address) == fs.FileType.Directory:
        found = _below(address, recursive=True)
    elif _kind(address) == fs.FileType.File:
        found = [retried(address, lambda: look_at(address))]
    else:
        raise DataError(f"There is no file or folder {address!r}")
    if not found:
        raise DataError(f"There are no files in {address!r}")
    return sorted(found, key=lambda file: file.address)


def look_at(address: str) -> InputFile:
    """Return a file's size and version as they are now.

    Raises:
        FileNotFoundError: If it is not there.
    """
    store, path = _locate(address)
    entry = store.get_file_info(path)
    if not entry.is_file:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", address)
    return _input_file(address, store, entry)


def names_in(folder: str) -> dict[str, int]:
    """Return the sizes of the files directly in a folder, by name; none if it is not there."""
    store, path = _locate(folder)
    selector = fs.FileSelector(path, allow_not_found=True)
    entries = retried(folder, lambda: store.get_file_info(selector))
    return {entry.base_name: entry.size for entry in entries if entry.is_file}


def read_bytes(address: str) -> bytes | None:
    """Return what a file holds; nothing if there is none."""

    def read() -> bytes:
        with open_input(address) as stream:
            return bytes(stream.read())

    try:
        return retried(address, read)
    except FileNotFoundError:
        return None


def write_bytes(address: str, data: bytes) -> None:
    """Write a small file whole: it is there with all of its content, or not at all."""
    if is_local(address):
        target = Path(address)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        try:
            scratch.write_bytes(data)
            publish(scratch, address)
        finally:
            scratch.unlink(missing_ok=True)
        return
    retried(address, lambda: _put(address, data))


def publish(finished: Path, address: str) -> None:
    """Make a finished file visible under its name, in one step.

    On this machine that is a rename, so `finished` must be on the same disk; in a store it is one
    upload, which no reader sees before all of it has arrived.
    """
    if is_local(address):
        with finished.open("rb") as stream:
            os.fsync(stream.fileno())
        finished.replace(address)
        return
    store, path = _locate(address)
    if isinstance(store, fs.PyFileSystem):
        store.handler.fs.makedirs(posixpath.dirname(path), exist_ok=True)
        store.handler.fs.put_file(str(finished), path)
        return
    with memory_map(str(finished)) as content:
        _put(address, content.read_buffer())


def remove(address: str) -> None:
    """Remove a file, if it is there."""
    store, path = _locate(address)
    try:
        store.delete_file(path)
    except FileNotFoundError:
        return


def _put(address: str, data: Any) -> None:  # noqa: ANN401
    store, path = _locate(address)
    if isinstance(store, fs.PyFileSystem):
        store.handler.fs.makedirs(posixpath.dirname(path), exist_ok=True)
        store.handler.fs.pipe_file(path, data)
        return
    # One write of all bytes: no exception of ours can come between two halves, after which
    # closing the stream would complete an upload of the first.
    with store.open_output_stream(path) as stream:
        stream.write(data)


def _kind(address: str) -> Any:  # noqa: ANN401
    """The kind of file at an address; nothing if there is none."""
    store, path = _locate(address)
    kind = retried(address, lambda: store.get_file_info(path)).type
    return kind if kind != fs.FileType.NotFound else None


def _below(folder: str, *, recursive: bool) -> list[InputFile]:
    store, root = _locate(folder)
    entries = retried(
        folder, lambda: store.get_file_info(fs.FileSelector(root, recursive=recursive))
    )
    found = []
    for entry in entries:
        inside = posixpath.relpath(entry.path, root)
        if entry.is_file and not any(part[0] in "._" for part in inside.split("/")):
            found.append(_input_file(join(normal(folder), inside), store, entry))
    return found


def _input_file(address: str, store: Any, entry: Any) -> InputFile:  # noqa: ANN401
    version = str(entry.mtime_ns)
    if isinstance(store, fs.PyFileSystem):
        version += str(store.handler.fs.info(entry.path).get("ETag", ""))
    return InputFile(normal(address), entry.size, version)


def _locate(address: str) -> tuple[Any, str]:
    """Return the store of an address and the path in it."""
    if is_local(address):
        return fs.LocalFileSystem(), normal(address)
    scheme, _, rest = address.partition("://")
    path, _, settings = rest.partition("?")
    if scheme in _ARROW_SCHEMES:
        return _arrow_store(scheme, path.partition("/")[0], settings), path.rstrip("/")
    import fsspec

    store, path = fsspec.core.url_to_fs(address)
    return fs.PyFileSystem(fs.FSSpecHandler(store)), path


@lru_cache(maxsize=64)
def _arrow_store(scheme: str, bucket: str, settings: str) -> Any:  # noqa: ANN401
    store, _ = fs.FileSystem.from_uri(f"{scheme}://{bucket}?{settings}".rstrip("?"))
    return store
