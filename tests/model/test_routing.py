"""Factored routing against textbook routing, and properties of any routing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook_routing import route_textbook

from capsar.model.capsules import RoutedCapsules
from capsar.model.routing import route, squash
from capsar.model.routing_gradient import route_in_training

SIZES = st.tuples(*(st.integers(1, high) for high in (4, 9, 5, 7, 6)), st.integers(1, 4))
SCALES = st.sampled_from([1e-3, 0.3, 1.0, 3.0])


def draw(
    sizes: tuple[int, ...], scale: float, seed: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, num_children, num_parents, parent_dim, child_dim, _ = sizes
    torch.manual_seed(seed)
    children = (scale * torch.randn(batch, num_children, child_dim, dtype=dtype)).requires_grad_()
    weight = torch.randn(num_parents, parent_dim, child_dim, dtype=dtype).requires_grad_()
    mask = torch.rand(batch, num_children) < 0.7
    upstream = torch.randn(batch, num_parents, parent_dim, dtype=dtype)
    return children, weight, mask, upstream


def gradients(
    parents: torch.Tensor, upstream: torch.Tensor, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad((parents * upstream).sum(), inputs)


@settings(max_examples=150)
@given(SIZES, SCALES, st.integers(0, 10_000))
def test_factored_routing_equals_textbook_routing(
    sizes: tuple[int, ...], scale: float, seed: int
) -> None:
    children, weight, mask, upstream = draw(sizes, scale, seed, torch.float64)
    expected, couplings = route_textbook(children, weight, mask, iterations=sizes[-1])
    routed = route(children, weight, mask, iterations=sizes[-1])
    torch.testing.assert_close(routed.parents, expected, atol=1e-5, rtol=0)
    if routed.couplings is not None:
        seen = mask.unsqueeze(-1)
        torch.testing.assert_close(routed.couplings * seen, couplings * seen, atol=1e-5, rtol=0)
    for ours, theirs in zip(
        gradients(routed.parents, upstream, children, weight),
        gradients(expected, upstream, children, weight),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@settings(max_examples=150)
@given(SIZES, SCALES, st.integers(0, 10_000))
def test_hand_written_gradient_equals_that_of_textbook_routing(
    sizes: tuple[int, ...], scale: float, seed: int
) -> None:
    children, weight, mask, upstream = draw(sizes, scale, seed, torch.float64)
    expected, _ = route_textbook(children, weight, mask, iterations=sizes[-1])
    parents = route_in_training(children * mask.unsqueeze(-1), weight, sizes[-1])
    torch.testing.assert_close(parents, expected, atol=1e-5, rtol=0)
    for ours, theirs in zip(
        gradients(parents, upstream, children, weight),
        gradients(expected, upstream, children, weight),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_routing_agrees_in_float32_at_the_sizes_of_the_paper() -> None:
    children, weight, mask, upstream = draw((2, 450, 30, 150, 50, 3), 1.0, 0, torch.float32)
    weight = (weight.detach() * 0.05).requires_grad_()
    expected, _ = route_textbook(children, weight, mask)
    theirs = gradients(expected, upstream, children, weight)
    for parents in (
        route(children, weight, mask).parents,
        route_in_training(children * mask.unsqueeze(-1), weight, 3),
    ):
        torch.testing.assert_close(parents, expected, atol=1e-5, rtol=0)
        for mine, other in zip(gradients(parents, upstream, children, weight), theirs, strict=True):
            scale = other.abs().max()
            torch.testing.assert_close(mine / scale, other / scale, atol=1e-5, rtol=0)


def test_squash_by_hand() -> None:
    """|(3, 4)| = 5, so the length becomes 25 / 26 and the direction is kept."""
    squashed = squash(torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(squashed, torch.tensor([3.0, 4.0]) / 5 * 25 / 26)


def test_one_iteration_by_hand() -> None:
    """Two children (1, 0), (0, 2), two parents with W = I and 2 I: each gets half of the sum."""
    children = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]])
    weight = torch.stack([torch.eye(2), 2 * torch.eye(2)])
    expected = squash(torch.tensor([[[0.5, 1.0], [1.0, 2.0]]]))
    torch.testing.assert_close(route(children, weight, iterations=1).parents, expected)
    torch.testing.assert_close(route_in_training(children, weight, 1), expected)


def test_zero_vectors_stay_zero_with_finite_gradients() -> None:
    for routing in (lambda c, w: route(c, w).parents, lambda c, w: route_in_training(c, w, 3)):
        children = torch.zeros(2, 5, 4, requires_grad=True)
        weight = torch.randn(3, 6, 4, requires_grad=True)
        parents = routing(children, weight)
        assert (parents == 0).all()
        parents.sum().backward()
        assert children.grad is not None
        assert weight.grad is not None
        assert torch.isfinite(children.grad).all()
        assert torch.isfinite(weight.grad).all()


@settings(max_examples=60)
@given(SIZES, st.sampled_from([1.0, 100.0]), st.integers(0, 10_000))
def test_parents_are_shorter_than_one_and_invariant_to_order_and_padding(
    sizes: tuple[int, ...], scale: float, seed: int
) -> None:
    children, weight, mask, _ = draw(sizes, scale, seed, torch.float64)
    routed = route(children, weight, mask, iterations=sizes[-1])
    assert (routed.parents.norm(dim=-1) <= 1).all()
    order = torch.randperm(children.shape[1])
    shuffled = route(children[:, order], weight, mask[:, order], iterations=sizes[-1])
    torch.testing.assert_close(shuffled.parents, routed.parents)
    padded = torch.cat([children, torch.full_like(children, 7.0)], 1)
    more = torch.cat([mask, torch.zeros_like(mask)], 1)
    torch.testing.assert_close(
        route(padded, weight, more, iterations=sizes[-1]).parents, routed.parents
    )


@pytest.mark.parametrize(
    ("children", "parents", "child_dim", "dim"), [(450, 30, 50, 150), (30, 3, 150, 300)]
)
def test_shared_weights_save_as_many_parameters_as_the_paper_states(
    children: int, parents: int, child_dim: int, dim: int
) -> None:
    layer = RoutedCapsules(num_capsules=parents, capsule_dim=dim, child_dim=child_dim)
    textbook = children * parents * child_dim * dim
    saved = textbook - sum(p.numel() for p in layer.parameters())
    assert saved == (children - 1) * parents * child_dim * dim
