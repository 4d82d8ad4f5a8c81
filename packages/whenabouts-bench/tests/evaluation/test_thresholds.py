"""Spans whose IoU is exactly the threshold on paper: the protocols of this project take each as a hit."""

from __future__ import annotations

import pytest

from whenabouts.types import Judgement, Moment, ScoredMoment
from whenabouts_bench.evaluation.evaluate import evaluate

SPANS = 400


def hits_at(protocol: str, tenths: int) -> int:
    """How many of 400 spans in tenths of a second, of which the answer holds `tenths` of ten, are hits."""
    qrels, run = {}, {}
    for number in range(SPANS):
        start, length = 7 * number + 1, 10 * (1 + number % 5)
        qrels[str(number)] = [Judgement(Moment("v", start / 10, (start + length) / 10), 1.0)]
        answer = Moment("v", start / 10, (start + length * tenths // 10) / 10)
        run[str(number)] = [ScoredMoment(answer, 1.0)]
    return int(evaluate(qrels, run, [f"nDCG@1,IoU={tenths / 10}"], protocol=protocol).values.sum())


@pytest.mark.parametrize("tenths", [3, 5, 7])
@pytest.mark.parametrize("protocol", ["vcmr", "rvmr", "rvmr-spr"])
def test_an_overlap_of_exactly_the_threshold_on_paper_is_a_hit(protocol: str, tenths: int) -> None:
    assert hits_at(protocol, tenths) == SPANS


def test_the_released_program_of_spr_compares_floats_as_they_are() -> None:
    assert hits_at("rvmr-spr-as-released", 7) == 242


@pytest.mark.parametrize("protocol", ["rvmr", "rvmr-spr"])
def test_a_clear_miss_stays_a_miss(protocol: str) -> None:
    qrels = {"q": [Judgement(Moment("v", 0, 10), 1.0)]}
    run = {"q": [ScoredMoment(Moment("v", 0, 6.99999), 1.0)]}
    assert evaluate(qrels, run, ["nDCG@1,IoU=0.7"], protocol=protocol).values[0, 0] == 0
