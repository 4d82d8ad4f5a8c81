from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.confidence.probability import (
    MATCH_AT,
    NO_MATCH_BELOW,
    Chance,
    Thresholds,
    answer_for,
    fit_chance,
)


def test_the_confidence_of_unrelated_scores_is_uniform_where_scores_are_maxima() -> None:
    rng = np.random.default_rng(0)
    background, fresh = (rng.normal(size=(2000, 500)).max(axis=1) for _ in range(2))
    chance = fit_chance(list(background))
    assert chance is not None
    shares = np.array([chance.confidence(score) for score in fresh])
    for level in (0.5, 0.75, 0.95):
        assert np.mean(shares > level) == pytest.approx(1 - level, abs=0.03)


def test_a_few_sentences_that_the_corpus_does_answer_hardly_move_the_fit() -> None:
    rng = np.random.default_rng(1)
    clean = list(rng.gumbel(2.0, 0.5, 200))
    fitted, spoilt = fit_chance(clean), fit_chance(clean + [50.0] * 10)
    assert fitted is not None and spoilt is not None
    assert spoilt.confidence(6.0) == pytest.approx(fitted.confidence(6.0), abs=0.01)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_confidence_and_surprise_rise_with_the_score_and_stay_finite(one: float, other: float) -> None:
    chance = Chance(place=0.3, scale=0.1)
    low, high = sorted((one, other))
    assert 0 <= chance.confidence(low) <= chance.confidence(high) <= 1
    assert chance.surprise(low) <= chance.surprise(high)
    assert np.isfinite(chance.surprise(low)) and np.isfinite(chance.surprise(high))


def test_surprise_is_minus_the_log_of_what_is_left_to_certainty() -> None:
    chance = Chance(0.0, 1.0)
    for score in (-1.0, 0.0, 2.0, 5.0, 29.0, 31.0):
        assert (
            chance.surprise(score) == pytest.approx(-np.log1p(-chance.confidence(score)), rel=1e-3)
            or score > 20
        )
    assert chance.surprise(31.0) > chance.surprise(29.9)


def test_too_little_evidence_is_said_and_not_guessed() -> None:
    assert fit_chance([0.1] * 10) is None
    assert answer_for(None, has_moments=True) == "unsure"
    assert answer_for(None, has_moments=False) == "no_match"


def test_equal_scores_still_give_a_distribution() -> None:
    chance = fit_chance([0.0] * 100)
    assert chance is not None
    assert chance.confidence(1.0) > MATCH_AT
    assert Chance.from_json(chance.to_json()) == chance


@given(st.floats(0, 1), st.floats(0, 1), st.booleans(), st.floats(MATCH_AT, 0.99))
def test_a_higher_confidence_never_gives_a_lesser_answer(
    one: float, other: float, said: bool, match_at: float
) -> None:
    order = ("no_match", "unsure", "match")
    low, high = (
        order.index(
            answer_for(confidence, has_moments=True, never_no_match=said, thresholds=Thresholds(match_at))
        )
        for confidence in sorted((one, other))
    )
    assert low <= high


def test_answers_change_exactly_at_their_thresholds() -> None:
    at = Thresholds(0.97)
    assert answer_for(0.97, has_moments=True, thresholds=at) == "match"
    assert answer_for(np.nextafter(0.97, 0), has_moments=True, thresholds=at) == "unsure"
    assert answer_for(NO_MATCH_BELOW, has_moments=True, thresholds=at) == "unsure"
    assert answer_for(np.nextafter(NO_MATCH_BELOW, 0), has_moments=True, thresholds=at) == "no_match"
    assert answer_for(0.0, has_moments=True, never_no_match=True, thresholds=at) == "unsure"
    assert Thresholds.from_json(at.to_json()) == at
