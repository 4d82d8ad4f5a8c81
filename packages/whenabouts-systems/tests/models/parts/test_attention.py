"""Attention with its masks, against the same written out; dropout; sequences of nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.parts.layers import Attention, AttentionBlock, attend
from whenabouts_systems.models.parts.packing import Packing

NEXT_TO_NOTHING = 1e-9
"""A probability of dropout that rounds to none, so that nothing is random."""


def _drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[-2]))


def _mask() -> Tensor:
    return torch.arange(7) < torch.tensor([7, 3, 1])[:, None]


@pytest.mark.parametrize("dropout", [0.0, NEXT_TO_NOTHING])
@pytest.mark.parametrize("product_mask", [False, True])
def test_a_packed_batch_attends_as_a_plain_one(product_mask: bool, dropout: float) -> None:
    layer = Attention(8, 2, dropout).train()
    padded, seen = _drawn(3, 7, 8), _mask()
    packing = Packing.of(seen, everything=product_mask)
    rows = packing.pack(padded)
    mixed = packing.unpack(layer(rows, rows, packing, product_mask=product_mask))

    def heads(projected: Tensor) -> Tensor:
        return projected.view(3, 7, 2, 4).transpose(1, 2)

    both = (seen[:, :, None] & seen[:, None])[:, None]
    added = (~both) * -10000.0 if product_mask else torch.zeros(()).masked_fill(~seen[:, None, None], -1e30)
    scores = heads(layer.query(padded)) @ heads(layer.key(padded)).transpose(2, 3) / 2 + added
    plain = (functional.softmax(scores, -1) @ heads(layer.value(padded))).transpose(1, 2).flatten(2)
    torch.testing.assert_close(mixed[seen], plain[seen], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("added", [False, True], ids=["keys are seen or not", "a number is added"])
def test_with_dropout_results_and_gradients_are_those_of_pytorch(added: bool) -> None:
    queries, keys, values = _drawn(3, 2, 5, 4), _drawn(3, 2, 7, 4), _drawn(3, 2, 7, 4) + 1
    seen = torch.linspace(-3, 3, 3 * 5 * 7).view(3, 1, 5, 7) if added else _mask()[:, None, None]
    results = []
    for dropout in (0.0, NEXT_TO_NOTHING):
        inputs = [tensor.clone().requires_grad_() for tensor in (queries, keys, values)]
        mixed = attend(inputs[0], inputs[1], inputs[2], seen, dropout)
        results.append([mixed, *torch.autograd.grad((mixed * _drawn(3, 2, 5, 4)).sum(), inputs)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_in_training_weights_are_dropped_and_keep_the_mean() -> None:
    torch.manual_seed(3)
    layer, ones = Attention(4, 1, 0.5), torch.ones(4, 1, 500, 4)
    seen = torch.ones(4, 1, 1, 500, dtype=torch.bool)
    mixed = layer.train().mix(ones, ones, ones, seen)[..., 0]
    assert mixed.mean().item() == pytest.approx(1.0, abs=0.01)
    assert mixed.std().item() == pytest.approx((1 / 500) ** 0.5, rel=0.1)  # of 500 halves kept, each doubled
    torch.testing.assert_close(layer.eval().mix(ones, ones, ones, seen), ones)


@pytest.mark.parametrize("shape", [(0, 4), (20, 0)], ids=["no sequence", "sequences without rows"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_empty_batch_gives_an_empty_batch(shape: tuple[int, int], dropout: float) -> None:
    block = AttentionBlock(8, 2, dropout).train()
    assert block(torch.zeros(*shape, 8), torch.ones(shape, dtype=torch.bool)).shape == (*shape, 8)


def test_empty_sequences_do_not_hinder_the_others() -> None:
    """Of twenty sequences the shortest five, which are computed together, have no rows."""
    block, seen = AttentionBlock(8, 2, 0.0).eval(), torch.ones(20, 3, dtype=torch.bool)
    padded = _drawn(20, 3, 8)
    seen[:5] = False
    torch.testing.assert_close(block(padded, seen)[5:], block(padded[5:], seen[5:]))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_sequence_without_keys_gives_numbers_and_finite_gradients(dropout: float) -> None:
    values = _drawn(3, 2, 7, 4).requires_grad_()
    seen = _mask()
    seen[2] = False
    mixed = Attention(8, 2, dropout).train().mix(values, values, values, seen[:, None, None])
    (gradient,) = torch.autograd.grad(mixed.sum(), values)
    assert mixed.isfinite().all()
    assert gradient.isfinite().all()
