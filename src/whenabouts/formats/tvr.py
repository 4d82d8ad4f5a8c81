"""TVR: annotation lines, and submissions with their lists VCMR, SVMR and VR.

Annotations: `{"vid_name", "duration", "ts": [start, end], "desc", "type", "desc_id"}` a line; the test split
has no `ts`. A submission: `{"video2idx": {name: index}, "VCMR": [{"desc_id", "desc", "predictions":
[[index, start, end, score], ...]}, ...], "SVMR": ..., "VR": ...}`. The order of a list counts and its scores
do not (so does the released evaluation); lists are kept whole, a protocol cuts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from whenabouts.formats._json_writing import (
    ListWriter,
    given_videos,
    id_as_number,
    query_texts,
    video_durations,
    write_json_value,
)
from whenabouts.formats._losses import NO_TIMES, Losses
from whenabouts.formats.annotations import AnnotationBuilder, Annotations, Floats, Indices, judgement_rows
from whenabouts.formats.files import FileHead, open_unpacked, write_atomically
from whenabouts.formats.json_records import Record, read_document, read_records
from whenabouts.formats.runs import (
    MemoryRun,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    RunSource,
    Task,
    refuse_empty,
    rows_of,
)
from whenabouts.types import Query, UsageError

if TYPE_CHECKING:
    from whenabouts.formats._submission import Answer

NAME = "tvr"
ORDER = 20
SUMMARY = "TVR annotation lines, and submissions (video2idx, VCMR, SVMR, VR)"
KEEPS = frozenset({"texts", "durations", "given videos", "unjudged queries", "query metadata type", "lists"})

TASKS: tuple[Task, ...] = ("VCMR", "SVMR", "VR")

_SUBMISSION = "video2idx and at least one of VCMR, SVMR, VR"
_BLOCK_QUERIES = 2_500
_LONGEST = 100


def holds(opening: FileHead) -> Literal["annotations", "run"] | None:
    """What a file has, by its first keys."""
    keys = opening.first_object.keys()
    if "desc_id" in keys and "desc" in keys:
        return "annotations"
    return "run" if keys & {"video2idx", *TASKS} else None


def recognises(opening: FileHead) -> bool:
    """Whether it begins like TVR annotations or a submission."""
    return holds(opening) is not None


def read_annotations(path: Path) -> Annotations:
    """Queries with one moment each; `type` (v, t or vt) is in their metadata.

    Times are taken as they stand, for the released evaluation compares raw times. A line without `ts` gives
    a query without judgement; its video, where it is named, is the query's pool.
    """
    collector = AnnotationBuilder(str(path), cut=False)
    for record in read_records(path, "lines with desc_id, desc, vid_name, ts"):
        _read_line(collector, record)
    return collector.annotations()


def _read_line(collector: AnnotationBuilder, record: Record) -> None:
    if "video2idx" in record.fields:
        raise record.wrong("video2idx", "is in a submission, not in annotations", accepted="desc_id, desc")
    query_id = record.id("desc_id")
    kind = {"type": record.text("type")} if record.has("type") else {}
    if not collector.add_query(query_id, record.text("desc"), **kind):
        return
    if record.has("vid_name") or record.has("ts"):
        video_id = record.id("vid_name")
        duration = record.number("duration", 0) if record.has("duration") else None
        collector.add_video(video_id, duration)
        if record.has("ts"):
            collector.judge(query_id, video_id, *record.as_times("ts", record.fields["ts"]))
        else:
            collector.set_pool(query_id, (video_id,))


def open_run(path: Path) -> RunSource:
    """A submission. Its outline is read at once, the rows of a list as they are asked for.

    Spans without length are accepted (nothing hits with them); rows of VR have no times.
    """
    from whenabouts.formats._submission import outline

    with open_unpacked(path) as stream:
        data = stream.read()
    submission = outline(data)
    if submission is None:
        return _with_care(path)
    return Submission(path, str(path), *submission)


@dataclass(frozen=True)
class Submission:
    """A submission whose rows are still the bytes of the file."""

    path: Path
    name: str
    videos: dict[int, str]
    """index -> name"""
    lists: dict[Task, list[Answer]]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The lists it holds."""
        return tuple(self.lists)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list, in the order of the file."""
        from whenabouts.formats._submission import rows_of

        if task not in self.lists:
            raise UsageError(f"{self.name} holds {', '.join(self.tasks)}, not {task}")
        answers = self.lists[task]
        for first in range(0, len(answers), _BLOCK_QUERIES):
            chosen = answers[first : first + _BLOCK_QUERIES]
            read = rows_of(chosen)
            block = read and _block(tuple(str(a.desc_id) for a in chosen), *read, self.videos, task)
            if not block:
                yield from _with_care(self.path).lists[task][first // _BLOCK_QUERIES :]
                return
            yield block


def _block(
    query_ids: tuple[str, ...], counts: Indices, rows: Floats, videos: dict[int, str], task: Task
) -> RunBlock | None:
    """The block of (N, 4) rows; None where a row is not as it must be."""
    known = np.array(sorted(videos), np.float64)
    index, start, end, score = (np.ascontiguousarray(rows[:, column]) for column in range(4))
    video = np.minimum(np.searchsorted(known, index), len(known) - 1)
    if len(rows) and not (known[video] == index).all():
        return None
    if task == "VR":
        start = end = np.full(len(rows), np.nan)
    elif not ((start >= 0) & (start <= end)).all():
        return None
    return RunBlock(
        query_ids=query_ids,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        video_ids=tuple(videos[number] for number in sorted(videos)),
        video=video.astype(np.int32),
        start=start,
        end=end,
        score=score,
    )


def _with_care(path: Path) -> MemoryRun:
    """The same by Python's own JSON reader; says what is wrong where something is."""
    document = read_document(path).record("", _SUBMISSION)
    videos = _indices(document)
    lists = {task: _list_with_care(document, task, videos) for task in TASKS if document.has(task)}
    refuse_empty(path, any(lists.values()))
    return MemoryRun(str(path), {task: blocks for task, blocks in lists.items() if blocks})


