"""The Analyzer: exact offsets, predictions that depend only on the text, arbitrary texts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from families import FAMILIES, ON_OPENVINO, make_bundle
from hostile_text import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_export import all_nodes

from capsar.bundle import write_bundle
from capsar.data.readers import read_examples
from capsar.errors import (
    ArtifactError,
    AspectNotFoundError,
    ConfigError,
    DataError,
    MissingExtraError,
    VersionMismatchError,
)
from capsar.inference.analyzer import Analyzer, load
from capsar.inference.decoding import decode_capsules
from capsar.inference.inputs import PaddedBatch, Request, batch_by_length
from capsar.schema import CLASSES, AspectSpan, Polarity
from capsar.tokenizer import tokenize_words
from capsar.training.initialize import load_network
from capsar.training.validation import NetworkPredictor


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture(
    scope="session",
    params=[
        *((family, "onnxruntime") for family in FAMILIES),
        *((family, "openvino") for family in ON_OPENVINO),
    ],
    ids="-".join,
)
def family(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each network family and storage option, and its backend."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def bundle(folder: Path, family: tuple[str, str]) -> Path:
    return make_bundle(family[0], folder)


@pytest.fixture(scope="session")
def analyzer(bundle: Path, family: tuple[str, str]) -> Analyzer:
    return load(bundle, backend=family[1])


@pytest.fixture(scope="session")
def atol(family: tuple[str, str]) -> float:
    """The tolerance of scores between batches: rounding only."""
    return 1e-5 if family[1] == "onnxruntime" else 2e-3


def test_given_aspects_are_classified(analyzer: Analyzer, atol: float) -> None:
    text = "The soup was awful on day 3, but I found the staff rather perfect."
    (found,) = analyzer.classify([text], [["soup", AspectSpan(45, 50)]])
    assert [(a.text, a.start, a.end) for a in found] == [("soup", 4, 8), ("staff", 45, 50)]
    assert found[0].polarity == max(found[0].scores, key=found[0].scores.__getitem__)
    again, nothing = analyzer.classify([text, text], ["soup", []])
    assert again[0].scores == pytest.approx(found[0].scores, abs=atol)
    assert nothing == []
    assert set(found[0].as_dict()) == {
        "text", "start", "end", "polarity", "scores", "confidence", "aspect_confidence",
        "abstained",
    }  # fmt: skip


def test_unsupported_backends_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="onnxruntime, openvino; got 'tpu'"):
        load(make_bundle("bert", folder), backend="tpu")
    with pytest.raises(ConfigError, match="for transformers"):
        load(make_bundle("bigru", folder), backend="openvino")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match="capsar\\[openvino\\]"):
        load(make_bundle("bert", folder), backend="openvino")


def test_a_trained_model_predicts_what_it_learned(folder: Path) -> None:
    text = "The soup was awful on day 3, but I found the staff rather perfect."
    ((found,),) = load(make_bundle("bigru", folder)).classify([text], ["soup"])
    assert found.polarity is Polarity.NEGATIVE


def test_the_analyzer_matches_the_network(
    analyzer: Analyzer, bundle: Path, folder: Path, family: tuple[str, str]
) -> None:
    examples = list(read_examples(folder / "reviews.csv"))
    network = NetworkPredictor(*load_network(bundle))
    ours, theirs = analyzer.predict_lengths(examples), network.predict_lengths(examples)
    rounded = family[0].endswith("int8") or family[1] == "openvino"
    np.testing.assert_allclose(ours, theirs, atol=0.02 if rounded else 1e-4)


def test_predictions_depend_on_the_text_only(analyzer: Analyzer, folder: Path, atol: float) -> None:
    """Not on batch, order or padding; the longest sentences need several windows."""
    examples = list(read_examples(folder / "reviews.csv"))[:60]
    texts = [f"{e.text} Again. " * (1 + 7 * (i % 5 == 0)) for i, e in enumerate(examples)]
    aspects = [e.aspect for e in examples]
    together = analyzer.classify(texts, aspects)
    backwards = analyzer.classify(texts[::-1], aspects[::-1])[::-1]
    scored = analyzer.score_sentences(texts)
    for i, (text, aspect) in enumerate(zip(texts, aspects, strict=True)):
        for others in (analyzer.classify([text], [aspect])[0], backwards[i]):
            for polarity in CLASSES:
                expected = pytest.approx(others[0].scores[polarity], abs=atol)
                assert together[i][0].scores[polarity] == expected
        (alone,) = analyzer.score_sentences([text])
        np.testing.assert_allclose(scored[i].lengths, alone.lengths, atol=atol)
        np.testing.assert_allclose(scored[i].scores, alone.scores, atol=10 * atol)


def test_no_graph_quantizes_per_batch(bundle: Path) -> None:
    import onnx

    for name in ("encoder.onnx", "capsules.onnx"):
        nodes = {node.op_type for node in all_nodes(onnx.load(bundle / name).graph)}
        assert not {kind for kind in nodes if kind.startswith("Dynamic")}


def test_attributions_sum_to_the_lengths(analyzer: Analyzer) -> None:
    text = "The soup was awful, truly!"
    for aspect in (None, "soup"):
        explanation = analyzer.explain(text, aspect)
        words = [text[start:end] for start, end in explanation.words]
        assert words == ["The", "soup", "was", "awful", ",", "truly", "!"]
        for polarity in CLASSES:
            attributions = explanation.attributions[polarity]
            assert sum(attributions) == pytest.approx(explanation.lengths[polarity], abs=1e-4)
            assert len(explanation.aspect_scores[polarity]) == len(words)


def test_importance_is_the_drop_without_the_word(analyzer: Analyzer, atol: float) -> None:
    text = "The soup was cold , the staff kind ."
    found = analyzer.explain(text, "soup")
    words = [text[start:end] for start, end in found.words]
    for number, word in enumerate(words):
        rest = " ".join(words[:number] + words[number + 1 :])
        for polarity, scores in found.importance.items():
            if word == "soup":
                assert scores[number] == 0
                continue
            without = analyzer.explain(rest, "soup").lengths[polarity]
            assert scores[number] == pytest.approx(found.lengths[polarity] - without, abs=atol)


def test_neighbors_of_long_texts_share_their_importance(analyzer: Analyzer) -> None:
    text = "The soup was cold and the " + "very " * 60 + "kind staff came ."
    scores = analyzer.explain(text, "soup").importance[Polarity.NEGATIVE]
    assert len(scores) == 70
    assert scores[0] == scores[2] != scores[3]  # around the aspect
    assert len(analyzer.explain("", None).importance[Polarity.NEGATIVE]) == 0


def test_streams_keep_the_order_and_read_no_more_than_a_chunk_ahead(
    analyzer: Analyzer, atol: float
) -> None:
    texts = [f"The soup was {'very ' * (i % 7)}great on day {i}." for i in range(2500)]
    taken = 0

    def source() -> object:
        nonlocal taken
        for text in texts:
            taken += 1
            yield text, "soup"

    stream = analyzer.classify_stream(source())  # type: ignore[arg-type]
    first = next(stream)
    assert taken == 1024
    results = [first, *stream]
    assert len(results) == len(texts)
    for index in (0, 1, 1023, 1024, 2499):
        alone = analyzer.classify([texts[index]], ["soup"])[0][0]
        for polarity in CLASSES:
            assert results[index][0].scores[polarity] == pytest.approx(
                alone.scores[polarity], abs=atol
            )


def test_invalid_inputs_are_refused(analyzer: Analyzer) -> None:
    with pytest.raises(AspectNotFoundError, match="'dog' does not occur"):
        analyzer.classify(["The cat."], ["dog"])
    with pytest.raises(DataError, match="got 2 texts and 1 entries"):
        analyzer.classify(["a", "b"], ["a"])
    with pytest.raises(DataError, match="ends outside the text"):
        analyzer.classify(["abc"], [AspectSpan(0, 9)])
    with pytest.raises(DataError, match=r"must be a string, got 7 \(int\)"):
        analyzer.analyze([7])  # type: ignore[list-item]
    with pytest.raises(DataError, match="string or an AspectSpan, got int"):
        analyzer.classify(["a"], [[7]])  # type: ignore[list-item]


def test_invalid_settings_are_refused(bundle: Path) -> None:
    with pytest.raises(ConfigError, match="threads must be from 1 to"):
        load(bundle, threads=0)
    with pytest.raises(ConfigError, match="Providers"):
        load(bundle, providers=["NoSuchProvider"])
    with pytest.raises(ArtifactError, match="is not a bundle"):
        load(bundle.parent / "nowhere")


@pytest.mark.parametrize("name", ["encoder.onnx", "capsules.onnx"])
def test_an_invalid_graph_is_named(bundle: Path, tmp_path: Path, name: str) -> None:
    own = ("config.json", "manifest.json")
    files = {p.name: p.read_bytes() for p in bundle.iterdir() if p.name not in own}
    config = json.loads((bundle / "config.json").read_text())
    write_bundle(tmp_path / "b", config, files | {name: b"not a graph"})
    with pytest.raises(ArtifactError, match=f"{name} of the bundle .* cannot be loaded"):
        load(tmp_path / "b")
    del files[name]
    write_bundle(tmp_path / "c", config, files)
    with pytest.raises(ArtifactError, match=f"has no {name}"):
        load(tmp_path / "c")


def test_a_model_with_another_segmentation_is_refused(bundle: Path, tmp_path: Path) -> None:
    own = ("config.json", "manifest.json")
    files = {p.name: p.read_bytes() for p in bundle.iterdir() if p.name not in own}
    write_bundle(tmp_path / "b", {"segmentation": "syllables-9"}, files)
    with pytest.raises(VersionMismatchError, match="segmentation 'syllables-9'"):
        load(tmp_path / "b")


def check_offsets(analyzer: Analyzer, text: str) -> None:
    for aspect in analyzer.analyze([text])[0]:
        assert text[aspect.start : aspect.end] == aspect.text
        assert aspect.text


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec=None, categories=None)))
def test_any_text_is_accepted(analyzer: Analyzer, text: str) -> None:
    check_offsets(analyzer, text)


def test_offsets_of_hostile_texts(analyzer: Analyzer) -> None:
    generator = random.Random(0)
    texts = ["".join(generator.choices(HOSTILE, k=generator.randrange(14))) for _ in range(1_000)]
    texts += ["", " ", "\0" * 50, "x" * 1_000_000, "ab " * 20_000, "\r\n" * 500, "!" * 20_000]
    for text, aspects in zip(texts, analyzer.analyze_stream(texts), strict=True):
        for aspect in aspects:
            assert text[aspect.start : aspect.end] == aspect.text


def test_threads_can_share_one_analyzer(analyzer: Analyzer) -> None:
    opinions = ("great", "awful", "plain")
    texts = [f"The soup was {opinions[i % 3]} on day {i}{' again' * (i % 5)}." for i in range(100)]
    serial = analyzer.analyze(texts)
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(analyzer.analyze, texts) for _ in range(16)]
        assert all(job.result() == serial for job in jobs)


def test_decoded_capsules_by_hand() -> None:
    """The capsules of length .9 and .6 are active, the other is not."""
    text = "Cold soup , nice big room !"
    words = tokenize_words(text)
    lengths = np.array([0.9, 0.1, 0.6], dtype=np.float32)
    similarity = np.array(
        [
            [0.1, 0.8, 0.9, 0.0, 0.0, 0.5, 0.9],
            [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9],
            [0.1, 0.9, 0.0, 0.2, 0.7, 0.8, 0.0],
        ],
        dtype=np.float32,
    )
    found = decode_capsules(text, words, lengths, similarity, threshold=0.5)
    # "soup": .72 > .54; "room": .45 < .48, so it belongs to "big"; no punctuation.
    assert [(a.text, a.polarity) for a in found] == [("soup", "negative"), ("big room", "positive")]
    none_active = decode_capsules(text, words, lengths / 10, similarity, threshold=0.5)
    assert {a.polarity for a in none_active} == {Polarity.NEGATIVE}
    assert decode_capsules("", [], lengths, similarity, threshold=0.5) == []


def test_inference_needs_neither_torch_nor_sockets(bundle: Path, family: tuple[str, str]) -> None:
    text = "The soup was awful, and the battery life, again and again, rather great."
    code = f"""
