"""Measure how annotators agree with each other and with the final grades: Cohen's kappa, shares, a figure.

Kappa (Cohen, 1960; weighted: 1968) is 1 - observed / expected disagreement. Expected disagreement
is that of independent annotators who each keep their own distribution of grades. Unweighted, all differences
count alike; linear weights count the difference in grades, quadratic weights its square. Intervals come from
a bootstrap over queries, because tasks of one query are not independent (`evaluation.significance`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.ranked_figures import RawGrades, draw_agreement
from whenabouts_bench.evaluation.significance import drawn_totals, tail_share
from whenabouts_bench.formats.annotations import Floats, Indices
from whenabouts_bench.judging.consensus import TOLERANCE
from whenabouts_bench.judging.events import State
from whenabouts_bench.judging.exam import result_of
from whenabouts_bench.judging.qrels import Judged, write_grades
from whenabouts_bench.judging.tasks import HIGHEST, TaskSet

Weights = Literal["none", "linear", "quadratic"]
Interval = tuple[float, float]
CONSENSUS = "consensus"
RESAMPLES = 2_000
_GRADES = HIGHEST + 1


def kappa(first: Sequence[int], second: Sequence[int], weights: Weights = "none") -> float | None:
    """Cohen's kappa of two annotators' grades (0 to 4) of the same tasks.

    1 is perfect agreement, 0 chance agreement. None if kappa is undefined: without tasks, or if both
    annotators give one and the same grade throughout.

    >>> kappa([0, 1, 2, 3], [0, 1, 2, 4]), kappa([0, 4], [4, 0], "linear"), kappa([2, 2], [2, 2])
    (0.6923076923076923, -1.0, None)
    """
    value = float(_kappas(_tables(first, second, np.zeros(len(first), np.int64), 1), weights)[0])
    return None if math.isnan(value) else value


def _tables(first: Sequence[int], second: Sequence[int], cluster: Indices, clusters: int) -> Floats:
    """(C, 25) contingency tables of two annotators' grades, one per cluster; `cluster` (T,) by task."""
    tables = np.zeros((clusters, _GRADES, _GRADES))
    np.add.at(tables, (cluster, np.asarray(first, np.int64), np.asarray(second, np.int64)), 1)
    return tables.reshape(clusters, -1)


def _kappas(tables: Floats, weights: Weights) -> Floats:
    """(C,) Cohen's kappa of each table (C, 25); NaN where it is undefined."""
    tables = tables.reshape(-1, _GRADES, _GRADES)
    grades = np.arange(_GRADES)
    distance = np.abs(grades[:, None] - grades).astype(np.float64)
    cost = {"none": (distance > 0).astype(np.float64), "linear": distance, "quadratic": distance**2}[weights]
    total = np.maximum(tables.sum(axis=(1, 2)), 1.0)
    expected = np.einsum("cg,ch,gh->c", tables.sum(axis=2), tables.sum(axis=1), cost) / total
    observed = np.einsum("cgh,gh->c", tables, cost)
    kappas: Floats = 1 - np.divide(observed, expected, out=np.full(len(tables), np.nan), where=expected > 0)
    return kappas


def intervals_of(rows: Floats, *values_of: Callable[[Floats], Floats]) -> list[Interval | None]:
    """95 % intervals of statistics, by a bootstrap over clusters.

    `rows` (C, K) has the values of each cluster; each function maps the totals (R, K) of R resamples to R
    values. An interval is None with fewer than two clusters, or if its value is NaN in more than half of the
    resamples; other NaN are skipped.
    """
    if len(rows) < 2:
        return [None] * len(values_of)
    totals, tail = np.concatenate(list(drawn_totals(rows, RESAMPLES))), tail_share(len(rows), 0.95)
    return [_ends(value_of(totals), tail) for value_of in values_of]