def _indices(document: Record) -> dict[int, str]:
    accepted = "an object, video name -> whole number"
    names = document.value("video2idx", accepted)
    if not isinstance(names, dict):
        raise document.wrong("video2idx", "is no object:", names, accepted)
    videos: dict[int, str] = {}
    for name, index in names.items():
        key = f"video2idx[{document.as_id('video2idx', name)!r}]"
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < 1 << 53:
            raise document.wrong(key, "is no index:", index, accepted)
        if videos.setdefault(index, name) != name:
            raise document.wrong(key, f"is also the index of {videos[index]!r}:", index, "an index a video")
    return videos


def _list_with_care(document: Record, task: Task, videos: dict[int, str]) -> tuple[RunBlock, ...]:
    seen: dict[str, int] = {}
    blocks: list[RunBlock] = []
    builder = RunBlockBuilder()
    for number, answer in enumerate(document.records(task)):
        query_id = answer.id("desc_id")
        if seen.setdefault(query_id, number) != number:
            problem = f"comes a second time (first in {task}[{seen[query_id]}]):"
            raise answer.wrong("desc_id", problem, query_id, "each query once in a list")
        rows = answer.array("predictions", "a list of [video index, start, end, score]")
        builder.add(query_id, [_row(answer, i, row, videos, task) for i, row in enumerate(rows)])
        if len(seen) % _BLOCK_QUERIES == 0:
            blocks.append(builder.block())
    return (*blocks, builder.block()) if len(seen) % _BLOCK_QUERIES else tuple(blocks)


