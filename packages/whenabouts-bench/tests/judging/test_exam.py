"""The exam: feedback on each answer, the pass mark, and references from several annotators' grades."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.judging.conftest import Clock, task

from whenabouts.types import UsageError
from whenabouts_bench.judging.agreement import exam_results
from whenabouts_bench.judging.events import Event, State
from whenabouts_bench.judging.exam import Feedback, feedback, reference_exam, result_of
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import ExamTask, Source, TaskSet

Make = Callable[..., TaskSet]
EXAM = tuple(ExamTask(task(10 + number), grade, f"why {number}") for number, grade in enumerate((4, 2, 0, 1)))


def answer(journal: Journal, *grades: int) -> None:
    for item, grade in zip(EXAM, grades, strict=False):
        journal.append(Event("exam", "ann", item.task.id, grade=grade))


def test_feedback_says_what_would_have_been_right_and_why(make_set: Make) -> None:
    tasks = make_set(exam=EXAM)
    assert feedback(tasks, "t10", 3) == Feedback("t10", 3, reference=4, right=True, explanation="why 0")
    assert not feedback(tasks, "t10", 2).right
    with pytest.raises(UsageError, match="task 't0' is not in the exam"):
        feedback(tasks, "t0", 3)


def test_all_answers_have_to_be_within_1_of_the_reference(make_set: Make, clock: Clock) -> None:
    journal = Journal.open(make_set(exam=EXAM), clock)
    answer(journal, 3, 3, 1)
    assert not result_of(journal.task_set, journal.state(), "ann").passed  # one is not answered yet
    answer(journal, 0, 3, 1, 2)
    result = result_of(journal.task_set, journal.state(), "ann")
    assert (result.answered, result.right, result.wrong_at_first, result.passed) == (4, 3, 0, False)
    answer(journal, 4)
    assert result_of(journal.task_set, journal.state(), "ann").passed


def test_a_lower_pass_mark_lets_wrong_answers_stand(make_set: Make, clock: Clock) -> None:
    journal = Journal.open(make_set(exam=EXAM, pass_mark=0.75), clock)
    answer(journal, 0, 3, 1, 2)
    assert result_of(journal.task_set, journal.state(), "ann").passed
    assert journal.next_task("ann") == journal.task_set.tasks[0]


def test_a_pass_mark_is_reached_in_decimals(make_set: Make) -> None:
    exam = tuple(ExamTask(task(10 + number), 0) for number in range(100))
    state = State(exam={"ann": {item.task.id: [0 if n < 55 else 4] for n, item in enumerate(exam)}})
    assert result_of(make_set(exam=exam, pass_mark=0.55), state, "ann").passed


def test_without_an_exam_everybody_has_passed(journal: Journal) -> None:
    assert result_of(journal.task_set, journal.state(), "ann").passed


def test_exam_answers_are_compared_with_the_references(make_set: Make, clock: Clock) -> None:
    journal = Journal.open(make_set(exam=EXAM), clock)
    answer(journal, 1, 2, 0, 1)
    answer(journal, 4)
    (result,) = exam_results(journal.task_set, journal.state())
    assert (result["annotator"], result["wrong_at_first"], result["passed"]) == ("ann", 1, True)
    assert (result["agreement"]["same"], result["agreement"]["kappa"]) == (1.0, 1.0)


def test_exam_answers_are_no_judgements(make_set: Make, clock: Clock) -> None:
    journal = Journal.open(make_set(exam=EXAM), clock)
    answer(journal, 4, 2, 0, 1)
    assert list(journal.state().rows()) == []


def test_references_are_the_medians_of_several_annotators(journal: Journal) -> None:
    grades = {"t0": (0, 1, 4), "t1": (2, 3), "t2": (4,)}
    for task_id, given in grades.items():
        for name, grade in zip(("ann", "bea", "cem"), given, strict=False):
            journal.append(Event("grade", name, task_id, grade=grade))
    exam = reference_exam(journal.task_set, journal.state())
    assert [(item.task.id, item.grade) for item in exam] == [("exam-t0", 1), ("exam-t1", 3)]
    assert exam[0].task.moment == journal.task_set.task("t0").moment


def test_nobody_makes_an_exam_of_nothing(journal: Journal) -> None:
    with pytest.raises(UsageError, match="has no task yet on which 2 annotators agree"):
        reference_exam(journal.task_set, journal.state())


def test_references_come_from_settled_tasks_alone(journal: Journal) -> None:
    grades = {"t0": (0, 4), "t1": (0, 4, 0, 4), "t2": (0, 4, 3, 2), "t3": (3, 4)}
    for task_id, given in grades.items():
        for name, grade in zip(("ann", "bea", "cem", "dan"), given, strict=False):
            journal.append(Event("grade", name, task_id, grade=grade))
    exam = reference_exam(journal.task_set, journal.state())
    # t0 needs two more, t1 is discarded; of 0, 2, 3, 4 the upper median is 3.
    assert [(item.task.id, item.grade) for item in exam] == [("exam-t2", 3), ("exam-t3", 4)]


def test_an_exam_has_the_best_moments_of_some_queries(tmp_path: Path, clock: Clock) -> None:
    tasks = tuple(task(number, f"q{number // 4}") for number in range(12))
    made = TaskSet(tmp_path / "set", "three", tasks, {"video": ""})
    made.write({each.id: Source({"run": 4 - number % 4}) for number, each in enumerate(tasks)})
    journal = Journal.open(TaskSet.open(tmp_path / "set"), clock)
    for name in ("ann", "bea"):
        journal.append_all([Event("grade", name, each.id, grade=2) for each in tasks])
    state = journal.state()
    exams = [
        [item.task.id for item in reference_exam(journal.task_set, state, queries=2, depth=2, seed=seed)]
        for seed in range(8)
    ]
    best = {query: [f"exam-t{4 * query + 2}", f"exam-t{4 * query + 3}"] for query in range(3)}
    assert all(exam in ([*best[a], *best[b]] for a, b in ((0, 1), (0, 2), (1, 2))) for exam in exams)
    assert len({tuple(exam) for exam in exams}) > 1
    assert len(reference_exam(journal.task_set, state)) == 12
    with pytest.raises(UsageError, match="an exam of 0 queries to depth 10: give 1 or more of both"):
        reference_exam(journal.task_set, state, queries=0)
