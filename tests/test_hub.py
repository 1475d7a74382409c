"""Models by name: folders first, then the hub, through its own client and a server of our own."""

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

from capsar.bundle import CAPSULES, CONFIG, ENCODER, FILES, TOKENIZER, write_bundle
from capsar.errors import ArtifactError, ConfigError, MissingExtraError
from capsar.hub import find_bundle

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "capsar/small"


class Hub(ThreadingHTTPServer):
    """As much of the hub's interface as its client needs to download one model."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
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
    server = Hub(files | {"training_args.bin": b"never asked for", "sub/config.json": b"nor this"})
    yield server
    server.stop()


_FORBID_SOCKETS = """
def forbid(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(forbid)
"""


def ask(
    hub: Hub, cache: Path, *, model: str = MODEL, settings: str = "", sockets: bool = True
) -> str:
    """Load a model in a process of its own, as the client reads its settings when imported.

    Returns:
        The answer, or the error.
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


ANSWERS = ("negative", "neutral", "positive")


def test_a_model_is_downloaded_verified_and_kept(hub: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert ask(hub, cache, settings="revision='v1'") in ANSWERS
    fetched = {path.rpartition("/")[2] for path in hub.asked if "/resolve/" in path}
    assert fetched == set(FILES)
    assert not any("sub/" in path for path in hub.asked)
    snapshot = cache / "hub" / "models--capsar--small" / "snapshots" / COMMIT
    assert (snapshot / ENCODER).is_symlink()  # or this test would not show what it should
    hub.stop()
    assert ask(hub, cache, settings="revision='v1', local_files_only=True", sockets=False) in (
        ANSWERS
    )
    assert ask(hub, cache, settings="revision='v1'") in ANSWERS  # the hub is down, the cache is not
    told = ask(hub, cache, settings="local_files_only=True")  # main was never asked for
    assert told.startswith("ArtifactError There is no folder 'capsar/small', only local files may")
    assert "once with a connection" in told
    told = ask(hub, tmp_path / "empty")
    assert "ArtifactError" in told
    assert "the hub cannot be reached" in told
    assert "once with a connection" in told

    blob = (snapshot / CAPSULES).resolve()
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    told = ask(hub, cache, settings="revision='v1', local_files_only=True")
    assert "capsules.onnx' is damaged" in told
    assert "remove " in told
    blob.write_bytes(content)
    shutil.copy(snapshot / TOKENIZER, tmp_path / "elsewhere")
    (snapshot / TOKENIZER).unlink()
    (snapshot / TOKENIZER).symlink_to(tmp_path / "elsewhere")
    told = ask(hub, cache, settings="revision='v1', local_files_only=True")
    assert "tokenizer.json' is a link" in told


def test_what_a_hub_should_not_give_is_refused(hub: Hub, tmp_path: Path) -> None:
    told = ask(hub, tmp_path / "a", model="capsar/absent")
    assert "There is no folder 'capsar/absent', and the hub shows no such model" in told
    told = ask(hub, tmp_path / "a", settings="revision='v2'")
    assert "has no revision 'v2'" in told
    content = hub.files[ENCODER]
    hub.files[ENCODER] = content[:99] + bytes([content[99] ^ 4]) + content[100:]
    told = ask(hub, tmp_path / "b")
    assert told.startswith("ArtifactError")
    assert "encoder.onnx' is damaged" in told
    assert "came from the hub model 'capsar/small'" in told
    del hub.files[ENCODER]
    assert "'encoder.onnx', which is not there" in ask(hub, tmp_path / "c")
    write_bundle(tmp_path / "newer", {"schema_version": 9}, {TOKENIZER: b"{}"})
    hub.files |= {path.name: path.read_bytes() for path in (tmp_path / "newer").iterdir()}
    told = ask(hub, tmp_path / "d")
    assert told.startswith("VersionMismatchError")
    assert told.endswith("Upgrade capsar.")


def test_a_folder_wins_over_the_hub(
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


def test_the_folder_of_a_run_is_its_model(small_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(small_bundle, tmp_path / "mine" / "bundle")
    (tmp_path / "mine" / "log.jsonl").write_text("{}")
    assert find_bundle(tmp_path / "mine").files == find_bundle(small_bundle).files


@pytest.mark.parametrize("left", ["checkpoints/00000002", "log.jsonl"])
def test_a_run_that_is_not_finished_is_told_from_a_damaged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / left).mkdir(parents=True)
    for model in ("mine", "mine/bundle", tmp_path / "mine"):  # the second might be a hub id
        with pytest.raises(ArtifactError, match=r"'.*mine' is not finished.*again, with the same"):
            find_bundle(model)


def test_a_revision_is_part_of_the_name_where_there_is_no_option(hub: Hub, tmp_path: Path) -> None:
    assert ask(hub, tmp_path / "cache", model=f"{MODEL}@v1") in ANSWERS
    assert any(path.startswith(f"/api/models/{MODEL}/revision/v1") for path in hub.asked)
    assert not any("main" in path for path in hub.asked)
    assert "has no revision 'v2'" in ask(hub, tmp_path / "cache", model=f"{MODEL}@v2")
    told = ask(hub, tmp_path / "cache", model=f"{MODEL}@v1", settings="revision='main'")
    assert told.startswith("ConfigError 'capsar/small@v1' is to be loaded at revision 'main'")


@pytest.mark.parametrize(
    "model",
    ["absent", "runs/mine/bundle", "/absent/x", "./absent", "../a/b", "~/model", "a\\b", "", "\0",
     "x" * 5000, "https://hub/a/b", "a/b\n", "a/b@", "a@b", "ü/model", Path("capsar/small")],
    ids=lambda model: repr(model)[:20],
)  # fmt: skip
def test_what_is_no_hub_id_is_not_asked_of_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ArtifactError, match="is not a bundle"):
        find_bundle(model)


def test_a_file_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capsar").mkdir()
    (tmp_path / "capsar" / "small").write_text("x")
    with pytest.raises(ArtifactError, match="no such folder"):
        find_bundle(MODEL)
