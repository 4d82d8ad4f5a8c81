"""Task sets: folders with the queries and moments that annotators judge.

`TaskSet.open(folder)` reads one, `TaskSet.write` makes one. The files, of which the first three are required:

- `judging.json`: settings, and the fingerprint of `tasks.jsonl`.
- `tasks.jsonl`, in order of presentation, never changed: `task_id`, `query_id`, `text`, `video_id`, `start`,
  `end`, `duration`, `batch`.
- `videos.jsonl`: `video_id`, `path` (relative to the folder; empty if absent).
- `exam.jsonl`: tasks with a reference `grade` and an `explanation`.
- `sources.jsonl`: the origin of each task, hidden from annotators.
- `guideline.md`, for annotators; the journal (`judging.journal`); `published_annotators.json`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from whenabouts.intake.files import FormatError, read_json, write_atomically
from whenabouts.intake.own_files import own_file
from whenabouts.types import Moment, UsageError
from whenabouts_bench.formats.json_records import (
    Id,
    NotNegative,
    Origin,
    Positive,
    Share,
    Text,
    Words,
    read_records,
    read_text,
)
from whenabouts_bench.formats.json_writing import write_lines
from whenabouts_bench.judging.guideline import GUIDELINE

VERSION = 1
SETTINGS, TASKS, VIDEOS = "judging.json", "tasks.jsonl", "videos.jsonl"
EXAM, SOURCES, GUIDELINE_FILE = "exam.jsonl", "sources.jsonl", "guideline.md"
LOWEST, HIGHEST = 0, 4
RANDOM = "random"
"""The name that random candidates have in place of a run's."""
LAST = 5
"""The number of candidates at the end of a batch that decide whether the next batch is judged."""

_Annotators = Annotated[int, Meta(ge=1, le=2, title="1 or 2")]
_Grade = Annotated[int, Meta(ge=LOWEST, le=HIGHEST, title="a whole number from 0 to 4")]
_Batch = Annotated[int, Meta(ge=1, title="a whole number, 1 or more")]


@dataclass(frozen=True, slots=True)
class Task:
    """A query and a moment to judge.

    `duration` is the video's in seconds, None if unknown. Tasks of a later `batch` are presented only if the
    end of the batch before is still relevant.
    """

    id: str
    query_id: str
    text: str
    moment: Moment
    duration: float | None = None
    batch: int = 1


