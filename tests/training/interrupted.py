"""Compare an interrupted and resumed run with an uninterrupted one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from capsar.config import RunConfig
from capsar.evaluation.evaluate import evaluate
from capsar.training.dataset import prepare_data
from capsar.training.initialize import load_network
from capsar.training.loop import StepInfo
from capsar.training.trainer import TrainResult, train
from capsar.training.validation import NetworkPredictor


class InterruptError(Exception):
    """Raised in the middle of a run, in place of a kill."""


def assert_resumes_exactly(run: RunConfig, folder: Path, *, at: int) -> TrainResult:
    """Interrupt a run at a step, resume it, compare it with a whole one and return the latter."""

    def stop(info: StepInfo) -> None:
        if info.step == at:
            raise InterruptError

    with pytest.raises(InterruptError):
        train(run, folder / "resumed", on_step=stop)
    resumed, whole = train(run, folder / "resumed"), train(run, folder / "whole")
    assert resumed.history == whole.history
    ours, expected = (load_file(r.bundle / "model.safetensors") for r in (resumed, whole))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    # The bundle holds the selected epoch.
    validation = prepare_data(run.data).splits.validation
    best = evaluate(NetworkPredictor(*load_network(whole.bundle)), validation).metrics
    assert best.macro_f1 == pytest.approx(whole.validation["validation_macro_f1"])
    return whole
