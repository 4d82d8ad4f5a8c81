"""Tasks of `whenabouts bench`: queries with their right moments, and how answers are measured.

Modules of `whenabouts_bench.tasks`, and modules that other packages declare in the entry points
`whenabouts.tasks`, have `TASKS`, a tuple of `Task`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whenabouts import plugins
from whenabouts.types import UsageError, did_you_mean
from whenabouts_bench.datasets import declaration_named, open_dataset
from whenabouts_bench.datasets.declaration import Statistics
from whenabouts_bench.datasets.folder import DatasetFolder
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations

_ANY = Statistics()


@dataclass(frozen=True)
class Row:
    """A query of a task, with its moments in one video.

    - `intervals`: the right moments (start, end) in seconds; empty if no video of `pool` answers the query.
    - `pool`: the videos to search, () for all.
    - `grade`: the relevance of the moments.
    """

    query_id: str
    text: str
    intervals: Sequence[tuple[float, float]]
    video_id: str
    pool: tuple[str, ...] = ()
    grade: float = 1.0
    duration: float | None = None
    """Seconds of the video, if known."""


@dataclass(frozen=True)
class Material:
    """The judgements that a task reads from a folder, and their files."""

    annotations: Annotations
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Task:
    """Queries, their right moments, and how answers are measured.

    `read` gets the user's folder and returns a `Material`. `protocol` names a protocol of `whenabouts
    evaluate`. Its metrics and `metrics` are measured if the system has the methods for them. The leaderboard
    has the columns `headline` and is sorted by the first.
    """

    name: str
    title: str
    split: str
    revision: str
    """The release of the data, in words."""
    licence: str
    how: str
    """The way to get the files, in words."""
    read: Callable[[Path], Material]
    headline: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    of_protocol: bool = True
    """Whether the protocol's metrics are also measured."""
    protocol: str = "vcmr"
    version: int = 1
    """Increased with every change that affects a number."""
    is_given: bool = False
    """Whether a system is asked only within each query's given video, never over the corpus."""
    judged_iou: float | None = None
    """For judgements from pools: an answer is judged if its IoU with a judged moment is at least this."""
    depth: int = 100
    """The number of answers that a system is asked for, for each query."""
    holds: Statistics = _ANY
    """Counts of the release; a folder with other counts is measured, with a note."""
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version: "tvr@1"."""
        return f"{self.name}@{self.version}"

    def counts_that_differ(self, annotations: Annotations) -> list[str]:
        """One note if the counts of the files differ from those of the release, else an empty list."""
        counts = {
            "videos": len(annotations.videos),
            "queries": len(annotations.queries),
            "judgements": len(annotations.query),
        }
        differing = [
            f"{released:,} {what} ({counts[what]:,})"
            for what in counts
            if (released := getattr(self.holds, what)) is not None and released != counts[what]
        ]
        if not differing:
            return []
        note = "these files (counts in brackets) are another release or a part of it"
        return [f"{self.title} has {', '.join(differing)}; {note}"]

    def to_json(self) -> dict[str, Any]:
        names = ("name", "title", "split", "revision", "licence", "protocol", "how")
        return {"task": self.label} | {name: getattr(self, name) for name in names}


def tasks() -> tuple[Task, ...]:
    """All known tasks, sorted by name."""
    included = (module.TASKS for module in plugins.modules_declaring("whenabouts_bench.tasks", "TASKS"))
    groups = (*included, *plugins.loaded("tasks").values())
    return tuple(sorted((task for tasks in groups for task in tasks), key=lambda task: str(task.name)))


def task_named(name: str) -> Task:
    """The task "name" or "name@version". Raises UsageError."""
    bare, at, version = name.partition("@")
    by_name = {task.name: task for task in tasks()}
    if bare not in by_name:
        raise UsageError(f"{name!r} is not a task; known: {', '.join(by_name)}{did_you_mean(bare, by_name)}")
    if at and version != str(by_name[bare].version):
        raise UsageError(f"{name!r}: there is no version {version}; give {by_name[bare].label}")
    return by_name[bare]


def material_of(rows: Iterable[Row], name: str, files: Sequence[Path]) -> Material:
    """The rows of a task as judgements.

    Raises UsageError for a query id with two texts, and for a query with moments in one row and none in
    another.
    """
    builder = AnnotationBuilder(name)
    answerable: dict[str, bool] = {}
    for row in rows:
        if not builder.add_query(row.query_id, row.text):
            raise UsageError(f"{name}: query {row.query_id!r} has two texts; give each query its own id")
        if answerable.setdefault(row.query_id, bool(row.intervals)) != bool(row.intervals):
            raise UsageError(
                f"{name}: query {row.query_id!r} has a row with moments and one without; remove one of them"
            )
        if not row.video_id:
            what = "that of its moments" if row.intervals else "a video of its pool"
            raise UsageError(f"{name}: query {row.query_id!r} has a row without a video; name {what}")
        builder.add_video(row.video_id, row.duration)
        if row.pool:
            builder.set_pool(row.query_id, row.pool)
        for start, end in row.intervals:
            builder.judge(row.query_id, row.video_id, start, end, row.grade)
    return Material(builder.annotations(), tuple(files))


def reader_of(rows: Callable[[Path], Iterable[Row]], *names: str, how: str) -> Callable[[Path], Material]:
    """A reader of the file with one of the names; `rows` reads its rows, `how` describes how to get it."""

    def read(folder: Path) -> Material:
        file = file_named(folder, *names, how=how)
        return material_of(rows(file), str(file), (file,))

    return read


def of_dataset(name: str, split: str) -> Callable[[Path], Material]:
    """A reader of a split of a data set that `whenabouts datasets` lists."""

    def read(folder: Path) -> Material:
        dataset = open_dataset(name, folder)
        return Material(dataset.annotations(split), (dataset.file(split).path,))

    return read


def dataset_facts(name: str, split: str) -> dict[str, Any]:
    """The fields of a task that a data set declares for a split, for `Task(**dataset_facts(...))`."""
    declared = declaration_named(name)
    chosen = declared.split(split)
    assert chosen is not None, f"{name} has no split {split}"
    return {
        "title": declared.title,
        "licence": declared.licence,
        "how": declared.how,
        "split": split,
        "holds": chosen.files[0].holds if chosen.files[0].holds.queries else chosen.paper,
        "read": of_dataset(name, split),
    }


def file_named(folder: Path, *names: str, how: str) -> Path:
    """The nearest file, gzip or not, of the first name that `DatasetFolder` finds. Raises UsageError."""
    file = DatasetFolder(folder).any_of(names)
    if file is None or not file.is_file():
        raise UsageError(f"{folder}: holds no {' or '.join(names)} (.gz is fine). How to get it: {how}")
    return file
