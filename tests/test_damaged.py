"""Damaged bundles: every file of a real bundle, refused with its name and advice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import external_data_helper

from capsar.bundle import (
    CAPSULES,
    CONFIG,
    ENCODER,
    FILES,
    MANIFEST,
    OPINIONS,
    THEMES,
    TOKENIZER,
    write_bundle,
)
from capsar.errors import ArtifactError, VersionMismatchError
from capsar.inference.analyzer import load

ADVICE = ("Get the bundle again.", "Export the model again.", "Upgrade capsar.")

REQUIRED = [name for name in FILES if name not in (OPINIONS, THEMES)]


@pytest.fixture
def broken(small_bundle: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(small_bundle, tmp_path / "bundle"))


def refusal(folder: Path, name: str) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        load(folder)
    message = str(caught.value)
    assert name in message
    assert message.endswith(ADVICE), message
    return caught.value


def rewrite(folder: Path, files: dict[str, bytes]) -> None:
    """Replace files and update the manifest."""
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    config = json.loads(kept.pop(CONFIG))
    del kept[MANIFEST]
    if CONFIG in files:
        config = json.loads(files.pop(CONFIG))
    write_bundle(folder, config, kept | files)


def test_a_bundle_contains_the_files_that_are_downloaded(small_bundle: Path) -> None:
    assert sorted(path.name for path in small_bundle.iterdir()) == sorted(REQUIRED)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_file_is_named(broken: Path, name: str) -> None:
    (broken / name).unlink()
    refusal(broken, name)


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_truncated_file_is_named(broken: Path, name: str, share: float) -> None:
    size = (broken / name).stat().st_size
    os.truncate(broken / name, min(int(size * share), size - 2))
    refusal(broken, name)


@pytest.mark.parametrize("name", [name for name in REQUIRED if name != MANIFEST])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("bit", [1, 128])
def test_one_flipped_bit_is_named(broken: Path, name: str, share: float, bit: int) -> None:
    content = bytearray((broken / name).read_bytes())
    content[int(share * (len(content) - 1))] ^= bit
    (broken / name).write_bytes(content)
    refusal(broken, name)


def test_any_flipped_bit_of_the_manifest_is_refused_or_harmless(broken: Path) -> None:
    """Flipped white space is harmless; any other change names a file."""
    content = (broken / MANIFEST).read_bytes()
    same = json.loads(content)
    refused = 0
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        (broken / MANIFEST).write_bytes(changed)
        try:
            harmless = json.loads(changed) == same
        except ValueError:
            harmless = False
        if harmless:
            continue
        try:
            load(broken)
        except ArtifactError as error:
            refused += 1
            assert str(error).endswith(ADVICE), error  # noqa: PT017
            assert any(name in str(error) for name in FILES)  # noqa: PT017
        else:
            pytest.fail(f"bit {place % 8} of byte {place} was not detected")
    assert refused > len(content) // 6


def test_a_newer_schema_is_named(broken: Path) -> None:
    config = json.loads((broken / CONFIG).read_bytes()) | {"schema_version": 2}
    rewrite(broken, {CONFIG: json.dumps(config).encode()})
    assert isinstance(refusal(broken, CONFIG), VersionMismatchError)


@pytest.mark.parametrize("name", [ENCODER, CAPSULES])
@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x0a" * 50])
def test_an_invalid_graph_with_a_correct_checksum_is_named(
    broken: Path, name: str, content: bytes
) -> None:
    rewrite(broken, {name: content})
    refusal(broken, name)


def test_an_invalid_tokenizer_with_a_correct_checksum_is_named(broken: Path) -> None:
    rewrite(broken, {TOKENIZER: b"{}"})
    refusal(broken, TOKENIZER)


@pytest.mark.parametrize("name", [ENCODER, CAPSULES])
@pytest.mark.parametrize("where", ["outside", "absolute", "working folder", "beside"])
@pytest.mark.parametrize("form", ["initializer", "constant"])
def test_a_graph_cannot_read_external_data(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str, form: str
) -> None:
    """All checksums are correct and the external data exists, but it is not read."""
    working, location = {
        "outside": (broken, "../weights.bin"),
        "absolute": (broken, str(tmp_path / "weights.bin")),
        "working folder": (tmp_path, "weights.bin"),
        "beside": (broken, "weights.bin"),
    }[where]
    model = onnx.load(broken / name)
    largest = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    data = largest.raw_data
    external_data_helper.set_external_data(largest, location)
    largest.ClearField("raw_data")
    if form == "constant":
        node = onnx.helper.make_node("Constant", [], [largest.name], value=largest)
        model.graph.node.insert(0, node)
        model.graph.initializer.remove(largest)
    rewrite(broken, {name: model.SerializeToString()})
    (working / location).write_bytes(data)
    monkeypatch.chdir(working)
    refusal(broken, name)
