"""Negatives as a released program drew them, in place of our own draws."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.parts import partial_relevance
from whenabouts_systems.models.parts.ranking_loss import Negatives, draw_negatives


def negatives_at(ranks: Tensor, scores: Tensor, allowed: Tensor) -> Negatives:
    """The allowed negative of each row of `scores` (A, C) with a rank (A,), 0 being the highest."""
    order = scores.detach().masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
    chosen = order.gather(1, ranks[:, None])
    return Negatives(scores.gather(1, chosen)[:, 0], allowed.sum(1) > ranks)


def draw_these(monkeypatch: pytest.MonkeyPatch, system: ModuleType, *ranks: Tensor) -> None:
    """Let the draws of a system's module, in their order, be the negatives with these ranks."""
    left = iter(ranks)
    monkeypatch.setattr(
        system, "draw_negatives", lambda scores, allowed, _: negatives_at(next(left), scores, allowed)
    )


class ReleasedDraws:
    """Ranks that stand in for draws of MS-SL and GMMFormer, in the program's order; every one must be used.

    But where only the hardest may be drawn: that is no draw, and the program makes none for videos.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: list[Tensor] = []
        monkeypatch.setattr(partial_relevance, "draw_negatives", self._drawn)

    def _drawn(self, scores: Tensor, allowed: Tensor, pool: int | None) -> Negatives:
        if pool == 1:
            return draw_negatives(scores, allowed, 1)
        ranks = self.left.pop(0)
        limit = allowed.sum(1) if pool is None else allowed.sum(1).clamp(max=pool)
        assert (ranks < limit).all(), "the program drew from another pool"
        return negatives_at(ranks, scores, allowed)

    def begin(self, calls: list[dict[str, Any]], *, hardest: bool) -> None:
        """Take what the program was told to draw; `hardest`: from pools of one."""
        self.left = [] if hardest else ranks_of(calls)

    def end(self) -> None:
        """All of it must have been used."""
        assert not self.left, "the program drew more often"


def ranks_of(calls: list[dict[str, Any]]) -> list[Tensor]:
    """Ranks among the negatives, 0 the hardest; what is drawn for one video at a time comes together."""
    found: list[Tensor] = []
    alone: list[Tensor] = []
    for call in calls:
        ranks = torch.tensor(call["draw"]) - call["low"]
        if len(ranks) == 1:
            alone.append(ranks)
            continue
        found += [torch.cat(alone)] if alone else []
        found.append(ranks)
        alone = []
    return found
