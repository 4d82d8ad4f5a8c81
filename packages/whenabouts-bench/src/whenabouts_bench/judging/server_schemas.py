"""The JSON bodies of requests to, and responses of, the server of `whenabouts judge`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whenabouts_bench.judging.tasks import HIGHEST, LOWEST

_LONGEST_GUIDELINE = 40_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ByAnnotator(_Body):
    """A request from the page of `annotator`; a request sent twice has the same `id` and counts once."""

    annotator: str = Field(max_length=80)
    id: str = Field(pattern=r"^[0-9a-f]{16,64}$")


class AnswerBody(ByAnnotator):
    """A grade, and the moment's start and end in seconds if the annotator moved them."""

    task_id: str = Field(max_length=300)
    grade: int = Field(ge=LOWEST, le=HIGHEST, strict=True)
    start: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    end: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class SkipBody(ByAnnotator):
    """A task that the annotator puts off."""

    task_id: str = Field(max_length=300)


class GuidelineBody(_Body):
    """A new guideline, and the version that it replaces (`GuidelineShown.version`)."""

    text: str = Field(min_length=1, max_length=_LONGEST_GUIDELINE)
    version: str = Field(max_length=64)


class GuidelineShown(BaseModel):
    """The current guideline; `version` identifies its text."""

    text: str
    version: str


class Me(BaseModel):
    """A page's user (`annotator` None: a lead who does not judge); the task set's name and fingerprint."""

    annotator: str | None
    leads: bool
    name: str
    fingerprint: str


class OwnAnswer(BaseModel):
    """The annotator's earlier answer: None as `grade` of a skipped task, and for borders left in place."""

    grade: int | None
    start: float | None
    end: float | None


class FeedbackShown(BaseModel):
    """Feedback on an exam answer; `grade` is `right` within 1 of the `reference`."""

    grade: int
    reference: int
    right: bool
    explanation: str


class TaskShown(BaseModel):
    """A task; `context_start` to `context_end` is the visible range in seconds, `rate` frames per second."""

    task_id: str
    query: str
    start: float
    end: float
    context_start: float
    context_end: float
    rate: float
    video: Literal["there", "missing", "unreadable"]
    is_exam: bool
    answer: OwnAnswer | None
    feedback: FeedbackShown | None


class ProgressShown(BaseModel):
    """An annotator's numbers of tasks, and whether the exam was `passed` (see `assignment.Progress`)."""

    judged: int
    left: int
    skipped: int
    exam_right: int
    exam_tasks: int
    passed: bool


class Presented(BaseModel):
    """The next task (None if none is available now), the progress, and the guideline's version."""

    task: TaskShown | None
    progress: ProgressShown
    guideline: str


class Answered(BaseModel):
    """The response to an answer: what comes next, and in the exam feedback on the answer."""

    feedback: FeedbackShown | None
    next: Presented


class AnnotatorRow(ProgressShown):
    """An annotator's progress, for the lead."""

    annotator: str


class AgreementShown(BaseModel):
    """Two annotators on `tasks` of both: share of the `same` grade, linear `kappa` (None: undefined)."""

    first: str
    second: str
    tasks: int
    same: float
    kappa: float | None


class Disputed(BaseModel):
    """A task without consensus: grades by annotator, and the number still `missing` (0: discarded)."""

    task_id: str
    query: str
    start: float
    end: float
    grades: list[tuple[str, int]]
    missing: int


class AnnotatorBody(_Body):
    """The name of a new annotator."""

    name: str = Field(max_length=80)


class Invited(BaseModel):
    """An annotator, and the token in the link with which they judge."""

    annotator: str
    token: str


class Overview(BaseModel):
    """Everybody's progress, for the lead; `missing` are ids of videos without a recording.

    `disputes` tasks have no consensus; `disputed` are the first of them. Of `tasks`, `settled` are done.
    """

    annotators: list[AnnotatorRow]
    agreement: list[AgreementShown]
    disputed: list[Disputed]
    disputes: int
    settled: int
    tasks: int
    missing: list[str]
