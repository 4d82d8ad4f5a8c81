"""Negatives are drawn from where they may be; a positive's shortfall is the formula."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts_systems.models.parts.ranking_loss import (
    Negatives,
    against_negatives,
    draw_negatives,
    shortfall,
)

SCORES = torch.tensor([[0.9, 0.1, 0.5, 0.7, 0.3]])


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.one_of(st.none(), st.integers(1, 9)))
def test_a_negative_is_one_of_the_highest_that_are_allowed(seed: int, pool: int | None) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(7, 6, generator=generator)
    allowed = torch.rand(7, 6, generator=generator) < 0.5
    torch.manual_seed(seed)
    drawn = draw_negatives(scores, allowed, pool)
    assert torch.equal(drawn.exists, allowed.any(1))
    for row in range(7):
        best = sorted(scores[row][allowed[row]].tolist(), reverse=True)[:pool]
        assert float(drawn.score[row]) in best or not best


def test_each_of_the_pool_is_drawn_as_often() -> None:
    torch.manual_seed(0)
    allowed = torch.tensor([[False, True, True, True, True]])
    drawn = draw_negatives(SCORES.expand(6000, 5), allowed.expand(6000, 5), 3).score
    counts = [int((drawn == value).sum()) for value in SCORES[0]]
    assert counts == pytest.approx([0, 0, 2000, 2000, 2000], rel=0.08)


def test_hinge_and_lse_are_their_formulas() -> None:
    high, low = torch.tensor([0.5, 0.2]), torch.tensor([0.1, 0.3])
    assert shortfall(high, low, margin=0.3).tolist() == pytest.approx([0.0, 0.4])
    expected = [math.log1p(math.exp(-0.4)), math.log1p(math.exp(0.1))]
    assert shortfall(high, low, margin=0.3, kind="lse").tolist() == pytest.approx(expected)


def test_an_anchor_without_a_negative_has_no_loss_and_no_gradient() -> None:
    positive = torch.tensor([0.0, 0.0], requires_grad=True)
    negatives = Negatives(torch.tensor([5.0, 5.0]), torch.tensor([True, False]))
    lacking = against_negatives(positive, negatives, margin=0.1)
    assert lacking.tolist() == pytest.approx([5.1, 0.0])
    (gradient,) = torch.autograd.grad(lacking.sum(), positive)
    assert gradient.tolist() == [-1.0, 0.0]


def test_gradients_reach_the_negative_that_was_drawn() -> None:
    scores = SCORES.clone().requires_grad_()
    drawn = draw_negatives(scores, torch.tensor([[False, True, True, True, True]]), 1)
    (gradient,) = torch.autograd.grad(drawn.score.sum(), scores)
    assert gradient.tolist() == [[0, 0, 0, 1, 0]]
