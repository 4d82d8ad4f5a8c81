"""Compare a model's grades with people's, and the orders of systems under both.

Alpha is Krippendorff's (interval metric: the squared difference of grades), 1 - observed / expected
disagreement over all pairs of grades of a task; it takes any number of annotators. Intervals come from a
bootstrap over queries, as those of kappa. Kendall's tau-b compares two orders of systems, ties included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.metrics import means_of
from whenabouts_bench.formats.annotations import Annotations, Floats
from whenabouts_bench.formats.runs import RunSource
from whenabouts_bench.judging.agreement import (
    CONSENSUS,
    Agreement,
    Interval,
    by_annotator,
    common_tasks,
    in_words,
    intervals_of,
)
from whenabouts_bench.judging.consensus import Consensus
from whenabouts_bench.judging.model_judge import model_grades
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.tasks import HIGHEST

_GRADES = HIGHEST + 1
_DISTANCE = (np.arange(_GRADES)[:, None] - np.arange(_GRADES)).astype(np.float64) ** 2


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's alpha with its 95 % interval; None where it is undefined."""

    value: float | None
    interval: Interval | None = None

    @classmethod
    def of(cls, units: Sequence[tuple[str, Sequence[int]]]) -> Alpha:
        """The alpha of (query id, grades of one task); tasks with a single grade are ignored.

        >>> Alpha.of([("q", (0, 0)), ("q", (4, 4))]).value, Alpha.of([("q", (2, 2))]).value
        (1.0, None)
        """
        several = [(query_id, grades) for query_id, grades in units if len(grades) > 1]
        queries, cluster = np.unique([query_id for query_id, _ in several], return_inverse=True)
        rows = np.zeros((len(queries), 1 + _GRADES))
        for number, (_, grades) in zip(cluster.tolist(), several, strict=True):
            disagreement = sum((a - b) ** 2 for a, b in combinations(grades, 2))
            rows[number, 0] += 2 * disagreement / (len(grades) - 1)
            rows[number, 1:] += np.bincount(grades, minlength=_GRADES)
        (value,) = _alphas(rows.sum(axis=0, keepdims=True)).tolist()
        return cls(None) if math.isnan(value) else cls(value, *intervals_of(rows, _alphas))


def _alphas(totals: Floats) -> Floats:
    """(R,) alpha of rows of (observed disagreement, number of each grade); NaN if all grades are equal."""
    counts = totals[:, 1:]
    count = counts.sum(axis=1)
    expected = np.einsum("rc,rk,ck->r", counts, counts, _DISTANCE) / np.maximum(count - 1, 1)
    alphas: Floats = 1 - np.divide(
        totals[:, 0], expected, out=np.full(len(totals), np.nan), where=expected > 0
    )
    return alphas


@dataclass(frozen=True)
class ModelStudy:
    """The agreement of people and a model that graded `graded` tasks.

    `agreements` are with the final grades and with each annotator; `people` and `together` are the alphas
    without and with the model; `confusion` (5, 5) counts tasks by final grade and model's grade; `bias` is
    the mean of the model's grade minus the final one.
    """

    model: str
    graded: int
    agreements: tuple[Agreement, ...]
    people: Alpha
    together: Alpha
    confusion: tuple[tuple[int, ...], ...]
    bias: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        yield f"{self.model}: {self.graded:,} tasks graded; its grades are no judgements"
        yield from (f"  {agreement.line()}" for agreement in self.agreements)
        people, together = (in_words(alpha.value, alpha.interval) for alpha in (self.people, self.together))
        yield f"  alpha of people {people}, with the model {together}"
        if self.bias is not None:
            yield f"  its grades are {self.bias:+.2f} off the final ones; final grade: its grades 0 to 4"
            yield from (
                f"    {grade}: {' '.join(f'{count:,}' for count in row)}"
                for grade, row in enumerate(self.confusion)
            )


def model_studies(judged: Judged) -> list[ModelStudy]:
    """A study of each model that graded tasks of the set."""
    return [_study(judged, model, grades) for model, grades in sorted(model_grades(judged.task_set).items())]


