"""Each layer: hand-computed values, torch's own layers, and invariance to padding."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capsar.model.capsules import PrimaryCapsules
from capsar.model.encoders import BiGRU
from capsar.model.losses import (
    Reconstruction,
    aspect_vector,
    cosine_similarity,
    margin_loss,
    reconstruction_loss,
)
from capsar.model.network import proximity


def test_proximity_by_hand() -> None:
    """n = 5, k = 1: reach 3 + 5/10 = 3.5, so 1 + (2.5, 3.5, 2.5, 1.5, 0.5), and 0 on padding."""
    mask = torch.tensor([[True] * 5 + [False]])
    weights = proximity(mask, torch.tensor([[1]]))
    torch.testing.assert_close(weights, torch.tensor([[3.5, 4.5, 3.5, 2.5, 1.5, 0.0]]))


def test_proximity_without_aspect_and_with_several_mentions() -> None:
    mask = torch.ones(2, 12, dtype=torch.bool)
    weights = proximity(mask, torch.tensor([[-1, -1], [0, 9]]))
    torch.testing.assert_close(weights[0], torch.ones(12))
    first, second = (proximity(mask[:1], torch.tensor([[k]]))[0] for k in (0, 9))
    torch.testing.assert_close(weights[1], torch.maximum(first, second))
    far = proximity(torch.ones(1, 30, dtype=torch.bool), torch.tensor([[0]]))
    assert far[0, -1] == 1


def test_encoder_equals_a_bidirectional_gru_on_packed_sequences() -> None:
    torch.manual_seed(0)
    encoder = BiGRU(input_dim=5, units=4, input_dropout=0.0).double()
    packed_gru = nn.GRU(5, 4, batch_first=True, bidirectional=True).double()
    for name, parameter in encoder.forward_cell.named_parameters():
        getattr(packed_gru, name).data = parameter.data
    for name, parameter in encoder.backward_cell.named_parameters():
        getattr(packed_gru, f"{name}_reverse").data = parameter.data
    lengths = torch.tensor([6, 1, 3])
    mask = torch.arange(6) < lengths.unsqueeze(1)
    vectors = torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)
    packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(packed_gru(packed)[0], batch_first=True)
    states = encoder(vectors, mask) * mask.unsqueeze(-1)
    torch.testing.assert_close(states, expected)
    upstream = torch.randn_like(states)
    ours, theirs = (
        torch.autograd.grad((s * upstream).sum(), vectors)[0] for s in (states, expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_input_dropout_uses_one_mask_per_sentence() -> None:
    encoder = BiGRU(input_dim=400, units=2, input_dropout=0.5)
    seen = []
    encoder.forward_cell.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    vectors = torch.ones(3, 4, 400)
    encoder(vectors, torch.ones(3, 4, dtype=torch.bool))
    (dropped,) = seen
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :1]).all()
    assert not (dropped[0] == dropped[1]).all()
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    encoder.eval()(vectors, torch.ones(3, 4, dtype=torch.bool))
    assert (seen[1] == 1).all()


@pytest.mark.parametrize("width", [1, 3, 5])
@pytest.mark.parametrize("num_words", [1, 2, 7])
def test_primary_capsules_are_a_convolution(width: int, num_words: int) -> None:
    torch.manual_seed(0)
    layer = PrimaryCapsules(
        hidden_dim=4, capsule_dim=3, kernel_width=width, activation="linear"
    ).double()
    layer.projection.bias.data += 1
    convolution = nn.Conv1d(4, 18, width, padding=width // 2).double()
    weight = layer.projection.weight.detach().view(18, width, 4)
    convolution.weight.data = weight.permute(0, 2, 1)
    convolution.bias.data = layer.projection.bias.detach().clone()
    states = torch.randn(2, num_words, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(2, num_words, dtype=torch.bool)
    expected = convolution(states.transpose(1, 2)).transpose(1, 2).reshape(2, -1, 3)
    capsules = layer(states, mask)
    torch.testing.assert_close(capsules, expected)
    upstream = torch.randn_like(expected)
    ours, theirs = (
        torch.autograd.grad((c * upstream).sum(), states)[0] for c in (capsules, expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_primary_capsules_of_padding_are_zero() -> None:
    layer = PrimaryCapsules(hidden_dim=4, squashed=True, activation="tanh")
    layer.projection.bias.data += 1
    mask = torch.tensor([[True, False]])
    capsules = layer(torch.randn(1, 2, 4), mask).view(2, 6, 50)
    assert (capsules[1] == 0).all()
    assert (capsules[0].norm(dim=-1) < 1).all()


def test_margin_loss_by_hand() -> None:
    """True capsule .8: .2^2 = .04; others .3 and .05: .2^2 = .04 and 0."""
    lengths = torch.tensor([[0.8, 0.3, 0.05]])
    truth = torch.tensor([[1.0, 0.0, 0.0]])
    torch.testing.assert_close(margin_loss(lengths, truth), torch.tensor([0.08]))


def test_reconstruction_loss_by_hand() -> None:
    """-(2, 0).(1, 0) + (2, 0).(.6, .8) = -2 + 1.2."""
    loss = reconstruction_loss(
        torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0]]), torch.tensor([[3.0, 4.0]])
    )
    torch.testing.assert_close(loss, torch.tensor([-0.8]))


def test_reconstructing_each_capsule_equals_masking_all_others() -> None:
    layer = Reconstruction(num_classes=3, capsule_dim=4, word_dim=5)
    capsules = torch.randn(2, 3, 4)
    reconstructed = layer.reconstruct_each(capsules)
    for index in range(3):
        kept = torch.zeros(2, 3)
        kept[:, index] = 1
        torch.testing.assert_close(reconstructed[:, index], layer(capsules, kept))


def test_aspect_vector_is_the_mean_of_its_words() -> None:
    vectors = torch.tensor([[[2.0, 0.0], [4.0, 2.0], [9.0, 9.0]]]).repeat(2, 1, 1)
    aspect = torch.tensor([[True, True, False], [False, False, False]])
    torch.testing.assert_close(
        aspect_vector(vectors, aspect), torch.tensor([[3.0, 1.0], [0.0, 0.0]])
    )


def test_cosine_similarity_by_hand() -> None:
    reconstructed = torch.tensor([[[3.0, 4.0]]])
    words = torch.tensor([[[10.0, 0.0], [0.0, -1.0], [0.0, 0.0], [5.0, 5.0]]])
    mask = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(
        cosine_similarity(reconstructed, words, mask), torch.tensor([[[0.6, -0.8, 0.0, -1.0]]])
    )


def test_proximity_can_be_scaled_to_at_most_one() -> None:
    mask = torch.tensor([[True] * 10 + [False] * 3, [True] * 5 + [False] * 8])
    first = torch.tensor([[4], [-1]])
    plain, scaled = proximity(mask, first), proximity(mask, first, scale="one")
    torch.testing.assert_close(scaled[0], plain[0] / 5)  # 1 + 3 + 10 / 10 at the aspect
    torch.testing.assert_close(scaled[1], plain[1])
