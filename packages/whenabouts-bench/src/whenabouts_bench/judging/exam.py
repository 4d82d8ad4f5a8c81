"""The qualification exam: reference answers, feedback, and who has passed (paper 004, appendix B.2).

An answer is right if it is within 1 of the reference grade (section 3.2). After a first round, tasks with
wrong answers are shown again, with feedback. An annotator passes when the share of right answers reaches the
pass mark, 100 % in the paper. The paper's exam has the 10 best moments of 10 random queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_high

import numpy as np

from whenabouts.types import UsageError
from whenabouts_bench.judging.consensus import agree, consensus
from whenabouts_bench.judging.events import State
from whenabouts_bench.judging.tasks import ExamTask, Task, TaskSet

QUERIES, DEPTH = 10, 10
"""Queries of an exam, and moments of each, as in the paper."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on an answer: whether it is `right`, the `reference` grade, and the explanation."""

    task_id: str
    grade: int
    reference: int
    right: bool
    explanation: str


@dataclass(frozen=True, slots=True)
class ExamResult:
    """An exam result: tasks answered, right (latest answers), wrong at first, and whether it was passed."""

    answered: int
    right: int
    wrong_at_first: int
    passed: bool


def feedback(task_set: TaskSet, task_id: str, grade: int) -> Feedback:
    """The feedback on an exam answer. Raises UsageError if the task is not in the exam."""
    item = next((item for item in task_set.exam if item.task.id == task_id), None)
    if item is None:
        raise UsageError(f"{task_set.folder}: task {task_id!r} is not in the exam")
    return Feedback(task_id, grade, item.grade, agree(grade, item.grade), item.explanation)


def result_of(task_set: TaskSet, state: State, annotator: str) -> ExamResult:
    """An annotator's exam result; passed if the set has no exam."""
    given = state.exam.get(annotator, {})
    answers = [(item.grade, given[item.task.id]) for item in task_set.exam if item.task.id in given]
    right = sum(agree(reference, grades[-1]) for reference, grades in answers)
    wrong_at_first = sum(not agree(reference, grades[0]) for reference, grades in answers)
    is_complete = len(answers) == len(task_set.exam)
    passed = is_complete and right >= task_set.pass_mark * len(task_set.exam) - 1e-9  # 0.55 * 100 > 55
    return ExamResult(len(answers), right, wrong_at_first, passed)


def next_exam_task(task_set: TaskSet, state: State, annotator: str) -> Task | None:
    """The first unanswered task, else the wrongly answered one with the fewest tries, or None."""
    given = state.exam.get(annotator, {})
    open_ = [
        (len(given.get(item.task.id, ())), place)
        for place, item in enumerate(task_set.exam)
        if item.task.id not in given or not agree(item.grade, given[item.task.id][-1])
    ]
    return task_set.exam[min(open_)[1]].task if open_ else None


def reference_exam(
    task_set: TaskSet, state: State, *, queries: int = QUERIES, depth: int = DEPTH, seed: int = 0
) -> Sequence[ExamTask]:
    """An exam of the best `depth` settled tasks of `queries` queries drawn by `seed`.

    A task is settled if its annotators, two or more, agreed on a grade. The reference is the upper median of
    their grades: of the two middle ones, the higher. Of each query drawn, the `depth` tasks with the best
    rank in any run are chosen, those without ranks before all others; the exam keeps the set's order.
    Raises UsageError if no task is settled, or if `queries` or `depth` is below 1.
    """
    if queries < 1 or depth < 1:
        raise UsageError(f"an exam of {queries} queries to depth {depth}: give 1 or more of both")
    settled: dict[str, list[ExamTask]] = {}
    for task in task_set.tasks:
        final = consensus(state.grades(task.id))
        if final.grade is not None:
            reference = median_high(state.grades(task.id)[: final.annotators])
            settled.setdefault(task.query_id, []).append(ExamTask(task, reference))
    if not settled:
        raise UsageError(f"{task_set.folder}: has no task yet on which 2 annotators agree")
    ranks = {task_id: min(source.ranks.values(), default=0) for task_id, source in task_set.sources().items()}
    drawn = np.random.default_rng(seed).permutation(sorted(settled))[:queries].tolist()
    best = {
        item.task.id
        for query_id in drawn
        for item in sorted(settled[query_id], key=lambda item: ranks.get(item.task.id, 0))[:depth]
    }
    exam = (item for items in settled.values() for item in items if item.task.id in best)
    return [replace(item, task=replace(item.task, id=f"exam-{item.task.id}")) for item in exam]
