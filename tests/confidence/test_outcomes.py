"""What is told of outcomes, on simulated corpora whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts.confidence.chance import FIXED, HIGHEST_MATCH_AT, MATCH_AT, Thresholds, fit_chance
from whenabouts.confidence.outcomes import (
    Kind,
    Outcome,
    bins,
    charts,
    claims,
    rates_of,
    risk_coverage,
    thresholds_of,
)

PLACE, SCALE = 3.0, 0.7


def _simulated(shift: float, count: int = 3000, seed: int = 0) -> list[Outcome]:
    """Chance fitted to one sample of a Gumbel; unanswered questions from others, hard ones shifted."""
    rng = np.random.default_rng(seed)
    chance = fit_chance(list(rng.gumbel(PLACE, SCALE, count)))
    assert chance is not None
    found: list[tuple[Kind, float, bool]] = []
    found += [("unrelated", score, False) for score in rng.gumbel(PLACE, SCALE, count)]
    found += [("taken_out", score, False) for score in rng.gumbel(PLACE + shift, SCALE, count)]
    found += [("known", score, bool(rng.random() < 0.8)) for score in rng.gumbel(PLACE + 4, SCALE, count)]
    return [
        Outcome(kind, chance.confidence(score), True, right, False, False, f"{kind}{row}")
        for row, (kind, score, right) in enumerate(found)
    ]


def _one(kind: Kind, confidence: float | None, *, right: bool = False, said: bool = False) -> Outcome:
    return Outcome(kind, confidence, True, right, said, said, f"{kind}{confidence}{right}")


def test_where_confidence_is_what_it_claims_the_reliability_says_so() -> None:
    for held in claims(_simulated(shift=0.0)):
        low, high = held.unrelated.interval
        # The fit itself scatters as much again as what is counted.
        assert low - 0.01 <= held.claimed <= high + 0.01
        assert held.unrelated.share == pytest.approx(held.claimed, abs=0.025)


def test_where_questions_on_its_topics_find_more_the_reliability_shows_by_how_much() -> None:
    for held in claims(_simulated(shift=0.7)):
        # Shifted by one scale, the logarithm of the share is e times as far below 0.
        assert held.taken_out.share == pytest.approx(held.claimed**np.e, abs=0.03)


def test_the_threshold_rises_until_false_alarms_are_few_and_never_falls_below_what_it_means() -> None:
    assert thresholds_of(_simulated(shift=0.0)).match_at == MATCH_AT
    raised = thresholds_of(_simulated(shift=0.9))
    assert MATCH_AT < raised.match_at < HIGHEST_MATCH_AT
    rates = rates_of(_simulated(shift=0.9))
    assert rates.unrelated.share is not None and rates.taken_out.share is not None
    assert (rates.unrelated.share + rates.taken_out.share) / 2 == pytest.approx(0.1, abs=0.015)
    assert thresholds_of(_simulated(shift=5.0)).match_at == HIGHEST_MATCH_AT


def test_few_questions_choose_no_threshold() -> None:
    few = [one for one in _simulated(shift=5.0, count=40) if one.kind == "unrelated"]
    assert thresholds_of(few) == FIXED
    assert thresholds_of([*few, *[_one("taken_out", 1.0)] * 29]) == FIXED
    assert thresholds_of([*few, *[_one("taken_out", 1.0)] * 30]) != FIXED


def test_rates_count_what_they_name() -> None:
    outcomes = [
        _one("unrelated", 0.99),
        _one("unrelated", 0.1),
        _one("unrelated", 0.2),
        _one("known", 0.99, right=True),
        _one("known", 0.98),
        _one("known", 0.9),
        _one("known", 0.1),
        _one("known", 0.2, said=True),
        _one("taken_out", 0.96),
        _one("taken_out", 0.97, said=True),  # its words are said elsewhere: who knows
        _one("taken_out", 0.5),
    ]
    rates = rates_of(outcomes)
    counted = {name: (rate["count"], rate["of"]) for name, rate in rates.to_json().items()}
    assert counted == {
        "false_alarm_rate": (1, 3),
        "false_alarm_rate_taken_out": (1, 2),
        "miss_rate": (1, 5),
        "unsure_rate": (2, 5),
        "right_when_match": (1, 2),
    }


def test_a_higher_threshold_never_adds_a_match() -> None:
    order = ("no_match", "unsure", "match")
    for one in _simulated(shift=0.5, count=200):
        answers = [order.index(one.answer(Thresholds(level))) for level in (0.95, 0.97, 0.99)]
        assert answers == sorted(answers, reverse=True)


def test_right_answers_are_counted_in_the_bin_of_their_confidence() -> None:
    outcomes = [_one("known", 0.2), _one("known", 0.96, right=True), _one("known", 0.97), _one("known", 1.0)]
    found = [(one.low, one.high, one.right.count, one.right.of) for one in bins(outcomes)]
    assert found == [(0.0, 0.5, 0, 1), (0.95, 0.99, 1, 2), (0.999, 1.0, 0, 1)]


def test_risk_and_coverage_of_four_answers_by_hand() -> None:
    outcomes = [
        _one("known", 0.99, right=True),
        _one("taken_out", 0.9),
        _one("known", 0.8, right=True),
        _one("known", 0.7),
        _one("unrelated", 1.0),  # is no part of it
    ]
    curve = risk_coverage(outcomes)
    assert curve is not None
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 2 / 4])
    assert curve.area == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert curve.ideal == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert (curve.risk_at(0.1), curve.risk_at(0.6), curve.risk_at(1.0)) == pytest.approx((0, 1 / 3, 1 / 2))


def test_equally_sure_answers_are_answered_together_in_whatever_order_they_come() -> None:
    right, wrong = _one("known", 0.9, right=True), _one("known", 0.9)
    for outcomes in ([right, wrong], [wrong, right]):
        curve = risk_coverage(outcomes)
        assert curve is not None
        assert (curve.coverage.tolist(), curve.risk.tolist(), curve.area) == ([1.0], [0.5], 0.5)
    assert risk_coverage([_one("unrelated", 0.5)]) is None


def test_charts_are_lines_of_text_that_fit_a_terminal_also_where_little_is_known() -> None:
    for outcomes in (_simulated(0.5, 100), [_one("unrelated", 0.5)], []):
        assert all(len(line) <= 100 and line.isprintable() for line in charts(outcomes))
    assert sum("#" in line for line in charts(_simulated(0.5, 100))) > 10