def _study(judged: Judged, model: str, grades: Mapping[str, int]) -> ModelStudy:
    state, task_set = judged.state, judged.task_set
    final = {task.id: each.grade for task, each in judged.outcomes if each.grade is not None}
    agreements = [
        Agreement.of(model, name, both)
        for name, theirs in ((CONSENSUS, final), *sorted(by_annotator(state).items()))
        if (both := common_tasks(task_set, grades, theirs))
    ]
    confusion = np.zeros((_GRADES, _GRADES), np.int64)
    pairs = common_tasks(task_set, grades, final)
    for _, own, agreed in pairs:
        confusion[agreed, own] += 1
    units = [(task.query_id, task.id, state.grades(task.id)) for task, _ in judged.outcomes]
    extended = [(q, (*given, *([grades[t]] if t in grades and given else []))) for q, t, given in units]
    return ModelStudy(
        model=model,
        graded=len(grades),
        agreements=tuple(agreements),
        people=Alpha.of([(query_id, given) for query_id, _, given in units]),
        together=Alpha.of(extended),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        bias=float(np.mean([own - agreed for _, own, agreed in pairs])) if pairs else None,
    )


def judged_by(judged: Judged, model: str) -> Judged:
    """The set as the model alone judged it. Raises UsageError for a model without grades."""
    graded = model_grades(judged.task_set)
    if model not in graded:
        models = ", ".join(map(repr, graded)) or "none: `whenabouts judge FOLDER --model` lets one grade"
        raise UsageError(f"{model!r} has graded nothing in {judged.task_set.folder}; known: {models}")
    own = graded[model]
    outcomes = [
        (task, Consensus(own.get(task.id), missing=int(task.id not in own))) for task, _ in judged.outcomes
    ]
    return replace(judged, outcomes=outcomes)


@dataclass(frozen=True)
class Orders:
    """The values of systems under people's and a model's grades, and Kendall's tau-b of the orders."""

    model: str
    metric: str
    people: Mapping[str, float]
    by_model: Mapping[str, float]
    tau: float | None

    def line(self) -> str:
        """One line of text."""
        values = ", ".join(
            f"{name} {100 * value:.1f} and {100 * self.by_model[name]:.1f}"
            for name, value in self.people.items()
        )
        return f"{self.metric} by people and by {self.model}: {values}; Kendall's tau {in_words(self.tau)}"


def orders_of(judged: Judged, runs: Mapping[str, RunSource], metric: str) -> list[Orders]:
    """The orders of runs by each model's and by people's grades, over the tasks that both settled.

    Raises UsageError for fewer than two runs, and as `evaluate` does.
    """
    if len(runs) < 2:
        raise UsageError("an order needs two runs or more: give --run again")
    orders = []
    for model in model_grades(judged.task_set):
        own = judged_by(judged, model)
        shared = [
            n
            for n, ((_, final), (_, other)) in enumerate(zip(judged.outcomes, own.outcomes, strict=True))
            if None not in (final.grade, other.grade)
        ]
        if not shared:
            continue
        people, by_model = (
            _values(replace(each, outcomes=[each.outcomes[n] for n in shared]).annotations, runs, metric)
            for each in (judged, own)
        )
        orders.append(
            Orders(model, metric, people, by_model, kendall_tau([*people.values()], [*by_model.values()]))
        )
    return orders


def _values(truth: Annotations, runs: Mapping[str, RunSource], metric: str) -> dict[str, float]:
    return {name: float(means_of(evaluate(truth, run, [metric]).values)[0]) for name, run in runs.items()}


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two lists of values (Kendall, Biometrika 33, 1945); None if one is all ties.

    >>> kendall_tau([1, 2, 3], [1, 3, 2]), kendall_tau([1, 1], [1, 2])
    (0.3333333333333333, None)
    """
    tau = float(kendall_taus(np.array([first]), np.array([second]))[0])
    return None if math.isnan(tau) else tau


def kendall_taus(first: Floats, second: Floats) -> Floats:
    """(N,) tau of each row of two arrays (N, R); differences under 5e-10 are ties; NaN if one is all ties."""
    left, right = np.triu_indices(first.shape[1], 1)
    a, b = (np.sign(np.round(each[:, left] - each[:, right], 9)) for each in (first, second))
    untied = np.sqrt((a != 0).sum(axis=1) * (b != 0).sum(axis=1))
    taus: Floats = np.divide((a * b).sum(axis=1), untied, out=np.full(len(a), np.nan), where=untied > 0)
    return taus
