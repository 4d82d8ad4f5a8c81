"""What the routes of `whenabouts judge` take and give: all that a browser is ever sent."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from whenabouts_bench.judging.tasks import HIGHEST, LOWEST

_LONGEST_GUIDELINE = 40_000


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ByAnnotator(_Body):
    """A request of a page: who it believes to judge, and a number that no other request has."""

    annotator: str = Field(max_length=80)
    id: str = Field(pattern=r"^[0-9a-f]{16,64}$")


class AnswerBody(ByAnnotator):
    """A grade, and borders where they were moved."""

    task_id: str = Field(max_length=300)
    grade: int = Field(ge=LOWEST, le=HIGHEST, strict=True)
    start: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    end: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class SkipBody(ByAnnotator):
    """A task that cannot be judged now."""

    task_id: str = Field(max_length=300)


class GuidelineBody(_Body):
    """A new guideline, and the version that it is made of."""

    text: str = Field(min_length=1, max_length=_LONGEST_GUIDELINE)
    version: str = Field(max_length=64)


class GuidelineShown(BaseModel):
    """The guideline as it stands."""

    text: str
    version: str


class Me(BaseModel):
    """Who a page is: `annotator` is None for one who only leads."""

    annotator: str | None
    leads: bool
    name: str
    fingerprint: str


class OwnAnswer(BaseModel):
    """What an annotator said of a task before."""

    grade: int | None
    start: float | None
    end: float | None


class FeedbackShown(BaseModel):
    """What is told of an answer in the exam."""

    grade: int
    reference: int
    right: bool
    explanation: str


class TaskShown(BaseModel):
    """A task on the page; `context_start` to `context_end` is the stretch that can be seen, in seconds."""

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
    """How far an annotator is; `left` counts what is there to be judged now."""

    judged: int
    left: int
    skipped: int
    exam_right: int
    exam_tasks: int
    passed: bool


class Presented(BaseModel):
    """What comes next: `task` is None where there is nothing, at least for now."""

    task: TaskShown | None
    progress: ProgressShown
    guideline: str


class Answered(BaseModel):
    """What an answer leads to; `feedback` in the exam only."""

    feedback: FeedbackShown | None
    next: Presented


class AnnotatorRow(BaseModel):
    """How far one annotator is, for the lead."""

    annotator: str
    judged: int
    left: int
    skipped: int
    exam_right: int
    exam_tasks: int
    passed: bool


class Overview(BaseModel):
    """How far all are, for the lead; `missing` are ids of videos without a recording."""

    annotators: list[AnnotatorRow]
    settled: int
    tasks: int
    missing: list[str]
