"""Dropout: how many are dropped, what is left of the mean, and when nothing happens."""

from __future__ import annotations

import pytest
import torch

from whenabouts_systems.models.parts.layers import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.8])
def test_that_share_of_values_is_dropped_and_the_mean_stays(probability: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(probability)(torch.ones(1000, 401))
    assert float((dropped == 0).float().mean()) == pytest.approx(probability, abs=0.005)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.01)
    assert len(dropped.unique()) == 2


def test_values_that_share_random_bits_are_dropped_independently() -> None:
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(40_000)) > 0).float().view(-1, 4)
    assert (torch.corrcoef(kept.T) - torch.eye(4)).abs().max() < 0.03
    assert (kept.mean(0) - 0.5).abs().max() < 0.02


def test_gradients_pass_where_values_passed() -> None:
    values = torch.randn(5, 7, requires_grad=True)
    dropped = Dropout(0.5)(values)
    (gradient,) = torch.autograd.grad(dropped.sum(), values)
    assert torch.equal(gradient == 0, dropped == 0)


def test_the_generator_decides() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(Dropout(0.5)(torch.ones(33)))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_nothing_happens_outside_training_or_at_probability_zero() -> None:
    values = torch.randn(3)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values


def test_probability_one_drops_all() -> None:
    assert not Dropout(1.0)(torch.ones(9)).any()


def test_values_may_be_overwritten() -> None:
    values = torch.ones(9)
    assert Dropout(0.5, inplace=True)(values) is values
