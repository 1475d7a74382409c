"""Small bundles of every encoder and storage format, trained for seconds on synthetic reviews."""

from __future__ import annotations

from pathlib import Path

from synthetic_reviews import write_reviews
from tiny_bert import write_tiny_bert

from capsar.config import run_config
from capsar.training.trainer import export_bundle, train

_SIZES = {
    "units": 16,
    "primary_dim": 10,
    "intermediate_capsules": 6,
    "intermediate_dim": 12,
    "class_dim": 20,
}
_NETWORKS: dict[str, dict[str, object]] = {
    "bigru": {},
    "bert": {"encoder": "tiny-bert"},
    "bert-pair": {"encoder": "tiny-bert", "aspect_encoding": "pair"},
}
FAMILIES = [*_NETWORKS, *(f"{name}-int8" for name in _NETWORKS)]
ON_OPENVINO = ["bert", "bert-pair-int8"]
"""Families that are also run on OpenVINO; so is `base`, whose weights have a real size."""


def make_bundle(family: str, folder: Path) -> Path:
    """Return the bundle of a family, trained on first use on `reviews.csv` in `folder`."""
    name = family.removesuffix("-int8")
    bundle = folder / name / "bundle"
    if not bundle.is_dir():
        _train(name, folder)
    if name == family:
        return bundle
    smaller = folder / family
    if not smaller.is_dir():
        export_bundle(bundle, smaller, store="int8")
    return smaller


def _train(name: str, folder: Path) -> None:
    data = folder / "reviews.csv"
    if not data.is_file():
        write_reviews(data, 300)
    model = dict(_NETWORKS[name])
    epochs = {"max_epochs": 12, "patience": 12, "learning_rate": 0.01}
    if model:
        model["encoder"] = str(write_tiny_bert(folder / "tiny-bert"))
        epochs |= {"max_epochs": 6, "encoder_learning_rate": 0.002, "warmup_ratio": 0.1}
    content = {
        "data": {"train": str(data), "word_dim": 20},
        "model": _SIZES | model,
        "train": epochs | {"aspect_dropout": 0.3},
    }
    train(run_config(content), folder / name)
