"""The mean over the queries of a batch, each weighed where examples have weights (paper 004)."""

from __future__ import annotations

from torch import Tensor


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """(…) the mean over the last axis of losses (…, Q), times `weight` (Q,) where there is one."""
    return (losses if weight is None else losses * weight).mean(-1)
