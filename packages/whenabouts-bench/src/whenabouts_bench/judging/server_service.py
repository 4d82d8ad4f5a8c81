"""The work behind the routes of `whenabouts judge`: assign tasks, record answers, give feedback."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from whenabouts.server.errors import ServerError, printable
from whenabouts.server.service import left
from whenabouts.server.settings import Settings
from whenabouts.server.work import BoundedExecutor
from whenabouts.types import UsageError
from whenabouts_bench.judging.agreement import graded_by_both, kappa
from whenabouts_bench.judging.assignment import Progress, outcome
from whenabouts_bench.judging.events import Answer, Event, State
from whenabouts_bench.judging.exam import Feedback, feedback, result_of
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.server_schemas import (
    AgreementShown,
    AnnotatorBody,
    AnnotatorRow,
    AnswerBody,
    Answered,
    ByAnnotator,
    Disputed,
    FeedbackShown,
    GuidelineBody,
    GuidelineShown,
    Invited,
    Overview,
    OwnAnswer,
    Presented,
    ProgressShown,
    SkipBody,
    TaskShown,
)
from whenabouts_bench.judging.server_videos import Videos
from whenabouts_bench.judging.tasks import Task, TaskSet

Result = TypeVar("Result")
MOST_DISPUTED = 50
HELD_SECONDS = 600.0  # how long a shown task counts as being judged


class Holds:
    """The task that each annotator was shown last, so that no more annotators get it than it needs.

    Not thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown: dict[str, tuple[str, float]] = {}

    def take(self, annotator: str, task: Task | None) -> None:
        """Record the task shown to an annotator."""
        self._shown.pop(annotator, None)
        if task is not None:
            self._shown[annotator] = task.id, self._clock()

    def of_others(self, annotator: str) -> Counter[str]:
        """Task id -> number of other annotators who were shown it last, at most `HELD_SECONDS` ago."""
        now = self._clock()
        shown = ((task_id, at) for name, (task_id, at) in self._shown.items() if name != annotator)
        return Counter(task_id for task_id, at in shown if now - at < HELD_SECONDS)


