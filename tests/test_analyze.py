"""The Analyzer: exact places, answers that depend on nothing but the text, any text at all."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hostile_text import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reviews import write_reviews

from capsar.analyze import Analyzer, find_aspects, load
from capsar.bundle import write_bundle
from capsar.config import run_config
from capsar.data.example import AspectSpan
from capsar.data.readers import read_examples
from capsar.errors import (
    ArtifactError,
    AspectNotFoundError,
    ConfigError,
    DataError,
    VersionMismatchError,
)
from capsar.labels import CLASSES, Polarity
from capsar.text import segment
from capsar.training.predictor import NetworkPredictor
from capsar.training.run import load_network, train

SIZES = {
    "units": 16,
    "primary_dim": 10,
    "intermediate_capsules": 6,
    "intermediate_dim": 12,
    "class_dim": 20,
}


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, trained for a few seconds on sentences of our own."""
    folder = tmp_path_factory.mktemp("analyzer")
    data = write_reviews(folder / "reviews.csv", 300)
    content = {
        "data": {"train": str(data), "word_dim": 20},
        "model": dict(SIZES),
        "train": {"max_epochs": 12, "patience": 12, "learning_rate": 0.01, "no_aspect_share": 0.3},
    }
    return train(run_config(content), folder / "run").bundle


@pytest.fixture(scope="session")
def analyzer(bundle: Path) -> Analyzer:
    return load(bundle)


def test_given_aspects_are_classified(analyzer: Analyzer) -> None:
    text = "The soup was awful on day 3, but I found the staff rather perfect."
    (answers,) = analyzer.classify([text], [["soup", AspectSpan(45, 50)]])
    assert [(a.text, a.start, a.end) for a in answers] == [("soup", 4, 8), ("staff", 45, 50)]
    assert answers[0].polarity is Polarity.NEGATIVE
    assert answers[0].polarity == max(answers[0].scores, key=answers[0].scores.__getitem__)
    again, nothing = analyzer.classify([text, text], ["soup", []])
    assert again[0].scores == pytest.approx(answers[0].scores, abs=1e-5)
    assert nothing == []
    assert set(answers[0].as_dict()) == {"text", "start", "end", "polarity", "scores"}


def test_the_analyzer_says_what_the_network_says(analyzer: Analyzer, bundle: Path) -> None:
    examples = list(read_examples(bundle.parent.parent / "reviews.csv"))
    network = NetworkPredictor(*load_network(bundle))
    ours, theirs = analyzer.predict_lengths(examples), network.predict_lengths(examples)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_explanations_sum_to_the_lengths(analyzer: Analyzer) -> None:
    text = "The soup was awful, truly!"
    for aspect in (None, "soup"):
        explanation = analyzer.explain(text, aspect)
        words = [text[start:end] for start, end in explanation.words]
        assert words == ["The", "soup", "was", "awful", ",", "truly", "!"]
        for polarity in CLASSES:
            shares = explanation.because[polarity]
            assert sum(shares) == pytest.approx(explanation.lengths[polarity], abs=1e-4)
            assert all(-1.001 <= score <= 1.001 for score in explanation.about[polarity])


def test_streams_answer_in_order_and_read_no_further_than_they_must(analyzer: Analyzer) -> None:
    texts = [f"The soup was {'very ' * (i % 7)}great on day {i}." for i in range(2500)]
    asked = 0

    def source() -> object:
        nonlocal asked
        for text in texts:
            asked += 1
            yield text, "soup"

    stream = analyzer.classify_stream(source())  # type: ignore[arg-type]
    first = next(stream)
    assert asked == 1024
    answers = [first, *stream]
    assert len(answers) == len(texts)
    for index in (0, 1, 999, 1024, 2499):
        alone = analyzer.classify([texts[index]], ["soup"])[0][0]
        for polarity in CLASSES:
            assert answers[index][0].scores[polarity] == pytest.approx(
                alone.scores[polarity], abs=1e-5
            )


def test_wrong_questions_are_refused(analyzer: Analyzer) -> None:
    with pytest.raises(AspectNotFoundError, match="'dog' does not occur"):
        analyzer.classify(["The cat."], ["dog"])
    with pytest.raises(DataError, match="2 texts need as many aspects, got 1"):
        analyzer.classify(["a", "b"], ["a"])
    with pytest.raises(DataError, match="ends outside the text"):
        analyzer.classify(["abc"], [AspectSpan(0, 9)])
    with pytest.raises(DataError, match="must be a string, got int"):
        analyzer.analyze([7])  # type: ignore[list-item]
    with pytest.raises(DataError, match="string or an AspectSpan, got int"):
        analyzer.classify(["a"], [[7]])  # type: ignore[list-item]


