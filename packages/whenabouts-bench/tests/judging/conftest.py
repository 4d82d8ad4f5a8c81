"""A task set of three queries with two moments each, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from whenabouts.types import Moment
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import ExamTask, Task, TaskSet


class Clock:
    """A clock that advances by a second per call."""

    def __init__(self) -> None:
        self.now = datetime(2026, 5, 31, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def task(number: int, query: str = "q1", batch: int = 1) -> Task:
    return Task(f"t{number}", query, f"Sentence {query}", Moment("video", number, number + 5), 60.0, batch)


@pytest.fixture
def make_set(tmp_path: Path) -> Callable[..., TaskSet]:
    def make(*tasks: Task, exam: tuple[ExamTask, ...] = (), annotators: int = 2, **more: object) -> TaskSet:
        folder = tmp_path / str(more.pop("folder", "set"))
        (tmp_path / "video.mp4").write_bytes(b"")
        chosen = tasks or tuple(task(number, f"q{number // 2}") for number in range(6))
        written = TaskSet(
            folder, "small", chosen, {"video": "../video.mp4"}, exam, annotators, **more  # type: ignore[arg-type]
        )  # fmt: skip
        written.write()
        return TaskSet.open(folder)

    return make


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(make_set: Callable[..., TaskSet], clock: Clock) -> Journal:
    return Journal.open(make_set(), clock)