class Service:
    """A task set being judged. The methods block: they read and write files."""

    def __init__(self, tasks: TaskSet, people: People, settings: Settings) -> None:
        limits = settings.limits
        self.tasks, self.people = tasks, people
        self.journal = Journal.open(tasks)
        self.videos = Videos(tasks, settings)
        self.holds = Holds()
        self._assigning = threading.Lock()
        self._work = BoundedExecutor("judging", limits.reads, limits.reads_waiting, limits.wait_seconds)
        for name in people.names:
            self.journal.progress(name)  # raises UsageError if the name is invalid

    async def run(self, request: Request, job: Callable[[], Result]) -> Result:
        """Run a blocking job in a thread."""
        return await self._work.run(job, partial(left, request))

    def close(self) -> None:
        self._work.close()
        self.videos.close()

    def task(self, task_id: str) -> Task:
        """A task by its id. ServerError 404."""
        try:
            return self.tasks.task(task_id)
        except UsageError:
            problem = f"this task set has no task {task_id[:100]!r}; load the page again"
            raise ServerError(404, "no_such_task", problem, field="task_id") from None

    def next(self, name: str, *, skipped: bool = False) -> Presented:
        """The annotator's next task; with `skipped`, one that was put off."""
        with self._assigning:  # two who ask at once must not both get the last place
            task = self.journal.next_task(name, held=self.holds.of_others(name), skipped=skipped)
            self.holds.take(name, task)
        if task is None:
            return self.presented(name, None)
        return self.presented(name, task, self.journal.read(lambda now: now.answer(name, task.id)))

    def presented(self, name: str, task: Task | None, answer: Answer | Event | None = None) -> Presented:
        """A task for the page, with the annotator's earlier answer."""
        progress = self.journal.progress(name)
        return Presented(
            task=None if task is None else self._shown(name, task, answer),
            progress=ProgressShown(**_shown_progress(progress)),
            guideline=self.tasks.guideline().version,
        )

    def _shown(self, name: str, task: Task, answer: Answer | Event | None) -> TaskShown:
        recording = self.videos.look(task)
        is_exam = task.id in self.tasks.exam_ids
        before = self.journal.read(lambda now: list(now.exam.get(name, {}).get(task.id, ())))
        return TaskShown(
            task_id=task.id,
            query=printable(task.text),
            start=task.moment.start,
            end=task.moment.end,
            context_start=recording.start,
            context_end=recording.end,
            rate=recording.rate,
            video=recording.state,
            is_exam=is_exam,
            answer=None if answer is None else OwnAnswer.model_validate(answer, from_attributes=True),
            feedback=_shown_feedback(feedback(self.tasks, task.id, before[-1])) if before else None,
        )

    def is_in_exam(self, name: str) -> bool:
        """Whether the annotator still has to pass the exam."""
        return not self.journal.read(lambda now: result_of(self.tasks, now, name).passed)

    def answer(self, name: str, body: AnswerBody) -> Answered:
        """Record a grade; returns the next task. ServerError 409 before the exam is passed."""
        task = self.task(body.task_id)
        is_exam = task.id in self.tasks.exam_ids
        if not is_exam and self.is_in_exam(name):
            raise ServerError(409, "exam_first", "the exam comes first; load the page again")
        if is_exam:
            self.journal.append(Event("exam", name, task.id, grade=body.grade, id=body.id))
            shown = _shown_feedback(feedback(self.tasks, task.id, body.grade))
            return Answered(feedback=shown, next=self.next(name))
        self.journal.append(Event("grade", name, task.id, body.grade, body.start, body.end, id=body.id))
        return Answered(feedback=None, next=self.next(name))

    def skip(self, name: str, body: SkipBody) -> Presented:
        """Put a task off; returns the next one. ServerError 409 in the exam."""
        task = self.task(body.task_id)
        if task.id in self.tasks.exam_ids:
            raise ServerError(409, "in_exam", "tasks of the exam cannot be skipped; ask the lead")
        self.journal.append(Event("skip", name, task.id, id=body.id))
        return self.next(name)

    def undo(self, name: str, body: ByAnnotator) -> Presented:
        """Take the last answer back; returns its task with that answer. ServerError 409 if there is none."""
        if self.is_in_exam(name):
            raise ServerError(409, "in_exam", "answers of the exam cannot be undone; wrong ones come again")
        try:
            undone = self.journal.undo(name, body.id).undone
        except UsageError:
            raise ServerError(409, "nothing_to_undo", "there is nothing to undo") from None
        if undone is None:  # the id is that of another event, which is there already
            raise ServerError(409, "known_id", "this id belongs to an answer; an undo needs an id of its own")
        answer = self.journal.events()[undone - 1]
        task = self.task(answer.task_id)
        with self._assigning:
            self.holds.take(name, task)
        return self.presented(name, task, answer)

    def guideline(self) -> GuidelineShown:
        """The current guideline."""
        guideline = self.tasks.guideline()
        return GuidelineShown(text=printable(guideline.text), version=guideline.version)

    def edit(self, body: GuidelineBody) -> GuidelineShown:
        """Replace the guideline. ServerError 409 if it was changed meanwhile."""
        if not self.journal.edit_guideline(body.text, body.version):
            problem = "the guideline was changed meanwhile; copy your text, load the page again, put it in"
            raise ServerError(409, "guideline_changed", problem, field="version")
        return self.guideline()

    def overview(self) -> Overview:
        """The progress of all annotators, missing videos, agreement and disputed tasks."""
        names = sorted({*self.people.names, *self.journal.read(lambda now: now.annotators())})
        progress = {name: self.journal.progress(name) for name in names}
        rows = [AnnotatorRow(annotator=name, **_shown_progress(p)) for name, p in progress.items()]
        anybody = next(iter(progress.values()))
        missing = [printable(video_id) for video_id in self.tasks.missing_videos()]
        agreement, disputed = self.journal.read(
            lambda now: (_agreement(self.tasks, now), _disputed(self.tasks, now))
        )
        return Overview(
            annotators=rows, settled=anybody.settled, tasks=anybody.tasks, missing=missing,
            agreement=agreement, disputed=disputed[:MOST_DISPUTED], disputes=len(disputed),
        )  # fmt: skip

    def invite(self, body: AnnotatorBody) -> Invited:
        """Add an annotator or find a known one. ServerError 409 for the lead's name, 400 if it is invalid."""
        if body.name == self.people.lead:
            raise ServerError(409, "is_you", f"{body.name} started the server", field="name")
        try:
            self.journal.progress(body.name)
        except UsageError as error:
            raise ServerError(400, "invalid", str(error), field="name") from None
        with self._assigning:
            self.people, token = self.people.joined_by(body.name)
        return Invited(annotator=body.name, token=token)


def _agreement(tasks: TaskSet, state: State) -> list[AgreementShown]:
    """The agreement of each pair of annotators."""
    return [
        AgreementShown(
            first=first,
            second=second,
            tasks=len(pairs),
            same=sum(a == b for _, a, b in pairs) / len(pairs),
            kappa=kappa([a for _, a, _ in pairs], [b for _, _, b in pairs], "linear"),
        )
        for first, second, pairs in graded_by_both(tasks, state)
    ]


def _disputed(tasks: TaskSet, state: State) -> list[Disputed]:
    """The tasks with grades that do not agree."""
    disputed = []
    for task in tasks.tasks:
        graded = state.graded(task.id)
        final = outcome(tasks, state, task.id)
        if final.grade is None and len(graded) >= tasks.annotators:
            grades = [(name, answer.grade) for name, answer in graded if answer.grade is not None]
            disputed.append(
                Disputed(
                    task_id=task.id,
                    query=printable(task.text),
                    start=task.moment.start,
                    end=task.moment.end,
                    grades=grades,
                    missing=final.missing,
                )
            )
    return disputed


def _shown_progress(progress: Progress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in ProgressShown.model_fields}


def _shown_feedback(answer: Feedback) -> FeedbackShown:
    return FeedbackShown.model_validate(answer, from_attributes=True)
