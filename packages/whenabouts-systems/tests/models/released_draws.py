"""Negatives as a released program drew them, in place of our own draws (MS-SL, GMMFormer)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.parts import partial_relevance
from whenabouts_systems.models.parts.ranking_loss import Negatives, draw_negatives


class ReleasedDraws:
    """Ranks that stand in for draws, in the order of the program's; every one must be used.

    But where only the hardest may be drawn: that is no draw, and the program makes none for videos.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: list[Tensor] = []
        monkeypatch.setattr(partial_relevance, "draw_negatives", self._drawn)

    def _drawn(self, scores: Tensor, allowed: Tensor, pool: int | None = None, **_: Any) -> Negatives:
        if pool == 1:
            return draw_negatives(scores, allowed, 1)
        ranks = self.left.pop(0)
        limit = allowed.sum(1) if pool is None else allowed.sum(1).clamp(max=pool)
        assert (ranks < limit).all(), "the program drew from another pool"
        return draw_negatives(scores, allowed, ranks=ranks)

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
