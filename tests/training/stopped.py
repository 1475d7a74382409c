"""A run that is stopped and goes on, beside one that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from capsar.config import RunConfig
from capsar.evaluation.evaluate import evaluate
from capsar.training.loop import StepInfo
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from capsar.training.run import TrainResult, load_network, train


class StoppedError(Exception):
    pass


def assert_goes_on_alike(run: RunConfig, folder: Path, *, at: int) -> TrainResult:
    """Stop a run at a step, go on, and compare it with a whole one, which is returned."""

    def stop(info: StepInfo) -> None:
        if info.step == at:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(run, folder / "stopped", on_step=stop)
    resumed, whole = train(run, folder / "stopped"), train(run, folder / "whole")
    assert resumed.history == whole.history
    ours, expected = (load_file(r.bundle / "model.safetensors") for r in (resumed, whole))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    # The bundle holds the epoch that was chosen.
    dev = prepare_data(run.data).dev
    best = evaluate(NetworkPredictor(*load_network(whole.bundle)), dev).figures
    assert best.macro_f1 == pytest.approx(whole.dev["dev_macro_f1"])
    return whole
