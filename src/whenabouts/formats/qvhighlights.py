"""QVHighlights: windows and saliency of one given video a query, as JSON lines.

Annotations: `{"qid", "query", "vid", "duration", "relevant_windows": [[start, end], ...],
"relevant_clip_ids": [...], "saliency_scores": [...]}`; the test split has no labels. Predictions: `{"qid",
"query", "vid", "pred_relevant_windows": [[start, end, score], ...], "pred_saliency_scores": [...]}`. Windows
keep the order of the file: the released R1 takes the first one, its mAP sorts them by score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np

from whenabouts.formats._json_writing import (
    given_videos,
    id_as_number,
    query_texts,
    video_durations,
    write_json_value,
)
from whenabouts.formats._losses import Losses, list_to_write
from whenabouts.formats.annotations import AnnotationBuilder, Annotations, Floats, judgement_rows
from whenabouts.formats.files import FileHead, write_atomically
from whenabouts.formats.json_records import Record, read_records
from whenabouts.formats.runs import (
    BLOCK_ROWS,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    RunSource,
    Task,
    refuse_empty,
    rows_of,
)
from whenabouts.types import UsageError

NAME = "qvhighlights"
ORDER = 20
SUMMARY = "QVHighlights annotation lines and prediction lines"

_TRUTH = "lines with qid, query, vid, relevant_windows"
_RUN = "lines with qid, vid, pred_relevant_windows"
_LABELS = ("relevant_clip_ids", "saliency_scores")

KEEPS = frozenset(
    {"texts", "durations", "given videos", "saliency", *(f"query metadata {label}" for label in _LABELS)}
)


def holds(opening: FileHead) -> Literal["annotations", "run"] | None:
    """What a file has, by the keys of its first line."""
    keys = opening.first_object.keys()
    if not {"qid", "vid"} <= keys:
        return None
    return "run" if any(key.startswith("pred_") for key in keys) else "annotations"


def recognises(opening: FileHead) -> bool:
    """Whether the first line has qid and vid."""
    return holds(opening) is not None


def read_annotations(path: Path) -> Annotations:
    """Queries with their windows; relevant_clip_ids and saliency_scores are in their metadata.

    A query without labels has no judgement; its video is its pool.
    """
    collector = AnnotationBuilder(str(path))
    for record in read_records(path, _TRUTH):
        _read_line(collector, record)
    return collector.annotations()


def _read_line(collector: AnnotationBuilder, record: Record) -> None:
    if "pred_relevant_windows" in record.fields:
        raise record.wrong("pred_relevant_windows", "is in a run, not in judgements", accepted=_TRUTH)
    query_id, video_id = record.id("qid"), record.id("vid")
    labels = {k: record.array(k) for k in _LABELS if record.has(k)}
    if not collector.add_query(query_id, record.text("query"), **labels):
        return
    collector.add_video(video_id, record.number("duration", 0) if record.has("duration") else None)
    if not record.has("relevant_windows"):
        collector.set_pool(query_id, (video_id,))
        return
    for number, window in enumerate(record.array("relevant_windows")):
        collector.judge(query_id, video_id, *record.as_times(f"relevant_windows[{number}]", window))


def open_run(path: Path) -> QVHighlightsRun:
    """Predictions, read as they are asked for; all moments of a query lie in its given video."""
    return QVHighlightsRun(path, str(path))


@dataclass(frozen=True)
class QVHighlightsRun:
    """A file of predictions."""

    path: Path
    name: str
    tasks: tuple[Task, ...] = ("VCMR",)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The windows, in the order of the file. Spans without length are accepted, and nothing hits."""
        if task not in self.tasks:
            raise UsageError(f"{self.name} holds {', '.join(self.tasks)}, not {task}")
        builder = RunBlockBuilder()
        answered = False
        for query_id, record in self._answers():
            windows = record.array("pred_relevant_windows") if record.has("pred_relevant_windows") else []
            builder.add(query_id, [_row(record, i, window) for i, window in enumerate(windows)])
            answered = True
            if len(builder) >= BLOCK_ROWS:
                yield builder.block()
        refuse_empty(self.path, answered)
        yield builder.block()

    def saliency(self) -> Mapping[str, Floats]:
        """Query id -> predicted saliency of each clip (T,), for the queries that have it."""
        found: dict[str, Floats] = {}
        for query_id, record in self._answers():
            if record.has("pred_saliency_scores"):
                values = record.array("pred_saliency_scores", "a list of numbers")
                scores = [record.as_number(f"pred_saliency_scores[{i}]", v) for i, v in enumerate(values)]
                found[query_id] = np.array(scores, np.float64)
        return found

    def _answers(self) -> Iterator[tuple[str, Record]]:
        seen: dict[str, int | None] = {}
        for record in read_records(self.path):
            if "relevant_windows" in record.fields:
                raise record.wrong("relevant_windows", "is in judgements, not in a run", accepted=_RUN)
            query_id = record.id("qid")
            if query_id in seen:
                problem = f"comes a second time (first in line {seen[query_id]}):"
                raise record.wrong("qid", problem, query_id, "each query once")
            seen[query_id] = record.line
            yield query_id, record


