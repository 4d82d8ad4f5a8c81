"""TREC qrels (`query 0 document grade`) and runs (`query Q0 document rank score tag`).

A document is a moment, `video@start-end` in seconds with three decimals, or a whole video. It is parsed from
the right, because video ids may contain `@` and `-`. Fields are separated by blanks or tabs, so ids with
white space cannot be written. As in trec_eval, scores count, not ranks. Equal scores are ordered by video,
start and end, as everywhere here; trec_eval takes the last document id first. A warning counts the queries
with equal scores, because their values may differ from trec_eval's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from whenabouts.intake.files import FormatError, Losses, Sign, open_unpacked, read_head, write_atomically
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import numbered_lines
from whenabouts_bench.formats.json_writing import whole_as_int
from whenabouts_bench.formats.runs import (
    FileRun,
    RunBlock,
    RunSource,
    Task,
    in_order_of_scores,
    list_to_write,
    own_lists,
    rows_of,
    without_empty_spans,
)

NAME = "trec"
KEEPS = frozenset({"grades"})

TAG = "whenabouts"
_QRELS = "query 0 document grade"
_RUN = "query Q0 document rank score tag"
_TIES = "trec_eval takes the last document id first, so its values may differ"
# Possessive quantifiers, so that fields of very many digits are refused in linear time.
_NUMBER = re.compile(r"[-+]?(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE)
_TIME = rf"{_NUMBER.pattern}|(?i:{_NOT_FINITE.pattern})"
_MOMENT = re.compile(rf"(.*)@({_TIME})-({_TIME})", re.DOTALL)
_UNWRITABLE = re.compile(r"[ \t\r\n\v\f\ufeff]")

SIGNS = {
    "open_run": (Sign(line=rf"(?![{{[]|.*##)(?:\S+\s+){{4}}(?:{_TIME})\s+\S+$"),),
    "read_annotations": (Sign(line=rf"(?![{{[]|.*##)(?:\S+\s+){{3}}(?:{_TIME})$"),),
}


def read_annotations(path: Path) -> Annotations:
    """Judgements; a document that is a whole video says that the video is right, but no moment is known."""
    builder = AnnotationBuilder(str(path), cut=False)
    lines = 0
    with open_unpacked(path) as stream:
        for number, raw in numbered_lines(stream, path):
            query_id, _, document, grade = _fields(path, number, raw, 4, _QRELS)
            video_id, start, end = moment_of(path, number, document)
            builder.add_query(query_id)
            relevance = _number(path, number, "grade", grade)
            if relevance < 0:
                raise FormatError(path, "is negative:", line=number, field="grade", value=relevance)
            start, end = (start, end) if start < end else (0.0, 0.0)
            builder.judge(query_id, video_id, start, end, relevance)
            lines += 1
    if not lines:
        raise FormatError(path, "holds no judgements", accepted=_QRELS)
    return builder.annotations()


def _fields(path: Path, number: int, raw: bytes, count: int, accepted: str) -> list[str]:
    try:
        fields = re.split("[ \t]+", raw.decode())
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start} of the line)", line=number) from None
    if len(fields) != count:
        problem, value = f"has {len(fields)} fields, not {count}:", " ".join(fields)
        raise FormatError(path, problem, line=number, value=value, accepted=accepted)
    return fields


def _number(path: Path, line: int, field: str, text: str) -> float:
    value = float(text) if re.fullmatch(_TIME, text) else None
    if value is None or not np.isfinite(value):
        raise FormatError(path, "is not a finite number:", line=line, field=field, value=text)
    return value


def moment_of(path: Path, line: int, document: str) -> tuple[str, float, float]:
    """(video, start, end) of a document; NaN times for a whole video."""
    match = _MOMENT.fullmatch(document)
    if not match:
        return document, np.nan, np.nan
    start, end = (_number(path, line, "document", text) for text in match.groups()[1:])
    if not (match[1] and 0 <= start < end):
        accepted = "video@start-end with 0 <= start < end in seconds, or a video"
        raise FormatError(
            path, "is not a moment:", line=line, field="document", value=document, accepted=accepted
        )
    return match[1], start, end


def answer_of(path: Path, line: int, raw: bytes) -> tuple[str, str, float, float, float]:
    """(query, video, start, end, score) of a line; errors name the line."""
    query_id, _, document, _, score, _ = _fields(path, line, raw, 6, _RUN)
    return query_id, *moment_of(path, line, document), _number(path, line, "score", score)


def open_run(path: Path) -> RunSource:
    """A run, read in blocks of about 250,000 lines; the lines of a query must be consecutive.

    Memory grows with the number of queries, whose ids are kept to find duplicates, not of lines.
    """
    lines = read_head(path).head.decode("utf-8", "replace").splitlines()
    documents = [fields[2] for fields in map(str.split, lines) if len(fields) == 6]
    of_videos = documents and not any(map(_MOMENT.fullmatch, documents))
    tasks: tuple[Task, ...] = ("VR",) if of_videos else ("VCMR",)
    return FileRun(
        path, str(path), tasks, _blocks, answered=own_lists(tasks) if of_videos else None, ties=_TIES
    )


def _blocks(path: Path) -> Iterator[RunBlock]:
    from whenabouts_bench.formats._trec_lines import blocks_of_lines

    with open_unpacked(path) as stream:
        yield from blocks_of_lines(stream, path, answer_of)


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write qrels. Raises UsageError for a judged id with white space."""
    losses, queries, videos = Losses(path), annotations.queries, annotations.videos
    for items, numbers in ((queries, annotations.query), (videos, annotations.video)):
        _refuse_white_space(items[number].id for number in np.unique(numbers).tolist())
    losses.count("grades have a fraction, which trec_eval drops", int((annotations.relevance % 1 > 0).sum()))
    start, end = annotations.start.round(3), annotations.end.round(3)
    exact = (start == annotations.start) & (end == annotations.end)
    losses.count("judgements have times that are rounded to 3 decimals", int((~exact).sum()))
    short = (start >= end) & (annotations.start < annotations.end)
    losses.count("moments vanish by rounding; they are written as their video", int(short.sum()))
    columns = (annotations.query, annotations.video, start, end, annotations.relevance)
    with write_atomically(path) as stream:
        for query, video, begin, finish, grade in zip(*(c.tolist() for c in columns), strict=True):
            document = _document(videos[video].id, begin, finish)
            stream.write(f"{queries[query].id} 0 {document} {whole_as_int(grade)}\n".encode())
    losses.log()


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write a run, best first. Of several lists the moments of the corpus are written (VCMR)."""
    losses = Losses(path)
    _, blocks = list_to_write(source, losses, says=("VR",))
    with write_atomically(path) as stream:
        for line in chain.from_iterable(_run_lines(block, losses) for block in blocks):
            stream.write(line.encode())
        if not stream.tell():
            raise UsageError(f"{source.name} has no answers that a TREC run can hold")
    losses.log()


def _run_lines(block: RunBlock, losses: Losses) -> Iterator[str]:
    _refuse_white_space(block.query_ids)
    _refuse_white_space(block.video_ids[code] for code in np.unique(block.video).tolist())
    rounded = replace(block, start=block.start.round(3), end=block.end.round(3))
    exact = (rounded.start == block.start) & (rounded.end == block.end) | np.isnan(block.start)
    losses.count("moments have times that are rounded to 3 decimals", int((~exact).sum()))
    losses.count("queries without answers are left out", int((np.diff(block.offsets) == 0).sum()))
    block = in_order_of_scores(without_empty_spans(rounded, losses), losses)
    for query_id, rows in rows_of(block):
        for rank, (video_id, start, end, score) in enumerate(rows, 1):
            yield f"{query_id} Q0 {_document(video_id, start, end)} {rank} {score!r} {TAG}\n"


def _document(video_id: str, start: float, end: float) -> str:
    if start < end:
        return f"{video_id}@{start:.3f}-{end:.3f}"
    if _MOMENT.fullmatch(video_id):
        raise UsageError(f"video {video_id!r} reads as a moment in TREC: it cannot be written without times")
    return video_id


def _refuse_white_space(ids: Iterable[str]) -> None:
    for name in ids:
        if _UNWRITABLE.search(name):
            raise UsageError(
                f"id {name!r} contains white space, which a TREC file cannot have; replace it in judgements "
                "and runs alike, or write jsonl"
            )
