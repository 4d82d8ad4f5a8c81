"""Reads and writes QVHighlights' JSON lines: for each query, time windows and saliency in its given video.

Annotations: `{"qid", "query", "vid", "duration", "relevant_windows": [[start, end], ...],
"relevant_clip_ids": [...], "saliency_scores": [...]}`; the test split has no labels. Predictions: `{"qid",
"query", "vid", "pred_relevant_windows": [[start, end, score], ...], "pred_saliency_scores": [...]}`. Windows
keep the order of the file: of the released measures, R1 takes the first window and mAP sorts by score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from whenabouts.intake.files import Losses, Sign, write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, Floats, judgement_rows
from whenabouts_bench.formats.json_records import Finite, Id, NotNegative, Origin, Text, Times, read_records
from whenabouts_bench.formats.json_writing import (
    id_as_number,
    query_texts,
    video_durations,
    write_json_value,
)
from whenabouts_bench.formats.runs import (
    BLOCK_ROWS,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    RunSource,
    Task,
    check_task,
    list_to_write,
    refuse_empty,
    rows_of,
    saliency_of,
)

NAME = "qvhighlights"

SIGNS = {
    "open_run": (Sign("qid vid pred_relevant_windows"), Sign("qid vid pred_saliency_scores")),
    "read_annotations": (Sign("qid vid", without="pred_relevant_windows pred_saliency_scores"),),
}

_TRUTH = "lines with qid, query, vid, relevant_windows"
_RUN = "lines with qid, vid, pred_relevant_windows"
_LABELS = ("relevant_clip_ids", "saliency_scores")

KEEPS = frozenset(
    {"texts", "durations", "given videos", "saliency", *(f"query metadata {label}" for label in _LABELS)}
)


class _AnnotationLine(msgspec.Struct):
    qid: Id
    query: Text
    vid: Id
    duration: NotNegative | None = None
    relevant_windows: list[Times] | None = None
    relevant_clip_ids: list[Any] | None = None
    saliency_scores: list[Any] | None = None


_Window = Annotated[tuple[Finite, Finite, Finite], msgspec.Meta(title="[start, end, score]")]


class _RunLine(msgspec.Struct):
    qid: Id
    vid: Id
    pred_relevant_windows: list[_Window] | None = None
    pred_saliency_scores: list[Finite] | None = None


def read_annotations(path: Path) -> Annotations:
    """Queries with their windows; relevant_clip_ids and saliency_scores are metadata.

    A query without windows has no judgement; its video is its pool. Raises FormatError for a run.
    """
    builder = AnnotationBuilder(str(path))
    for origin, fields in read_records(path, _TRUTH):
        if "pred_relevant_windows" in fields:
            raise origin.at("pred_relevant_windows").error("is in a run, not in judgements", accepted=_TRUTH)
        _read_line(builder, origin.convert(fields, _AnnotationLine))
    return builder.annotations()


def _read_line(builder: AnnotationBuilder, line: _AnnotationLine) -> None:
    query_id, video_id = str(line.qid), str(line.vid)
    labels = {key: values for key in _LABELS if (values := getattr(line, key)) is not None}
    if not builder.add_query(query_id, line.query, **labels):
        return
    builder.add_video(video_id, line.duration)
    if not line.relevant_windows:
        builder.set_pool(query_id, (video_id,))
    for start, end in line.relevant_windows or []:
        builder.judge(query_id, video_id, start, end)


def open_run(path: Path) -> QVHighlightsRun:
    """Predictions, read on demand; all moments of a query are in its given video."""
    return QVHighlightsRun(path, str(path))


@dataclass(frozen=True)
class QVHighlightsRun:
    """A file of predictions."""

    path: Path
    name: str
    tasks: tuple[Task, ...] = ("VCMR",)
    answered: Mapping[Task, Task] = field(default_factory=lambda: {"SVMR": "VCMR"})

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The windows in the file's order; those of length 0 hit nothing. Raises FormatError, UsageError."""
        check_task(self, task)
        builder = RunBlockBuilder()
        answered = False
        for origin, line in self._lines():
            windows = line.pred_relevant_windows or []
            for number, (start, end, _) in enumerate(windows):
                origin.at("pred_relevant_windows", number).check_span(start, end, empty=True)
            builder.add(str(line.qid), [(str(line.vid), *window) for window in windows])
            answered = True
            if len(builder) >= BLOCK_ROWS:
                yield builder.block()
        refuse_empty(self.path, answered)
        yield builder.block()

    def saliency(self) -> Mapping[str, Floats]:
        """Query id -> predicted saliency per clip (T,), where present."""
        scores = ((str(line.qid), line.pred_saliency_scores) for _, line in self._lines())
        return {query_id: np.array(values) for query_id, values in scores if values is not None}

    def _lines(self) -> Iterator[tuple[Origin, _RunLine]]:
        seen: dict[str, int | None] = {}
        for origin, fields in read_records(self.path):
            if "relevant_windows" in fields:
                raise origin.at("relevant_windows").error("is in judgements, not in a run", accepted=_RUN)
            line = origin.convert(fields, _RunLine)
            first = seen.setdefault(str(line.qid), origin.line)
            if first != origin.line:
                problem = f"comes a second time (first in line {first}):"
                raise origin.at("qid").error(problem, str(line.qid), "each query once")
            yield origin, line


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write the queries that have a given video.

    Raises UsageError for a query that is judged in several videos, and if no query has a given video.
    """
    losses = Losses(path)
    seconds, given = video_durations(annotations), annotations.given_videos
    windows: dict[int, list[list[float]]] = {}
    for number, video, start, end, _ in judgement_rows(annotations):
        query_id, video_id = annotations.queries[number].id, annotations.videos[video].id
        if given[query_id] != video_id:
            both = f"{given[query_id]!r} and {video_id!r}"
            raise UsageError(
                f"query {query_id!r} is judged in {both}: QVHighlights has one video for a query"
            )
        windows.setdefault(number, []).append([start, end])
    with_video = [number for number, query in enumerate(annotations.queries) if given.get(query.id)]
    if not with_video:
        raise UsageError(f"{path}: no query has a given video, which QVHighlights needs")
    losses.count("queries without a given video are left out", len(annotations.queries) - len(with_video))
    with write_atomically(path) as stream:
        for number in with_video:
            query = annotations.queries[number]
            video_id = given[query.id]
            duration = {"duration": seconds[video_id]} if video_id in seconds else {}
            labels = {key: query.metadata[key] for key in _LABELS if key in query.metadata}
            labelled = {"relevant_windows": windows[number]} if number in windows else {}
            names = {"qid": id_as_number(query.id), "query": query.text, "vid": video_id}
            write_json_value(stream, {**names, **duration, **labelled, **labels})
            stream.write(b"\n")
    losses.log()


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write predictions: of each query the moments in its given video, in order.

    The given video is that of the judgements, else the only one of the query's moments. Raises UsageError if
    these are of several videos. Saliency is written if the source has it; the log says what is left out.
    """
    losses = Losses(path)
    _, blocks = list_to_write(source, losses, ("SVMR", "VCMR", "VR"), says=("SVMR",))
    saliency = saliency_of(source)
    sentences, given = query_texts(annotations), annotations.given_videos if annotations else {}
    with write_atomically(path) as stream:
        for block in blocks:
            for query_id, rows in rows_of(block):
                video_id = given.get(query_id) or _only_video(query_id, rows)
                losses.count("queries without a given video and without moments are left out", not video_id)
                if not video_id:
                    continue
                kept = [list(times) for video, *times in rows if video == video_id and times[0] <= times[1]]
                losses.count(
                    "rows of another video, without times or reversed are left out", len(rows) - len(kept)
                )
                names = {"qid": id_as_number(query_id), "query": sentences.get(query_id, ""), "vid": video_id}
                scores = saliency.get(query_id)
                extra = {} if scores is None else {"pred_saliency_scores": scores.tolist()}
                write_json_value(stream, {**names, "pred_relevant_windows": kept, **extra})
                stream.write(b"\n")
    losses.log()


def _only_video(query_id: str, rows: list[RunRow]) -> str:
    videos = sorted({row[0] for row in rows})
    if len(videos) > 1:
        raise UsageError(
            f"query {query_id!r} has moments of {videos[0]!r} and {videos[1]!r}: QVHighlights has one a "
            "query; give the judgements, which name its video"
        )
    return videos[0] if videos else ""
