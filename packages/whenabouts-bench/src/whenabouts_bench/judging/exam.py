"""The qualification exam: reference answers, feedback, and who has passed (paper 004, appendix B.2).

An answer is right if it is within 1 of the reference grade (section 3.2). After a first round, wrong answers
come again, with feedback, until the share of right answers reaches the pass mark: all of them in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median_high

from whenabouts.types import UsageError
from whenabouts_bench.judging.consensus import agree
from whenabouts_bench.judging.events import State
from whenabouts_bench.judging.tasks import ExamTask, Task, TaskSet


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on an answer: whether it is `right`, the `reference` grade, and why."""

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
    passed = is_complete and right >= task_set.pass_mark * len(task_set.exam)
    return ExamResult(len(answers), right, wrong_at_first, passed)


def next_exam_task(task_set: TaskSet, state: State, annotator: str) -> Task | None:
    """The first unanswered task, then those answered wrongly, least tried first."""
    given = state.exam.get(annotator, {})
    open_ = [
        (len(given.get(item.task.id, ())), place)
        for place, item in enumerate(task_set.exam)
        if item.task.id not in given or not agree(item.grade, given[item.task.id][-1])
    ]
    return task_set.exam[min(open_)[1]].task if open_ else None


def reference_exam(task_set: TaskSet, state: State, annotators: int = 2) -> Sequence[ExamTask]:
    """An exam from tasks with at least `annotators` grades; their median is the reference.

    Of an even number of grades the upper median is taken, as all means here are rounded up. Raises UsageError
    if no task has enough grades.
    """
    exam = [
        ExamTask(replace(task, id=f"exam-{task.id}"), median_high(grades))
        for task in task_set.tasks
        if len(grades := state.grades(task.id)) >= annotators
    ]
    if not exam:
        raise UsageError(f"{task_set.folder}: no task has grades of {annotators} annotators yet")
    return exam
