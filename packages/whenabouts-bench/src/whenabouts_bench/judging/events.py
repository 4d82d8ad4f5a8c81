"""Events of the journal, and the state after replaying them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

from whenabouts.types import UsageError

Kind = Literal["grade", "borders", "skip", "undo", "exam", "guideline", "import"]


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the journal.

    - grade: `annotator` grades `task_id` (0 to 4), and sets borders if `start` and `end` are given
    - borders: `annotator` moves the borders of `task_id` to `start` and `end` (seconds)
    - skip: `annotator` puts `task_id` off
    - undo: `annotator` takes back the event with the sequence number `undone`
    - exam: `annotator` grades an exam task
    - guideline: annotators read `text` from now on
    - import: later events with the same `source` were imported from that file

    An `id` makes an event idempotent: sent twice, it is written once. The journal sets `seq` (1, 2, ...),
    `time` (UTC, ISO 8601, never decreasing), `clock` (the clock's time, if it was set back) and `tasks` (the
    task set's fingerprint), and `last`: the number of the last event that was written with this one.
    """

    kind: Kind
    annotator: str = ""
    task_id: str = ""
    grade: int | None = None
    start: float | None = None
    end: float | None = None
    undone: int | None = None
    text: str = ""
    source: str = ""
    seq: int = 0
    time: str = ""
    clock: str = ""
    tasks: str = ""
    id: str = ""
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An annotator's current answer to a task.

    `grade` is None if only borders were moved; `start` and `end` are None if the borders were kept; `skipped`
    tasks were put off. `first` is the sequence number of the first grade; `seq`, `time` and `source` are
    those of the last event.
    """

    grade: int | None = None
    start: float | None = None
    end: float | None = None
    first: int = 0
    seq: int = 0
    time: str = ""
    skipped: bool = False
    source: str = ""


@dataclass
class State:
    """The state after a number of events; `apply` adds the next one.

    `answers` is task id -> annotator -> Answer; `exam` is annotator -> exam task id -> grades, oldest first;
    `guideline` is the current text, "" before the first; `seq` and `time` are those of the last event.
    """

    answers: dict[str, dict[str, Answer]] = field(default_factory=dict)
    exam: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    guideline: str = ""
    seq: int = 0
    time: str = ""
    _steps: dict[str, list[tuple[int, str, Answer | None]]] = field(default_factory=dict)
    _grades: dict[str, tuple[int, ...]] = field(default_factory=dict)  # a cache

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        state = cls()
        for event in events:
            state.apply(event)
        return state

    def answer(self, annotator: str, task_id: str) -> Answer | None:
        """An annotator's answer to a task, if any."""
        return self.answers.get(task_id, {}).get(annotator)

    def graded(self, task_id: str) -> list[tuple[str, Answer]]:
        """(annotator, answer) of all who graded a task, by first grade."""
        answers = self.answers.get(task_id, {}).items()
        return sorted((pair for pair in answers if pair[1].grade is not None), key=lambda pair: pair[1].first)

    def grades(self, task_id: str) -> tuple[int, ...]:
        """The grades of a task, by first grade."""
        if task_id not in self._grades:
            grades = (answer.grade for _, answer in self.graded(task_id))
            self._grades[task_id] = tuple(grade for grade in grades if grade is not None)
        return self._grades[task_id]

    def annotators(self) -> list[str]:
        """All who answered anything, exam included, sorted."""
        return sorted({name for given in self.answers.values() for name in given} | set(self.exam))

    def rows(self) -> Iterator[tuple[str, str, Answer]]:
        """(task id, annotator, answer) of all graded answers."""
        for task_id in self.answers:
            for annotator, answer in self.graded(task_id):
                yield task_id, annotator, answer

    def to_undo(self, annotator: str) -> int:
        """The sequence number of the annotator's last step. Raises UsageError if there is nothing to undo."""
        steps = self._steps.get(annotator)
        if not steps:
            raise UsageError(f"annotator {annotator!r} has nothing to undo")
        return steps[-1][0]

    def apply(self, event: Event) -> None:
        """Add the next event. Raises UsageError if an undo is not of the annotator's last step."""
        match event.kind:
            case "grade" | "borders" | "skip":
                self._answer(event)
            case "exam":
                assert event.grade is not None
                answers = self.exam.setdefault(event.annotator, {})
                answers.setdefault(event.task_id, []).append(event.grade)
            case "undo":
                self._undo(event)
            case "guideline":
                self.guideline = event.text
            case "import":
                pass
        self.seq, self.time = event.seq, event.time

    def _answer(self, event: Event) -> None:
        given = self.answers.setdefault(event.task_id, {})
        self._grades.pop(event.task_id, None)
        before = given.get(event.annotator)
        changes: dict[str, Any] = {"seq": event.seq, "time": event.time, "source": event.source}
        now = replace(before or Answer(), skipped=event.kind == "skip", **changes)
        if event.kind == "grade":
            now = replace(now, grade=event.grade, first=now.first or event.seq)
        if event.start is not None:
            now = replace(now, start=event.start, end=event.end)
        given[event.annotator] = now
        self._steps.setdefault(event.annotator, []).append((event.seq, event.task_id, before))

    def _undo(self, event: Event) -> None:
        if event.undone != self.to_undo(event.annotator):
            raise UsageError(f"event {event.undone} is not the last step of annotator {event.annotator!r}")
        _, task_id, before = self._steps[event.annotator].pop()
        self._grades.pop(task_id, None)
        if before is None:
            del self.answers[task_id][event.annotator]
        else:
            self.answers[task_id][event.annotator] = before


def iso(moment: datetime) -> str:
    """UTC in ISO 8601 with microseconds, so that texts sort by time."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def until(events: Sequence[Event], at: int | str | None) -> Sequence[Event]:
    """The events up to a sequence number or a time (ISO 8601, UTC by default); all for None.

    Raises UsageError for an unknown sequence number or an invalid time.
    """
    if at is None:
        return events
    if isinstance(at, int):
        if not 0 <= at <= len(events):
            raise UsageError(f"event {at}: the journal has events 1 to {len(events)}")
        return events[:at]
    try:
        moment = datetime.fromisoformat(at)
        last = iso(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise UsageError(f"{at[:40]!r} is not a time; give one as 2026-05-31T18:00:00Z") from None
    return [event for event in events if event.time <= last]
