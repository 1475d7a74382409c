"""A transformer as encoder: proximity, votes, windows, frozen embeddings, and the baseline."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_network import SMALL, pad
from tiny_bert import WINDOW, write_tiny_bert

from capsar.config import ModelConfig
from capsar.errors import ArtifactError, ConfigError
from capsar.model.bert_pair import BertPairClassifier
from capsar.model.encoders import (
    Pretrained,
    Transformer,
    describe,
    find_encoder,
    load_pretrained,
    make_transformer,
)
from capsar.model.network import Batch, Capsar, proximity
from capsar.schema import CLASSES, Example, find_mentions
from capsar.training.batches import EncodedExample, collate, encode_examples

WORDS = ["soup", "staff", "battery", "great", "terrible", "the", "was", "!", "n't", "Zürich"]
VARIANTS = {
    "proximity": {},
    "pair": {"aspect_encoding": "pair"},
    "without H": {"intermediate_capsules": 0},
    "bert pair": {"aspect_encoding": "pair", "head": "bert-pair"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("encoders") / "tiny-bert")


def build(folder: Path, **settings: object) -> tuple[Capsar | BertPairClassifier, Pretrained]:
    config = ModelConfig(encoder=str(folder), **(SMALL | settings))  # type: ignore[arg-type]
    encoder = load_pretrained(config.encoder, reads_aspect=config.aspect_encoding == "pair")
    torch.manual_seed(0)
    if config.head != "capsules":
        return BertPairClassifier(config, encoder.model), encoder
    scale = 3.0
    return Capsar(config, encoder.table, transformer=encoder.model, vector_scale=scale), encoder


def sentences(number: int, longest: int = 40) -> list[Example]:
    generator = random.Random(0)
    made = []
    for index in range(number):
        text = " ".join(generator.choices(WORDS, k=generator.randint(1, longest)))
        aspect = text.split()[0] if index % 4 else ""
        spans = find_mentions(text, aspect) if aspect else ()
        made.append(Example(text, spans, CLASSES[index % 3]))
    return [*made, Example("", (), CLASSES[0])]


def encode(encoder: Pretrained, number: int = 24, longest: int = 40) -> list[EncodedExample]:
    return encode_examples(sentences(number, longest), encoder.tokenizer)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_prediction_does_not_depend_on_batch_order_or_padding(
    folder: Path, settings: dict[str, object]
) -> None:
    model, encoder = build(folder, **settings)
    model.eval()
    encoded = encode(encoder)
    assert max(len(example.ids) for example in encoded) > 2 * WINDOW
    with torch.no_grad():
        alone = torch.cat([model(collate([example])).lengths for example in encoded])
        others = [
            model(collate(encoded)).lengths,
            model(collate(encoded[::-1])).lengths.flip(0),
            model(pad(collate(encoded), 9)).lengths,
            model(pad(collate(encoded), 3 * WINDOW)).lengths,
        ]
    for other in others:
        torch.testing.assert_close(other, alone, atol=1e-5, rtol=0)


def test_windows_are_encoded_separately_and_joined(folder: Path) -> None:
    model, encoder = build(folder)
    assert isinstance(model.encoder, Transformer)
    batch = collate(encode(encoder))
    with torch.no_grad():
        states = model.eval().encoder(batch.ids, batch.attention, batch.segments)
        for row in range(len(batch.ids)):
            for start in range(0, int(batch.attention[row].sum()), WINDOW):
                part = slice(start, min(start + WINDOW, int(batch.attention[row].sum())))
                alone = model.encoder.read_window(
                    batch.ids[None, row, part], batch.attention[None, row, part]
                )
                torch.testing.assert_close(states[row, part], alone[0], atol=1e-5, rtol=1e-5)


def test_subwords_have_the_proximity_of_their_word_and_special_tokens_none(folder: Path) -> None:
    _, encoder = build(folder)
    text = "The battery was terrible"
    encoded = encode_examples([Example(text, find_mentions(text, "was"))], encoder.tokenizer)
    batch = collate(encoded)  # [CLS] the bat ##tery was terri ##ble [SEP]
    weights = proximity(batch.mask, batch.first_words, batch.words)
    reach = 1 + 3 + 4 / 10  # 4 words
    expected = [0, reach - 2, reach - 1, reach - 1, reach, reach - 1, reach - 1, 0]
    torch.testing.assert_close(weights, torch.tensor([expected]))
    assert batch.aspect_mask.tolist() == [[False] * 4 + [True] + [False] * 3]


def test_states_of_tokens_without_a_vote_do_not_change_capsules(folder: Path) -> None:
    model, encoder = build(folder)
    assert isinstance(model, Capsar)
    batch = collate(encode(encoder, longest=9))

    def predict(noise: float) -> torch.Tensor:
        plain = model.encoder.forward

        def noisy(*tensors: torch.Tensor) -> torch.Tensor:
            return plain(*tensors) + noise * ~batch.mask.unsqueeze(-1)

        model.encoder.forward = noisy  # type: ignore[method-assign]
        with torch.no_grad():
            lengths = model.eval()(batch).lengths
        model.encoder.forward = plain  # type: ignore[method-assign]
        return lengths

    torch.testing.assert_close(predict(0.0), predict(100.0))


def test_input_embeddings_are_frozen_and_the_targets_of_reconstruction(folder: Path) -> None:
    model, encoder = build(folder)
    assert isinstance(model, Capsar)
    assert isinstance(model.encoder, Transformer)
    assert "word_vectors" not in model.state_dict()  # the table is stored once
    assert model.frozen_key in model.state_dict()
    table = encoder.table
    batch = collate(encode(encoder))
    output = model(batch)
    torch.testing.assert_close(output.word_vectors, 3 * table[batch.ids])
    model.loss(batch, output).mean().backward()
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0).step()
    torch.testing.assert_close(model.embed(batch.ids), 3 * table[batch.ids])
    assert torch.equal(model.encoder.table, table)
    untouched = {n for n, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert not untouched  # other processes would wait for their gradients


@pytest.mark.parametrize("name", ["proximity", "pair", "bert pair"])
def test_network_fits_32_examples(folder: Path, name: str) -> None:
    model, encoder = build(folder, **VARIANTS[name])
    batch = collate(encode(encoder, 32, 8)[:32])
    batch = replace(batch, polarity=torch.randint(0, 3, (32,)))
    labels: dict[tuple[object, ...], int] = {}
    for row in range(32):  # equal inputs get equal labels
        key = (tuple(batch.ids[row].tolist()), tuple(batch.first_words[row].tolist()))
        batch.polarity[row] = labels.setdefault(key, int(batch.polarity[row]))
    model.eval()  # no dropout
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.001)
    for _ in range(300):
        optimizer.zero_grad()
        output = model(batch)
        model.loss(batch, output).mean().backward()
        optimizer.step()
        if (output.lengths.argmax(-1) == batch.polarity).all():
            break
    assert (model(batch).lengths.argmax(-1) == batch.polarity).all()


def test_saved_network_predicts_the_same(folder: Path) -> None:
    model, encoder = build(folder)
    assert isinstance(model, Capsar)
    transformer = make_transformer(describe(encoder.model))
    weights = dict(model.state_dict())
    restored = Capsar.from_weights(model.model_config, weights, transformer=transformer)
    batch = collate(encode(encoder))
    torch.testing.assert_close(restored.eval()(batch).lengths, model.eval()(batch).lengths)
    torch.testing.assert_close(restored.vector_scale, torch.tensor(3.0))
    del weights["sentiment.weight"]
    with pytest.raises(ArtifactError, match="do not fit"):
        Capsar.from_weights(model.model_config, weights, transformer=transformer)
    with pytest.raises(ArtifactError, match="Not the description of a transformer"):
        make_transformer({"model_type": "no such family"})


def test_encoders_are_found_by_name_below_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSAR_ENCODERS", str(folder.parent))
    assert find_encoder("tiny-bert") == str(folder)
    assert load_pretrained("tiny-bert", reads_aspect=False).name == "tiny-bert"
    assert load_pretrained(str(folder), reads_aspect=False).name == "tiny-bert"
    assert find_encoder("owner/name") == "owner/name"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="Cannot load the encoder"):
        load_pretrained(str(folder.parent / "nowhere"), reads_aspect=False)


@pytest.mark.parametrize("head", ["bert-pair", "bert-pair-mean"])
def test_bert_pair_reads_the_aspect_and_its_loss_is_cross_entropy(folder: Path, head: str) -> None:
    model, encoder = build(folder, aspect_encoding="pair", head=head)
    text = "the soup was great the staff terrible"
    pairs = [Example(text, find_mentions(text, word), CLASSES[0]) for word in ("soup", "staff")]
    batch: Batch = collate(encode_examples(pairs, encoder.tokenizer))
    with torch.no_grad():
        output = model.eval()(batch)
    assert not torch.allclose(output.lengths[0], output.lengths[1], atol=1e-4)
    torch.testing.assert_close(output.lengths.sum(1), torch.ones(2))
    torch.testing.assert_close(model.loss(batch, output), -output.lengths[:, 0].log())


def test_mean_pooling_ignores_padding(folder: Path) -> None:
    model, encoder = build(folder, aspect_encoding="pair", head="bert-pair-mean")
    texts = ("the soup was great", "the soup was great and the staff was terrible all night long")
    examples = [Example(text, find_mentions(text, "soup"), CLASSES[0]) for text in texts]
    together: Batch = collate(encode_examples(examples, encoder.tokenizer))
    alone: Batch = collate(encode_examples(examples[:1], encoder.tokenizer))
    assert together.ids.shape[1] > alone.ids.shape[1]
    with torch.no_grad():
        lengths = [model.eval()(batch).lengths[0] for batch in (together, alone)]
        states = model.encoder(alone.ids, alone.attention, alone.segments)
        expected = model.layer(states[0].mean(0)).softmax(-1)
    torch.testing.assert_close(lengths[0], lengths[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(lengths[1], expected, atol=1e-5, rtol=0)
