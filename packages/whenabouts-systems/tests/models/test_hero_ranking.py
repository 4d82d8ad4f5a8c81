"""A positive against all negatives, the hardest counting more, against loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.hero import Config, Model

SCORES = torch.tensor([[0.9, 0.2, 0.5, 0.4], [0.1, 0.3, 0.7, 0.69], [0.0, 0.0, 0.0, 0.0]])
ALLOWED = torch.tensor([[False, True, True, True], [True, True, False, True], [False, False, False, False]])
POSITIVE = torch.tensor([0.45, 0.7, 0.0])


def _lacking(**settings: Any) -> Tensor:
    small: dict[str, Any] = {"streams": {"frames": 8}, "query_width": 8, "hidden": 8, "heads": 2}
    return Model(Config(**small, **settings))._against(POSITIVE, SCORES, ALLOWED, epoch=0)


@pytest.mark.parametrize(
    ("pool", "hard", "rest"), [(None, 1.0, 1.0), (1, 10.0, 0.1), (2, 4.0, 0.5), (9, 3.0, 7.0)]
)
def test_each_negative_counts_by_its_place(pool: int | None, hard: float, rest: float) -> None:
    found = _lacking(pool=pool, hard_weight=hard, rest_weight=rest)
    for row in range(2):
        negatives = sorted(SCORES[row][ALLOWED[row]].tolist(), reverse=True)
        lost = 0.0
        for place, score in enumerate(negatives):
            counts = hard if pool is None or place < pool else rest
            lost += counts * max(0.0, 0.1 + score - POSITIVE[row].item())
        assert found[row].item() == pytest.approx(lost / len(negatives), abs=1e-6)


@pytest.mark.parametrize("pool", [None, 2])
def test_without_a_negative_nothing_is_lost(pool: int | None) -> None:
    assert _lacking(pool=pool)[2] == 0
