"""The whole network: neighbours and padding change nothing, edges are safe, and it learns."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from capsar.config import ModelConfig
from capsar.errors import ArtifactError
from capsar.model.batch import Batch
from capsar.model.network import Capsar
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
    "lstm": {"cell": "lstm"},
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
def test_an_answer_is_the_same_alone_in_any_batch_and_at_any_padding(
    settings: dict[str, object], dtype: torch.dtype, tolerance: float
) -> None:
    model = network(**settings).to(dtype).eval()
    encoded = examples(40)
    with torch.no_grad():
        alone = torch.cat([model(collate([example])).lengths for example in encoded])
        together = model(collate(encoded)).lengths
        backwards = model(collate(encoded[::-1])).lengths.flip(0)
        padded = model(pad(collate(encoded), 9)).lengths
    with torch.enable_grad():  # the path of training, its own routing
        trained = model(collate(encoded)).lengths.detach()
    for other in (together, backwards, padded, trained):
        torch.testing.assert_close(other, alone, atol=tolerance, rtol=0)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_a_row_of_padding_has_finite_gradients_and_zero_capsules(
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


def test_only_what_should_be_trained_is() -> None:
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


def test_offsets_train_as_the_vectors_themselves_would() -> None:
    """Vectors kept as fixed + learnt take the same steps under Adam as one table of vectors."""
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


def test_the_loss_by_hand() -> None:
    """Margin loss plus lambda times the reconstruction term, all worked out in numpy."""
    batch = collate(examples(6))
    for weight in (0.0, 0.5):
        model = network(reconstruction_weight=weight, lower_margin=0.05, upper_margin=0.9).eval()
        with torch.no_grad():
            output = model(batch)
            losses = model.loss(batch, output).numpy()
        kernel = model.reconstruction.layer.weight.detach().numpy()
        bias = model.reconstruction.layer.bias.detach().numpy()
        for row in range(6):
            truth = np.eye(3)[batch.polarity[row]]
            capsules = output.capsules[row].numpy()  # (C, D)
            lengths = np.linalg.norm(capsules, axis=-1)
            margin = truth * np.maximum(0, 0.9 - lengths) ** 2
            margin += (1 - truth) * np.maximum(0, lengths - 0.05) ** 2
            directions = []
            for kept in (truth, 1 - truth):
                opened = kernel @ (capsules * kept[:, None]).reshape(-1) + bias
                directions.append(opened / np.linalg.norm(opened))
            words = batch.ids[row][batch.aspect_mask[row]]
            aspect = model.word_vectors[words].numpy().mean(0)
            distance = -aspect @ directions[0] + aspect @ directions[1]
            assert losses[row] == pytest.approx(margin.sum() + weight * distance, abs=1e-5)


def test_hiding_the_aspect_hides_it_from_proximity_only() -> None:
    batch = collate(examples(5))
    hidden = batch.without_aspect()
    assert (hidden.first_words == -1).all()
    assert torch.equal(hidden.aspect_mask, batch.aspect_mask)
    model = network().eval()
    with torch.no_grad():
        assert not torch.allclose(model(batch).lengths, model(hidden).lengths)


def test_about_scores_rank_words_and_not_padding() -> None:
    model = network().eval()
    batch = collate(examples(6))
    scores = model.about(batch, model(batch))
    assert scores.shape == (6, 3, batch.ids.shape[1])
    assert (scores[~batch.mask.unsqueeze(1).expand_as(scores)] == -1).all()


def test_weights_that_do_not_fit_are_refused() -> None:
    model = network()
    weights = model.state_dict()
    again = Capsar.from_weights(model.model_config, dict(weights))
    batch = collate(examples(4))
    torch.testing.assert_close(again.eval()(batch).lengths, model.eval()(batch).lengths)
    for name in ("word_vectors", "sentiment.weight"):
        broken = {key: value for key, value in weights.items() if key != name}
        with pytest.raises(ArtifactError, match="do not fit"):
            Capsar.from_weights(model.model_config, broken)


@pytest.mark.parametrize("settings", [VARIANTS["paper"], VARIANTS["lstm"], VARIANTS["without H"]])
def test_32_examples_are_learnt_to_the_last(settings: dict[str, object]) -> None:
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
