"""Kappas against scikit-learn's, and which annotators are compared."""

from __future__ import annotations

import json
import math
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.ranked_figures import read_raw_grades
from whenabouts_bench.evaluation.significance import tail_share
from whenabouts_bench.judging.agreement import (
    Agreement,
    Weights,
    between_annotators,
    kappa,
    raw_grades,
    with_consensus,
    write_agreement,
)
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.qrels import Judged

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)
WEIGHTS: tuple[Weights, ...] = ("none", "linear", "quadratic")


@given(PAIRS, st.sampled_from(WEIGHTS))
def test_kappa_is_one_less_the_mean_cost_over_that_of_all_pairs(
    pairs: list[tuple[int, int]], weights: Weights
) -> None:
    def cost(first: int, second: int) -> int:
        return {"none": int(first != second), "linear": abs(first - second)}.get(
            weights, (first - second) ** 2
        )

    observed = sum(cost(a, b) for a, b in pairs) * len(pairs)
    by_chance = sum(cost(a, b) for a, _ in pairs for _, b in pairs)
    expected = pytest.approx(1 - observed / by_chance) if by_chance else None
    assert kappa([a for a, _ in pairs], [b for _, b in pairs], weights) == expected


@pytest.mark.slow
@given(PAIRS, st.sampled_from(WEIGHTS))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]], weights: Weights) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    first, second = zip(*pairs, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if kappa is undefined
        expected = metrics.cohen_kappa_score(
            first, second, labels=range(5), weights=None if weights == "none" else weights
        )
    own = kappa(first, second, weights)
    if own is None:
        assert math.isnan(expected) or expected in (0, 1)
    else:
        assert own == pytest.approx(expected, abs=1e-9)


def test_kappa_by_hand() -> None:
    # Observed agreement 3/4; by chance 1/4 * (1/4 + 1/4 + 1/4) = 3/16: (12/16 - 3/16) / (1 - 3/16).
    assert kappa([0, 1, 2, 3], [0, 1, 2, 4]) == pytest.approx(9 / 13)


@given(PAIRS, st.sampled_from(WEIGHTS))
def test_kappa_is_the_same_from_both_sides_and_1_for_equals(
    pairs: list[tuple[int, int]], weights: Weights
) -> None:
    first, second = zip(*pairs, strict=True)
    assert kappa(first, second, weights) == pytest.approx(kappa(second, first, weights))
    assert kappa(first, first, weights) == (None if len(set(first)) == 1 else pytest.approx(1))


def drawn_by_hand(queries: list[list[tuple[int, int]]], weights: Weights) -> list[float]:
    """Kappa of every possible resample of queries."""
    draws = ([pair for query in draw for pair in query] for draw in product(queries, repeat=len(queries)))
    kappas = [kappa([a for a, _ in pairs], [b for _, b in pairs], weights) for pairs in draws]
    return [value for value in kappas if value is not None]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_intervals_are_those_of_all_ways_to_draw_queries(weights: Weights) -> None:
    rng = np.random.default_rng(3)
    queries = [
        [(int(a), int(np.clip(a + rng.integers(-1, 2), 0, 4))) for a in rng.integers(0, 5, 6)]
        for _ in range(4)
    ]
    rows = [(str(number), a, b) for number, query in enumerate(queries) for a, b in query]
    interval = Agreement.of("ann", "bea", rows).intervals[weights]
    tail = tail_share(4, 0.95)
    expected = np.quantile(drawn_by_hand(queries, weights), (tail, 1 - tail))
    assert interval == pytest.approx(expected, abs=0.03)


def test_an_interval_draws_whole_queries_not_tasks() -> None:
    # They agree on one query and disagree on the other, so the interval is the whole range.
    rows = [("a", grade, grade) for grade in range(5)] * 20 + [
        ("b", grade, 4 - grade) for grade in range(5)
    ] * 20
    interval = Agreement.of("ann", "bea", rows).intervals["linear"]
    assert interval == pytest.approx((kappa([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], "linear"), 1.0))


def test_one_query_has_no_interval() -> None:
    assert set(Agreement.of("ann", "bea", [("a", 1, 2), ("a", 3, 3)]).intervals.values()) == {None}


def test_kappa_is_not_defined_without_tasks_or_variety() -> None:
    assert kappa([], []) is None
    assert kappa([3, 3], [3, 3], "linear") is None


@pytest.fixture
def judged(journal: Journal) -> Judged:
    """Two agree on t0 and t1, four are asked on t2, and four disagree on t3."""
    grades = {
        "ann": (4, 1, 0, 0), "bea": (4, 2, 2, 4), "cem": (None, None, 1, 0), "dan": (None, None, 1, 4)
    }  # fmt: skip
    for name, given_ in grades.items():
        for number, grade in enumerate(given_):
            if grade is not None:
                journal.append(Event("grade", name, f"t{number}", grade=grade))
    return Judged.of(journal.task_set, journal.state())


def test_each_two_annotators_are_compared_on_what_both_graded(judged: Judged) -> None:
    pairs = {(each.first, each.second): each for each in between_annotators(judged)}
    assert sorted(pairs) == [
        ("ann", "bea"), ("ann", "cem"), ("ann", "dan"), ("bea", "cem"), ("bea", "dan"), ("cem", "dan")
    ]  # fmt: skip
    both = pairs["ann", "bea"]
    assert (both.tasks, both.same, both.within_1) == (4, 0.25, 0.5)
    assert both.quadratic == kappa([4, 1, 0, 0], [4, 2, 2, 4], "quadratic")


def test_each_annotator_is_compared_with_the_final_grades(judged: Judged) -> None:
    with_final = {each.first: each for each in with_consensus(judged)}
    assert {name: each.tasks for name, each in with_final.items()} == {"ann": 3, "bea": 3, "cem": 1, "dan": 1}
    assert with_final["bea"].same == pytest.approx(2 / 3)  # final: 4, 2 and 1


def test_counts_are_those_of_section_3_4(judged: Judged) -> None:
    counts = judged.counts()
    assert counts["settled"] == 4
    assert (counts["agreed"], counts["discarded"]) == (3, 1)
    assert counts["agreed with more than two annotators"] == 1
    assert counts["share agreed"] == 0.75
    assert counts["final grades"] == {1: 1, 2: 1, 4: 1}
    assert counts["needs more annotators"] == {2: 2}
    assert counts["grades"] == 12


def test_figure_5_is_of_the_grades_that_settled_the_tasks(judged: Judged) -> None:
    drawn = raw_grades(judged)
    assert drawn is not None
    assert (drawn.cells[4, 4], drawn.cells[1, 2], drawn.cells[0, 2], drawn.cells[0, 4]) == (0.25,) * 4


@pytest.mark.slow
def test_figure_5_is_drawn_and_the_raw_grades_are_written(judged: Judged, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    files = write_agreement(judged, tmp_path / "out")
    assert [file.name for file in files] == ["agreement.svg", "agreement.png", "grades.csv"]
    read = read_raw_grades(tmp_path / "out" / "grades.csv")
    assert (read.workers, read.grades) == (4, 12)
    assert (read.cells == raw_grades(judged).cells).all()  # type: ignore[union-attr]


def test_a_file_in_place_of_the_folder_is_named(judged: Judged, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FormatError, match="cannot be written"):
        write_agreement(judged, tmp_path / "out")


def test_nothing_is_drawn_of_nothing(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is agreed on yet"):
        write_agreement(Judged.of(journal.task_set, journal.state()), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_report_is_json(judged: Judged) -> None:
    assert json.loads(json.dumps(judged.counts()))["final grades"] == {"1": 1, "2": 1, "4": 1}
