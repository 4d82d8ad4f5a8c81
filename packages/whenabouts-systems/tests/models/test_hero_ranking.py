"""A positive against all negatives, the hardest counting more, against loops."""

from __future__ import annotations

import pytest
import torch

from whenabouts_systems.models.hero import HardWeights, against_all

SCORES = torch.tensor([[0.9, 0.2, 0.5, 0.4], [0.1, 0.3, 0.7, 0.69], [0.0, 0.0, 0.0, 0.0]])
ALLOWED = torch.tensor([[False, True, True, True], [True, True, False, True], [False, False, False, False]])
POSITIVE = torch.tensor([0.45, 0.7, 0.0])


@pytest.mark.parametrize("weights", [None, HardWeights(1), HardWeights(2, 4.0, 0.5), HardWeights(9)])
def test_each_negative_counts_by_its_place(weights: HardWeights | None) -> None:
    found = against_all(POSITIVE, SCORES, ALLOWED, 0.1, weights)
    for row in range(2):
        negatives = sorted(SCORES[row][ALLOWED[row]].tolist(), reverse=True)
        lost = 0.0
        for place, score in enumerate(negatives):
            counts = 1.0 if weights is None else weights.hard if place < weights.pool else weights.rest
            lost += counts * max(0.0, 0.1 + score - POSITIVE[row].item())
        assert found[row].item() == pytest.approx(lost / len(negatives), abs=1e-6)


def test_without_a_negative_nothing_is_lost() -> None:
    for weights in (None, HardWeights(2)):
        assert against_all(POSITIVE, SCORES, ALLOWED, 0.1, weights)[2] == 0
