"""The equations of paper 000 at values that can be worked out by hand (whole batches: `test_xml.py`)."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from whenabouts_systems.models.parts.ranking_loss import (
    Levels,
    Negatives,
    Pairs,
    Rule,
    moment_relevance,
    pairs_of,
    positive_over_negative,
    positive_over_relevant,
    relevant_likelihood,
    relevant_over_negative,
    video_ranking_loss,
)

RULE = Rule(margin=0.1, relevant_over_negative=1.0, positive_over_relevant=1.0)


def _levels() -> Levels:
    """Two queries; the first is relevant to the moment of the second, with confidence one half."""
    there = torch.tensor([True, True])
    return Levels(
        positive=torch.tensor([0.8, 0.2]),
        relevant=torch.tensor([0.6]),
        pairs=Pairs(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5])),
        of_queries=Negatives(torch.tensor([0.4, 0.5]), there),
        of_moments=Negatives(torch.tensor([0.1, 0.3]), there),
    )


def test_equation_10_by_hand() -> None:
    videos, queries = positive_over_negative(_levels(), RULE)
    assert float(videos) == pytest.approx((0.0 + 0.4) / 2)  # 0.1 + 0.4 - 0.8 < 0; 0.1 + 0.5 - 0.2
    assert float(queries) == pytest.approx((0.0 + 0.2) / 2)  # 0.1 + 0.3 - 0.2


def test_equation_10_may_have_negatives_of_its_own() -> None:
    there = torch.tensor([True, True])
    all_others = (Negatives(torch.tensor([0.9, 0.5]), there), Negatives(torch.tensor([0.8, 0.3]), there))
    videos, queries = positive_over_negative(replace(_levels(), of_all=all_others), RULE)
    assert float(videos) == pytest.approx((0.2 + 0.4) / 2)
    assert float(queries) == pytest.approx((0.1 + 0.2) / 2)
    assert float(relevant_over_negative(replace(_levels(), of_all=all_others), RULE)) == pytest.approx(0.3)


def test_equation_10_takes_the_weight_of_queries() -> None:
    videos, _ = positive_over_negative(_levels(), RULE, torch.tensor([9.0, 0.5]))
    assert float(videos) == pytest.approx(0.4 * 0.5 / 2)


def test_equation_11_by_hand() -> None:
    # against the negative of query 0: 0.1 + 0.4 - 0.5 * 0.6; against that of moment 1: 0.1 + 0.3 - 0.3
    assert float(relevant_over_negative(_levels(), RULE)) == pytest.approx(0.2 + 0.1)


def test_equation_12_by_hand() -> None:
    # 0.6 - 0.5 * R(0,0) and 0.6 - 0.5 * R(1,1)
    assert float(positive_over_relevant(_levels(), RULE)) == pytest.approx(0.2 + 0.5)


def test_equation_12_has_no_margin() -> None:
    wide = Rule(margin=5.0)
    assert torch.equal(positive_over_relevant(_levels(), wide), positive_over_relevant(_levels(), RULE))


def test_equation_13_is_the_weighted_sum() -> None:
    rule = Rule(margin=0.1, relevant_over_negative=2.0, positive_over_relevant=3.0)
    terms = video_ranking_loss(_levels(), rule, sides=(0.5, 4.0))
    assert {name: float(value) for name, value in terms.items()} == pytest.approx(
        {
            "negative_videos": 0.1,
            "negative_queries": 0.4,
            "relevant_over_negative": 0.6,
            "positive_over_relevant": 2.1,
        }
    )


def test_equation_14_takes_logarithms_of_logits_raised_to_the_bound() -> None:
    logits = torch.tensor([[[2.0, -3.0]], [[0.5, 4.0]]], requires_grad=True)
    relevance = moment_relevance(logits, torch.tensor([[0.25, 0.5]]), 20.0)
    expected = [math.log(2) + math.log(0.5) + 5.0, math.log(1e-6) + math.log(4) + 10.0]
    assert relevance[0].tolist() == pytest.approx(expected)
    (gradient,) = torch.autograd.grad(relevance.sum(), logits)
    assert gradient.flatten().tolist() == pytest.approx([0.5, 0.0, 2.0, 0.25])


def test_the_score_of_a_moment_may_add_the_logits_themselves() -> None:
    logits = torch.tensor([[[2.0, -3.0]], [[0.5, 4.0]]], requires_grad=True)
    relevance = moment_relevance(logits, torch.tensor([[0.25, 0.5]]), 20.0, "logits")
    assert relevance[0].tolist() == pytest.approx([2.5 + 5.0, 1.0 + 10.0])
    (gradient,) = torch.autograd.grad(relevance.sum(), logits)
    assert gradient.flatten().tolist() == [1.0, 1.0, 1.0, 1.0]


def test_the_logits_of_a_video_may_move_until_the_lowest_is_at_the_bound() -> None:
    logits = torch.tensor([[[2.0, -3.0]], [[0.5, 4.0]]], requires_grad=True)
    lowest = torch.tensor([[[1.0, -3.0]], [[-1.5, 2.0]]])
    relevance = moment_relevance(logits, torch.tensor([[0.25, 0.5]]), 20.0, "shift", lowest)
    expected = [math.log(1) + math.log(2) + 5.0, math.log(1e-6) + math.log(2) + 10.0]
    assert relevance[0].tolist() == pytest.approx(expected, abs=1e-5)
    (gradient,) = torch.autograd.grad(relevance.sum(), logits)
    assert gradient.flatten().tolist() == pytest.approx([1.0, 1e6, 0.5, 0.5], rel=1e-4)


def test_equation_17_by_hand() -> None:
    assert float(relevant_likelihood(torch.tensor([-4.0, -2.0]), torch.tensor([0.5, 1.0]))) == 2.0


def test_pairs_are_those_with_confidence_and_not_of_a_query_with_itself() -> None:
    confidence = torch.tensor([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.7, 0.0, 0.0]])
    pairs = pairs_of(confidence)
    found = list(zip(pairs.query.tolist(), pairs.moment.tolist(), pairs.confidence.tolist(), strict=True))
    assert found == [(0, 1, pytest.approx(0.3)), (1, 0, pytest.approx(0.3)), (2, 0, pytest.approx(0.7))]
    assert pairs_of(confidence, confidence_is_one=True).confidence.tolist() == [1.0, 1.0, 1.0]
    assert pairs.those(pairs.query == 2).moment.tolist() == [0]


def test_without_a_pair_the_terms_are_zero() -> None:
    none = pairs_of(torch.zeros(2, 2))
    levels = Levels(
        torch.tensor([0.8, 0.2]),
        torch.zeros(0),
        none,
        Negatives(torch.zeros(2), torch.ones(2, dtype=torch.bool)),
        Negatives(torch.zeros(2), torch.ones(2, dtype=torch.bool)),
    )
    assert float(relevant_over_negative(levels, RULE)) == 0
    assert float(positive_over_relevant(levels, RULE)) == 0
    assert float(relevant_likelihood(torch.zeros(0), none.confidence)) == 0
