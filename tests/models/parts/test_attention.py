"""Attention written out for training on a CPU is PyTorch's own, with dropout that keeps the mean."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from whenabouts.models._parts.attention import Attention, attend
from whenabouts.models._parts.packing import Packing

NEXT_TO_NOTHING = 1e-9
"""A probability of dropout that rounds to none, so that nothing is random."""


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[-2]))


def mask() -> Tensor:
    return torch.arange(7) < torch.tensor([7, 3, 1])[:, None]


@pytest.mark.parametrize("added", [False, True], ids=["keys are seen or not", "a number is added"])
def test_results_and_gradients_are_those_of_pytorch(added: bool) -> None:
    queries, keys, values = drawn(3, 2, 5, 4), drawn(3, 2, 7, 4), drawn(3, 2, 7, 4) + 1
    seen = torch.linspace(-3, 3, 3 * 5 * 7).view(3, 1, 5, 7) if added else mask()[:, None, None]
    found = []
    for dropout in (0.0, NEXT_TO_NOTHING):
        some = [one.clone().requires_grad_() for one in (queries, keys, values)]
        mixed = attend(some[0], some[1], some[2], seen, dropout)
        gradients = torch.autograd.grad((mixed * drawn(3, 2, 5, 4)).sum(), some)
        found.append([mixed, *gradients])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_weights_are_dropped_with_their_probability_and_keep_the_mean() -> None:
    torch.manual_seed(3)
    ones = torch.ones(4, 1, 500, 4)
    everything = torch.ones(4, 1, 1, 500, dtype=torch.bool)
    mixed = attend(ones, ones, ones, everything, 0.5)[..., 0]
    assert mixed.mean().item() == pytest.approx(1.0, abs=0.01)
    assert mixed.std().item() == pytest.approx((1 / 500) ** 0.5, rel=0.1)  # of 500 halves kept, each doubled


def test_a_sequence_without_keys_gives_numbers_and_no_gradient_that_is_none() -> None:
    values = drawn(3, 2, 7, 4).requires_grad_()
    seen = mask()
    seen[2] = False
    mixed = attend(values, values, values, seen[:, None, None], NEXT_TO_NOTHING)
    (gradient,) = torch.autograd.grad(mixed.sum(), values)
    assert mixed.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("product_mask", [False, True])
def test_in_training_a_packed_batch_attends_as_a_plain_one(product_mask: bool) -> None:
    layer = Attention(8, 2, NEXT_TO_NOTHING).train()
    rows, seen = drawn(3, 7, 8), mask()
    packing = Packing.of(seen, everything=product_mask)
    found = packing.unpack(layer(packing.pack(rows), packing.pack(rows), packing, product_mask=product_mask))

    def heads(one: Tensor) -> Tensor:
        return one.view(3, 7, 2, 4).transpose(1, 2)

    both = (seen[:, :, None] & seen[:, None])[:, None]
    added = (~both) * -10000.0 if product_mask else torch.zeros(()).masked_fill(~seen[:, None, None], -1e30)
    scores = heads(layer.query(rows)) @ heads(layer.key(rows)).transpose(2, 3) / 2 + added
    plain = (functional.softmax(scores, -1) @ heads(layer.value(rows))).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found[seen], plain[seen], rtol=1e-5, atol=1e-6)