def _row(answer: Record, number: int, row: Any, videos: dict[int, str], task: Task) -> RunRow:
    key = f"predictions[{number}]"
    accepted = "[video index, start, end, score]"
    if len(answer.as_array(key, row, accepted)) != 4:
        raise answer.wrong(key, "does not have four numbers:", row, accepted)
    index, start, end, score = (answer.as_number(f"{key}[{i}]", value) for i, value in enumerate(row))
    if index not in videos:
        raise answer.wrong(f"{key}[0]", "is no index of video2idx:", row[0], "an index of a known video")
    video_id = videos[int(index)]
    if task == "VR":
        return video_id, np.nan, np.nan, score
    answer.check_span(start, end, f"{key}[1]", empty=True)
    return video_id, start, end, score


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write annotation lines: one a judgement, and one without `ts` a query that has none."""
    losses = Losses(path)
    repeated = len(annotations.query) - len(np.unique(annotations.query))
    losses.count("judgements are further ones of a query: the released evaluation knows one", repeated)
    known, own = video_durations(annotations), given_videos(annotations)
    unjudged = np.setdiff1d(np.arange(len(annotations.queries)), annotations.query).tolist()
    with write_atomically(path) as stream:
        for number, video, *times, _ in judgement_rows(annotations):
            _put_line(stream, annotations.queries[number], annotations.videos[video].id, known, {"ts": times})
        for number in unjudged:
            query = annotations.queries[number]
            _put_line(stream, query, own.get(query.id), known, {})
    losses.tell()


def _put_line(
    stream: IO[bytes], query: Query, video_id: str | None, known: dict[str, float], times: dict[str, Any]
) -> None:
    video = {} if video_id is None else {"vid_name": video_id}
    duration = {"duration": known[video_id]} if video_id in known else {}
    kind = {"type": query.metadata["type"]} if "type" in query.metadata else {}
    write_json_value(
        stream, {**video, **duration, **times, "desc": query.text, **kind, "desc_id": id_as_number(query.id)}
    )
    stream.write(b"\n")


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write a submission, each list cut to 100.

    What the source does not hold is made from its moments: SVMR are those in the query's own video (for which
    `annotations` are needed, as for the texts), VR the videos in the order of their best moments.
    """
    losses = Losses(path)
    if annotations is None:
        losses.count("list left out: SVMR, and the texts (for both the judgements are needed)")
    indices: dict[str, int] = {}
    with write_atomically(path) as stream:
        stream.write(b"{")
        for task in _tasks_to_write(source, annotations):
            stream.write(f'"{task}": ['.encode())
            members = ListWriter(stream)
            for entry in _entries(source, task, annotations, indices, losses):
                members.add(entry)
            stream.write(b"],\n")
        stream.write(b'"video2idx": ')
        write_json_value(stream, indices)
        stream.write(b"}\n")
    losses.tell()


def _tasks_to_write(source: RunSource, annotations: Annotations | None) -> list[Task]:
    if "VCMR" not in source.tasks:
        return [task for task in TASKS if task in source.tasks]
    return [task for task in TASKS if task in source.tasks or task == "VR" or annotations is not None]


def _entries(
    source: RunSource,
    task: Task,
    annotations: Annotations | None,
    indices: dict[str, int],
    losses: Losses,
) -> Iterator[dict[str, Any]]:
    """The entries of a list; `indices` is filled with the videos that occur."""
    sentences, own = query_texts(annotations), given_videos(annotations)
    unanswered = set(own)
    for block in source.blocks(task if task in source.tasks else "VCMR"):
        if task != "VR" and task in source.tasks:
            losses.count(NO_TIMES, int(np.isnan(block.start).sum()))
        for query_id, rows in rows_of(block, no_time=0.0):
            if task not in source.tasks:
                rows = _of_videos(rows) if task == "VR" else [r for r in rows if r[0] == own.get(query_id)]
            losses.count(f"lists of {task} are cut to 100", len(rows) > _LONGEST)
            losses.count(f"lists of {task} are empty: the released evaluation stops at them", not rows)
            shown = [[indices.setdefault(row[0], len(indices)), *row[1:]] for row in rows[:_LONGEST]]
            unanswered.discard(query_id)
            yield {
                "desc_id": id_as_number(query_id),
                "desc": sentences.get(query_id, ""),
                "predictions": shown,
            }
    losses.count(f"queries have no list of {task}: the released evaluation asks for all", len(unanswered))


def _of_videos(rows: list[RunRow]) -> list[RunRow]:
    """A row a video, in the order of their first rows."""
    best: dict[str, RunRow] = {}
    for video_id, _, _, score in rows:
        best.setdefault(video_id, (video_id, 0.0, 0.0, score))
    return list(best.values())
