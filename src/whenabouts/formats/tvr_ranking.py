"""TVR-Ranking: graded moments of a query, and ranked moments.

Truth in each of the layouts in which it has been released: a list of pairs `{"query_id", "query",
"video_name", "timestamp": [start, end], "duration", "relevance", ...}` (or such a pair a line); a list of
`{"query_id", "query", "relevant_moment": [pair, ...]}`; and `{query_id: [{"video_name", "timestamp",
"relevance"}, ...]}`, as its evaluation takes it. Predictions: `{query_id: [{"video_name", "timestamp",
"model_scores"}, ...]}`, best first; the order counts and `model_scores` does not. (The predictions released
beside the program name videos by a number that is explained elsewhere; they cannot be read without it.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whenabouts.formats._json_writing import ListWriter, id_as_number, video_durations
from whenabouts.formats._losses import NO_TIMES, Losses, list_to_write
from whenabouts.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts.formats.files import FileHead, FormatError, first_entry, read_head, write_atomically
from whenabouts.formats.json_records import Record, read_document, read_records
from whenabouts.formats.runs import (
    MemoryRun,
    RunBlock,
    RunBlockBuilder,
    RunRow,
    RunSource,
    refuse_empty,
    rows_of,
)

NAME = "tvr-ranking"
ORDER = 30
SUMMARY = "TVR-Ranking truth (pairs, or query id -> moments) and predictions (query id -> moments)"
KEEPS = frozenset({"texts", "durations", "grades"})

_TRUTH = "pairs with query_id, video_name, timestamp, relevance, or query_id -> a list of moments"
_RUN = "query_id -> a list of {video_name, timestamp}, best first"
_BLOCK_QUERIES = 5_000


def holds(opening: FileHead) -> Literal["annotations", "run"] | None:
    """What a file has, by its first entries."""
    value = opening.first_value
    pair = value if _is_pair(value) else first_entry(value)
    if isinstance(pair, dict) and "query_id" in pair and ("relevant_moment" in pair or _is_pair(pair)):
        return "annotations"
    if not isinstance(value, dict):
        return None
    moment = next((first_entry(moments) for moments in value.values() if first_entry(moments)), None)
    if not _is_pair(moment):
        return None
    return "annotations" if "relevance" in dict(moment or {}) else "run"


def _is_pair(value: Any) -> bool:
    return isinstance(value, dict) and {"video_name", "timestamp"} <= value.keys()


def recognises(opening: FileHead) -> bool:
    """Whether the first entry is a pair, or the first query has moments with video_name and timestamp."""
    return holds(opening) is not None


def read_annotations(path: Path) -> Annotations:
    """Queries with their graded moments, in the order of the file; times are taken as they stand.

    A grade of 0 is a judgement: the released evaluation lets such a moment use up a prediction. So does a
    moment that stands twice; both stay.
    """
    collector = AnnotationBuilder(str(path), cut=False)
    count = 0
    for query_id, text, pair in _pairs(path):
        if not collector.add_query(query_id, text):
            continue
        video_id = pair.id("video_name")
        collector.add_video(video_id, pair.number("duration", 0) if pair.has("duration") else None)
        start, end = pair.as_times("timestamp", pair.value("timestamp", "[start, end]"))
        collector.judge(query_id, video_id, start, end, pair.number("relevance", 0))
        count += 1
    if not count:
        raise FormatError(path, "holds no judgements", accepted=_TRUTH)
    return collector.annotations()


def _pairs(path: Path) -> Iterator[tuple[str, str, Record]]:
    """(query id, text, pair) of a truth file in any of its layouts."""
    opening = read_head(path)
    if _is_pair(opening.first_value):
        yield from (_own(record) for record in read_records(path))
        return
    document = read_document(path)
    if isinstance(document.fields[""], dict):
        by_query = document.record("")
        for key in by_query.fields:
            query_id = by_query.as_id("query id", key)
            yield from ((query_id, "", moment) for moment in by_query.records(key))
        return
    for record in document.records("", _TRUTH):
        if "relevant_moment" in record.fields:
            query_id, text, _ = _own(record)
            yield from ((query_id, text, moment) for moment in record.records("relevant_moment"))
        else:
            yield _own(record)


def _own(record: Record) -> tuple[str, str, Record]:
    return record.id("query_id"), record.text("query") if record.has("query") else "", record


def open_run(path: Path) -> RunSource:
    """Predictions, in the order of the file. Spans without length are accepted (nothing hits with them).

    `model_scores` become scores where all moments of a query have them, otherwise n .. 1.
    """
    answers = read_document(path).record("", _RUN)
    blocks: list[RunBlock] = []
    builder = RunBlockBuilder()
    for number, key in enumerate(answers.fields, 1):
        builder.add(answers.as_id("query id", key), _rows(list(answers.records(key))))
        if number % _BLOCK_QUERIES == 0 or number == len(answers.fields):
            blocks.append(builder.block())
    refuse_empty(path, bool(blocks))
    return MemoryRun(str(path), {"VCMR": tuple(blocks)})


def _rows(moments: list[Record]) -> Iterator[RunRow]:
    scored = all(moment.has("model_scores") for moment in moments)
    for number, moment in enumerate(moments):
        if "relevance" in moment.fields:
            raise moment.wrong("relevance", "is in judgements, not in a run", accepted=_RUN)
        start, end = moment.as_times("timestamp", moment.value("timestamp", "[start, end]"))
        moment.check_span(start, end, "timestamp", empty=True)
        score = moment.number("model_scores") if scored else float(len(moments) - number)
        yield moment.id("video_name"), start, end, score


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write the list of pairs, without captions and similarities, which are not kept."""
    known = video_durations(annotations)
    with write_atomically(path) as stream:
        stream.write(b"[")
        members = ListWriter(stream)
        for pair_id, (number, video, start, end, grade) in enumerate(judgement_rows(annotations)):
            query, video_id = annotations.queries[number], annotations.videos[video].id
            members.add(
                {
                    "pair_id": pair_id,
                    "query_id": id_as_number(query.id),
                    "query": query.text,
                    "video_name": video_id,
                    "timestamp": [start, end],
                    **({"duration": known[video_id]} if video_id in known else {}),
                    "relevance": int(grade) if grade == int(grade) else grade,
                }
            )
        stream.write(b"]\n")


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write predictions, best first; a video without moment gets the times 0 and 0, and keeps its rank."""
    losses = Losses(path)
    _, blocks = list_to_write(source, losses)
    with write_atomically(path) as stream:
        stream.write(b"{")
        members = ListWriter(stream)
        for block in blocks:
            losses.count(NO_TIMES, int(np.isnan(block.start).sum()))
            for query_id, rows in rows_of(block, no_time=0.0):
                shown = [
                    {"video_name": video_id, "timestamp": [start, end], "model_scores": score}
                    for video_id, start, end, score in rows
                ]
                members.add(shown, query_id)
        stream.write(b"}\n")
    losses.tell()
