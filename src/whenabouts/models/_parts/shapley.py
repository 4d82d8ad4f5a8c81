"""How much a moment and a query gain by coming together: Shapley interaction (G2L, Li et al., ICCV 2023).

A game: its players are some moments and a query, the value of a coalition is how well its moments together
match the query, and 0 where it lacks the query or has no moment. The interaction of two players is what they
bring together beyond what each brings alone, averaged over the coalitions of the others with Shapley's
weights (Grabisch and Roubens, 1999):

    I(m, q) = sum over C of c! (n - c)! / (n + 1)! (v(C + m + q) - v(C + m) - v(C + q) + v(C))

C runs over the subsets of the n other moments and has c of them. Coalitions without the query are worth 0,
so v(C + m + q) - v(C + q) is left: what the moment adds to each coalition that has the query.

Shapes: S games, M moments each, D width, C = 2^M coalitions.
"""

from __future__ import annotations

from functools import lru_cache
from math import factorial

import torch
from torch import Tensor

from whenabouts.models._parts.projection import unit

MOST = 10
"""Moments of a game at most: its coalitions are counted out, and there are 2^10."""


def shapley_interactions(queries: Tensor, moments: Tensor, there: Tensor) -> Tensor:
    """(S, M): the interaction of each moment with the query, exactly; 0 where there is no moment.

    `queries` (S, D) and `moments` (S, M, D) are unit vectors, `there` (S, M) bool. The value of a coalition
    is the cosine of the query with the sum of the coalition's moments. A moment that is not there adds
    nothing (a null player), so the others' interactions are those of the game without it.
    """
    values = coalition_values(queries, moments, there)
    joined, alone, weights = (one.to(moments.device) for one in _marginals(moments.shape[1]))
    gains = values[:, joined] - values[:, alone]
    return (gains * weights).sum(2)


def coalition_values(queries: Tensor, moments: Tensor, there: Tensor) -> Tensor:
    """(S, C): the value of each coalition of moments with the query; bit i of C's number is moment i."""
    members = _members(moments.shape[1]).to(moments.device)
    present = torch.where(there[..., None], moments, 0.0)
    together = torch.einsum("cm,smd->scd", members.to(moments.dtype), present)
    return torch.einsum("scd,sd->sc", unit(together), queries)


@lru_cache
def _members(count: int) -> Tensor:
    """(2^M, M) bool: which moments each coalition has."""
    numbers = torch.arange(2**count)
    return (numbers[:, None] >> torch.arange(count)) & 1 == 1


@lru_cache
def _marginals(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(M, 2^(M-1)) each: coalitions with a moment, the same ones without it, and Shapley's weights."""
    members = _members(count)
    numbers = torch.arange(2**count)
    without = torch.stack([numbers[~members[:, moment]] for moment in range(count)])
    sizes = members.sum(1)[without].tolist()
    whole = factorial(count)
    weights = [[factorial(one) * factorial(count - 1 - one) / whole for one in row] for row in sizes]
    bits = 2 ** torch.arange(count)
    return without + bits[:, None], without, torch.tensor(weights)
