"""Models by name: folders first, then the hub, with its own client and a local server."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from capsar.bundle import (
    CAPSULES,
    CONFIG,
    ENCODER,
    FILES,
    OPINIONS,
    THEMES,
    TOKENIZER,
    find_bundle,
    write_bundle,
)
from capsar.errors import ArtifactError, ConfigError, MissingExtraError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "capsar/small"


class Hub(ThreadingHTTPServer):
    """A minimal hub: enough of its API to download one model."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.requested: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requested.append(self.path)
        path = self.path.partition("?")[0]
        for revision in ("main", "v1", COMMIT):
            if path == f"/api/models/{MODEL}/revision/{revision}":
                siblings = [{"rfilename": name} for name in self.server.files]
                self._send(json.dumps({"id": MODEL, "sha": COMMIT, "siblings": siblings}).encode())
                return
            if path == f"/api/models/{MODEL}/tree/{revision}":
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}
                    for name, content in self.server.files.items()
                ]
                self._send(json.dumps(tree).encode())
                return
            name = path.removeprefix(f"/{MODEL}/resolve/{revision}/")
            if name in self.server.files:
                content = self.server.files[name]
                self._send(content, {"ETag": f'"{_oid(content)}"', "X-Repo-Commit": COMMIT})
                return
        known = path.startswith((f"/api/models/{MODEL}/", f"/{MODEL}/"))
        code = "RevisionNotFound" if known else "RepoNotFound"
        self._send(b"{}", {"X-Error-Code": code}, status=404)

    do_HEAD = do_GET  # noqa: N815

    def _send(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def hub(small_bundle: Path) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in small_bundle.iterdir()}
    server = Hub(
        files | {"training_args.bin": b"never requested", "sub/config.json": b"not this either"}
    )
    yield server
    server.stop()


_FORBID_SOCKETS = """
def forbid(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(forbid)
"""


def load_remotely(
    hub: Hub, cache: Path, *, model: str = MODEL, settings: str = "", sockets: bool = True
) -> str:
    """Load a model in a new process, because the client reads its settings when imported.

    Returns:
        A prediction, or the error.
    """
    code = f"""
import sys
{"" if sockets else _FORBID_SOCKETS}
import capsar
try:
    analyzer = capsar.load({model!r}, {settings})
    print(analyzer.classify(["The soup was awful."], ["soup"])[0][0].polarity)
except capsar.CapsarError as error:
    print(type(error).__name__, error)
"""
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    environment = {name: v for name, v in os.environ.items() if name.lower() not in proxies}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(cache), "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=cache.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


POLARITIES = ("negative", "neutral", "positive")


