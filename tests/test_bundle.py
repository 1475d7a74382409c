"""Bundles: whole or not there, verified, and refused by name when damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capsar.bundle import CONFIG, MANIFEST, TOKENIZER, open_bundle, write_bundle
from capsar.errors import ArtifactError, VersionMismatchError

FILES = {TOKENIZER: b"{}", "model.safetensors": b"weights", "README.md": b"# card"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "bundle", {"model": {"units": 3}}, FILES)
    return tmp_path / "bundle"


def test_a_bundle_is_written_verified_and_replaced(folder: Path) -> None:
    bundle = open_bundle(folder)
    assert bundle.config == {"schema_version": 1, "model": {"units": 3}}
    assert bundle.path("README.md").read_bytes() == b"# card"
    with pytest.raises(ArtifactError, match=r"has no encoder\.onnx"):
        bundle.path("encoder.onnx")
    write_bundle(folder, {"model": {"units": 4}}, FILES)
    assert open_bundle(folder).config["model"] == {"units": 4}
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]


def test_what_a_killed_writer_left_is_cleared_and_only_listed_files_are_served(
    folder: Path,
) -> None:
    for name in (".bundle-new", ".bundle-old"):
        (folder.parent / name).mkdir()
        (folder.parent / name / "half").write_text("x")
    write_bundle(folder, {"model": {}}, FILES)
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]
    (folder / "stranger.bin").write_bytes(b"unverified")
    with pytest.raises(ArtifactError, match=r"has no stranger\.bin"):
        open_bundle(folder).path("stranger.bin")


def test_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="is not a bundle"):
        write_bundle(tmp_path / "mine", {}, FILES)
    assert (tmp_path / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize("name", [CONFIG, MANIFEST, *FILES])
@pytest.mark.parametrize("damage", ["missing", "truncated", "one bit", "link"])
def test_a_damaged_bundle_is_refused_by_name(
    folder: Path, tmp_path: Path, name: str, damage: str
) -> None:
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[:-1] if name != MANIFEST else content[: len(content) // 2])
    elif damage == "one bit":
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
        if name == MANIFEST:
            return  # the manifest verifies the others; it is not verified itself
    with pytest.raises(ArtifactError) as caught:
        open_bundle(folder)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "files",
    [None, [], {}, {"../config.json": {}, CONFIG: {}, TOKENIZER: {}}, {CONFIG: 3, TOKENIZER: 4},
     {"/etc/passwd": {"sha256": ""}, CONFIG: {}, TOKENIZER: {}}],
)  # fmt: skip
def test_a_manifest_that_lies_is_refused(folder: Path, files: object) -> None:
    (folder / MANIFEST).write_text(json.dumps({"files": files}))
    with pytest.raises(ArtifactError):
        open_bundle(folder)
    (folder / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(ArtifactError, match="not JSON"):
        open_bundle(folder)
    (folder / MANIFEST).write_text("[]")
    with pytest.raises(ArtifactError, match="must hold an object"):
        open_bundle(folder)


def test_a_bundle_of_another_schema_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", {"schema_version": 99}, FILES)
    with pytest.raises(VersionMismatchError, match="schema version 99; this release reads 1"):
        open_bundle(tmp_path / "b")


def test_no_bundle_and_no_room(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not a bundle"):
        open_bundle(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="Cannot write"):
        write_bundle(tmp_path / "file" / "b", {}, FILES)
