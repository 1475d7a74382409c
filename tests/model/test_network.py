"""The whole network: invariance to batch and padding, edge cases, loss, and learning."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from capsar.config import ModelConfig
from capsar.errors import ArtifactError
from capsar.model.network import Batch, Capsar
from capsar.training.batches import EncodedExample, collate

SMALL = {
    "units": 8,
    "primary_dim": 6,
    "intermediate_capsules": 4,
    "intermediate_dim": 5,
    "class_dim": 7,
}
VARIANTS = {
    "paper": {},
    "without R": {"reconstruction_weight": 0.0},
    "without H": {"intermediate_capsules": 0},
    "frozen": {"train_embeddings": False},
    "squashed": {"squash_primary": True, "activation": "tanh", "kernel_width": 5},
    "scaled": {"proximity_scale": "one", "state_dropout": 0.3},
}


def network(**settings: object) -> Capsar:
    torch.manual_seed(0)
    config = ModelConfig(**(SMALL | settings))  # type: ignore[arg-type]
    return Capsar(config, torch.randn(30, 12) * 0.4, num_trained=20)


def examples(number: int, seed: int = 0) -> list[EncodedExample]:
    generator = random.Random(seed)
    made = []
    for _ in range(number):
        size = generator.randint(1, 11)
        first = generator.randrange(size)
        made.append(
            EncodedExample(
                ids=tuple(generator.randrange(1, 30) for _ in range(size)),
                first_words=(first,) if generator.random() < 0.8 else (),
                aspect_words=(first,),
                polarity=generator.randrange(3),
            )
        )
    return made


def pad(batch: Batch, extra: int) -> Batch:
    def wider(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor, tensor.new_zeros(len(tensor), extra)], 1)

    garbage = torch.cat([batch.ids, torch.full((len(batch.ids), extra), 3)], 1)
    return replace(
        batch,
        ids=garbage,
        mask=wider(batch.mask),
        words=wider(batch.words),
        attention=wider(batch.attention),
        segments=wider(batch.segments),
        aspect_mask=wider(batch.aspect_mask),
    )


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_prediction_does_not_depend_on_batch_order_or_padding(
    settings: dict[str, object], dtype: torch.dtype, tolerance: float
) -> None:
    model = network(**settings).to(dtype).eval()
    encoded = examples(40)
    with torch.no_grad():
        alone = torch.cat([model(collate([example])).lengths for example in encoded])
        together = model(collate(encoded)).lengths
        reversed_order = model(collate(encoded[::-1])).lengths.flip(0)
        padded = model(pad(collate(encoded), 9)).lengths
    with torch.enable_grad():  # training has its own implementation of routing
        trained = model(collate(encoded)).lengths.detach()
        once = model(collate([*encoded, *encoded], share_sentences=True)).lengths.detach()
    assert len(collate([*encoded, *encoded], share_sentences=True).sentence_rows) <= len(encoded)
    for other in (together, reversed_order, padded, trained, once[:40], once[40:]):
        torch.testing.assert_close(other, alone, atol=tolerance, rtol=0)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_empty_sentence_has_zero_capsules_and_finite_gradients(
    settings: dict[str, object],
) -> None:
    model = network(**settings)
    empty = EncodedExample(ids=(), first_words=(), aspect_words=(), polarity=1)
    batch = collate([*examples(3), empty])
    output = model(batch)
    assert output.lengths[-1].abs().max() < 1e-4
    model.loss(batch, output).mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


def test_only_offsets_of_seen_words_are_trained() -> None:
    model = network()
    before = model.word_vectors.clone()
    optimizer = torch.optim.Adam(model.parameters())
    batch = collate(examples(8))
    model.loss(batch, model(batch)).mean().backward()
    optimizer.step()
    assert torch.equal(model.word_vectors, before)
    assert model.learnt is not None
    moved = model.learnt.weight.detach().abs().sum(1) > 0
    seen = torch.zeros(20, dtype=torch.bool)
    seen[[i for i in batch.ids[batch.mask].unique().tolist() if i < 20]] = True
    assert torch.equal(moved, seen)
    assert not moved[0]
    assert network(train_embeddings=False).learnt is None


def test_offsets_train_like_the_vectors_themselves() -> None:
    """Fixed vectors plus offsets take the same steps under Adam as one table of vectors."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(6, 3, padding_idx=0)
    fixed, learnt = table.weight.detach().clone(), torch.nn.Embedding(6, 3, padding_idx=0)
    torch.nn.init.zeros_(learnt.weight)
    optimizers = [torch.optim.Adam(e.parameters(), lr=0.1) for e in (table, learnt)]
    for _ in range(5):
        ids = torch.randint(0, 6, (4,))
        for optimizer, vectors in zip(
            optimizers, (table(ids), learnt(ids) + fixed[ids]), strict=True
        ):
            optimizer.zero_grad()
            (vectors**2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(fixed + learnt.weight, table.weight)


def test_loss_by_hand() -> None:
    """Margin loss plus lambda times the reconstruction term, computed in numpy."""
    batch = collate(examples(6))
    for weight in (0.0, 0.5):
        model = network(reconstruction_weight=weight).eval()
        with torch.no_grad():
            output = model(batch)
            losses = model.loss(batch, output).numpy()
        kernel = model.reconstruction.layer.weight.detach().numpy()
        bias = model.reconstruction.layer.bias.detach().numpy()
        for row in range(6):
            truth = np.eye(3)[batch.polarity[row]]
            capsules = output.capsules[row].numpy()  # (C, D)
            lengths = np.linalg.norm(capsules, axis=-1)
            margin = truth * np.maximum(0, 1.0 - lengths) ** 2
            margin += (1 - truth) * np.maximum(0, lengths - 0.1) ** 2
            directions = []
            for kept in (truth, 1 - truth):
                reconstructed = kernel @ (capsules * kept[:, None]).reshape(-1) + bias
                directions.append(reconstructed / np.linalg.norm(reconstructed))
            words = batch.ids[row][batch.aspect_mask[row]]
            aspect = model.word_vectors[words].numpy().mean(0)
            distance = -aspect @ directions[0] + aspect @ directions[1]
            assert losses[row] == pytest.approx(margin.sum() + weight * distance, abs=1e-5)


def test_without_aspect_hides_it_from_proximity_only() -> None:
    batch = collate(examples(5))
    hidden = batch.without_aspect()
    assert (hidden.first_words == -1).all()
    assert torch.equal(hidden.aspect_mask, batch.aspect_mask)
    model = network().eval()
    with torch.no_grad():
        assert not torch.allclose(model(batch).lengths, model(hidden).lengths)


def test_similarity_of_padding_is_below_that_of_any_word() -> None:
    model = network().eval()
    batch = collate(examples(6))
    scores = model.similarity(batch, model(batch))
    assert scores.shape == (6, 3, batch.ids.shape[1])
    assert (scores[~batch.mask.unsqueeze(1).expand_as(scores)] == -1).all()


def test_weights_that_do_not_fit_raise_an_error() -> None:
    model = network()
    weights = model.state_dict()
    again = Capsar.from_weights(model.model_config, dict(weights))
    batch = collate(examples(4))
    torch.testing.assert_close(again.eval()(batch).lengths, model.eval()(batch).lengths)
    for name in ("word_vectors", "sentiment.weight"):
        broken = {key: value for key, value in weights.items() if key != name}
        with pytest.raises(ArtifactError, match="do not fit"):
            Capsar.from_weights(model.model_config, broken)


@pytest.mark.parametrize("settings", [VARIANTS["paper"], VARIANTS["without H"]])
def test_network_fits_32_examples(settings: dict[str, object]) -> None:
    model = network(**settings, input_dropout=0.0)
    encoded = examples(32, seed=3)
    batch = collate(encoded)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        output = model(batch)
        model.loss(batch, output).mean().backward()
        optimizer.step()
        if (output.lengths.argmax(-1) == batch.polarity).all():
            break
    predicted = model.eval()(batch).lengths.argmax(-1)
    assert (predicted == batch.polarity).all()
