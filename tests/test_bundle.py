"""Bundles: written atomically, verified, and refused with the name of a damaged file."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from capsar.bundle import CONFIG, MANIFEST, TOKENIZER, open_bundle, write_bundle
from capsar.errors import ArtifactError, VersionMismatchError

CONTENT = {TOKENIZER: b"{}", "model.safetensors": b"weights", "README.md": b"# card"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "bundle", {"model": {"units": 3}}, CONTENT)
    return tmp_path / "bundle"


def test_a_bundle_is_written_verified_and_replaced(folder: Path) -> None:
    bundle = open_bundle(folder)
    assert bundle.config == {"schema_version": 1, "model": {"units": 3}}
    assert bundle.path("README.md").read_bytes() == b"# card"
    with pytest.raises(ArtifactError, match=r"has no encoder\.onnx"):
        bundle.path("encoder.onnx")
    write_bundle(folder, {"model": {"units": 4}}, CONTENT)
    assert open_bundle(folder).config["model"] == {"units": 4}
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


def test_leftovers_of_a_killed_writer_are_removed_and_only_listed_files_are_readable(
    folder: Path,
) -> None:
    write_bundle(folder, {"model": {}}, CONTENT)
    for name in (f".bundle-new-{os.getpid()}", ".bundle-old"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "half").write_text("x")
    write_bundle(folder, {"model": {}}, CONTENT)
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]
    (folder / "stranger.bin").write_bytes(b"unverified")
    with pytest.raises(ArtifactError, match=r"has no stranger\.bin"):
        open_bundle(folder).path("stranger.bin")


def test_other_folders_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="something else than a bundle"):
        write_bundle(tmp_path / "mine", {}, CONTENT)
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize("name", [CONFIG, MANIFEST, *CONTENT])
@pytest.mark.parametrize("kind", ["link", "link to nothing", "folder", "pipe"])
def test_only_regular_files_are_accepted(
    folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    path = folder / name
    if kind == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.unlink()
        if kind == "link to nothing":
            path.symlink_to(path)
        elif kind == "folder":
            path.mkdir()
        else:
            os.mkfifo(path)  # opening it would block forever
    with pytest.raises(ArtifactError, match=r"Get the bundle again\.") as caught:
        open_bundle(folder)
    assert name in str(caught.value)


def test_links_are_followed_into_one_given_folder_only(folder: Path, tmp_path: Path) -> None:
    for place in ("blobs", "blobs-of-another"):
        (tmp_path / place).mkdir()
        (folder / TOKENIZER).rename(tmp_path / place / "b1")
        (folder / TOKENIZER).symlink_to(f"../{place}/b1")
        if place == "blobs":
            assert open_bundle(folder, links_into=tmp_path / "blobs").config["model"]
            (folder / TOKENIZER).unlink()
            (tmp_path / place / "b1").rename(folder / TOKENIZER)
        else:
            with pytest.raises(ArtifactError, match=r"tokenizer\.json' is a link"):
                open_bundle(folder, links_into=tmp_path / "blobs")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"null", b"{}", b'{"files": []}', b'{"files": {}}', b"\xff" * 9,
     b"[" * 100_000, b'{"files": {"config.json": 3, "tokenizer.json": 4}}'],
    ids=lambda content: str(content[:20]),
)  # fmt: skip
def test_an_invalid_manifest_is_refused(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(ArtifactError, match=r"Get the bundle again\.") as caught:
        open_bundle(folder)
    assert (CONFIG if b"3, " in content else MANIFEST) in str(caught.value)


@pytest.mark.parametrize(
    "name", ["../outside", "/outside", "..", ".", "", "sub/../../outside", "\0", "x" * 5000]
)
def test_a_manifest_with_a_path_outside_the_bundle_is_refused(
    folder: Path, tmp_path: Path, name: str
) -> None:
    """Even if that file exists and matches the manifest."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    if name.startswith("/"):
        name = str(outside)
    entry = {"sha256": hashlib.sha256(b"secret").hexdigest(), "bytes": 6}
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = entry
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"Get the bundle again\.") as caught:
        open_bundle(folder)
    assert name.replace("\0", "\\x00") in str(caught.value)


def test_a_newer_schema_is_distinguished_from_a_damaged_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {"schema_version": 99}, CONTENT)
    (tmp_path / "b" / TOKENIZER).unlink()  # a newer release may write other files
    with pytest.raises(VersionMismatchError, match=r"config\.json .* 99; .* reads 1.*Upgrade"):
        open_bundle(tmp_path / "b")


@pytest.mark.parametrize("version", [None, 0, -1, True, "1", 1.0])
def test_an_invalid_schema_version_is_refused(tmp_path: Path, version: object) -> None:
    write_bundle(tmp_path / "b", {"schema_version": version}, CONTENT)
    with pytest.raises(VersionMismatchError, match=r"config\.json .* schema version .* again\."):
        open_bundle(tmp_path / "b")


def test_missing_bundles_and_unwritable_folders(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not a bundle"):
        open_bundle(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="Cannot write"):
        write_bundle(tmp_path / "file" / "b", {}, CONTENT)


def test_only_folders_with_nothing_but_a_bundle_are_replaced(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "manifest.json").write_text('{"name": "my browser extension"}')
    (project / "src" / "app.js").write_text("mine")
    with pytest.raises(ArtifactError, match="something else than a bundle"):
        write_bundle(project, {}, {"tokenizer.json": b"{}"})
    assert (project / "src" / "app.js").read_text() == "mine"
    write_bundle(tmp_path / "b", {}, {"tokenizer.json": b"{}"})
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(ArtifactError, match="something else than a bundle"):
        write_bundle(tmp_path / "b", {}, {"tokenizer.json": b"{}"})
    assert (tmp_path / "b" / "notes.txt").read_text() == "mine"


def test_a_bundle_moved_aside_by_a_killed_process_is_restored(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {"run": 1}, {"tokenizer.json": b"{}"})
    (tmp_path / "b").rename(tmp_path / ".b-old")
    with pytest.raises(ArtifactError):
        write_bundle(tmp_path / "b", {"run": 2}, {"no/such/folder": b""})
    assert open_bundle(tmp_path / "b").config["run"] == 1
