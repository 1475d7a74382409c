"""The opinion head: graph equal to network, training on a bundle, decoding, and metrics by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from families import make_bundle
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from synthetic_reviews import write_reviews

from capsar import AspectSpan, Example, load
from capsar.bundle import CONFIG, MANIFEST, OPINIONS, THEMES, open_bundle, write_bundle
from capsar.config import run_config
from capsar.errors import DataError
from capsar.evaluation.opinions import evaluate_opinions
from capsar.inference.decoding import (
    MAX_DISTANCE,
    OPINION_WINDOW,
    aspect_distances,
    decode_opinions,
    decode_spans,
    opinion_window,
    span_scores,
)
from capsar.inference.engine import Engine
from capsar.inference.inputs import Request
from capsar.model.network import Capsar
from capsar.model.opinion_head import OpinionHead
from capsar.model.span_head import gather_first
from capsar.themes.matcher import HEAD
from capsar.tokenizer import first_subwords, tokenize_words, words_within
from capsar.training.batches import collate, encode_examples
from capsar.training.export import export_opinions, store_int8
from capsar.training.initialize import fine_tune_settings, load_network
from capsar.training.opinions import OpinionExample, add_opinion_head, read_opinions
from capsar.training.trainer import train

NOUNS = ("soup", "waiter", "screen", "battery", "room", "bread")
GOOD, BAD = ("superb", "so lovely", "great"), ("cold", "not warm", "awful")


def write_example(noun: str, opinion: str, other: str) -> OpinionExample:
    text = f"The {noun} was {opinion} , we paid for the {other} ."
    start = text.index(opinion)
    return OpinionExample(
        text, AspectSpan(4, 4 + len(noun)), (AspectSpan(start, start + len(opinion)),)
    )


EXAMPLES = [
    write_example(noun, opinion, NOUNS[(number + 1) % 6])
    for number, noun in enumerate(NOUNS)
    for opinion in (*GOOD, *BAD)
]


@pytest.fixture(scope="module")
def with_head(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("opinions") / "bundle"
    metrics = add_opinion_head(small_bundle, out, EXAMPLES * 8, EXAMPLES, epochs=10)
    assert metrics.f1 > 0.6  # many of these words are unknown to the tiny network
    return out


def test_graph_equals_network() -> None:
    torch.manual_seed(1)
    head = OpinionHead(hidden_dim=10, units=7).eval()
    generator = np.random.default_rng(2)
    states = generator.normal(size=(2, 9, 10)).astype(np.float32)
    first = np.array([[0, 2, 3, 5, 8, 0], [1, 2, 4, 0, 0, 0]])
    word_mask = np.array([[True] * 5 + [False], [True] * 3 + [False] * 3])
    sentence = np.array([1, 0, 0])
    aspect = np.zeros((3, 6), dtype=bool)
    aspect[0, 1] = aspect[1, 2:4] = aspect[2, 0] = True
    attributions = generator.normal(size=(3, 3, 6)).astype(np.float32)
    start = 6 * sentence[:, None]
    feeds = {
        "states": states,
        "first_subwords": first,
        "positions": start + np.arange(6) * word_mask[sentence],
        "mask": word_mask[sentence],
        "aspect_words": start + np.array([[1, 0], [2, 3], [0, 0]]),
        "aspect_weights": np.array([[1, 0], [0.5, 0.5], [1, 0]], np.float32),
        "distances": aspect_distances(aspect),
        "attributions": attributions,
    }
    words = torch.from_numpy(np.stack([states[row, first[row]] for row in range(2)]))[sentence]
    inputs = (aspect, feeds["distances"], attributions, word_mask[sentence])
    expected = head(words * torch.from_numpy(word_mask[sentence])[..., None],
                    *map(torch.from_numpy, inputs)).detach().numpy()  # fmt: skip
    graph = export_opinions(head)
    for content, tolerance in ((graph, 1e-5), (store_int8(graph), 0.1)):
        session = onnxruntime.InferenceSession(content)
        found = session.run(["tags"], feeds)[0]
        for row, mask in enumerate(word_mask[sentence]):
            np.testing.assert_allclose(found[row][mask], expected[row][mask], atol=tolerance)


def test_distances_by_hand() -> None:
    aspect = np.array([[False, False, True, False, False, False, True]])
    assert (aspect_distances(aspect) - MAX_DISTANCE).tolist() == [[-2, -1, 0, 1, 2, -1, 0]]
    far = np.zeros((1, 60), dtype=bool)
    far[0, 0] = True
    assert aspect_distances(far).max() == 2 * MAX_DISTANCE


def test_words_of_the_aspect_are_in_no_phrase() -> None:
    logits = np.array([[0, 9, 0], [0, 0, 9], [0, 4, 9], [9, 0, 0]], np.float32)
    allowed = np.array([True, False, True, True])
    (found,) = decode_opinions(logits[None], allowed[None], 0.0)
    assert [span for span, _ in found] == [(0, 1), (2, 3)]
    assert all(0 < score <= 1 for _, score in found)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(-2, 2))
def test_phrases_of_several_aspects_are_decoded_like_spans(seed: int, bias: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, (4, 7, 3)).astype(np.float32)
    found = decode_opinions(logits, np.ones((4, 7), dtype=bool), bias)
    for own, some in zip(logits, found, strict=True):
        spans = decode_spans(own, bias)
        assert [span for span, _ in some] == spans
        expected = span_scores(own, spans, bias)
        np.testing.assert_allclose([score for _, score in some], expected, rtol=1e-5)


def test_long_sentences_are_read_around_the_aspect(with_head: Path) -> None:
    """In a long sentence, the tags are those of the words around the aspect alone."""
    example = EXAMPLES[0]
    filler = "we paid for the room and "
    text = filler * 10 + example.text[:-1] + filler * 10
    start = text.index("soup")
    engine = Engine(open_bundle(with_head))
    words = tokenize_words(text)
    aspect = (AspectSpan(start, start + 4),)
    first = words_within(words, start, start + 4)[0]
    window = opinion_window(len(words), first)
    assert (len(window), first - window.start) == (OPINION_WINDOW, OPINION_WINDOW // 2)
    (whole,) = engine.predict([Request(text, words, [aspect])], with_opinions=True)
    assert whole.opinions is not None
    assert all(window.start <= s < e <= window.stop for (s, e), _ in whole.opinions[0])
    assert opinion_window(len(words), 0) == range(OPINION_WINDOW)
    assert opinion_window(len(words), len(words) - 1).stop == len(words)


def test_metrics_by_hand() -> None:
    found = [[(0, 1), (3, 5)], [], [(2, 3)]]
    gold = [[(0, 1), (4, 6)], [(7, 8)], []]
    metrics = evaluate_opinions(found, gold)
    assert (metrics.precision, metrics.recall) == (1 / 3, 1 / 3)
    assert metrics.overlap_f1 == pytest.approx(2 / 3)
    assert metrics.num_aspects == 3
    assert evaluate_opinions([], []).f1 == 0


def test_analyzer_returns_phrases_with_offsets(with_head: Path, small_bundle: Path) -> None:
    analyzer, without = load(with_head), load(small_bundle)
    texts = [example.text for example in EXAMPLES]
    aspects = [[example.span] for example in EXAMPLES]
    plain = without.classify(texts, aspects)
    right = 0
    for text, example, (found,), (before,) in zip(
        texts, EXAMPLES, analyzer.classify(texts, aspects), plain, strict=True
    ):
        assert (found.polarity, found.scores) == (before.polarity, before.scores)
        assert before.opinions is None
        assert found.opinions is not None
        for opinion in found.opinions:
            assert text[opinion.start : opinion.end] == opinion.text
            assert opinion.confidence is not None
        offsets = [AspectSpan(opinion.start, opinion.end) for opinion in found.opinions]
        right += offsets == list(example.phrases)
        assert (found.polarity == "neutral") <= (not found.opinions)
    assert right > 0
    assert "opinions" in analyzer.classify(texts[:1], aspects[:1])[0][0].as_dict()
    assert "opinions" not in plain[0][0].as_dict()


def test_phrases_do_not_depend_on_neighbors(with_head: Path) -> None:
    analyzer = load(with_head)
    texts = [example.text for example in EXAMPLES]
    together = analyzer.analyze(texts)
    alone = [analyzer.analyze([text])[0] for text in texts]
    for some, others in zip(together, alone, strict=True):
        assert [(a.text, [o.text for o in a.opinions or ()]) for a in some] == [
            (a.text, [o.text for o in a.opinions or ()]) for a in others
        ]


def test_longer_neighbors_without_an_aspect_change_nothing(with_head: Path) -> None:
    engine = Engine(open_bundle(with_head))
    longest = EXAMPLES[0].text.replace(" .", " and so on .")
    texts = [example.text for example in EXAMPLES[:3]]
    requests = [Request.whole_text(text) for text in (*texts, longest)]

    def find(request: Request, _: object) -> list[tuple[int, int]]:
        return [] if request.text == longest else [(1, 2)]

    together = [found.opinions for found in engine.extract(requests, find)]
    alone = [engine.extract([request], find)[0].opinions for request in requests]
    assert sum(len(phrases) for own in together for phrases in own or ()) > 0
    assert [[[span for span, _ in one] for one in own or ()] for own in together] == [
        [[span for span, _ in one] for one in own or ()] for own in alone
    ]


def test_phrases_of_all_sentences_with_an_aspect_are_joined(with_head: Path) -> None:
    text = "The soup was cold , we paid for the bread . The soup was awful , we paid for the room ."
    (found,) = load(with_head).classify([text], ["soup"])[0]
    first, second = (
        load(with_head).classify([text], [AspectSpan(start, start + 4)])[0][0]
        for start in (4, text.rindex("soup"))
    )
    same = [each for each in (first, second) if each.polarity == found.polarity]
    expected = sorted(o.start for each in same for o in each.opinions or ())
    assert [opinion.start for opinion in found.opinions or ()] == expected


def test_head_can_be_replaced(with_head: Path, tmp_path: Path) -> None:
    add_opinion_head(with_head, tmp_path / "again", EXAMPLES, EXAMPLES, epochs=1)
    assert OPINIONS in open_bundle(tmp_path / "again").files
    assert "opinion" in open_bundle(tmp_path / "again").config["calibration"]


def test_fine_tuning_keeps_the_heads(with_head: Path, tmp_path: Path) -> None:
    bundle = open_bundle(with_head)
    kept = [name for name in bundle.files if name not in (CONFIG, MANIFEST)]
    files = {name: bundle.path(name).read_bytes() for name in kept}
    themes = save({name: np.ones(1, np.float32) for name in HEAD})
    write_bundle(tmp_path / "themed", bundle.config, files | {THEMES: themes})
    sections = fine_tune_settings(str(tmp_path / "themed"))
    sections["train"] |= {"max_epochs": 1, "learning_rate": 1e-9}
    sections["data"] = {"train": str(write_reviews(tmp_path / "reviews.csv", 60))}
    tuned = open_bundle(train(run_config(sections), tmp_path / "run").bundle)
    before = open_bundle(with_head)
    assert tuned.path(THEMES).read_bytes() == themes
    assert tuned.path(OPINIONS).read_bytes() == before.path(OPINIONS).read_bytes()
    assert tuned.config["opinion_bias"] == before.config["opinion_bias"]
    opinion = before.config["calibration"]["opinion"]
    assert tuned.config["calibration"]["opinion"] == opinion
    texts, aspects = [EXAMPLES[0].text], [[EXAMPLES[0].span]]
    (found,), (own,) = (load(b.folder).classify(texts, aspects)[0] for b in (before, tuned))
    assert found.opinions is not None
    assert [o.text for o in own.opinions or ()] == [o.text for o in found.opinions]


def test_a_head_needs_examples(small_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no opinion phrases"):
        add_opinion_head(small_bundle, tmp_path / "out", [], EXAMPLES)


@pytest.mark.parametrize(
    "line", ["{", '{"aspects": 3}', '{"text": "a", "aspects": [{"opinions": 1}]}']
)
def test_malformed_records_are_reported(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x", "aspects": []}) + "\n" + line + "\n")
    with pytest.raises(DataError, match="line 2"):
        read_opinions(path)


@pytest.mark.parametrize("family", ["bigru", "bert"])
def test_states_are_those_of_the_first_subword_of_each_word(family: str, tmp_path: Path) -> None:
    texts = [
        "The soup was unforgettably salty, but our waiter didn't mind.",
        "Fine.",
        "No. 1 soup!",
    ]
    bundle = make_bundle(family, tmp_path)
    states = Engine(open_bundle(bundle)).read_states(list(map(Request.whole_text, texts)))
    model, tokenizer = load_network(bundle)
    assert isinstance(model, Capsar)
    for text, found in zip(texts, states, strict=True):
        batch = collate(encode_examples([Example(text)], tokenizer))
        with torch.inference_mode():
            own = model.encode(batch, model.embed(batch.ids))
        starts = torch.from_numpy(first_subwords(batch.words.numpy(), len(tokenize_words(text))))
        expected = gather_first(own, starts)[0].numpy()
        assert found.shape == (len(tokenize_words(text)), model.encoder.hidden_dim)
        np.testing.assert_allclose(found, expected, atol=1e-5)