@dataclass(frozen=True, slots=True)
class ExamTask:
    """A task with its reference `grade`, and an `explanation` for wrong answers."""

    task: Task
    grade: int
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of a task: run -> rank of the moment in it (from 1), its caption with its similarity."""

    ranks: Mapping[str, int] = field(default_factory=dict)
    similarity: float | None = None
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Guideline:
    """The annotators' guideline; `version` identifies the text."""

    text: str

    @property
    def version(self) -> str:
        """12 hexadecimal digits of the text's SHA-256."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


class _Settings(msgspec.Struct):
    version: int
    name: Words
    tasks: Words
    annotators: _Annotators = 2
    pass_mark: Share = 1.0
    still_relevant: NotNegative = 2.0
    made: dict[str, Any] = {}


class _TaskLine(msgspec.Struct):
    task_id: Id
    query_id: Id
    text: Text
    video_id: Id
    start: NotNegative
    end: NotNegative
    duration: Positive | None = None
    batch: _Batch = 1


class _ExamLine(msgspec.Struct):
    grade: _Grade
    explanation: Text = ""


class _VideoLine(msgspec.Struct):
    video_id: Id
    path: Text = ""


class _SourceLine(msgspec.Struct):
    task_id: Id
    ranks: dict[str, int] = {}
    similarity: float | None = None
    caption: Text = ""


@dataclass(frozen=True)
class TaskSet:
    """The tasks that are judged, and the rules of judging; `open` reads the folder, `write` writes it.

    `pass_mark` is the share of exam answers that must be right, `still_relevant` the mean grade of a batch's
    last candidates that opens the next batch, `made` describes how the set was made.
    """

    folder: Path
    name: str
    tasks: tuple[Task, ...]
    videos: Mapping[str, str]
    exam: tuple[ExamTask, ...] = ()
    annotators: int = 2
    pass_mark: float = 1.0
    still_relevant: float = 2.0
    made: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """The task set of a folder.

        Raises FormatError, with file and line, if the folder is not a task set, has another version, or its
        tasks were changed.
        """
        folder = Path(folder)
        settings = _read_settings(folder)
        tasks = _read_tasks(own_file(folder, TASKS))
        if fingerprint_of(tasks) != settings.tasks:
            raise FormatError(
                folder / TASKS, f"is not what {SETTINGS} was written with: its fingerprint is",
                value=fingerprint_of(tasks), accepted=f"{settings.tasks}; restore it, or make a new set",
            )  # fmt: skip
        if any(task.batch > 1 for task in tasks) and not own_file(folder, SOURCES).exists():
            accepted = "the file that was written with the tasks: it says when a second batch is judged"
            raise FormatError(folder / SOURCES, "is not there", accepted=accepted)
        videos = _read_videos(own_file(folder, VIDEOS))
        place = own_file(folder, EXAM)
        exam = read_exam(place, {task.id for task in tasks}) if place.exists() else ()
        for task in [*tasks, *(item.task for item in exam)]:
            if task.moment.video_id not in videos:
                problem = f"has no line for the video of task {task.id}:"
                raise FormatError(folder / VIDEOS, problem, value=task.moment.video_id)
        return cls(
            folder, settings.name, tasks, videos, exam, settings.annotators, settings.pass_mark,
            settings.still_relevant, settings.made,
        )  # fmt: skip

    def write(self, sources: Mapping[str, Source] | None = None, guideline: str = GUIDELINE) -> None:
        """Write the folder. Raises UsageError if it already is a task set, or if there are no tasks."""
        settings_file = own_file(self.folder, SETTINGS)
        if settings_file.exists():
            raise UsageError(f"{self.folder}: is a task set already; name a new folder")
        if not self.tasks:
            raise UsageError(f"{self.folder}: there is nothing to judge: no query has a candidate")
        self.write_guideline(guideline)
        videos = ({"video_id": v, "path": path} for v, path in self.videos.items())
        write_lines(own_file(self.folder, VIDEOS), videos)
        if sources:
            lines = ({"task_id": task_id, **asdict(source)} for task_id, source in sources.items())
            write_lines(own_file(self.folder, SOURCES), lines)
        if self.exam:
            write_exam(self.exam, own_file(self.folder, EXAM))
        write_lines(own_file(self.folder, TASKS), map(_task_line, self.tasks))
        settings = {
            "version": VERSION, "name": self.name, "tasks": self.fingerprint, "annotators": self.annotators,
            "pass_mark": self.pass_mark, "still_relevant": self.still_relevant,
            "guideline": Guideline(guideline).version, "made": dict(self.made),
        }  # fmt: skip
        with write_atomically(settings_file) as stream:  # written last: it makes the folder a task set
            stream.write(json.dumps(settings, ensure_ascii=False, indent=1).encode() + b"\n")

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the tasks."""
        return fingerprint_of(self.tasks)

    def task(self, task_id: str) -> Task:
        """A task or exam task by its id. Raises UsageError for an unknown id."""
        task = self._by_id.get(task_id)
        if task is None:
            raise UsageError(f"{self.folder}: has no task {task_id!r}")
        return task

    @cached_property
    def _by_id(self) -> dict[str, Task]:
        return {task.id: task for task in [*self.tasks, *(item.task for item in self.exam)]}

    @cached_property
    def batch_ends(self) -> Mapping[tuple[str, int], tuple[str, ...]]:
        """(query id, batch) -> ids of its last five tasks, by candidate rank (paper 004, section 3.2).

        Random candidates are left out: they do not show whether candidates further down are relevant.
        """
        ranked: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for task_id, source in self.sources().items():
            if RANDOM in source.ranks:
                continue
            task = self.task(task_id)
            rank = min(source.ranks.values(), default=0)
            ranked.setdefault((task.query_id, task.batch), []).append((rank, task_id))
        return {key: tuple(task_id for _, task_id in sorted(tasks)[-LAST:]) for key, tasks in ranked.items()}

    @cached_property
    def exam_ids(self) -> frozenset[str]:
        return frozenset(item.task.id for item in self.exam)

    def guideline(self) -> Guideline:
        """The guideline in the folder, or the default."""
        path = own_file(self.folder, GUIDELINE_FILE)
        return Guideline(read_text(path) if path.exists() else GUIDELINE)

    def write_guideline(self, text: str) -> None:
        """Write a guideline; `Journal.edit_guideline` keeps the previous one."""
        with write_atomically(own_file(self.folder, GUIDELINE_FILE)) as stream:
            stream.write(text.encode("utf-8", "backslashreplace"))

    def video(self, video_id: str) -> Path:
        """The path of a video's recording. Raises UsageError, with the remedy, if it is missing."""
        path = self._place(video_id)
        if path is None or not path.is_file():
            where = f"{path} is not there" if path else "no recording is named"
            raise UsageError(f"video {video_id!r}: {where}; write its path into {self.folder / VIDEOS}")
        return path

    def missing_videos(self) -> list[str]:
        """Ids of videos without a recording, in the order of the file."""
        places = {video_id: self._place(video_id) for video_id in self.videos}
        return [video_id for video_id, path in places.items() if path is None or not path.is_file()]

    def _place(self, video_id: str) -> Path | None:
        path = self.videos.get(video_id, "")
        return self.folder / path if path else None

    def sources(self) -> dict[str, Source]:
        """Task id -> origin; empty if unknown. Hidden from annotators."""
        path, sources = own_file(self.folder, SOURCES), dict[str, Source]()
        if path.exists():
            for origin, fields in read_records(path):
                line = origin.convert(fields, _SourceLine)
                sources[str(line.task_id)] = Source(line.ranks, line.similarity, line.caption)
        return sources


