"""Test checkpoints: damaged, incomplete, and on a full disk; and restoring the optimizer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from capsar.errors import ArtifactError
from capsar.training.loop import Progress
from capsar.training.state import (
    Checkpoint,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)


def checkpoint(step: int, size: int = 4) -> Checkpoint:
    tensors = {"model/w": torch.full((size,), float(step))}
    history = [{"epoch": 0.0, "loss": 0.5}]
    return Checkpoint(Progress(step=step, history=history), {"seed": 1}, tensors)


def test_load_returns_the_newest_and_two_are_kept(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "none") is None
    for step in (1, 20, 300):
        save_checkpoint(tmp_path, checkpoint(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000020", "step-00000300"]
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.progress == checkpoint(300).progress
    assert loaded.run == {"seed": 1}
    assert torch.equal(loaded.tensors["model/w"], torch.full((4,), 300.0))
    save_checkpoint(tmp_path, checkpoint(300))  # as after a kill right after writing it


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "one bit"])
def test_damaged_checkpoints_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    path = save_checkpoint(tmp_path, checkpoint(2)) / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        bit = bytes([content[-1] ^ 4])
        path.write_bytes({"empty": b"", "cut": content[:-2], "one bit": content[:-1] + bit}[damage])
    with caplog.at_level(logging.WARNING):
        loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.progress.step == 1
    assert "damaged checkpoint" in caplog.text
    assert "step-00000002" in caplog.text


def test_only_damaged_checkpoints_are_an_error(tmp_path: Path) -> None:
    (save_checkpoint(tmp_path, checkpoint(1)) / "state.json").write_text("{")
    with pytest.raises(ArtifactError, match="Every checkpoint"):
        load_checkpoint(tmp_path)


def test_incomplete_checkpoints_are_ignored(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    half = tmp_path / ".step-00000002-4711"
    half.mkdir()
    (half / "tensors.safetensors").write_bytes(b"half")
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded.progress.step == 1


@pytest.mark.slow
def test_full_disk_is_reported_and_earlier_checkpoints_remain(
    small_disk: Callable[[str], Path],
) -> None:
    disk = small_disk("256k")
    save_checkpoint(disk, checkpoint(1))
    with pytest.raises(ArtifactError, match=r"No space left on device.*Earlier ones"):
        save_checkpoint(disk, checkpoint(2, size=100_000))
    loaded = load_checkpoint(disk)
    assert loaded is not None
    assert loaded.progress.step == 1
    assert [path.name for path in disk.iterdir()] == ["step-00000001"]


def test_restored_optimizer_continues_exactly() -> None:
    def fresh() -> tuple[torch.nn.Linear, torch.optim.Adam]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        return layer, torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)

    def step(layer: torch.nn.Linear, optimizer: torch.optim.Adam, value: float) -> None:
        optimizer.zero_grad()
        (layer(torch.full((1, 3), value)) ** 2).sum().backward()
        optimizer.step()

    layer, optimizer = fresh()
    step(layer, optimizer, 1.0)
    other, resumed = fresh()
    other.load_state_dict(layer.state_dict())
    restore_optimizer(resumed, optimizer_tensors(optimizer))
    for model, opt in ((layer, optimizer), (other, resumed)):
        step(model, opt, 2.0)
    assert torch.equal(layer.weight, other.weight)
