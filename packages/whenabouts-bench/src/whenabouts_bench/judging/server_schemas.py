"""The JSON bodies of requests to, and responses of, the server of `whenabouts judge`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whenabouts_bench.judging.tasks import HIGHEST, LOWEST

_LONGEST_GUIDELINE = 40_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ByAnnotator(_Body):
    """A request with the annotator that the page was opened as, and a unique id."""

    annotator: str = Field(max_length=80)
    id: str = Field(pattern=r"^[0-9a-f]{16,64}$")


class AnswerBody(ByAnnotator):
    """A grade, and borders if they were moved."""

    task_id: str = Field(max_length=300)
    grade: int = Field(ge=LOWEST, le=HIGHEST, strict=True)
    start: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    end: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class SkipBody(ByAnnotator):
    """A task to put off."""

    task_id: str = Field(max_length=300)


class GuidelineBody(_Body):
    """A new guideline, and the version that it replaces."""

    text: str = Field(min_length=1, max_length=_LONGEST_GUIDELINE)
    version: str = Field(max_length=64)


class GuidelineShown(BaseModel):
    """The current guideline."""

    text: str
    version: str


class Me(BaseModel):
    """The user of a page; `annotator` is None for a pure lead."""

    annotator: str | None
    leads: bool
    name: str
    fingerprint: str


class OwnAnswer(BaseModel):
    """The annotator's earlier answer to a task."""

    grade: int | None
    start: float | None
    end: float | None


class FeedbackShown(BaseModel):
    """Feedback on an exam answer."""

    grade: int
    reference: int
    right: bool
    explanation: str


class TaskShown(BaseModel):
    """A task; `context_start` to `context_end` is the visible range in seconds."""

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
    """An annotator's progress; `left` counts tasks available now."""

    judged: int
    left: int
    skipped: int
    exam_right: int
    exam_tasks: int
    passed: bool


class Presented(BaseModel):
    """The next task, or None if none is available now."""

    task: TaskShown | None
    progress: ProgressShown
    guideline: str


class Answered(BaseModel):
    """The response to an answer; `feedback` in the exam only."""

    feedback: FeedbackShown | None
    next: Presented


class AnnotatorRow(ProgressShown):
    """An annotator's progress, for the lead."""

    annotator: str


class AgreementShown(BaseModel):
    """How two annotators agree on the tasks that both graded; `kappa` (linear weights) may be undefined."""

    first: str
    second: str
    tasks: int
    same: float
    kappa: float | None


class Disputed(BaseModel):
    """A task whose grades do not agree: who gave which, and how many more it needs (0: discarded)."""

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
    """An annotator, and the token of their link."""

    annotator: str
    token: str


class Overview(BaseModel):
    """Everybody's progress, for the lead; `missing` are ids of videos without a recording.

    `disputed` are the first tasks without consensus of `disputes`.
    """

    annotators: list[AnnotatorRow]
    agreement: list[AgreementShown]
    disputed: list[Disputed]
    disputes: int
    settled: int
    tasks: int
    missing: list[str]
