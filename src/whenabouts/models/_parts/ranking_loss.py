"""A positive must score higher than a negative drawn from the best of the negatives; means over queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Kind = Literal["hinge", "lse"]


@dataclass(frozen=True)
class Negatives:
    """One negative for each of A anchors: its `score` (A,), and whether there `exists` one (A,).

    Where there is none the score is that of an arbitrary candidate and must not count.
    """

    score: Tensor
    exists: Tensor


def draw_negatives(
    scores: Tensor, allowed: Tensor, pool: int | None = None, ranks: Tensor | None = None
) -> Negatives:
    """A negative for each row of `scores` (A, C), uniformly from the `pool` highest that are `allowed`.

    From all that are allowed where `pool` is None. `ranks` (A,) int64 names them instead, 0 the highest. The
    generator is PyTorch's. Paper 000, equation 10 (the accent on R); XML draws alike.
    """
    order = scores.detach().masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
    number = allowed.sum(1)
    if ranks is None:
        limit = number if pool is None else number.clamp(max=pool)
        ranks = (torch.rand(len(scores), device=scores.device) * limit).long()
        ranks = torch.minimum(ranks, (limit - 1).clamp(min=0))
    chosen = order.gather(1, ranks[:, None])
    return Negatives(scores.gather(1, chosen)[:, 0], number > ranks)


def shortfall(higher: Tensor, lower: Tensor, *, margin: float = 0.0, kind: Kind = "hinge") -> Tensor:
    """How far `higher` fails to be above `lower`, element by element.

    "hinge": [margin + lower - higher]+; "lse": log(1 + exp(lower - higher)), which has no margin.
    """
    if kind == "lse":
        return functional.softplus(lower - higher)
    return (margin + lower - higher).relu()


def against_negatives(
    positive: Tensor, negatives: Negatives, *, margin: float, kind: Kind = "hinge"
) -> Tensor:
    """(A,): the shortfall of each positive (A,) against its negative; 0 where there is no negative."""
    lacking = shortfall(positive, negatives.score, margin=margin, kind=kind)
    return torch.where(negatives.exists, lacking, 0.0)


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """(…) the mean over the last axis of losses (…, Q), times `weight` (Q,) where there is one."""
    return (losses if weight is None else losses * weight).mean(-1)
