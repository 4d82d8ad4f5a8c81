"""Shapley interaction of moments and a query, against its definition with all coalitions written out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.g2l import coalition_values, shapley_interactions

QUERY = -1
"""The number of the query among the players."""


def _game(count: int, games: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    queries = torch.nn.functional.normalize(torch.randn(games, 5, generator=generator), dim=1)
    moments = torch.nn.functional.normalize(torch.randn(games, count, 5, generator=generator), dim=2)
    return queries, moments


def _all(count: int, games: int = 3) -> Tensor:
    return torch.ones(games, count, dtype=torch.bool)


def _value(coalition: set[int], query: Tensor, moments: Tensor) -> float:
    """What a coalition is worth: 0 without the query or without a moment."""
    chosen = sorted(coalition - {QUERY})
    if QUERY not in coalition or not chosen:
        return 0.0
    together = moments[chosen].double().sum(0)
    return float(together @ query.double() / together.norm())


def _interaction(moment: int, query: Tensor, moments: Tensor) -> float:
    """The definition of Grabisch and Roubens for the pair of a moment and the query."""
    others = [one for one in range(len(moments)) if one != moment]
    total, players = 0.0, len(moments) + 1
    for size in range(len(others) + 1):
        weight = math.factorial(size) * math.factorial(players - 2 - size) / math.factorial(players - 1)
        for chosen in itertools.combinations(others, size):
            base = set(chosen)
            total += weight * (
                _value(base | {moment, QUERY}, query, moments)
                - _value(base | {moment}, query, moments)
                - _value(base | {QUERY}, query, moments)
                + _value(base, query, moments)
            )
    return total


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_interactions_are_those_of_the_definition(count: int) -> None:
    queries, moments = _game(count)
    found = shapley_interactions(queries, moments, _all(count))
    for game in range(3):
        expected = [_interaction(moment, queries[game], moments[game]) for moment in range(count)]
        assert found[game].tolist() == pytest.approx(expected, abs=1e-5)


def test_interactions_share_out_the_value_of_all_together() -> None:
    """Efficiency: they add up to what all moments are worth to the query."""
    queries, moments = _game(4)
    found = shapley_interactions(queries, moments, _all(4))
    whole = coalition_values(queries, moments, _all(4))[:, -1]
    torch.testing.assert_close(found.sum(1), whole)


def test_moments_that_are_alike_share_alike_and_order_does_not_matter() -> None:
    queries, moments = _game(4)
    moments[:, 3] = moments[:, 1]
    found = shapley_interactions(queries, moments, _all(4))
    torch.testing.assert_close(found[:, 1], found[:, 3])
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(shapley_interactions(queries, moments[:, order], _all(4)), found[:, order])


def test_a_moment_that_is_not_there_is_no_player() -> None:
    queries, moments = _game(4)
    there = _all(4)
    there[:, 2] = False
    found = shapley_interactions(queries, moments, there)
    rest = torch.tensor([0, 1, 3])
    torch.testing.assert_close(found[:, rest], shapley_interactions(queries, moments[:, rest], _all(3)))
    assert not found[:, 2].any()


def test_the_moment_that_matches_best_interacts_most() -> None:
    queries, moments = _game(5)
    moments[:, 3] = queries
    assert shapley_interactions(queries, moments, _all(5)).argmax(1).tolist() == [3, 3, 3]


def test_gradients_are_finite_where_moments_are_missing() -> None:
    queries, moments = _game(4)
    there = _all(4)
    there[0] = False
    moments.requires_grad_()
    (gradient,) = torch.autograd.grad(shapley_interactions(queries, moments, there)[:, 0].sum(), moments)
    assert gradient.isfinite().all()
    assert not gradient[0].any()
    assert gradient[1].any()
