"""Measure whether an annotator (a person or a model) grades higher than others, and whether that changes.

The bias is the mean difference of the annotator's grades from the mean grade of the others of the same task;
the drift is the bias of the second half of the annotator's grades, in order of time, minus that of the first.
Intervals (95 %) come from a bootstrap over queries, as those of kappa.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whenabouts_bench.formats.annotations import Floats
from whenabouts_bench.judging.agreement import Interval, intervals_of
from whenabouts_bench.judging.model_judge import model_grades
from whenabouts_bench.judging.qrels import Judged


@dataclass(frozen=True)
class Bias:
    """The bias and drift of an annotator over `tasks` that others also graded; one task has drift None."""

    annotator: str
    tasks: int
    bias: float
    interval: Interval | None
    drift: float | None
    drift_interval: Interval | None

    @classmethod
    def of(cls, annotator: str, graded: Sequence[tuple[str, float, float]]) -> Bias:
        """The bias of (query id, own grade, mean grade of others) in order of time; needs at least one.

        >>> Bias.of("Ada", [("q", 1, 1), ("q", 3, 2)]).bias
        0.5
        """
        queries, own, others = zip(*graded, strict=True)
        differences = np.array(own, np.float64) - np.array(others, np.float64)
        late = np.arange(len(differences)) >= len(differences) // 2
        names, query = np.unique(queries, return_inverse=True)
        rows = np.zeros((len(names), 4))
        np.add.at(rows, query, np.stack([differences * ~late, ~late, differences * late, late], axis=1))
        interval, drift_interval = intervals_of(rows, _biases, _drifts)
        total = rows.sum(axis=0, keepdims=True)
        drift = float(_drifts(total)[0])
        return cls(
            annotator,
            len(differences),
            bias=float(_biases(total)[0]),
            interval=interval,
            drift=None if math.isnan(drift) else drift,
            drift_interval=drift_interval,
        )

    def line(self) -> str:
        """One line of text."""
        drift = "" if self.drift is None else f", drift {self.drift:+.2f}{_ends(self.drift_interval)}"
        return (
            f"{self.annotator}: bias {self.bias:+.2f}{_ends(self.interval)} against the others over "
            f"{self.tasks:,} tasks{drift}"
        )


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f" [{interval[0]:+.2f}, {interval[1]:+.2f}]"


def _biases(totals: Floats) -> Floats:
    """(N,) of totals (N, 4): differences and tasks of the first half, then of the second."""
    biases: Floats = (totals[:, 0] + totals[:, 2]) / (totals[:, 1] + totals[:, 3])
    return biases


def _drifts(totals: Floats) -> Floats:
    first, second = (
        np.divide(
            totals[:, at], totals[:, at + 1], out=np.full(len(totals), np.nan), where=totals[:, at + 1] > 0
        )
        for at in (0, 2)
    )
    drifts: Floats = second - first
    return drifts


def biases(judged: Judged) -> list[Bias]:
    """The bias of each person by the other people's grades, then of each model by people's, by name."""
    task_set, state = judged.task_set, judged.state
    rows: dict[str, list[tuple[int, str, float, float]]] = {}
    for task_id, name, answer in state.rows():
        others = [
            other.grade for who, other in state.graded(task_id) if who != name and other.grade is not None
        ]
        if others and answer.grade is not None:
            query_id = task_set.task(task_id).query_id
            rows.setdefault(name, []).append((answer.first, query_id, answer.grade, float(np.mean(others))))
    people = {name: [row[1:] for row in sorted(given)] for name, given in rows.items()}
    models = {name: _of_model(judged, given) for name, given in model_grades(task_set).items()}
    return [
        Bias.of(name, given) for name, given in (*sorted(people.items()), *sorted(models.items())) if given
    ]


def _of_model(judged: Judged, grades: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """(query id, the model's grade, mean grade of people) of each task, in the order of first grading."""
    return [
        (judged.task_set.task(task_id).query_id, grade, float(np.mean(people)))
        for task_id, grade in grades.items()
        if (people := judged.state.grades(task_id))
    ]
