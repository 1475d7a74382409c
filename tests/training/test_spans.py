"""The extraction head: trained with the capsules, exported, and answering as the network does."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from made_reviews import write_reviews
from test_network import examples, network, pad
from tiny_bert import write_tiny_bert

from capsar.analyze import load
from capsar.bundle import SPANS
from capsar.config import ModelConfig, run_config
from capsar.errors import ConfigError
from capsar.evaluation.extraction import judge_extraction, term_sentences
from capsar.model.batch import Batch
from capsar.model.network import Capsar
from capsar.tagging import find_spans
from capsar.training.batches import EncodedExample, collate
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import Prepared, prepare_data
from capsar.training.run import export_bundle, load_network, train
from capsar.training.span_graph import export_spans
from capsar.training.tune import dev_spans

SIZES = {"units": 16, "primary_dim": 10, "intermediate_capsules": 6, "intermediate_dim": 12,
         "class_dim": 20}  # fmt: skip
PLAIN = ["We came on day {}.", "It was {} o'clock, and I left.", "I found it after {} days again."]


def tagged(encoded: list[EncodedExample], seed: int = 3) -> list[EncodedExample]:
    generator = np.random.default_rng(seed)
    return [
        replace(e, tags=tuple(generator.integers(0, 3, len(e.ids)).tolist()), tag_weight=0.5)
        for e in encoded
    ]


def moved(**settings: object) -> Capsar:
    model = network(span_weight=1.0, span_units=9, **settings)
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


@torch.no_grad()
def tags(model: Capsar, batch: Batch) -> torch.Tensor:
    found = model(batch).tags
    assert found is not None
    return found


def test_tags_are_the_same_alone_in_any_batch_and_at_any_padding() -> None:
    model, encoded = moved(), tagged(examples(30))
    together = tags(model, collate(encoded))
    padded = tags(model, pad(collate(encoded), 5))
    for row, example in enumerate(encoded):
        size = len(example.ids)
        alone = tags(model, collate([example]))[0]
        torch.testing.assert_close(together[row, :size], alone[:size], atol=1e-5, rtol=0)
        torch.testing.assert_close(padded[row, :size], alone[:size], atol=1e-5, rtol=0)


def test_the_head_changes_neither_the_capsules_nor_their_first_weights() -> None:
    with_head, without = network(span_weight=1.0), network()
    for name, value in without.state_dict().items():
        assert torch.equal(with_head.state_dict()[name], value)
    batch = collate(examples(20))
    with torch.no_grad():
        assert torch.equal(with_head.eval()(batch).lengths, without.eval()(batch).lengths)
        assert with_head(batch).tags is None  # nobody asked


def test_an_example_without_a_polarity_teaches_the_head_alone() -> None:
    model = moved()
    known = tagged(examples(6))
    unknown = [replace(e, polarity=-1, first_words=(), aspect_words=()) for e in known]
    batch = collate(unknown)
    output = model(batch)
    losses = model.loss(batch, output)
    (grad,) = torch.autograd.grad(losses.sum(), model.sentiment.weight, allow_unused=True)
    assert grad is None or not grad.any()
    logits, truth = output.tags, batch.tags
    assert logits is not None
    assert truth is not None
    first = [-logits[0].log_softmax(-1)[word, tag] for word, tag in enumerate(known[0].tags or ())]
    torch.testing.assert_close(losses[0], 0.5 * torch.stack(first).mean())
    # Where the polarity is known, both losses add up.
    both = collate(known)
    plain = replace(both, places=None, tags=None, tag_weights=None)
    alone = model.loss(plain, model(plain))
    apart = model.loss(replace(both, polarity=torch.full_like(both.polarity, -1)), model(both))
    torch.testing.assert_close(model.loss(both, model(both)), alone + apart)


def test_the_graph_computes_what_the_network_does() -> None:
    model = moved()
    assert model.spans is not None
    empty = EncodedExample((), (), (), -1, tags=())
    batch = collate([*tagged(examples(30)), empty])
    assert batch.places is not None
    graph = onnxruntime.InferenceSession(export_spans(model, model.spans))
    with torch.no_grad():
        states = model._states(batch, model.fixed(batch.ids))
        opened = model._route(batch.without_aspect(), states, model.fixed(batch.ids))
        about = model.about(batch, opened)
    known = (batch.words >= 0).numpy()
    feeds = {
        "states": states.numpy(), "places": batch.places.numpy(), "known": known,
        "about": np.where(known[:, None], about.numpy(), 0).astype(np.float32),
        "lengths": opened.lengths.numpy(),
    }  # fmt: skip
    (found,) = graph.run(["tags"], feeds)
    np.testing.assert_allclose(found[known], tags(model, batch).numpy()[known], atol=1e-4)


@pytest.mark.parametrize("more", [{"head": "first-token", "aspect_entry": "pair"},
                                  {"aspect_entry": "pair"}])  # fmt: skip
def test_a_head_needs_capsules_and_an_encoder_that_does_not_read_the_aspect(
    more: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match="span_weight must be 0 unless"):
        ModelConfig(encoder="tiny", span_weight=1.0, **more)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="span_weight must be 0 or more"):
        ModelConfig(span_weight=-1.0)


# Real training, of seconds.


def write_data(path: Path) -> Path:
    """Both aspects of every sentence are judged, one in four as a conflict; some have none."""
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
    model: dict[str, object] = SIZES | {"span_weight": 1.0, "span_units": 24}
    train_settings: dict[str, object] = {"max_epochs": 6, "learning_rate": 0.01}
    if request.param == "bert":
        model["encoder"] = str(write_tiny_bert(folder / "tiny-bert"))
        train_settings |= {"encoder_learning_rate": 0.002, "warmup_share": 0.1}
    data = write_data(folder / "reviews.csv")
    config = run_config({
        "data": {"train": str(data), "word_dim": 20}, "model": model, "train": train_settings,
    })  # fmt: skip
    return train(config, folder / "run").bundle


def prepared_like(bundle: Path) -> Prepared:
    data = {"train": str(bundle.parent.parent / "reviews.csv"), "word_dim": 20}
    return prepare_data(run_config({"data": data}).data)


def test_sentences_without_terms_are_cut_apart_from_the_others(trained: Path) -> None:
    parts = prepared_like(trained)
    texts = [{s.text for s in part} for part in (parts.train_sentences, parts.dev_sentences)]
    assert not texts[0] & texts[1]
    assert {e.text for e in parts.train} <= texts[0]
    assert {e.text for e in parts.dev} <= texts[1]
    for part in (parts.train_sentences, parts.dev_sentences):
        assert any(not s.terms for s in part)
        assert any(None in s.terms.values() for s in part)  # conflict is a span all the same
    bare = [e for e in parts.tagged_train if e.polarity is None]
    assert {e.text for e in bare} == texts[0] - {e.text for e in parts.train}


def test_the_bundle_finds_what_the_network_finds(trained: Path) -> None:
    """Tags, spans and polarities of the graphs, sentence by sentence, against the network."""
    analyzer, (model, tokenizer) = load(trained), load_network(trained)
    sentences = prepared_like(trained).dev_sentences
    texts = [sentence.text for sentence in sentences]
    found = analyzer.analyze(texts)
    predicted = dev_spans(NetworkPredictor(model, tokenizer), sentences)
    bias = analyzer._answering.span_bias
    assert predicted.places(bias) == [[(a.start, a.end) for a in some] for some in found]
    figures = judge_extraction(sentences, found)
    assert figures.spans.f1 > 0.6
    assert figures.false_per_100 is not None
    assert figures.false_per_100 < 20
    for text, some in zip(texts, found, strict=True):
        alone = analyzer.analyze([text])[0]  # as among others
        assert [(a.start, a.end, a.polarity) for a in alone] == [
            (a.start, a.end, a.polarity) for a in some
        ]
        for aspect in some:
            assert text[aspect.start : aspect.end] == aspect.text
            (given,) = analyzer.classify([text], [[aspect_span(aspect)]])[0]
            assert given.polarity == aspect.polarity
            assert list(given.scores.values()) == pytest.approx(list(aspect.scores.values()),
                                                                abs=1e-5)  # fmt: skip


def aspect_span(aspect: object) -> object:
    from capsar import AspectSpan

    return AspectSpan(aspect.start, aspect.end)  # type: ignore[attr-defined]


def test_both_ways_of_finding_aspects_stay_at_hand(trained: Path) -> None:
    analyzer = load(trained)
    assert analyzer.modes == ("spans", "capsules")
    text = "We came on day 3."
    assert analyzer.analyze([text]) == analyzer.analyze([text], mode="spans") == [[]]
    assert analyzer.analyze([text], mode="capsules") != [[]]  # the paper's always name a word
    for odd in ("", " ", "😀", "soup " * 3000):
        assert len(analyzer.analyze([odd, text])) == 2
    with pytest.raises(ConfigError, match="mode must be one of spans, capsules"):
        analyzer.analyze([text], mode="words")


def test_a_bundle_without_a_head_answers_as_before(tmp_path: Path) -> None:
    content = {
        "data": {"train": str(write_reviews(tmp_path / "reviews.csv", 30)), "word_dim": 8},
        "train": {"max_epochs": 1},
    }
    analyzer = load(train(run_config(content), tmp_path / "run").bundle)
    assert analyzer.modes == ("capsules",)
    text = ["The soup was cold."]
    assert analyzer.analyze(text) == analyzer.analyze(text, mode="capsules")
    with pytest.raises(ConfigError, match="has no extraction head"):
        analyzer.analyze(text, mode="spans")


def test_the_head_is_exported_again_in_8_bits_too(trained: Path, tmp_path: Path) -> None:
    export_bundle(trained, tmp_path / "again")
    assert (tmp_path / "again" / SPANS).read_bytes() == (trained / SPANS).read_bytes()
    export_bundle(trained, tmp_path / "small", store="int8")
    sentences = prepared_like(trained).dev_sentences
    found = load(tmp_path / "small").analyze([sentence.text for sentence in sentences])
    assert judge_extraction(sentences, found).spans.f1 > 0.6


def test_gold_terms_are_the_files(trained: Path) -> None:
    from capsar.data.readers import read_examples

    parts = prepared_like(trained)
    everything = term_sentences(read_examples(trained.parent.parent / "reviews.csv"))
    cut = {s.text: s.terms for s in (*parts.train_sentences, *parts.dev_sentences)}
    assert cut == {s.text: s.terms for s in everything}
    assert find_spans(np.zeros((0, 3), np.float32)) == []
