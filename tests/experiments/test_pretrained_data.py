"""Test the training data of the bundled models: test sets, validation data and pseudo-labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capsar.config import list_sources, read_config
from capsar.data import catalog
from capsar.data.splits import drop_hashed
from capsar.schema import Example, Polarity
from capsar.training.teachers import LENGTHS, TAGS, example_key, record_outputs, text_key
from pretrained import teacher
from pseudo_labels import read_pros_cons

ROOT = Path(__file__).parent.parent.parent
POSITIVE, NEGATIVE = Polarity.POSITIVE, Polarity.NEGATIVE


def test_spans_are_decoded_from_probabilities() -> None:
    tags = np.array([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [1, 0, 0], [0.4, 0.6, 0]], np.float32)
    found = teacher.examples_of("Battery life, ok", tags)
    assert [example.aspect for example in found] == ["Battery life", "ok"]


def test_pseudo_labels_do_not_contradict_the_side_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {"good zoom": POSITIVE, "poor zoom": POSITIVE, "bad zoom": NEGATIVE, "it came": None}
    lengths = {"good zoom": 2, "poor zoom": 0, "bad zoom": 0}
    tags = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    outside = np.array([[1, 0, 0], [1, 0, 0]], np.float32)
    examples = {line: next(teacher.examples_of(line, tags)) for line in lengths}
    outputs = {
        LENGTHS: {example_key(examples[t]): np.eye(3)[[own]] for t, own in lengths.items()},
        TAGS: {text_key(line): tags if line in lengths else outside for line in lines},
    }
    record_outputs(tmp_path / "recorded.npz", outputs)
    monkeypatch.setattr(teacher, "unlabeled_lines", lambda: lines)
    monkeypatch.setattr(teacher, "labels_path", lambda _: tmp_path / "labels.jsonl")
    counts = teacher.write_pseudo_labels([str(tmp_path / "recorded.npz")])
    assert counts == {"lines": 4, "kept": 3, "aspects": 2}
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    place = {"aspect": "zoom", "start": 5, "end": 9, "polarity": "positive"}
    assert rows[0] == {"text": "good zoom"} | place
    assert rows[1:] == [rows[1] | {"text": "bad zoom"}, {"text": "it came"}]


@pytest.mark.parametrize("name", ["base", "fast", "teacher"])
def test_validation_and_test_products_are_not_trained_on(name: str) -> None:
    data = read_config(ROOT / "experiments" / "configs" / f"{name}.toml").data
    trained = {*list_sources(data.train), *list_sources(data.partially_annotated)}
    chosen = {*list_sources(data.validation), *list_sources(data.partially_annotated_validation)}
    assert not trained & chosen
    products = {source for source in trained | chosen if source.startswith("bing-liu:")}
    assert products <= {"bing-liu:train/Nikon_coolpix_4300"}
    assert data.exclude_hashes == "experiments/configs/shared-sentences.json"


@pytest.mark.data
def test_no_line_of_pros_and_cons_occurs_in_a_test_set(shared: Path) -> None:
    path = ROOT / "experiments" / "configs" / "shared-sentences.json"
    lines = read_pros_cons(catalog.find_file("bing-liu-pros-cons", "text"))
    kept, dropped = drop_hashed([Example(line) for some in lines.values() for line in some], path)
    assert dropped > 50
    texts = {example.text for example in kept}
    names = json.loads(path.read_bytes())["evaluated_on"]
    assert {"memd/hotel/test", "aste/14lap/test_triplets", "capsar-corpus"} < set(names)
    for name in set(names) & set(catalog.datasets()):
        assert not texts & {example.text for example in catalog.test_examples(name)}
