"""The model card: what the run was, in a form that people and hubs read."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

import capsar
from capsar.config import run_config
from capsar.evaluation.calibration import judge_calibration
from capsar.evaluation.evaluate import Evaluation
from capsar.evaluation.extraction import Extraction, SpanFigures
from capsar.evaluation.metrics import Figures, Intervals
from capsar.training.card import DevReport, render_card
from capsar.training.prepare import prepare_data

CONFIG = run_config({"data": {"train": "mams"}, "model": {"units": 77}, "train": {"seed": 5}})
FACTS = {
    "train": "mams",
    "dataset": "mams",
    "licence": "Apache-2.0",
    "train_examples": 11186,
    "dev": "mams:dev",
    "dev_examples": 1332,
    "shared_sentences_dropped": 7,
    "test_sentences_dropped": 44,
    "shared_by_kind": {"exact": 5, "near": 2},
    "vectors": "glove.840B.300d.subset.txt",
    "vectors_licence": "PDDL (GloVe)",
    "words": 9000,
}
DEV = Evaluation(
    Figures(1332, 0.7812, 0.7654, {}, ()), Intervals((0.76, 0.80), (0.7412, 0.7899)), left_out=0
)


def render(facts: dict[str, Any] | None = None, **settings: Any) -> str:
    given = {"epoch": 3, "num_epochs": 9, "report": DevReport(DEV, 0.1234)} | settings
    return render_card(CONFIG, FACTS | (facts or {}), **given)


def test_the_card_says_what_the_run_was() -> None:
    card = render()
    for line in (
        "| trained on | mams, 11186 examples |",
        "| licence of that data | Apache-2.0 |",
        "| word vectors | glove.840B.300d.subset.txt; 9000 words |",
        "| licence of the vectors | PDDL (GloVe) |",
        "| epoch chosen on | 1332 dev examples of mams:dev |",
        "| epoch | 4 of 9 |",
        "| training sentences dropped because dev holds them | 7 (5 exact, 2 near) |",
        "| dev accuracy | 0.7812 | 0.7600 to 0.8000 |",
        "| dev macro-F1 | 0.7654 | 0.7412 to 0.7899 |",
        "| dev F1 of aspects that opened capsules name, exact spans | 0.1234 | |",
        "- Capsule lengths (`scores`) are from 0 to 1, not probabilities.",
        "| `model.units` | 77 |",
        "| `train.seed` | 5 |",
    ):
        assert f"{line}\n" in card
    assert "English only" in card
    assert "has an F1 of 0.1234 on dev" in card


def test_the_card_tells_of_spans_and_confidences_where_there_are_some() -> None:
    spans = SpanFigures.of(gold=10, found=8, right=6)
    found = Extraction(9, 4, spans, spans, SpanFigures.of(10, 8, 3), false_per_100=25.0)
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]])
    sure = judge_calibration(probabilities, np.array([0, 0]), np.array([0, 1]))
    card = render(report=DevReport(DEV, 0.1234, found, sure))
    for line in (
        "| dev F1 of aspects it finds by itself, exact spans | 0.6667 | |",
        "| the same with their polarity | 0.3333 | |",
        "| aspects told per 100 dev sentences without any | 25.0 | |",
        "- Capsule lengths (`scores`) are from 0 to 1, not probabilities; `confidence` is one.",
        "| accuracy of all answers | 0.5000 |",
        "     0.500  0.000        1            |",
        "     0.900  1.000        1  ##################|#",
    ):
        assert f"{line}\n" in card
    assert "None: too little dev data to fit a calibration on." in render()


def test_a_hub_reads_the_card() -> None:
    data = ModelCard(render()).data
    assert (data.license, data.language, data.datasets) == ("apache-2.0", ["en"], ["mams"])
    assert data.library_name == "capsar"
    assert "aspect-based-sentiment-analysis" in data.tags
    unknown = {"dataset": "", "licence": "", "train": "mine.csv"}
    data = ModelCard(render(unknown)).data
    assert (data.license, data.datasets) == ("other", None)
    restricted = {"licence": "research use, no redistribution"}
    assert ModelCard(render(restricted)).data.license == "other"
    assert "| research use, no redistribution |" in render(restricted)


def test_what_is_not_known_is_said() -> None:
    card = render(
        {"dev": "", "dev_examples": 0, "vectors": "random", "vectors_licence": "", "licence": ""},
        report=DevReport(),
    )
    assert "| epoch chosen on | the last one; no dev part was held back |" in card
    assert "| licence of the vectors | none needed |" in card
    assert "| licence of that data | that of its owner; the catalog does not know it |" in card
    assert "None: no dev part was held back." in card
    assert "was not measured" in card
    assert "| training sentences dropped because dev holds them | 0 |" in card
    cut = render({"dev": ""})
    assert "| 1332 dev examples, cut from the training data by sentence |" in cut


def test_a_file_of_any_name_stays_in_its_cell() -> None:
    assert "| a\\|b c.csv, 11186 examples |" in render({"train": "a|b\n c.csv"})


def test_the_lines_of_the_card_run(small_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = (small_bundle / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace("path/to/this/folder", str(small_bundle)), {})
    assert "AspectSentiment(text='soup'" in capsys.readouterr().out
    found = re.search(r"dev macro-F1 \| (\S+) \| (\S+) to (\S+) ", card)
    assert found
    middle, low, high = map(float, found.groups())
    assert low <= middle <= high
    config = json.loads((small_bundle / "config.json").read_text())
    assert "dev_intervals" in config
    assert sum(map(sum, config["dev_confusion"])) == config["trained_on"]["dev_examples"]
    assert capsar.__version__ in (small_bundle / "config.json").read_text()


@pytest.mark.data
def test_published_data_is_known_by_name_and_by_content(shared: Path) -> None:
    by_name = prepare_data(run_config({"data": {"train": "mams", "word_dim": 3}}).data).facts
    path = shared / "data" / "mams" / "MAMS-ATSA" / "train.xml"
    by_content = prepare_data(run_config({"data": {"train": str(path), "word_dim": 3}}).data).facts
    assert (by_name["dataset"], by_name["licence"]) == ("mams", "Apache-2.0")
    own = {"train": "train.xml", "files_sha256": [sha256(path.read_bytes()).hexdigest()]}
    assert by_content == by_name | own
