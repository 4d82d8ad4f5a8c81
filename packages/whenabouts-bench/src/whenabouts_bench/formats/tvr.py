"""TVR: annotation lines, and submissions with the lists VCMR, SVMR and VR.

Annotations: lines of `{"vid_name", "duration", "ts": [start, end], "desc", "type", "desc_id"}`; the test
split has no `ts`. HERO's lines of DiDeMo (`query_data.jsonl`) have a list of spans in `ts`, one per
annotator; spans that two marked are true, as in DiDeMo's files (`didemo.py`).

A submission: `{"video2idx": {name: index}, "VCMR": [{"desc_id", "desc", "predictions": [[index, start, end,
score], ...]}, ...], "SVMR": ..., "VR": ...}`. As in the released evaluation, the order of a list counts, not
its scores. Lists are read whole, and protocols cut them; they are written cut to 100.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from whenabouts.intake.files import Losses, Sign, read_document, read_json, write_atomically
from whenabouts.types import Query
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_bench.formats.didemo import judge_agreed
from whenabouts_bench.formats.json_records import Finite, Id, NotNegative, Origin, Text, Times, read_records
from whenabouts_bench.formats.json_writing import (
    ListWriter,
    id_as_number,
    query_texts,
    video_durations,
    write_json_value,
    write_lines,
)
from whenabouts_bench.formats.runs import (
    NO_TIMES,
    RunBlock,
    RunRow,
    RunSource,
    Task,
    answered_by,
    check_task,
    own_lists,
    refuse_empty,
    rows_of,
)

NAME = "tvr"
KEEPS = frozenset({"texts", "durations", "given videos", "unjudged queries", "query metadata type", "lists"})

TASKS: tuple[Task, ...] = ("VCMR", "SVMR", "VR")
SIGNS = {
    "read_annotations": (Sign("desc_id desc"),),
    "open_run": tuple(Sign(key, without="desc_id") for key in ("video2idx", *TASKS)),
}
_BOM = b"\xef\xbb\xbf"
_MOST_INDEX = 1 << 53
"""Indices are stored as floats, which are exact up to here."""

_SUBMISSION = "video2idx and at least one of VCMR, SVMR, VR"
_BLOCK_QUERIES = 2_500
_LONGEST = 100


class _AnnotationLine(msgspec.Struct):
    desc_id: Id
    desc: Text
    vid_name: Id | None = None
    duration: NotNegative | None = None
    ts: Times | None = None
    type: Text | None = None


class _AnnotatorsLine(msgspec.Struct):
    desc_id: Id
    desc: Text
    vid_name: Id
    ts: Annotated[list[Times], msgspec.Meta(title="a span [start, end] of each annotator, in seconds")]
    duration: NotNegative | None = None


_Row = Annotated[
    tuple[Finite, Finite, Finite, Finite], msgspec.Meta(title="[video index, start, end, score]")
]
_decode_rows = msgspec.json.Decoder(list[_Row]).decode


class _RawAnswer(msgspec.Struct, gc=False):
    """The answers to a query, with undecoded rows."""

    desc_id: Id
    predictions: msgspec.Raw


class _ReadAnswer(msgspec.Struct, gc=False):
    """The answers to a query."""

    desc_id: Id
    predictions: list[_Row]


class _Outline(msgspec.Struct):
    """A submission with undecoded rows."""

    video2idx: dict[str, Any]
    VCMR: list[_RawAnswer] | None = None
    SVMR: list[_RawAnswer] | None = None
    VR: list[_RawAnswer] | None = None


_decode_outline = msgspec.json.Decoder(_Outline).decode


class _Document(msgspec.Struct):
    """A decoded submission."""

    video2idx: dict[str, Any]
    VCMR: list[_ReadAnswer] | None = None
    SVMR: list[_ReadAnswer] | None = None
    VR: list[_ReadAnswer] | None = None


def read_annotations(path: Path) -> Annotations:
    """Queries with a moment (annotators' lines: those that two marked); `type` (v, t or vt) is metadata.

    Times are not cut to the video's length, because the released evaluation compares raw times. A line
    without `ts` is a query without judgement; its video, if named, is its pool.
    """
    builder = AnnotationBuilder(str(path), cut=False)
    for origin, fields in read_records(path, "lines with desc_id, desc, vid_name, ts"):
        if "video2idx" in fields:
            problem = "is in a submission, not in annotations"
            raise origin.at("video2idx").error(problem, accepted="desc_id, desc")
        spans = fields.get("ts")
        if isinstance(spans, list) and spans and isinstance(spans[0], list):
            _read_annotators_line(builder, origin.convert(fields, _AnnotatorsLine))
            continue
        line = origin.convert(fields, _AnnotationLine)
        if line.ts is not None and line.vid_name is None:
            raise origin.at("vid_name").error("is missing", accepted="the video of ts")
        _read_line(builder, line)
    return builder.annotations()


def _read_annotators_line(builder: AnnotationBuilder, line: _AnnotatorsLine) -> None:
    query_id, video_id = str(line.desc_id), str(line.vid_name)
    if builder.add_query(query_id, line.desc, annotated=tuple(line.ts)):
        builder.add_video(video_id, line.duration)
        judge_agreed(builder, query_id, video_id, line.ts)


def _read_line(builder: AnnotationBuilder, line: _AnnotationLine) -> None:
    query_id = str(line.desc_id)
    if not builder.add_query(query_id, line.desc, **({} if line.type is None else {"type": line.type})):
        return
    if line.vid_name is None:
        return
    builder.add_video(str(line.vid_name), line.duration)
    if line.ts is None:
        builder.set_pool(query_id, (str(line.vid_name),))
    else:
        builder.judge(query_id, str(line.vid_name), *line.ts)


def open_run(path: Path) -> RunSource:
    """A submission, decoded while its blocks are read. It may have empty spans; rows of VR have no times."""
    data, origin = read_document(path), Origin(path)
    try:
        data.isascii() or data.decode()
        content: _Outline | _Document = _decode_outline(data.removeprefix(_BOM))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # `json` gives better errors, and accepts some files that msgspec refuses.
        content = origin.convert(origin.object(read_json(path), _SUBMISSION), _Document, _SUBMISSION)
    lists = {task: answers for task in TASKS if (answers := getattr(content, task))}
    refuse_empty(path, bool(lists))
    for task, answers in lists.items():
        _refuse_repeated(origin, task, answers)
    return Submission(path, str(path), _names_of(origin, content.video2idx), lists)


def _names_of(origin: Origin, indices: dict[str, Any]) -> dict[int, str]:
    videos: dict[int, str] = {}
    for name, index in indices.items():
        origin.at("video2idx").as_id(name)
        place = origin.at(f"video2idx[{name!r}]")
        if type(index) is not int or not 0 <= index < _MOST_INDEX:
            raise place.error("is not an index:", index, "an object, video name -> whole number")
        if videos.setdefault(index, name) != name:
            raise place.error(f"is also the index of {videos[index]!r}:", index, "an index a video")
    return videos


def _refuse_repeated(origin: Origin, task: Task, answers: Sequence[_RawAnswer | _ReadAnswer]) -> None:
    seen: dict[str, int] = {}
    for number, answer in enumerate(answers):
        query_id = str(answer.desc_id)
        if seen.setdefault(query_id, number) != number:
            problem = f"comes a second time (first in {task}[{seen[query_id]}]):"
            place = origin.at(task, number, "desc_id")
            raise place.error(problem, query_id, "each query once in a list")


@dataclass(frozen=True)
class Submission:
    """A submission whose rows are decoded on demand."""

    path: Path
    name: str
    videos: dict[int, str]
    """index -> name"""
    lists: Mapping[Task, Sequence[_RawAnswer | _ReadAnswer]]

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(self.lists)

    @property
    def answered(self) -> Mapping[Task, Task]:
        return own_lists(self.tasks)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list, in the order of the file."""
        check_task(self, task)
        answers = self.lists[task]
        for first in range(0, len(answers), _BLOCK_QUERIES):
            yield self._block(task, first, answers[first : first + _BLOCK_QUERIES])

    def _block(self, task: Task, first: int, answers: Sequence[_RawAnswer | _ReadAnswer]) -> RunBlock:
        lists = [self._rows(task, number, answer) for number, answer in enumerate(answers, first)]
        rows = np.fromiter(chain.from_iterable(chain.from_iterable(lists)), np.float64).reshape(-1, 4)
        indices = np.array(sorted(self.videos), np.float64)
        index, start, end, score = (np.ascontiguousarray(rows[:, column]) for column in range(4))
        video = np.minimum(np.searchsorted(indices, index), max(len(indices) - 1, 0))
        if len(rows) and not (len(indices) and (indices[video] == index).all()):
            self._refuse_row(task, first, lists)
        if task == "VR":
            start = end = np.full(len(rows), np.nan)
        elif not ((start >= 0) & (start <= end)).all():
            self._refuse_row(task, first, lists)
        return RunBlock(
            query_ids=tuple(str(answer.desc_id) for answer in answers),
            offsets=np.cumsum([0, *map(len, lists)]),
            video_ids=tuple(self.videos[number] for number in sorted(self.videos)),
            video=video.astype(np.int32),
            start=start,
            end=end,
            score=score,
        )

    def _rows(self, task: Task, number: int, answer: _RawAnswer | _ReadAnswer) -> list[_Row]:
        if isinstance(answer, _ReadAnswer):
            return answer.predictions
        try:
            return _decode_rows(answer.predictions)
        except (msgspec.MsgspecError, RecursionError):
            place = Origin(self.path).at(task, number, "predictions")
            return place.convert(json.loads(bytes(answer.predictions)), list[_Row])

    def _refuse_row(self, task: Task, first: int, lists: Sequence[Sequence[_Row]]) -> None:
        """Raise FormatError for the first row with an invalid video or span, of which there is one."""
        for number, rows in enumerate(lists, first):
            for row, (index, start, end, _) in enumerate(rows):
                place = Origin(self.path).at(task, number, "predictions", row)
                if index not in self.videos:
                    raise place.at(0).error("is not an index of video2idx:", index, "one of a known video")
                if task != "VR":
                    place.at(1).check_span(start, end, empty=True)


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write annotation lines: one per judgement, and one without `ts` per unjudged query."""
    losses = Losses(path)
    repeated = len(annotations.query) - len(np.unique(annotations.query))
    losses.count(
        "judgements are further ones of a query; the released evaluation reads one for each query", repeated
    )
    seconds, given = video_durations(annotations), annotations.given_videos
    unjudged = np.setdiff1d(np.arange(len(annotations.queries)), annotations.query).tolist()
    queries, videos = annotations.queries, annotations.videos
    lines = (
        _line(queries[number], videos[video].id, seconds, {"ts": times})
        for number, video, *times, _ in judgement_rows(annotations)
    )
    without = (_line(queries[n], given.get(queries[n].id), seconds, {}) for n in unjudged)
    write_lines(path, chain(lines, without))
    losses.log()


def _line(
    query: Query, video_id: str | None, seconds: dict[str, float], times: dict[str, Any]
) -> dict[str, Any]:
    video = {} if video_id is None else {"vid_name": video_id}
    duration = {"duration": seconds[video_id]} if video_id in seconds else {}
    kind = {"type": query.metadata["type"]} if "type" in query.metadata else {}
    return {**video, **duration, **times, "desc": query.text, **kind, "desc_id": id_as_number(query.id)}


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write a submission, each list cut to 100.

    A list is written for each task that the source answers (`answered_by`, which asks `annotations` if the
    source does not say). Moments of a corpus are no list of SVMR. Without a list of videos, videos are ranked
    by their best moments.
    """
    losses = Losses(path)
    if annotations is None:
        losses.count("the texts are left out (the judgements are needed)")
    lists = answered_by(source, annotations.given_videos if annotations else {})
    indices: dict[str, int] = {}
    with write_atomically(path) as stream:
        stream.write(b"{")
        for task in TASKS:
            if task not in lists:
                continue
            stream.write(f'"{task}": ['.encode())
            members = ListWriter(stream)
            for entry in _entries(source, task, lists[task], annotations, indices, losses):
                members.add(entry)
            stream.write(b"],\n")
        stream.write(b'"video2idx": ')
        write_json_value(stream, indices)
        stream.write(b"}\n")
    losses.log()


def _entries(
    source: RunSource,
    task: Task,
    held: Task,
    annotations: Annotations | None,
    indices: dict[str, int],
    losses: Losses,
) -> Iterator[dict[str, Any]]:
    """The entries of a task's list, read from the list `held`; adds videos to `indices`."""
    sentences = query_texts(annotations)
    unanswered = set(annotations.given_videos if annotations else ())
    for block in source.blocks(held):
        if task != "VR":
            losses.count(NO_TIMES, int(np.isnan(block.start).sum()))
        for query_id, rows in rows_of(block, no_time=0.0):
            if task != held and task == "VR":
                rows = _of_videos(rows)
            losses.count(f"lists of {task} are cut to 100", len(rows) > _LONGEST)
            losses.count(f"lists of {task} are empty; the released evaluation fails at such", not rows)
            shown = [[indices.setdefault(row[0], len(indices)), *row[1:]] for row in rows[:_LONGEST]]
            unanswered.discard(query_id)
            names = {"desc_id": id_as_number(query_id), "desc": sentences.get(query_id, "")}
            yield {**names, "predictions": shown}
    losses.count(
        f"queries have no list of {task}, although the released evaluation needs all", len(unanswered)
    )


def _of_videos(rows: list[RunRow]) -> list[RunRow]:
    """A row per video, in the order of their first rows."""
    best: dict[str, RunRow] = {}
    for video_id, _, _, score in rows:
        best.setdefault(video_id, (video_id, 0.0, 0.0, score))
    return list(best.values())
