"""Layers of the DETR family against those of PyTorch that they stand for."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.detr_layers import Attention, LearnedReLU, sines


def _with_gradients(module: nn.Module, made: Tensor, given: Tensor) -> list[Tensor]:
    return [made, *torch.autograd.grad(made.square().sum(), [given, *module.parameters()])]


def test_the_learned_relu_is_that_of_pytorch_with_its_gradients() -> None:
    values = torch.randn(3, 5, requires_grad=True)
    ours, theirs = LearnedReLU(), nn.PReLU()
    for slope in (0.25, -0.5, 0.0):
        for one in (ours, theirs):
            nn.init.constant_(one.weight, slope)
        found, expected = (_with_gradients(one, one(values), values) for one in (ours, theirs))
        torch.testing.assert_close(found, expected)


def test_the_learned_relu_sums_the_gradient_of_its_weight_in_full_precision() -> None:
    torch.manual_seed(0)
    relu, values = LearnedReLU(), torch.randn(64, 64, requires_grad=True)
    expected = _with_gradients(relu, relu(values), values)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halved = relu(values.bfloat16())
    found = _with_gradients(relu, halved, values)
    assert halved.dtype == torch.bfloat16
    assert found[2].dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2, check_dtype=False)
    torch.testing.assert_close(found[2], expected[2], rtol=5e-3, atol=0)


def test_an_odd_number_of_sines_ends_with_a_sine() -> None:
    expected = torch.tensor([math.sin(0.5), math.cos(0.5), math.sin(0.5 / 10_000 ** (2 / 3))])
    torch.testing.assert_close(sines(torch.tensor([0.5]), 3), expected[None])


def test_attention_is_that_of_pytorch_with_its_gradients() -> None:
    torch.manual_seed(0)
    attention = Attention(8, 2, 0.3).eval()
    rows = torch.randn(3, 4, 8, requires_grad=True)
    others, mask = torch.randn(3, 5, 8), torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    unseen = torch.zeros(6, 4, 5, dtype=torch.bool)
    unseen[1, 2, 1] = unseen[4, 0, 2] = True
    theirs = attention(rows, others, others + 1, ~mask, need_weights=False, attn_mask=unseen)[0]
    ours = attention.mixed(rows, others, others + 1, mask, unseen)
    found, expected = (_with_gradients(attention, made, rows) for made in (ours, theirs))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(attention.train().mixed(rows, others, others + 1, mask), ours)


def test_what_attention_drops_keeps_the_mean() -> None:
    torch.manual_seed(0)
    attention = Attention(4, 1, 0.5)
    rows = torch.randn(1, 3, 4)
    with torch.no_grad():
        mean = torch.stack([attention.mixed(rows, rows, rows) for _ in range(2000)]).mean(0)
        torch.testing.assert_close(mean, attention.eval().mixed(rows, rows, rows), atol=0.05, rtol=0.05)
