"""A task set being judged through a server: who gets which task, and what is told of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from whenabouts.server.errors import ServerError, printable
from whenabouts.server.service import left
from whenabouts.server.settings import Settings
from whenabouts.server.work import BoundedExecutor
from whenabouts.types import UsageError
from whenabouts_bench.judging.events import Answer, Event
from whenabouts_bench.judging.exam import Feedback, feedback, result_of
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.server_schemas import (
    AnnotatorRow,
    AnswerBody,
    Answered,
    ByAnnotator,
    FeedbackShown,
    GuidelineBody,
    GuidelineShown,
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
# So long a task that somebody was shown is kept from those who would come on top of the annotators it needs.
HELD_SECONDS = 600.0


class Holds:
    """Which task each annotator was shown last, so that no more get it than it needs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown: dict[str, tuple[str, float]] = {}

    def take(self, annotator: str, task: Task | None) -> None:
        """Note what an annotator is shown."""
        self._shown.pop(annotator, None)
        if task is not None:
            self._shown[annotator] = task.id, self._clock()

    def of_others(self, annotator: str) -> Counter[str]:
        """Task id -> how many others look at it."""
        now = self._clock()
        held = [
            task_id
            for name, (task_id, at) in self._shown.items()
            if name != annotator and now - at < HELD_SECONDS
        ]
        return Counter(held)


class Service:
    """A task set being judged. Its methods take their time: they read and write files."""

    def __init__(self, tasks: TaskSet, people: People, settings: Settings) -> None:
        limits = settings.limits
        self.tasks, self.people = tasks, people
        self.journal = Journal.open(tasks)
        self.videos = Videos(tasks, settings)
        self.holds = Holds()
        self._assigning = threading.Lock()
        self._work = BoundedExecutor("judging", limits.reads, limits.reads_waiting, limits.wait_seconds)
        for name in people.names:
            self.journal.progress(name)  # raises UsageError for what is no name

    async def run(self, request: Request, job: Callable[[], Result]) -> Result:
        """What a job returns, done in a thread."""
        return await self._work.run(job, partial(left, request))

    def close(self) -> None:
        """End what has not begun."""
        self._work.close()
        self.videos.close()

    def task(self, task_id: str) -> Task:
        """A task by its id; ServerError 404."""
        try:
            return self.tasks.task(task_id)
        except UsageError:
            problem = (
                f"this task set has no task {task_id[:100]!r}; is the page of another one? Load it again"
            )
            raise ServerError(404, "no_such_task", problem, field="task_id") from None

    def next(self, name: str, *, skipped: bool = False) -> Presented:
        """What an annotator gets next; with `skipped` what was skipped."""
        with self._assigning:  # two who ask at once must not both get the last place
            task = self.journal.next_task(name, held=self.holds.of_others(name), skipped=skipped)
            self.holds.take(name, task)
        if task is None:
            return self.presented(name, None)
        return self.presented(name, task, self.journal.read(lambda now: now.answer(name, task.id)))

    def presented(self, name: str, task: Task | None, answer: Answer | Event | None = None) -> Presented:
        """A task as the page has it, with an own answer that was given before."""
        progress = self.journal.progress(name)
        return Presented(
            task=None if task is None else self._shown(name, task, answer),
            progress=ProgressShown.model_validate(progress, from_attributes=True),
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
        """Whether an annotator has an exam to pass before judging."""
        return not self.journal.read(lambda now: result_of(self.tasks, now, name).passed)

    def answer(self, name: str, body: AnswerBody) -> Answered:
        """Take a grade, and give what follows. ServerError 409 for a judgement before the exam is passed."""
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
        """Put a task off, and give what follows. ServerError 409 in the exam."""
        task = self.task(body.task_id)
        if task.id in self.tasks.exam_ids:
            raise ServerError(409, "in_exam", "no task of the exam can be skipped; tell who leads")
        self.journal.append(Event("skip", name, task.id, id=body.id))
        return self.next(name)

    def undo(self, name: str, body: ByAnnotator) -> Presented:
        """Take the last answer back; its task again, with that answer. ServerError 409 where none is."""
        if self.is_in_exam(name):
            raise ServerError(409, "in_exam", "nothing is undone in the exam: wrong answers come again")
        try:
            undone = self.journal.undo(name, body.id).undone
        except UsageError:
            raise ServerError(409, "nothing_to_undo", "there is nothing to undo") from None
        assert undone is not None
        answer = self.journal.events()[undone - 1]
        task = self.task(answer.task_id)
        self.holds.take(name, task)
        return self.presented(name, task, answer)

    def guideline(self) -> GuidelineShown:
        """The guideline as it stands."""
        guideline = self.tasks.guideline()
        return GuidelineShown(text=printable(guideline.text), version=guideline.version)

    def edit(self, body: GuidelineBody) -> GuidelineShown:
        """Write a new guideline. ServerError 409 where another one was written meanwhile."""
        if not self.journal.edit_guideline(body.text, body.version):
            problem = "the guideline was changed meanwhile; copy your text, load the page again, put it in"
            raise ServerError(409, "guideline_changed", problem, field="version")
        return self.guideline()

    def overview(self) -> Overview:
        """How far all are."""
        names = sorted({*self.people.names, *self.journal.read(lambda now: now.annotators())})
        progress = {name: self.journal.progress(name) for name in names}
        rows = [
            AnnotatorRow(
                annotator=name, **ProgressShown.model_validate(own, from_attributes=True).model_dump()
            )
            for name, own in progress.items()
        ]
        anybody = next(iter(progress.values()))
        missing = [printable(video_id) for video_id in self.tasks.missing_videos()]
        return Overview(annotators=rows, settled=anybody.settled, tasks=anybody.tasks, missing=missing)


def _shown_feedback(answer: Feedback) -> FeedbackShown:
    return FeedbackShown.model_validate(answer, from_attributes=True)
