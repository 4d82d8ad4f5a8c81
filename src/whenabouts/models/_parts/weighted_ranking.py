"""Every positive must score higher than all negatives, of which the hardest count more (HERO)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whenabouts.models._parts.ranking_loss import shortfall


@dataclass(frozen=True)
class HardWeights:
    """The `pool` hardest negatives of each anchor count `hard` times, all others `rest` times."""

    pool: int
    hard: float = 10.0
    rest: float = 0.1


def against_all(
    positive: Tensor, scores: Tensor, allowed: Tensor, margin: float, weights: HardWeights | None = None
) -> Tensor:
    """(A,): the mean hinge of each positive (A,) against its allowed negatives among `scores` (A, C).

    `allowed` (A, C) bool. An anchor without a negative loses 0. With `weights` what each negative loses
    counts by its place among the anchor's negatives, the highest score first (equal scores: the first one).
    """
    lacking = shortfall(positive[:, None], scores, margin=margin)
    if weights is not None:
        lacking = lacking * _by_place(scores.detach(), allowed, weights)
    return lacking.masked_fill(~allowed, 0.0).sum(1) / allowed.sum(1).clamp(min=1)


def _by_place(scores: Tensor, allowed: Tensor, weights: HardWeights) -> Tensor:
    """(A, C): how much each negative counts."""
    order = scores.masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
    counts = torch.full_like(scores, weights.rest)
    return counts.scatter(1, order[:, : weights.pool], weights.hard)
