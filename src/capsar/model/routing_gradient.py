"""The gradient of routing, worked out by hand.

Autograd gets it right as well (the tests compare the two), but keeps every intermediate result and
adds up the children's gradient, two products an iteration, out of place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from capsar.model.routing import multiply_each, squash_factor


def route_in_training(children: Tensor, weight: Tensor, iterations: int) -> Tensor:
    """Return the parents (B, C, D) that `route` would, of children (B, N, P), faster to train."""
    parents: Tensor = _FactoredRouting.apply(children, weight, iterations)  # type: ignore[no-untyped-call]
    return parents


class _FactoredRouting(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        children: Tensor,
        weight: Tensor,
        iterations: int,
        eps: float = 1e-8,
    ) -> Tensor:
        num_parents = weight.shape[0]
        gram = weight.transpose(1, 2) @ weight  # (C, P, P)
        pooled = (children.sum(1, keepdim=True) / num_parents).expand(-1, num_parents, -1)
        pools, turns, keys, couplings = [pooled], [], [], []  # (B, C, P), 3 x; (B, N, C)
        for _ in range(iterations - 1):
            turned = multiply_each(pools[-1], gram)  # (B, C, P)
            squared = (pools[-1] * turned).sum(-1, keepdim=True).clamp_(min=0)  # (B, C, 1)
            keys.append(turned * squash_factor(squared, eps))
            turns.append(turned)
            couplings.append((children @ keys[-1].transpose(1, 2)).softmax(-1))
            pools.append(couplings[-1].transpose(1, 2) @ children)
        raw = multiply_each(pools[-1], weight.transpose(1, 2))  # (B, C, D)
        ctx.save_for_backward(children, weight, gram, raw, *pools, *turns, *keys, *couplings)
        ctx.eps = eps
        return raw * squash_factor(raw.square().sum(-1, keepdim=True), eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        children, weight, gram, raw, *rest = ctx.saved_tensors
        rounds = (len(rest) - 1) // 4
        pools, turns, keys, couplings = (
            rest[: rounds + 1],
            rest[rounds + 1 : 2 * rounds + 1],
            rest[2 * rounds + 1 : 3 * rounds + 1],
            rest[3 * rounds + 1 :],
        )
        squared = raw.square().sum(-1, keepdim=True)  # (B, C, 1)
        along = (grad * raw).sum(-1, keepdim=True) * (2 * _slope(squared, ctx.eps))
        grad_raw = grad * squash_factor(squared, ctx.eps) + raw * along  # (B, C, D)
        grad_pool = multiply_each(grad_raw, weight)  # (B, C, P)
        grad_weight = torch.bmm(grad_raw.permute(1, 2, 0), pools[-1].transpose(0, 1))  # (C, D, P)
        grad_gram = torch.zeros_like(gram)  # (C, P, P)
        grad_children: Tensor | None = None  # (B, N, P)
        for i in reversed(range(rounds)):
            grad_coupling = children @ grad_pool.transpose(1, 2)  # (B, N, C)
            grad_logits = torch._softmax_backward_data(  # noqa: SLF001
                grad_coupling, couplings[i], -1, children.dtype
            )
            if grad_children is None:
                grad_children = couplings[i] @ grad_pool
            else:
                grad_children.baddbmm_(couplings[i], grad_pool)
            grad_children.baddbmm_(grad_logits, keys[i])
            grad_key = grad_logits.transpose(1, 2) @ children  # (B, C, P)
            squared = (pools[i] * turns[i]).sum(-1, keepdim=True).clamp_(min=0)  # (B, C, 1)
            along = (grad_key * turns[i]).sum(-1, keepdim=True) * _slope(squared, ctx.eps)
            grad_turn = grad_key * squash_factor(squared, ctx.eps) + pools[i] * along  # (B, C, P)
            grad_pool = turns[i] * along + multiply_each(
                grad_turn, gram
            )  # (B, C, P); gram is symmetric
            grad_gram += torch.bmm(pools[i].permute(1, 2, 0), grad_turn.transpose(0, 1))
        grad_weight += weight @ (grad_gram + grad_gram.transpose(1, 2))
        plain_sum = grad_pool.sum(1, keepdim=True) / weight.shape[0]  # (B, 1, P)
        if grad_children is None:
            return plain_sum.expand_as(children), grad_weight, None
        return grad_children.add_(plain_sum), grad_weight, None


def _slope(squared: Tensor, eps: float) -> Tensor:
    """The derivative of `squash_factor`."""
    root = (squared + eps).rsqrt()
    return root / (1 + squared).square() - squared * root**3 / (2 * (1 + squared))
