"""The forms in which a second encoder's cosines are measured."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.spoken_search import DATA, Title

if not DATA.is_dir():
    pytest.skip("the real transcripts are not here, which the benchmark lists", allow_module_level=True)

from benchmarks.learned_ranking import Asked
from benchmarks.two_encoders import Candidates, compared

FIRST = np.array([3.0, 1.0, 2.0])
WEIGHTS = np.zeros(4)


def answer(second: list[float]) -> Candidates:
    """Three moments, the last right, whose whole score is the first encoder's cosine."""
    asked = Asked(Title("q", "r", 0, 1, "s"), FIRST, np.zeros((3, 4)), np.array([False, False, True]))
    return Candidates(asked, FIRST, np.array(second), [])


def test_a_second_encoder_that_agrees_changes_no_score_whatever_its_scale() -> None:
    agrees = answer((0.8 + FIRST / 100).tolist())
    assert agrees.with_mean().score == pytest.approx(FIRST)
    assert agrees.rank_fused(WEIGHTS) == agrees.asked.rank(WEIGHTS) == 2


def test_a_second_encoder_that_prefers_the_right_moment_raises_it_in_each_form() -> None:
    prefers = answer([0.79, 0.80, 0.90])
    assert prefers.with_mean().rank(WEIGHTS) == 1
    assert prefers.with_feature().rank(np.array([0, 0, 0, 0, 1.0])) == 1
    assert prefers.rank_fused(WEIGHTS) == 1


def test_equal_cosines_of_the_second_encoder_change_no_order() -> None:
    assert answer([0.8, 0.8, 0.8]).with_feature().rank(np.array([0, 0, 0, 0, 9.0])) == 2


def test_gains_are_counted_title_by_title() -> None:
    gained = compared(np.array([1.0, 2.0, 1.0]), np.array([2.0, 2.0, 1.0]), ["a", "b", "c"])
    assert gained["hit@1"]["hits"] == pytest.approx(2 / 3)
    assert gained["hit@1"]["gain"] == pytest.approx(1 / 3)
    assert gained["hit@5"]["gain"] == 0
