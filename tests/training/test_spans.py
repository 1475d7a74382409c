"""The span head: its loss, its graph, and bundles that have one."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from synthetic_reviews import write_reviews
from test_network import examples, network, pad
from tiny_bert import write_tiny_bert

from capsar.bundle import SPANS, open_bundle
from capsar.config import ModelConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ConfigError
from capsar.evaluation.spans import TermSentence, evaluate_spans, term_sentences
from capsar.inference.analyzer import load
from capsar.inference.decoding import decode_spans
from capsar.model.network import Batch, Capsar
from capsar.schema import AspectSpan
from capsar.training.batches import EncodedExample, collate
from capsar.training.dataset import Splits, prepare_data
from capsar.training.export import export_spans
from capsar.training.initialize import load_network
from capsar.training.trainer import export_bundle, train
from capsar.training.validation import NetworkPredictor, TaggedSentences, tag_sentences

SIZES = {"units": 16, "primary_dim": 10, "intermediate_capsules": 6, "intermediate_dim": 12,
         "class_dim": 20}  # fmt: skip
PLAIN = ["We came on day {}.", "It was {} o'clock, and I left.", "I found it after {} days again."]


def tagged(encoded: list[EncodedExample], seed: int = 3) -> list[EncodedExample]:
    generator = np.random.default_rng(seed)
    return [
        replace(e, tags=tuple(generator.integers(0, 3, len(e.ids)).tolist()), tag_weight=0.5)
        for e in encoded
    ]


def perturbed() -> Capsar:
    model = network(span_weight=1.0)
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


@torch.no_grad()
def predict_tags(model: Capsar, batch: Batch) -> torch.Tensor:
    found = model(batch).tags
    assert found is not None
    return found


def test_tags_do_not_depend_on_batch_or_padding() -> None:
    model, encoded = perturbed(), tagged(examples(30))
    together = predict_tags(model, collate(encoded))
    padded = predict_tags(model, pad(collate(encoded), 5))
    for row, example in enumerate(encoded):
        size = len(example.ids)
        alone = predict_tags(model, collate([example]))[0]
        torch.testing.assert_close(together[row, :size], alone[:size], atol=1e-5, rtol=0)
        torch.testing.assert_close(padded[row, :size], alone[:size], atol=1e-5, rtol=0)


def test_head_changes_neither_the_capsules_nor_their_initial_weights() -> None:
    with_head, without = network(span_weight=1.0), network()
    for name, value in without.state_dict().items():
        assert torch.equal(with_head.state_dict()[name], value)
    batch = collate(examples(20))
    with torch.no_grad():
        assert torch.equal(with_head.eval()(batch).lengths, without.eval()(batch).lengths)
        assert with_head(batch).tags is None  # the batch has no tags


def test_example_without_polarity_trains_the_head_only() -> None:
    model = perturbed()
    labeled = tagged(examples(6))
    unlabeled = [replace(e, polarity=-1, first_words=(), aspect_words=()) for e in labeled]
    batch = collate(unlabeled)
    output = model(batch)
    losses = model.loss(batch, output)
    (grad,) = torch.autograd.grad(losses.sum(), model.sentiment.weight, allow_unused=True)
    assert grad is None or not grad.any()
    logits = output.tags
    assert logits is not None
    log_shares = logits[0].log_softmax(-1)
    first = [-log_shares[word, tag] for word, tag in enumerate(labeled[0].tags or ())]
    torch.testing.assert_close(losses[0], 0.5 * torch.stack(first).mean())
    # With a polarity, both losses are added.
    both = collate(labeled)
    plain = replace(both, first_subwords=None, tags=None, tag_weights=None)
    of_polarity = model.loss(plain, model(plain))
    no_polarity = replace(both, polarity=torch.full_like(both.polarity, -1))
    of_tags = model.loss(no_polarity, model(both))
    torch.testing.assert_close(model.loss(both, model(both)), of_polarity + of_tags)


def test_graph_equals_the_network() -> None:
    model = perturbed()
    assert model.spans is not None
    empty = EncodedExample((), (), (), -1, tags=())
    batch = collate([*tagged(examples(30)), empty])
    assert batch.first_subwords is not None
    graph = onnxruntime.InferenceSession(export_spans(model, model.spans))
    with torch.no_grad():
        states = model.encode(batch, model.embed(batch.ids))
        output = model._route(batch.without_aspect(), states, model.embed(batch.ids))
        similarity = model.similarity(batch, output)
    word_mask = (batch.words >= 0).numpy()
    feeds = {
        "states": states.numpy(),
        "first_subwords": batch.first_subwords.numpy(),
        "word_mask": word_mask,
        "similarity": np.where(word_mask[:, None], similarity.numpy(), np.float32(0)),
        "lengths": output.lengths.numpy(),
    }
    (found,) = graph.run(["tags"], feeds)
    expected = predict_tags(model, batch).numpy()
    np.testing.assert_allclose(found[word_mask], expected[word_mask], atol=1e-4)


@pytest.mark.parametrize("more", [{"head": "bert-pair", "aspect_encoding": "pair"},
                                  {"aspect_encoding": "pair"}])  # fmt: skip
def test_head_requires_capsules_and_an_encoder_that_does_not_read_the_aspect(
    more: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match="span_weight must be 0 unless"):
        ModelConfig(encoder="tiny", span_weight=1.0, **more)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="span_weight must be 0 or more"):
        ModelConfig(span_weight=-1.0)


# The tests below train for seconds.


def write_data(path: Path) -> Path:
    """Write sentences with two labeled aspects, one in four a conflict, and some without any."""
    one = write_reviews(path.with_name("one.csv"), 220)
    with one.open(newline="") as stream, path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "aspect", "polarity"])
        for number, row in enumerate(csv.DictReader(stream)):
            other = row["text"].partition("found the ")[2].partition(" rather")[0]
            polarity = "conflict" if number % 4 == 0 else "positive"
            writer.writerow([row["text"], row["aspect"], row["polarity"]])
            writer.writerow([row["text"], other, polarity])
            if number % 3 == 0:
                writer.writerow([PLAIN[number % 9 // 3].format(number), "", ""])
    return path


@pytest.fixture(scope="module", params=["bigru", "bert"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    model: dict[str, object] = SIZES | {"span_weight": 1.0}
    train_settings: dict[str, object] = {"max_epochs": 6, "learning_rate": 0.01}
    if request.param == "bert":
        model["encoder"] = str(write_tiny_bert(folder / "tiny-bert"))
        train_settings |= {"encoder_learning_rate": 0.002, "warmup_ratio": 0.1}
    data = write_data(folder / "reviews.csv")
    config = run_config({
        "data": {"train": str(data), "word_dim": 20}, "model": model, "train": train_settings,
    })  # fmt: skip
    return train(config, folder / "run").bundle


def splits_of(bundle: Path) -> Splits:
    data = {"train": str(bundle.parent.parent / "reviews.csv"), "word_dim": 20}
    return prepare_data(run_config({"data": data}).data).splits


def test_sentences_without_terms_are_split_too(trained: Path) -> None:
    splits = splits_of(trained)
    parts = (splits.train_sentences, splits.validation_sentences)
    texts = [{sentence.text for sentence in part} for part in parts]
    assert not texts[0] & texts[1]
    assert {e.text for e in splits.train} <= texts[0]
    assert {e.text for e in splits.validation} <= texts[1]
    for part in parts:
        assert any(not s.terms for s in part)
        assert any(None in s.terms.values() for s in part)  # a conflict is a span without a class
    everything = splits.training_examples(with_unlabeled=True)
    unlabeled = {e.text for e in everything if e.polarity is None}
    assert unlabeled == texts[0] - {e.text for e in splits.train}


def test_bundle_extracts_the_same_aspects_as_the_network(trained: Path) -> None:
    """Spans and polarities of the graphs against those of the network."""
    analyzer, (model, tokenizer) = load(trained), load_network(trained)
    sentences = splits_of(trained).validation_sentences
    texts = [sentence.text for sentence in sentences]
    found = analyzer.analyze(texts)
    predicted = tag_sentences(NetworkPredictor(model, tokenizer), sentences)
    config = open_bundle(trained).config
    spans = predicted.spans(config["span_bias"], config["span_threshold"])
    assert predicted.characters(spans) == [[(a.start, a.end) for a in some] for some in found]
    metrics = evaluate_spans(sentences, found)
    assert metrics.spans.f1 > 0.6
    assert metrics.false_per_100 is not None
    assert metrics.false_per_100 < 20
    for text, some in zip(texts, found, strict=True):
        alone = analyzer.analyze([text])[0]  # the same as in a batch
        assert [(a.start, a.end, a.polarity) for a in alone] == [
            (a.start, a.end, a.polarity) for a in some
        ]
        for aspect in some:
            assert text[aspect.start : aspect.end] == aspect.text
            span = AspectSpan(aspect.start, aspect.end)
            (classified,) = analyzer.classify([text], [[span]])[0]
            assert classified.polarity == aspect.polarity
            assert list(classified.scores.values()) == pytest.approx(list(aspect.scores.values()),
                                                                abs=1e-5)  # fmt: skip


def test_a_limit_of_false_aspects_is_met_with_the_best_f1() -> None:
    """One word per sentence: terms of two likelihoods, and a likely word that is no term."""
    odds = {"soup": 4.0, "lamp": 1.0, "work": 2.0, "rest": -3.0}
    sentences = [
        TermSentence(f"{word} {word}", {(0, 4): None, (5, 9): None} if word != other else {})
        for word, other in (("soup", ""), ("lamp", ""), ("work", "work"), ("rest", "rest"))
    ]
    logits = [
        np.array([[-odds[s.text[:4]], 0, -9], [3 - 2 * odds[s.text[:4]], 0, -9]], np.float32)
        for s in sentences
    ]
    logits[1][1] = (-1, 0, -9)
    tagged = TaggedSentences(sentences, [[(0, 4), (5, 9)]] * 4, logits)
    free = tagged.choose()
    assert free[1] == 0
    assert tagged.evaluate(tagged.spans(*free)) == (pytest.approx(2 * 4 / (4 + 6)), 100)
    bias, threshold = tagged.choose(max_false_aspects=20)
    assert threshold > 0
    found = tagged.spans(bias, threshold)
    assert tagged.evaluate(found) == (pytest.approx(2 * 2 / (4 + 2)), 0)
    assert found == [[(0, 1), (1, 2)], [], [], []]


def test_both_extraction_modes_are_available(trained: Path) -> None:
    analyzer = load(trained)
    assert analyzer.modes == ("spans", "capsules")
    text = "We came on day 3."
    assert analyzer.analyze([text]) == analyzer.analyze([text], mode="spans") == [[]]
    assert analyzer.analyze([text], mode="capsules") != [[]]  # capsules always find a word
    for odd in ("", " ", "😀", "soup " * 3000):
        assert len(analyzer.analyze([odd, text])) == 2
    with pytest.raises(ConfigError, match="mode must be one of spans, capsules"):
        analyzer.analyze([text], mode="words")


def test_bundle_without_a_head_extracts_by_capsules(tmp_path: Path) -> None:
    content = {
        "data": {"train": str(write_reviews(tmp_path / "reviews.csv", 30)), "word_dim": 8},
        "train": {"max_epochs": 1},
    }
    analyzer = load(train(run_config(content), tmp_path / "run").bundle)
    assert analyzer.modes == ("capsules",)
    text = ["The soup was cold."]
    assert analyzer.analyze(text) == analyzer.analyze(text, mode="capsules")
    with pytest.raises(ConfigError, match="has no span head"):
        analyzer.analyze(text, mode="spans")


def test_head_is_exported_in_32_and_8_bits(trained: Path, tmp_path: Path) -> None:
    export_bundle(trained, tmp_path / "again")
    assert (tmp_path / "again" / SPANS).read_bytes() == (trained / SPANS).read_bytes()
    export_bundle(trained, tmp_path / "small", store="int8")
    sentences = splits_of(trained).validation_sentences
    found = load(tmp_path / "small").analyze([sentence.text for sentence in sentences])
    assert evaluate_spans(sentences, found).spans.f1 > 0.6


def test_gold_terms_are_those_of_the_file(trained: Path) -> None:
    splits = splits_of(trained)
    everything = term_sentences(read_examples(trained.parent.parent / "reviews.csv"))
    split = {s.text: s.terms for s in (*splits.train_sentences, *splits.validation_sentences)}
    assert split == {s.text: s.terms for s in everything}
    assert decode_spans(np.zeros((0, 3), np.float32)) == []