def _ends(drawn: Floats, tail: float) -> Interval | None:
    defined = drawn[~np.isnan(drawn)]
    if 2 * len(defined) < len(drawn):
        return None
    low, high = np.quantile(defined, (tail, 1 - tail)).tolist()
    return low, high


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of two annotators on the `tasks` that both graded; `second` may be "consensus".

    `same` and `within_1` are shares of the tasks. An undefined kappa and its 95 % interval are None.
    """

    first: str
    second: str
    tasks: int
    same: float
    within_1: float
    kappa: float | None
    linear: float | None
    quadratic: float | None
    intervals: Mapping[Weights, Interval | None]

    @classmethod
    def of(cls, first: str, second: str, pairs: Sequence[tuple[str, int, int]]) -> Agreement:
        """The agreement of (query id, first grade, second grade) triples; needs at least one."""
        queries, ours, theirs = zip(*pairs, strict=True)
        differences = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
        query_ids, cluster = np.unique(queries, return_inverse=True)
        tables, kinds = _tables(ours, theirs, cluster, len(query_ids)), get_args(Weights)
        intervals = intervals_of(tables, *(partial(_kappas, weights=weights) for weights in kinds))
        return cls(
            first, second, len(pairs),
            same=differences.count(0) / len(pairs),
            within_1=sum(difference <= TOLERANCE for difference in differences) / len(pairs),
            kappa=kappa(ours, theirs),
            linear=kappa(ours, theirs, "linear"),
            quadratic=kappa(ours, theirs, "quadratic"),
            intervals=dict(zip(kinds, intervals, strict=True)),
        )  # fmt: skip

    def line(self) -> str:
        """The agreement in one line."""
        kappas: Mapping[Weights, float | None]
        kappas = {"none": self.kappa, "linear": self.linear, "quadratic": self.quadratic}
        values = ", ".join(
            f"{'kappa' if weights == 'none' else weights} {in_words(value, self.intervals[weights])}"
            for weights, value in kappas.items()
        )
        return f"{self.first} and {self.second}: {self.tasks:,} tasks, {self.same:.1%} the same, {values}"


def in_words(value: float | None, interval: Interval | None = None) -> str:
    """A value with its interval, if known, as text."""
    if value is None:
        return "not defined"
    return f"{value:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def between_annotators(judged: Judged) -> list[Agreement]:
    """The agreement of each pair of annotators with a task in common, sorted by name."""
    return [Agreement.of(*each) for each in graded_by_both(judged.task_set, judged.state)]


def graded_by_both(task_set: TaskSet, state: State) -> Iterator[tuple[str, str, list[tuple[str, int, int]]]]:
    """(annotator, annotator, (query id, grade, grade) of each task that both graded), sorted by name."""
    grades = by_annotator(state)
    for first, second in combinations(sorted(grades), 2):
        if pairs := common_tasks(task_set, grades[first], grades[second]):
            yield first, second, pairs


def with_consensus(judged: Judged) -> list[Agreement]:
    """The agreement of each annotator with the final grades, which were computed from these, too."""
    final = {task.id: each.grade for task, each in judged.outcomes if each.grade is not None}
    return [
        Agreement.of(name, CONSENSUS, pairs)
        for name, grades in sorted(by_annotator(judged.state).items())
        if (pairs := common_tasks(judged.task_set, grades, final))
    ]


def by_annotator(state: State) -> dict[str, dict[str, int]]:
    """Annotator -> task id -> grade."""
    grades: dict[str, dict[str, int]] = {}
    for task_id, name, answer in state.rows():
        assert answer.grade is not None
        grades.setdefault(name, {})[task_id] = answer.grade
    return grades


def common_tasks(
    task_set: TaskSet, first: Mapping[str, int], second: Mapping[str, int]
) -> list[tuple[str, int, int]]:
    """(query id, first grade, second grade) of the tasks that are in both."""
    return [
        (task_set.task(task_id).query_id, grade, second[task_id])
        for task_id, grade in first.items()
        if task_id in second
    ]


def exam_results(task_set: TaskSet, state: State) -> Iterator[dict[str, Any]]:
    """Each annotator's exam result, and the agreement of the latest answers with the references."""
    for name, answers in sorted(state.exam.items()):
        pairs = [
            (e.task.query_id, answers[e.task.id][-1], e.grade) for e in task_set.exam if e.task.id in answers
        ]
        if pairs:
            agreement = asdict(Agreement.of(name, "reference", pairs))
            yield {"annotator": name, **asdict(result_of(task_set, state, name)), "agreement": agreement}


def raw_grades(judged: Judged) -> RawGrades | None:
    """The grades behind the settled tasks, for figure 5 (a) of paper 004; None if no task has two grades."""
    given = [judged.state.grades(task.id)[: final.annotators] for task, final in judged.outcomes]
    several = [grades for grades in given if len(grades) > 1]
    if not several:
        return None
    workers = len(by_annotator(judged.state))
    lowest, highest = (np.array([pick(grades) for grades in several]) for pick in (min, max))
    return RawGrades(lowest, highest, workers, sum(map(len, given)))


def write_agreement(judged: Judged, folder: Path) -> list[Path]:
    """Write agreement.svg/.png (paper 004, figure 5), grades.csv. Raises UsageError if nothing is settled."""
    if not len(judged.annotations.query):
        raise UsageError(f"{judged.task_set.folder}: nothing is agreed on yet, so there is nothing to draw")
    files = draw_agreement(judged.annotations, raw_grades(judged), folder / "agreement")
    write_grades(judged.state, folder / "grades.csv")
    return [*files, folder / "grades.csv"]
