from __future__ import annotations

from itertools import pairwise

import pytest

from whenabouts_systems.training.optimizer import constant, warmup_linear


def test_the_first_step_has_no_learning_rate_and_the_last_nearly_none() -> None:
    rates = [warmup_linear(step, 1000, 0.01) for step in range(1000)]
    assert rates[0] == 0.0
    assert rates[10] == max(rates) == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.001 / 0.99)
    assert all(later < earlier for earlier, later in pairwise(rates[10:]))


def test_without_a_warm_up_the_first_step_has_the_whole_rate() -> None:
    assert warmup_linear(0, 10, 0.0) == constant(0, 10, 0.0) == 1.0


def test_steps_behind_the_end_do_not_go_uphill() -> None:
    assert warmup_linear(25, 20, 0.2) == 0.0
