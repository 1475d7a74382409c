"""Test the model card: its content, and that hubs can parse it."""

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
from capsar.evaluation.confidence import evaluate_calibration
from capsar.evaluation.evaluate import Evaluation
from capsar.evaluation.metrics import Intervals, PolarityMetrics
from capsar.evaluation.spans import Extraction, SpanMetrics
from capsar.training.dataset import prepare_data
from capsar.training.model_card import ValidationReport, render_card

CONFIG = run_config({"data": {"train": "mams"}, "model": {"units": 77}, "train": {"seed": 5}})
FACTS = {
    "train": "mams",
    "dataset": "mams",
    "license": "Apache-2.0",
    "train_examples": 11186,
    "validation": "mams:dev",
    "validation_examples": 1332,
    "shared_sentences_dropped": 7,
    "test_sentences_dropped": 44,
    "shared_by_kind": {"exact": 5, "near": 2},
    "vectors": "glove.840B.300d.subset.txt",
    "vectors_license": "PDDL (GloVe)",
    "words": 9000,
}
VALIDATION = Evaluation(
    PolarityMetrics(1332, 0.7812, 0.7654, {}, ()),
    Intervals((0.76, 0.80), (0.7412, 0.7899)),
    excluded=0,
)


def render(facts: dict[str, Any] | None = None, **settings: Any) -> str:
    given = {"epoch": 3, "num_epochs": 9, "report": ValidationReport(VALIDATION, 0.1234)} | settings
    return render_card(CONFIG, FACTS | (facts or {}), **given)


def test_card_describes_the_run() -> None:
    card = render()
    for line in (
        "| trained on | mams, 11186 examples |",
        "| license of that data | Apache-2.0 |",
        "| word vectors | glove.840B.300d.subset.txt; 9000 words |",
        "| license of the vectors | PDDL (GloVe) |",
        "| epoch chosen on | 1332 validation examples, of mams:dev |",
        "| epoch | 4 of 9 |",
        "| training sentences dropped because they are in the validation set "
        "| 7 (5 exact, 2 near) |",
        "| validation accuracy | 0.7812 | 0.7600 to 0.8000 |",
        "| validation macro-F1 | 0.7654 | 0.7412 to 0.7899 |",
        "| exact-span F1 of capsules | 0.1234 | |",
        "- Capsule lengths (`scores`) are from 0 to 1, not probabilities.",
        "| `model.units` | 77 |",
        "| `train.seed` | 5 |",
    ):
        assert f"{line}\n" in card
    assert "English only" in card
    assert "has a validation F1 of 0.1234" in card


def test_card_reports_spans_and_confidence() -> None:
    spans = SpanMetrics.of(gold=10, found=8, right=6)
    found = Extraction(9, 4, spans, spans, SpanMetrics.of(10, 8, 3), false_per_100=25.0)
    probabilities = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]])
    sure = evaluate_calibration(probabilities, np.array([0, 0]), np.array([0, 1]))
    card = render(report=ValidationReport(VALIDATION, 0.1234, found, sure))
    for line in (
        "| exact-span F1 of the extraction head | 0.6667 | |",
        "| F1 of span and polarity | 0.3333 | |",
        "| aspects found per 100 sentences without any | 25.0 | |",
        "- Capsule lengths (`scores`) are from 0 to 1, not probabilities; `confidence` is one.",
        "| accuracy of all predictions | 0.5000 |",
        "     0.500     0.000         1            |",
        "     0.900     1.000         1  ##################|#",
    ):
        assert f"{line}\n" in card
    assert "None: there was too little validation data" in render()


def test_hub_parses_the_card() -> None:
    data = ModelCard(render()).data
    assert (data.license, data.language, data.datasets) == ("apache-2.0", ["en"], ["mams"])
    assert data.library_name == "capsar"
    assert "aspect-based-sentiment-analysis" in data.tags
    unknown = {"dataset": "", "license": "", "train": "mine.csv"}
    data = ModelCard(render(unknown)).data
    assert (data.license, data.datasets) == ("other", None)
    restricted = {"license": "research use, no redistribution"}
    assert ModelCard(render(restricted)).data.license == "other"
    assert "| research use, no redistribution |" in render(restricted)


def test_card_reports_what_is_unknown() -> None:
    card = render(
        {
            "validation": "",
            "validation_examples": 0,
            "vectors": "random",
            "vectors_license": "",
            "license": "",
        },
        report=ValidationReport(),
    )
    assert "| epoch chosen on | the last one; there was no validation set |" in card
    assert "| license of the vectors | none needed |" in card
    assert "| license of that data | that of its owner; it is not in the catalog |" in card
    assert "None: there was no validation set." in card
    assert "was not measured" in card
    assert "| training sentences dropped because they are in the validation set | 0 |" in card
    cut = render({"validation": ""})
    assert "| 1332 validation examples, split from the training data by sentence |" in cut


def test_file_names_are_escaped() -> None:
    assert "| a\\|b c.csv, 11186 examples |" in render({"train": "a|b\n c.csv"})


def test_code_of_the_card_runs(small_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = (small_bundle / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace("path/to/this/folder", str(small_bundle)), {})
    assert "AspectSentiment(text='soup'" in capsys.readouterr().out
    found = re.search(r"validation macro-F1 \| (\S+) \| (\S+) to (\S+) ", card)
    assert found
    middle, low, high = map(float, found.groups())
    assert low <= middle <= high
    config = json.loads((small_bundle / "config.json").read_text())
    assert "validation_intervals" in config
    assert (
        sum(map(sum, config["validation_confusion"])) == config["trained_on"]["validation_examples"]
    )
    assert capsar.__version__ in (small_bundle / "config.json").read_text()


@pytest.mark.data
def test_published_data_is_recognized_by_name_and_by_content(shared: Path) -> None:
    by_name = prepare_data(run_config({"data": {"train": "mams", "word_dim": 3}}).data).facts
    path = shared / "data" / "mams" / "MAMS-ATSA" / "train.xml"
    by_content = prepare_data(run_config({"data": {"train": str(path), "word_dim": 3}}).data).facts
    assert (by_name["dataset"], by_name["license"]) == ("mams", "Apache-2.0")
    own = {"train": "train.xml", "files_sha256": [sha256(path.read_bytes()).hexdigest()]}
    assert by_content == by_name | own
