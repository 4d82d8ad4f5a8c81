"""The probability of an answer: what raises it, what it never claims, and how one corpus moves it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.confidence.probability import (
    LEAST_IN_FIVE,
    NAMES,
    PROBABLE,
    RISING,
    Adjustment,
    Features,
    adjusted,
    general,
    learned,
    with_adjustment,
)

ORDINARY = Features(2.0, 2.0, 1.0, 0.7, 0.4, 2.0, 1.2, 0.7, 1.0, 0.0)
units = st.floats(0, 12)
features = st.builds(
    Features, units, units, st.floats(0, 3.5), st.floats(0, 3), st.floats(0, 1), units, st.floats(0, 4),
    st.floats(0, 4), st.floats(0, 5.3), st.sampled_from([0.0, 1.0]),
)  # fmt: skip


@given(features, st.sampled_from(sorted(RISING)), st.floats(0.01, 3))
def test_what_speaks_for_an_answer_never_lowers_its_probability(
    own: Features, name: str, more: float
) -> None:
    curve = general()
    raised = replace(own, **{name: getattr(own, name) + RISING[name] * more})
    for has_words in (True, False):
        assert curve.of_first(raised, has_words=has_words) >= curve.of_first(own, has_words=has_words)
        assert curve.of_five(raised, has_words=has_words) >= curve.of_five(own, has_words=has_words)


@given(features, features, st.booleans())
def test_a_later_moment_is_never_likelier_and_nothing_is_certain(
    first: Features, later: Features, has_words: bool
) -> None:
    curve = general()
    at_first = curve.of_first(first, has_words=has_words)
    [at_later] = curve.of_later(first, at_first, [later], has_words=has_words)
    assert 0 < at_later <= at_first < 1


@given(st.floats(0.01, 0.95), st.integers(1, 100_000), st.floats(0, 500))
def test_the_interval_holds_the_probability_and_narrows_with_what_is_known(
    probability: float, clips: int, questions: float
) -> None:
    low, high = general().interval(probability, clips)
    assert low <= probability <= high
    known = general(Adjustment(questions=questions)).interval(probability, clips)
    wider = general().interval(probability, max(1, clips // 10))
    assert wider[0] <= low <= known[0] <= probability <= known[1] <= high <= wider[1]


def test_what_says_all_of_the_query_and_stands_alone_is_a_match_and_what_says_nothing_is_none() -> None:
    curve = general()
    spoken = replace(ORDINARY, lead=8.0, lead_of_video=2.8, crowd=0.1, spoken=2.6, nearer=0.0)
    unspoken = replace(ORDINARY, surprise=0.5, lead=0.5, lead_of_video=0.3, crowd=1.8, spoken=0.3, nearer=3.0)
    assert curve.of_first(spoken, has_words=True) >= PROBABLE.match_at
    assert curve.of_five(spoken, has_words=True) >= PROBABLE.match_at
    assert curve.of_five(unspoken, has_words=True) < LEAST_IN_FIVE


def test_the_numbers_that_are_shipped_say_what_they_were_fitted_on() -> None:
    value = learned()
    assert set(value["words"]["weights"]) == set(NAMES)
    assert value["date"] and "translations" in value["fitted_on"]
    # What a moment says of the query is nothing that pictures have.
    assert not {"spoken", "length", "nearer", "name"} & set(value["others"]["weights"])


def test_nothing_known_of_a_corpus_leaves_its_probabilities_alone() -> None:
    assert adjusted([], [], [], general()) == Adjustment()
    assert with_adjustment(0.37, Adjustment()) == 0.37


def test_a_corpus_whose_answers_are_all_right_is_surer_but_not_at_once() -> None:
    some = adjusted([0.0] * 5, [True] * 5, [1.0] * 5, general())
    many = adjusted([0.0] * 80, [True] * 80, [1.0] * 80, general())
    assert 0.5 < with_adjustment(0.5, some) < with_adjustment(0.5, many) < 0.99
    assert with_adjustment(0.5, many) == pytest.approx(0.88, abs=0.08)


def test_many_unlikely_answers_that_are_right_do_not_throw_the_fit_off() -> None:
    odds = [-5.0] * 300 + [-1.0] * 100
    known = adjusted(
        odds, [i % 6 == 0 for i in range(300)] + [i % 3 == 0 for i in range(100)], [1.0] * 400, general()
    )
    assert 0.1 <= known.slope < 1 and abs(known.shift) < 2
    assert with_adjustment(1 / (1 + math.exp(5)), known) == pytest.approx(1 / 6, abs=0.03)


def test_what_is_known_across_languages_comes_before_what_is_known_of_the_corpus() -> None:
    across, own = Adjustment(0.6, 0.5, 472.0), Adjustment(-0.2, 0.8, 30.0)
    curves = replace(general(own), across={"model": across})
    first = (
        replace(general(), across={"model": across})
        .across_languages("model")
        .of_first(ORDINARY, has_words=True)
    )
    both = curves.across_languages("model")
    assert both.of_first(ORDINARY, has_words=True) == pytest.approx(with_adjustment(first, own))
    assert both.adjustment.questions == own.questions


def test_a_query_in_another_language_is_surer_than_the_few_words_it_shares_say() -> None:
    moved = general().across_languages("multilingual-e5")
    nothing_said = replace(ORDINARY, spoken=0.0, nearer=3.0, surprise=0.5, lead=0.5, lead_of_video=0.3)
    assert moved.of_first(nothing_said, has_words=True) > general().of_first(nothing_said, has_words=True)