import sys
for name in ("torch", "transformers", "onnx", "onnxscript", "accelerate"):
    sys.modules[name] = None
def forbid(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(forbid)
import capsar
analyzer = capsar.load({str(bundle)!r}, backend={family[1]!r})
print(repr((analyzer.classify([{text!r}], [["soup", "battery life"]]), analyzer.explain({text!r}))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    here = load(bundle, backend=family[1])
    same = (here.classify([text], [["soup", "battery life"]]), here.explain(text))
    assert done.stdout.strip() == repr(same)


def test_scored_sentences_match_explanations(analyzer: Analyzer, atol: float) -> None:
    texts = ["The soup was great.", "", *HOSTILE, "I found the pool rather cold, but the staff ok."]
    scored = analyzer.score_sentences(texts)
    assert len(scored) == len(texts)
    for text, found in zip(texts, scored, strict=True):
        alone = analyzer.explain(text)
        assert found.scores.shape == (len(CLASSES), len(tokenize_words(text)))
        assert found.lengths == pytest.approx(list(alone.lengths.values()), abs=atol)
        expected = np.array(list(alone.aspect_scores.values())).reshape(found.scores.shape)
        assert found.scores == pytest.approx(expected, abs=10 * atol)


def test_a_bundled_model_runs_on_openvino() -> None:
    """Its weights are stored as int8, and large enough for OpenVINO's int8 kernels."""
    texts = ["The soup was cold.", "The camera is superb, but the battery dies by noon.", "Fine."]
    analyzer = load("base", backend="openvino")
    alone = [analyzer.analyze([text])[0] for text in texts]
    results = zip(analyzer.analyze(texts), load("base").analyze(texts), alone, strict=True)
    for found, expected, by_itself in results:
        assert [(a.text, a.polarity) for a in found] == [(a.text, a.polarity) for a in expected]
        for one, other, single in zip(found, expected, by_itself, strict=True):
            assert one.scores == pytest.approx(other.scores, abs=0.01)
            assert one.scores == pytest.approx(single.scores, abs=2e-3)


def test_aspect_scores_are_the_dot_product_with_unit_reconstructions(folder: Path) -> None:
    """That is the cosine similarity times the norm of the word's vector."""
    analyzer = load(make_bundle("bigru", folder))
    engine, request = analyzer._engine, Request.whole_text("The soup was awful.")
    (found,) = engine.predict([request], ("similarity", "aspect_scores"))
    (encoding,) = engine.tokenizer.encode([request.tokens()], [[]])
    vectors = engine.encode(PaddedBatch.from_encodings([encoding])).word_vectors.numpy()[0]
    expected = found.scores["similarity"][0] * np.linalg.norm(vectors, axis=-1)
    np.testing.assert_allclose(found.scores["aspect_scores"][0], expected, rtol=1e-5)
    assert analyzer.explain(request.text).aspect_scores[Polarity.NEGATIVE] == pytest.approx(
        tuple(expected[0].tolist()), rel=1e-4
    )


@given(st.lists(st.integers(1, 600), max_size=300))
def test_batches_hold_every_sentence_once_with_little_padding(lengths: list[int]) -> None:
    batches = batch_by_length(lengths)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    for rows in batches:
        own = [lengths[row] for row in rows]
        padded = len(own) * max(own)
        assert len(own) <= 64
        assert padded <= 8192
        assert padded - sum(own) <= max(32, 0.05 * padded)


def test_sixteen_reviews_are_padded_less_than_a_tenth() -> None:
    lengths = [3, 5, 8, 11, 14, 18, 25, 41] * 16
    batches = batch_by_length(lengths)
    padded = sum(len(rows) * max(lengths[row] for row in rows) for rows in batches)
    assert padded < 1.1 * sum(lengths)
