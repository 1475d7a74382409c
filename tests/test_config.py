"""Test configuration: reading TOML, and errors that name the wrong setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsar.config import ModelConfig, TrainConfig, read_config, run_config
from capsar.errors import ConfigError
from run import ALL, GENERAL, planned


def test_read_config_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[data]\ntrain = 'mams'\n[model]\nunits = 20\ninput_dropout = 0\n")
    config = read_config(path)
    assert (config.data.train, config.model.units, config.train) == ("mams", 20, TrainConfig())
    assert run_config(config.as_dict()) == config


def test_defaults_match_the_paper() -> None:
    config = ModelConfig()
    assert config.alpha == 3
    capsules = (config.primary_dim, config.intermediate_capsules, config.intermediate_dim)
    assert (*capsules, config.class_dim) == (50, 30, 150, 300)
    assert (config.routing_iterations, config.reconstruction_weight) == (3, 0.003)
    assert config.input_dropout == 0.5
    assert TrainConfig().batch_size == 64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[data]\n", "train"),
        ("[nonsense]\n", "Unknown sections"),
        ("[data]\ntrain = 'x'\ntest = 'y'\n", "has no \\['test'\\]"),
        ("[data]\ntrain = 3\n", "train must be of type str, or a list of them, got 3"),
        ("[data]\ntrain = 'x'\n[model]\nunits = true\n", "units must be of type int"),
        ("[data]\ntrain = 'x'\n[model]\nunits = 0\n", "units must be at least 1, got 0"),
        ("[data]\ntrain = 'x'\n[model]\nkernel_width = 4\n", "kernel_width must be odd"),
        ("[data]\ntrain = 'x'\n[model]\nactivation = 'x'\n", "activation must be one of"),
        ("[data]\ntrain = 'x'\n[model]\nintermediate_capsules = -1\n", "0 or more"),
        ("[data]\ntrain = 'x'\n[train]\nmixed_precision = 'fp8'\n", "mixed_precision"),
        (
            "[data]\ntrain = 'x'\n[train]\ncheckpoint_selection = 'first'\n",
            "checkpoint_selection must be one of",
        ),
        ("[data]\ntrain = 'x'\n[train]\naspect_dropout = 2.0\n", "aspect_dropout"),
        ("not toml", "Cannot read the configuration"),
        ("data = 3\n", "needs a table of settings, got 3"),
        ("[[data]]\ntrain = 'x'\n", "needs a table of settings"),
        ("[data]\ntrain = 'x'\nword_dim = 0\n", "word_dim must be at least 1"),
        ("[data]\ntrain = 'x'\nvalidation_ratio = 1.0\n", "validation_ratio"),
        ("[data]\ntrain = 'x'\n[train]\nseed = -1\n", "seed must be from 0"),
        ("[data]\ntrain = 'x'\n[train]\nlearning_rate = nan\n", "must be a finite number"),
    ],
)
def test_errors_name_the_wrong_setting(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_config(path)


def test_committed_configurations_are_valid(root: Path) -> None:
    paths = {path.stem: path for path in (root / "experiments" / "configs").glob("*.toml")}
    for bundled in ("base", "fast", "teacher"):
        read_config(paths.pop(bundled))
    read_config(root / "examples" / "restaurants.toml")
    assert set(paths) == set(ALL + GENERAL)
    runs = planned()
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        if run.vector_ratio in (0, 1):  # other values write a vector file first
            run.config()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"head": "bert-pair"}, "head must be 'capsules' without a pre-trained encoder"),
        ({"aspect_encoding": "pair"}, "aspect_encoding must be 'proximity' without"),
        ({"encoder": "x", "head": "bert-pair"}, "aspect_encoding must be 'pair' with the head"),
        ({"encoder": "x", "head": "none"}, "head must be one of"),
        ({"encoder": "x", "aspect_encoding": "none"}, "aspect_encoding must be one of"),
    ],
)
def test_incompatible_encoder_settings_are_rejected(
    settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        run_config({"data": {"train": "x"}, "model": settings})