def test_wrong_settings_are_refused(bundle: Path) -> None:
    with pytest.raises(ConfigError, match="threads must be from 1 to"):
        load(bundle, threads=0)
    with pytest.raises(ConfigError, match="Providers"):
        load(bundle, providers=["NoSuchProvider"])
    with pytest.raises(ArtifactError, match="is not a bundle"):
        load(bundle.parent / "nowhere")


@pytest.mark.parametrize("name", ["encoder.onnx", "capsules.onnx"])
def test_a_graph_that_is_none_is_named(bundle: Path, tmp_path: Path, name: str) -> None:
    own = ("config.json", "manifest.json")
    files = {p.name: p.read_bytes() for p in bundle.iterdir() if p.name not in own}
    write_bundle(tmp_path / "b", {}, files | {name: b"not a graph"})
    with pytest.raises(ArtifactError, match=f"{name} of the bundle .* cannot be loaded"):
        load(tmp_path / "b")
    del files[name]
    write_bundle(tmp_path / "c", {}, files)
    with pytest.raises(ArtifactError, match=f"has no {name}"):
        load(tmp_path / "c")


def test_a_model_of_another_idea_of_a_word_is_refused(bundle: Path, tmp_path: Path) -> None:
    own = ("config.json", "manifest.json")
    files = {p.name: p.read_bytes() for p in bundle.iterdir() if p.name not in own}
    write_bundle(tmp_path / "b", {"segmentation": "syllables-9"}, files)
    with pytest.raises(VersionMismatchError, match="cut by 'syllables-9'"):
        load(tmp_path / "b")


def check_places(analyzer: Analyzer, text: str) -> None:
    for answer in analyzer.analyze([text])[0]:
        assert text[answer.start : answer.end] == answer.text
        assert answer.text


@settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(text=st.text(st.characters(codec=None, categories=None)))
def test_any_text_is_answered(analyzer: Analyzer, text: str) -> None:
    check_places(analyzer, text)


def test_hostile_texts_are_answered_in_place(analyzer: Analyzer) -> None:
    generator = random.Random(0)
    texts = ["".join(generator.choices(HOSTILE, k=generator.randrange(14))) for _ in range(20_000)]
    texts += ["", " ", "\0" * 50, "x" * 1_000_000, "\r\n" * 500, "!" * 20_000]
    for text, answers in zip(texts, analyzer.analyze_stream(texts), strict=True):
        for answer in answers:
            assert text[answer.start : answer.end] == answer.text


def test_threads_share_one_analyzer(analyzer: Analyzer) -> None:
    opinions = ("great", "awful", "plain")
    texts = [f"The soup was {opinions[i % 3]} on day {i}{' again' * (i % 5)}." for i in range(300)]
    serial = analyzer.analyze(texts)
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(analyzer.analyze, texts) for _ in range(32)]
        assert all(job.result() == serial for job in jobs)


def test_aspects_are_found_by_hand() -> None:
    """Capsules .9 and .6 are active; the third is not, whatever it says."""
    text = "Cold soup , nice big room !"
    words = segment(text)
    lengths = np.array([0.9, 0.1, 0.6], dtype=np.float32)
    about = np.array(
        [
            [0.1, 0.8, 0.9, 0.0, 0.0, 0.5, 0.9],
            [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9],
            [0.1, 0.9, 0.0, 0.2, 0.7, 0.8, 0.0],
        ],
        dtype=np.float32,
    )
    found = find_aspects(text, words, lengths, about, threshold=0.5)
    # "soup": .72 against .54; "room": .45 against .48, so it goes with "big"; no punctuation.
    assert [(a.text, a.polarity) for a in found] == [("soup", "negative"), ("big room", "positive")]
    none_active = find_aspects(text, words, lengths / 10, about, threshold=0.5)
    assert {a.polarity for a in none_active} == {Polarity.NEGATIVE}
    assert find_aspects("", [], lengths, about, threshold=0.5) == []


def test_no_torch_and_no_socket_are_needed(bundle: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
def forbid(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(forbid)
import capsar
print(capsar.load({str(bundle)!r}).classify(["The soup was awful."], ["soup"])[0][0].polarity)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("negative", "neutral", "positive")


def test_opened_sentences_are_explained_ones(analyzer: Analyzer) -> None:
    texts = ["The soup was great.", "", *HOSTILE, "I found the pool rather cold, but the staff ok."]
    opened = analyzer.open_sentences(texts)
    assert len(opened) == len(texts)
    for text, found in zip(texts, opened, strict=True):
        alone = analyzer.explain(text)
        assert found.scores.shape == (len(CLASSES), len(segment(text)))
        assert found.lengths == pytest.approx(list(alone.lengths.values()), abs=1e-5)
        expected = np.array(list(alone.about.values())).reshape(found.scores.shape)
        assert found.scores == pytest.approx(expected, abs=1e-5)
