from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from whenabouts.confidence.rates import CERTAINTY, Rate, exact_interval, rate_of


@given(st.integers(1, 2000), st.floats(0, 1))
def test_the_interval_is_that_of_the_beta_distribution(of: int, share: float) -> None:
    count = round(of * share)
    low, high = exact_interval(count, of)
    tail = (1 - CERTAINTY) / 2
    assert low == pytest.approx(beta.ppf(tail, count, of - count + 1) if count else 0.0, abs=1e-9)
    assert high == pytest.approx(beta.ppf(1 - tail, count + 1, of - count) if count < of else 1.0, abs=1e-9)


@pytest.mark.parametrize("of", [5, 40, 235])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5])
def test_the_interval_holds_the_true_share_as_often_as_it_says(of: int, share: float) -> None:
    held = 0.0
    for count in range(of + 1):
        low, high = exact_interval(count, of)
        held += binom.pmf(count, of, share) * (low <= share <= high)
    assert held >= CERTAINTY


def test_questions_of_one_video_that_fare_alike_leave_a_wider_interval() -> None:
    groups = [str(video) for video in range(20) for _ in range(10)]
    alike = [video % 2 == 0 for video in range(20) for _ in range(10)]
    mixed = [number % 2 == 0 for _ in range(20) for number in range(10)]
    assert rate_of(alike, groups).share == rate_of(mixed, groups).share == 0.5
    assert rate_of(alike, groups).effective == pytest.approx(19)  # as twenty questions, but for one mean
    assert rate_of(mixed, groups).effective == 200
    narrow, wide = (rate_of(hits, groups).interval for hits in (mixed, alike))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_intervals_of_grouped_questions_hold_the_true_share_in_nineteen_of_twenty_cases() -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        shares = rng.beta(0.3 * 4, 0.7 * 4, 40)  # videos differ; 0.3 in the mean
        hits = (rng.random((40, 5)) < shares[:, None]).ravel().tolist()
        low, high = rate_of(hits, [str(row // 5) for row in range(200)]).interval
        held.append(low <= 0.3 <= high)
    assert np.mean(held) >= 0.93  # 0.95 less what chance takes from it in 400 draws


def test_no_questions_say_nothing_and_do_not_fail() -> None:
    nothing = rate_of([])
    assert (nothing.share, nothing.interval) == (None, (0.0, 1.0))
    assert nothing.to_json()["rate"] is None
    assert str(nothing) == "no questions to measure it with"
    assert rate_of([False], ["a"]).interval[1] > 0.9


def test_a_rate_comes_back_from_the_corpus_as_it_was_and_reads_as_people_read() -> None:
    rate = rate_of([True] * 2 + [False] * 38)
    assert Rate.from_json(rate.to_json()) == rate
    assert str(rate) == "5.0% (2 of 40; 0.6% to 16.9%)"


def test_numbers_that_are_no_share_are_refused() -> None:
    with pytest.raises(ValueError, match="not a share"):
        exact_interval(3, 2)
    with pytest.raises(ValueError, match="1 groups for 2 questions"):
        rate_of([True, False], ["a"])
