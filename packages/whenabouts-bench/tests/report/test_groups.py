"""Queries grouped by their properties."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whenabouts_bench.evaluation.matching import truth_of
from whenabouts_bench.evaluation.protocols import PROTOCOLS
from whenabouts_bench.report.groups import (
    MOST_LABELS,
    Grouping,
    by_label,
    by_moment_length,
    by_position,
    by_positives,
    by_query_length,
    groupings,
    properties_of,
)

NAN = math.nan


def _labels(grouping: Grouping) -> list[str]:
    return [grouping.labels[member] for member in grouping.members.tolist()]


def test_moments_by_seconds_and_those_without_any() -> None:
    length = np.array([4.99, 5.0, 9.0, 10.0, 39.0, 80.0, 500.0, 0.0, NAN])
    assert _labels(by_moment_length(length)) == [
        "under 5 s",
        "5–10 s",
        "5–10 s",
        "10–20 s",
        "20–40 s",
        "80 s and more",
        "80 s and more",
        "no length",
        "no length",
    ]


def test_queries_by_words() -> None:
    assert _labels(by_query_length(np.array([0, 1, 5, 6, 10, 11, 20, 21, 99]))) == [
        "no words",
        "1–5 words",
        "1–5 words",
        "6–10 words",
        "6–10 words",
        "11–15 words",
        "16–20 words",
        "21 words and more",
        "21 words and more",
    ]


def test_positions_by_fifths_also_at_and_behind_the_end() -> None:
    middle = np.array([0.0, 1.9, 2.0, 5.0, 9.9, 10.0, 12.0, 3.0, NAN])
    duration = np.array([10.0, 10, 10, 10, 10, 10, 10, NAN, 10])
    assert _labels(by_position(middle, duration)) == [
        "first fifth",
        "first fifth",
        "second fifth",
        "third fifth",
        "last fifth",
        "last fifth",
        "last fifth",
        "unknown part",
        "unknown part",
    ]


def test_queries_by_their_positives() -> None:
    assert _labels(by_positives(np.array([0, 1, 2, 3, 4, 5, 6, 10, 11, 20, 21, 80]))) == [
        "no positive",
        "1 positive",
        *(f"{many} positives" for many in ("2", "3", "4–5", "4–5", "6–10", "6–10", "11–20", "11–20")),
        "21 positives and more",
        "21 positives and more",
    ]


def test_labels_of_the_data_set_and_the_rare_ones_together() -> None:
    assert _labels(by_label("type", ["v", "t", "", "v"])) == ["v", "t", "none", "v"]
    many = [f"kind {number:02d}" for number in range(30) for _ in range(30 - number)]
    grouping = by_label("type", many)
    assert len(grouping.labels) == MOST_LABELS and grouping.labels[-1] == "all others"
    assert grouping.labels[0] == "kind 00" and grouping.counts().sum() == len(many)
    assert all(
        given == label or label == "all others" for given, label in zip(many, _labels(grouping), strict=True)
    )


def test_labels_that_no_query_has_are_not_shown() -> None:
    assert by_moment_length(np.array([7.0, 30.0])).labels == ("5–10 s", "20–40 s")


def test_the_most_relevant_positive_stands_for_a_query(made: Callable[..., Any]) -> None:
    truth = {
        "a": [("v", 0.0, 2.0, 1.0), ("w", 4.0, 10.0, 3.0), ("w", 0.0, 1.0, 3.0), ("v", 5.0, 6.0, 0.0)],
        "b": [("v", 0.0, 1.0, 0.0)],
        "c": [("v", 3.0, 4.0, 1.0)],
    }
    texts = {"a": "one  two three", "b": "", "c": "word"}
    annotations, _ = made(truth, durations={"v": 8.0, "w": 20.0}, texts=texts)
    facts = properties_of(annotations, truth_of(annotations, PROTOCOLS["vcmr"]), np.array([0, 1, 2]))
    assert facts.words.tolist() == [3, 0, 1]
    assert facts.positives.tolist() == [3, 0, 1]
    assert facts.length.tolist() == pytest.approx([6.0, NAN, 1.0], nan_ok=True)
    assert facts.middle.tolist() == pytest.approx([7.0, NAN, 3.5], nan_ok=True)
    assert facts.duration.tolist() == pytest.approx([20.0, NAN, 8.0], nan_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_every_grouping_parts_all_queries_and_its_tables_add_up(case: Callable[..., Any], seed: int) -> None:
    drawn = case(seed, 60, several=True)
    truth = truth_of(drawn.annotations, PROTOCOLS["vcmr"])
    queries = np.flatnonzero(truth.counts)
    kinds = [("x", "y")[number % 2] for number in range(len(queries))]
    classes = np.random.default_rng(seed).integers(0, 6, len(queries))
    told = groupings(properties_of(drawn.annotations, truth, queries), {"type": kinds})
    assert told[0].title == "Query type" and len(told) == 5
    for grouping in told:
        assert (grouping.counts() > 0).all() and grouping.counts().sum() == len(queries)
        table = grouping.table(classes, 6)
        assert table.sum(axis=1).tolist() == grouping.counts().tolist()
        assert table.sum(axis=0).tolist() == np.bincount(classes, minlength=6).tolist()
        assert grouping.means(classes == 2).tolist() == pytest.approx(
            (table[:, 2] / grouping.counts()).tolist()
        )
