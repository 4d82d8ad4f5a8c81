"""Measures of rejection against plain counting, and their intervals."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts_bench.evaluation.significance import bootstrap_intervals
from whenabouts_bench.harness.rejection import auroc, calibration_error, false_match, rejection_of
from whenabouts_bench.harness.results import OfRejection

CASES = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=25).filter(
    lambda rows: len({positive for _, positive in rows}) == 2
)


def numbers(found: OfRejection, name: str) -> Any:
    """(mean, low, high) of a measure; None if it cannot be measured."""
    stated = found.metrics[name]
    return None if stated is None else msgspec.structs.astuple(stated)[:3]


@given(CASES)
def test_auroc_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in rows], np.float64)
    positive = np.array([is_positive for _, is_positive in rows])
    pairs = list(itertools.product(scores[positive], scores[~positive]))
    right = sum((a > b) + (a == b) / 2 for a, b in pairs)
    assert auroc(scores, positive, np.ones(len(rows))) == pytest.approx(right / len(pairs))


@given(CASES)
def test_false_matches_are_those_of_the_best_threshold(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in rows], np.float64)
    positive = np.array([is_positive for _, is_positive in rows])
    possible = [
        (scores[~positive] >= threshold).mean()
        for threshold in set(scores)
        if (scores[positive] >= threshold).mean() >= 0.95
    ]
    assert false_match(scores, positive, np.ones(len(rows))) == pytest.approx(min(possible))


def test_weights_are_as_repeated_queries() -> None:
    scores, positive = np.array([1.0, 2.0, 3.0, 0.5]), np.array([True, False, True, False])
    weights, times = np.array([2.0, 1.0, 0.0, 3.0]), [0, 0, 1, 3, 3, 3]
    for measure in (auroc, false_match):
        assert measure(scores, positive, weights) == measure(scores[times], positive[times], np.ones(6))
    stated = np.array([0.1, 0.2, 0.9, 1.0])
    assert calibration_error(stated, positive, weights) == pytest.approx(
        calibration_error(stated[times], positive[times], np.ones(6))
    )


def test_calibration_compares_bins() -> None:
    # 0.0-0.1: stated 0.05, right 0; 0.9-1.0: stated 0.95 and 1.0, right one of two.
    stated, right = np.array([0.05, 0.95, 1.0]), np.array([False, True, False])
    assert calibration_error(stated, right, np.ones(3)) == pytest.approx((0.05 + (1.95 - 1)) / 3)


def test_intervals_hold_the_value_and_are_wider_with_fewer_videos() -> None:
    rng = np.random.default_rng(3)
    positive = np.arange(400) % 2 == 0
    scores = rng.normal(size=400) + positive
    many = rejection_of(scores, None, positive, positive, np.arange(400) // 2)
    few = rejection_of(scores, None, positive, positive, np.arange(400) // 40)
    for found in (many, few):
        mean, low, high = numbers(found, "AUROC")
        assert low < mean < high
        assert numbers(found, "ECE") is None
    _, low, high = numbers(many, "AUROC")
    assert high - low < 0.2


def test_intervals_are_those_of_the_bootstrap_over_videos() -> None:
    # In one bin with a claim above every share of right answers, the error is a mean.
    right, videos = np.arange(60) % 7 < 3, np.arange(60) // 3
    found = rejection_of(np.zeros(60), np.full(60, 0.95), np.ones(60, bool), right, videos)
    expected = bootstrap_intervals((0.95 - right.astype(np.float64))[:, None], videos)[0]
    assert numbers(found, "ECE")[1:] == pytest.approx(expected, abs=0.02)


def test_without_negatives_only_calibration_is_measured() -> None:
    everything = np.ones(4, bool)
    found = rejection_of(np.arange(4.0), np.full(4, 0.5), everything, everything, np.arange(4))
    assert numbers(found, "AUROC") is None and numbers(found, "false match at 95 % recall") is None
    assert numbers(found, "ECE")[0] == 0.5