def _row(record: Record, number: int, window: Any) -> RunRow:
    key, accepted = f"pred_relevant_windows[{number}]", "[start, end, score]"
    if len(record.as_array(key, window, accepted)) != 3:
        raise record.wrong(key, "does not have three numbers:", window, accepted)
    start, end, score = (record.as_number(f"{key}[{i}]", value) for i, value in enumerate(window))
    record.check_span(start, end, key, empty=True)
    return record.id("vid"), start, end, score


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write annotation lines. Raises UsageError for a query that is judged in several videos."""
    known, own = video_durations(annotations), given_videos(annotations)
    windows: dict[int, list[list[float]]] = {}
    for number, video, start, end, _ in judgement_rows(annotations):
        query_id, video_id = annotations.queries[number].id, annotations.videos[video].id
        if own[query_id] != video_id:
            raise UsageError(
                f"query {query_id!r} is judged in {own[query_id]!r} and {video_id!r}: "
                "QVHighlights has one video a query"
            )
        windows.setdefault(number, []).append([start, end])
    with write_atomically(path) as stream:
        for number, query in enumerate(annotations.queries):
            video_id = own.get(query.id, "")
            if not video_id:
                continue
            duration = {"duration": known[video_id]} if video_id in known else {}
            labels = {key: query.metadata[key] for key in _LABELS if key in query.metadata}
            found = {"relevant_windows": windows[number]} if number in windows else {}
            names = {"qid": id_as_number(query.id), "query": query.text, "vid": video_id}
            write_json_value(stream, {**names, **duration, **found, **labels})
            stream.write(b"\n")


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write predictions: of each query the moments in its own video, in their order.

    The own video is that of the judgements; without them a query must have moments of one video only, or
    UsageError is raised. Saliency is written where the source has it.
    """
    losses = Losses(path)
    _, blocks = list_to_write(source, losses, ("SVMR", "VCMR", "VR"))
    saliency = source.saliency() if _has_saliency(source) else {}
    sentences, own = query_texts(annotations), given_videos(annotations)
    with write_atomically(path) as stream:
        for block in blocks:
            for query_id, rows in rows_of(block):
                video_id = own.get(query_id) or _only_video(query_id, rows)
                losses.count("queries without moments in a known video are left out", not video_id)
                if not video_id:
                    continue
                kept = [
                    [start, end, score]
                    for video, start, end, score in rows
                    if video == video_id and start <= end
                ]
                losses.count("rows are left out: no moment of the query's own video", len(rows) - len(kept))
                names = {"qid": id_as_number(query_id), "query": sentences.get(query_id, ""), "vid": video_id}
                scores = saliency.get(query_id)
                extra = {} if scores is None else {"pred_saliency_scores": scores.tolist()}
                write_json_value(stream, {**names, "pred_relevant_windows": kept, **extra})
                stream.write(b"\n")
    losses.tell()


def _has_saliency(source: RunSource) -> TypeGuard[QVHighlightsRun]:
    return hasattr(source, "saliency")


def _only_video(query_id: str, rows: list[RunRow]) -> str:
    videos = sorted({row[0] for row in rows})
    if len(videos) > 1:
        raise UsageError(
            f"query {query_id!r} has moments of {videos[0]!r} and {videos[1]!r}: QVHighlights has one a "
            "query; give the judgements, they say which"
        )
    return videos[0] if videos else ""