def test_a_model_is_downloaded_verified_and_cached(hub: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert load_remotely(hub, cache, settings="revision='v1'") in POLARITIES
    fetched = {path.rpartition("/")[2] for path in hub.requested if "/resolve/" in path}
    assert fetched == {*FILES} - {OPINIONS, THEMES}
    assert not any("sub/" in path for path in hub.requested)
    snapshot = cache / "hub" / "models--capsar--small" / "snapshots" / COMMIT
    assert (snapshot / ENCODER).is_symlink()  # otherwise this test would not cover links
    hub.stop()
    assert load_remotely(
        hub, cache, settings="revision='v1', local_files_only=True", sockets=False
    ) in (POLARITIES)
    assert (
        load_remotely(hub, cache, settings="revision='v1'") in POLARITIES
    )  # the hub is down, but the model is cached
    message = load_remotely(
        hub, cache, settings="local_files_only=True"
    )  # main was never downloaded
    assert message.startswith(
        "ArtifactError There is no folder 'capsar/small', only local files may"
    )
    assert "once with a connection" in message
    message = load_remotely(hub, tmp_path / "empty")
    assert "ArtifactError" in message
    assert "the hub cannot be reached" in message
    assert "once with a connection" in message

    blob = (snapshot / CAPSULES).resolve()
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    message = load_remotely(hub, cache, settings="revision='v1', local_files_only=True")
    assert "capsules.onnx' is damaged" in message
    assert "delete " in message
    blob.write_bytes(content)
    shutil.copy(snapshot / TOKENIZER, tmp_path / "elsewhere")
    (snapshot / TOKENIZER).unlink()
    (snapshot / TOKENIZER).symlink_to(tmp_path / "elsewhere")
    message = load_remotely(hub, cache, settings="revision='v1', local_files_only=True")
    assert "tokenizer.json' is a link" in message


def test_invalid_downloads_are_refused(hub: Hub, tmp_path: Path) -> None:
    message = load_remotely(hub, tmp_path / "a", model="capsar/absent")
    assert "There is no folder 'capsar/absent', and the hub has no such public model" in message
    message = load_remotely(hub, tmp_path / "a", settings="revision='v2'")
    assert "has no revision 'v2'" in message
    content = hub.files[ENCODER]
    hub.files[ENCODER] = content[:99] + bytes([content[99] ^ 4]) + content[100:]
    message = load_remotely(hub, tmp_path / "b")
    assert message.startswith("ArtifactError")
    assert "encoder.onnx' is damaged" in message
    assert "is from the hub model 'capsar/small'" in message
    del hub.files[ENCODER]
    assert "'encoder.onnx', which is missing" in load_remotely(hub, tmp_path / "c")
    write_bundle(tmp_path / "newer", {"schema_version": 9}, {TOKENIZER: b"{}"})
    hub.files |= {path.name: path.read_bytes() for path in (tmp_path / "newer").iterdir()}
    message = load_remotely(hub, tmp_path / "d")
    assert message.startswith("VersionMismatchError")
    assert message.endswith("Upgrade capsar.")


def test_a_folder_takes_precedence_over_the_hub(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small_bundle, tmp_path / "capsar" / "small")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert CONFIG in find_bundle(MODEL, local_files_only=True).files
    with pytest.raises(ConfigError, match="is a folder, which has no revision 'v1'"):
        find_bundle(MODEL, revision="v1")
    with pytest.raises(MissingExtraError, match=r"no folder 'capsar/other'.*'capsar\[hub\]'"):
        find_bundle("capsar/other")


def test_the_folder_of_a_run_can_be_loaded(small_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(small_bundle, tmp_path / "mine" / "bundle")
    (tmp_path / "mine" / "log.jsonl").write_text("{}")
    assert find_bundle(tmp_path / "mine").files == find_bundle(small_bundle).files


@pytest.mark.parametrize("left", ["checkpoints/00000002", "log.jsonl"])
def test_an_unfinished_run_is_distinguished_from_a_damaged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / left).mkdir(parents=True)
    for model in ("mine", "mine/bundle", tmp_path / "mine"):  # the second might be a hub id
        with pytest.raises(ArtifactError, match=r"'.*mine' is not finished.*again, with the same"):
            find_bundle(model)


def test_a_revision_can_be_part_of_the_name(hub: Hub, tmp_path: Path) -> None:
    assert load_remotely(hub, tmp_path / "cache", model=f"{MODEL}@v1") in POLARITIES
    assert any(path.startswith(f"/api/models/{MODEL}/revision/v1") for path in hub.requested)
    assert not any("main" in path for path in hub.requested)
    assert "has no revision 'v2'" in load_remotely(hub, tmp_path / "cache", model=f"{MODEL}@v2")
    message = load_remotely(
        hub, tmp_path / "cache", model=f"{MODEL}@v1", settings="revision='main'"
    )
    assert message.startswith(
        "ConfigError 'capsar/small@v1' already names a revision, which is not 'main'"
    )


@pytest.mark.parametrize(
    "model",
    ["absent", "runs/mine/bundle", "/absent/x", "./absent", "../a/b", "~/model", "a\\b", "", "\0",
     "x" * 5000, "https://hub/a/b", "a/b\n", "a/b@", "a@b", "ü/model", Path("capsar/small")],
    ids=lambda model: repr(model)[:20],
)  # fmt: skip
def test_invalid_hub_ids_are_not_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ArtifactError, match="is not a bundle"):
        find_bundle(model)


def test_a_file_is_not_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capsar").mkdir()
    (tmp_path / "capsar" / "small").write_text("x")
    with pytest.raises(ArtifactError, match="no such folder"):
        find_bundle(MODEL)