def fingerprint_of(tasks: Iterable[Task]) -> str:
    """16 hexadecimal digits of the SHA-256 of some tasks."""
    lines = (json.dumps(_task_line(task), sort_keys=True) for task in tasks)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def write_exam(exam: Sequence[ExamTask], path: Path) -> None:
    """Write an exam, one task per line."""
    lines = ({**_task_line(e.task), "grade": e.grade, "explanation": e.explanation} for e in exam)
    write_lines(path, lines)


def _read_settings(folder: Path) -> _Settings:
    path = own_file(folder, SETTINGS)
    if not path.exists():
        accepted = "a folder that `whenabouts build judging` wrote"
        raise FormatError(folder, f"is not a task set: it has no {SETTINGS}", accepted=accepted)
    origin = Origin(path)
    fields = origin.object(read_json(path))
    if fields.get("version", VERSION) != VERSION:
        accepted = f"version {VERSION}; update whenabouts, or make the set anew"
        raise origin.at("version").error("is", fields["version"], accepted)
    return origin.convert(fields, _Settings)


def _read_tasks(path: Path) -> tuple[Task, ...]:
    tasks: dict[str, Task] = {}
    for origin, fields in read_records(path):
        _add(tasks, origin, fields)
    if not tasks:
        raise FormatError(path, "holds no tasks")
    return tuple(tasks.values())


def _add(tasks: dict[str, Task], origin: Origin, fields: dict[str, Any]) -> Task:
    """Add the task of a line to `tasks` and return it. Raises FormatError for a duplicate id."""
    line = origin.convert(fields, _TaskLine)
    origin.at("start").check_span(line.start, line.end)
    moment = Moment(str(line.video_id), line.start, line.end)
    task = Task(str(line.task_id), str(line.query_id), line.text, moment, line.duration, line.batch)
    if task.id in tasks:
        raise origin.at("task_id").error("comes twice:", task.id, "each id once")
    tasks[task.id] = task
    return task


def read_exam(path: Path, task_ids: Container[str] = ()) -> tuple[ExamTask, ...]:
    """The exam of a file; `task_ids` are those of tasks to judge. Raises FormatError as `TaskSet.open`."""
    exam, tasks = [], dict[str, Task]()
    for origin, fields in read_records(path):
        task, line = _add(tasks, origin, fields), origin.convert(fields, _ExamLine)
        if task.id in task_ids:
            raise origin.at("task_id").error("is the id of a task to judge, too:", task.id, "ids of its own")
        exam.append(ExamTask(task, line.grade, line.explanation))
    return tuple(exam)


def _read_videos(path: Path) -> dict[str, str]:
    videos: dict[str, str] = {}
    for origin, fields in read_records(path):
        line = origin.convert(fields, _VideoLine)
        if videos.setdefault(str(line.video_id), line.path) != line.path:
            raise origin.at("path").error("is another than before:", line.path, "one path for each video")
    return videos


def _task_line(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.id, "query_id": task.query_id, "text": task.text, "video_id": task.moment.video_id,
        "start": float(task.moment.start), "end": float(task.moment.end),
        "duration": None if task.duration is None else float(task.duration), "batch": task.batch,
    }  # fmt: skip
