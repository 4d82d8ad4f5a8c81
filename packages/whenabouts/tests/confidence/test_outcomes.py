"""What is told of outcomes, on simulated corpora whose truth is known."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from whenabouts.confidence.outcomes import (
    Kind,
    Outcome,
    adjusted_by_halves,
    adjustment_of,
    bins,
    charts,
    rates_of,
    reliability_of,
    risk_coverage,
)
from whenabouts.confidence.probability import UNADJUSTED, Thresholds, fit_chance, general

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


def _answers(count: int, *, overstated: float, seed: int = 0) -> list[Outcome]:
    """Answers on a corpus whose log odds lie lower by `overstated` than they are stated; three to a video."""
    rng = np.random.default_rng(seed)
    stated = rng.uniform(0.05, 0.95, count)
    true = 1 / (1 + np.exp(-(np.log(stated / (1 - stated)) - overstated)))
    right = rng.random(count) < true
    return [
        Outcome("known", float(p), True, bool(r), False, False, f"video {row // 3}")
        for row, (p, r) in enumerate(zip(stated, right, strict=True))
    ]


def test_where_confidence_is_what_it_states_the_error_is_small_and_where_it_is_not_it_shows() -> None:
    honest, sure = reliability_of(_answers(4000, overstated=0)), reliability_of(_answers(4000, overstated=2))
    assert honest.error is not None and sure.error is not None
    assert honest.error < 0.03 < 0.25 < sure.error
    # What is stated is ordered the same in both: the order of right and wrong hardly suffers.
    assert honest.auroc == pytest.approx(0.8, abs=0.04)
    assert reliability_of([_one("unrelated", 0.5)]) == (None, None)


def test_answers_without_a_confidence_say_nothing_of_how_well_confidences_hold() -> None:
    unstated = [_one("known", None, right=True), _one("taken_out", None)]
    assert reliability_of(unstated) == (None, None)
    assert bins(unstated) == [] and risk_coverage(unstated) is None
    assert list(charts(unstated)) == []
    stated = [_one("known", 0.75, right=True), _one("known", 0.25), _one("taken_out", 0.5)]
    assert reliability_of([*stated, *unstated]) == reliability_of(stated)
    assert [row.right.of for row in bins([*stated, *unstated])] == [1, 1]
    curve, alone = risk_coverage([*stated, *unstated]), risk_coverage(stated)
    assert curve is not None and alone is not None and curve.to_json() == alone.to_json()


def test_a_question_that_finds_nothing_counts_as_surely_without_an_answer() -> None:
    nothing = Outcome("known", None, False, False, False, False, "video")
    assert reliability_of([nothing]) == (None, None)
    assert reliability_of([_one("known", 0.75, right=True), nothing]).error == pytest.approx(0.125)


def test_auroc_is_the_share_of_pairs_in_order_and_ties_count_half() -> None:
    outcomes = [_one("known", 0.9, right=True), _one("known", 0.9), _one("known", 0.2), _one("known", 0.95)]
    assert reliability_of(outcomes).auroc == pytest.approx((0.5 + 1 + 0) / 3)


def test_many_answers_move_the_curve_of_a_corpus_and_few_hardly() -> None:
    prior = general()
    many = adjustment_of(_answers(3000, overstated=1.5), prior)
    few = adjustment_of(_answers(6, overstated=1.5), prior)
    assert many.shift == pytest.approx(-1.5, abs=0.25) and many.slope == pytest.approx(1.0, abs=0.15)
    assert abs(few.shift) < 0.75 * abs(many.shift)
    assert 0 < few.questions <= 6 < many.questions
    assert adjustment_of([_one("unrelated", 0.9)], prior) == UNADJUSTED


def test_adjusted_confidences_hold_where_the_stated_ones_did_not_also_for_videos_that_were_left_out() -> None:
    outcomes = _answers(3000, overstated=1.5)
    moved = reliability_of(adjusted_by_halves(outcomes, general()))
    assert moved.error is not None and moved.error < 0.05


def test_rates_count_what_they_name() -> None:
    outcomes = [
        _one("unrelated", 0.99),
        _one("unrelated", 0.1),
        _one("unrelated", 0.2),
        _one("known", 0.8, right=True),
        _one("known", 0.76),
        _one("known", 0.5),
        _one("known", 0.1),
        _one("known", 0.12, said=True),
        _one("taken_out", 0.9),
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
        answers = [order.index(one.answer(Thresholds(level))) for level in (0.6, 0.8, 0.99)]
        assert answers == sorted(answers, reverse=True)


def test_right_answers_are_counted_in_the_bin_of_their_confidence() -> None:
    outcomes = [_one("known", 0.2), _one("known", 0.96, right=True), _one("known", 0.97), _one("known", 1.0)]
    found = [(one.low, one.high, one.right.count, one.right.of) for one in bins(outcomes)]
    assert found == [(0.2, 0.3, 0, 1), (0.9, 1.0, 1, 3)]
    assert bins(outcomes)[1].stated == pytest.approx((0.96 + 0.97 + 1.0) / 3)


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
    assert sum("#" in line for line in charts(_simulated(0.5, 100))) >= 6


def test_charts_of_one_video_do_not_say_that_half_of_the_questions_lack_it() -> None:
    assert not any("half" in line for line in charts([_one("known", 0.9, right=True)]))


def test_the_order_of_many_answers_is_judged_in_little_memory() -> None:
    outcomes = _answers(8000, overstated=0)
    tracemalloc.start()
    auroc = reliability_of(outcomes).auroc
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert auroc == pytest.approx(0.8, abs=0.04) and most < 10e6
