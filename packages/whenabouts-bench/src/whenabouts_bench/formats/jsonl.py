"""Our JSON lines: qrels.jsonl and run.jsonl, and videos, queries and pools beside the qrels.

One object per line, UTF-8; integer ids become text; unknown keys are kept as metadata of videos and queries,
and ignored elsewhere. `docs/formats.md` has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, Any, get_args

import msgspec
import numpy as np

from whenabouts.intake.files import (
    FileHead,
    FormatError,
    Losses,
    Sign,
    loads,
    open_unpacked,
    read_head,
    read_json,
    sibling_file,
    write_atomically,
)
from whenabouts_bench.formats.annotations import (
    AnnotationBuilder,
    Annotations,
    caption_fields,
    judgement_rows,
)
from whenabouts_bench.formats.json_records import (
    Cosine,
    Finite,
    Id,
    NotNegative,
    Origin,
    Share,
    Text,
    numbered_lines,
    parse_line,
    read_records,
)
from whenabouts_bench.formats.json_writing import write_lines, write_lines_to
from whenabouts_bench.formats.parts import PARTS
from whenabouts_bench.formats.runs import (
    BLOCK_ROWS,
    FileRun,
    RunBlock,
    RunSource,
    Task,
    in_order_of_scores,
    list_to_write,
    own_lists,
    refuse_empty,
    rows_of,
    without_empty_spans,
)

NAME = "jsonl"
KEEPS = frozenset({"grades", "similarities", "captions", "confidences"})
SIGNS = {
    "open_run": (Sign("query_id moments"),),
    "read_annotations": (Sign("query_id video_id", without="moments timestamp"),),
}
KEEPS_IN_FOLDER = frozenset(PARTS) - {"saliency", "lists", "confidences"}

FILES = ("qrels.jsonl", "videos.jsonl", "queries.jsonl", "pools.jsonl")
"""The files of a folder of judgements; with the first one, the others are read."""

POOLED = "pooled.json"
"""Beside qrels.jsonl: marks judgements from pools, where other moments are unjudged."""

_UNFINISHED = ".unfinished"
"""Marks a folder while its files are replaced one by one; a half-replaced folder is not read."""

_QRELS = "lines with query_id and video_id (qrels)"
_RUN = "lines with query_id and moments (a run)"


class _Video(msgspec.Struct):
    video_id: Id
    duration: NotNegative | None = None


class _Query(msgspec.Struct):
    query_id: Id
    text: Text | None = None


class _Pool(msgspec.Struct):
    query_id: Id
    video_ids: list[Id]


class _Judgement(msgspec.Struct):
    query_id: Id
    video_id: Id
    relevance: NotNegative | None = None
    similarity: Cosine | None = None
    caption: Text | None = None


class _Pooled(msgspec.Struct):
    most_grade: NotNegative = 4.0


class _Span(msgspec.Struct):
    start: Finite
    end: Finite


class _RunMoment(msgspec.Struct, gc=False):
    """A moment of an answer; start and end are both set or both None."""

    video_id: Id
    score: Finite
    start: Finite | None = None
    end: Finite | None = None


_Tasks = Annotated[list[Task] | Task | None, msgspec.Meta(title='"VCMR", "SVMR" or "VR", or a list of these')]


class _RunLine(msgspec.Struct, gc=False):
    """The answers to a query."""

    query_id: Id
    moments: list[_RunMoment]
    confidence: Share | None = None
    task: _Tasks = None


_decode_line = msgspec.json.Decoder(_RunLine).decode


def judgements_in(path: Path) -> Path:
    """The qrels.jsonl (or .gz) of a folder; other paths unchanged."""
    if not path.is_dir():
        return path
    qrels = sibling_file(path / FILES[0], FILES[0])
    if qrels is None:
        accepted = "a file, or a folder that has one"
        raise FormatError(path, f"is a folder without {FILES[0]}", accepted=accepted)
    return qrels


def files_of(path: Path) -> tuple[Path, ...]:
    """The files read for judgements of a path: itself, and those beside a qrels.jsonl."""
    path = judgements_in(path)
    if path.name.removesuffix(".gz") != FILES[0]:
        return (path,)
    siblings = (sibling_file(path, name) for name in FILES[1:])
    return (path, *(sibling for sibling in siblings if sibling is not None))


def read_annotations(path: Path) -> Annotations:
    """Judgements of qrels.jsonl; of a file of that name (or a folder) also the files beside it.

    Those are videos.jsonl, queries.jsonl, pools.jsonl and pooled.json, each optional. Times are kept even if
    a moment ends after its video. A line without start and end says that the video is right, but no moment is
    known. Duplicate queries in queries.jsonl or pools.jsonl are counted if they agree; otherwise FormatError
    names both lines.
    """
    path, *siblings = files_of(path)
    if siblings and path.with_name(_UNFINISHED).exists():
        raise FormatError(path, "the writing of its folder was cut short; write these judgements again")
    readers = {
        "videos": _read_video,
        "queries": _once("text", "", _read_query),
        "pools": _once("video_ids", [], _read_pool),
    }
    builder = AnnotationBuilder(str(path), cut=False)
    for sibling in siblings:
        read = readers[sibling.name.split(".")[0]]
        for origin, fields in read_records(sibling):
            read(builder, origin, fields)
    for origin, fields in read_records(path, _QRELS):
        _read_judgement(builder, origin, fields)
    builder.most_grade = _most_grade(path)
    return builder.annotations()


def _most_grade(qrels: Path) -> float | None:
    """The highest grade in pooled.json beside judgements from pools; None without that file."""
    path = qrels.with_name(POOLED)
    if qrels.name.removesuffix(".gz") != FILES[0] or not path.exists():
        return None
    origin = Origin(path)
    return origin.convert(origin.object(read_json(path)), _Pooled).most_grade


def holds_queries(head: FileHead) -> bool:
    """Whether a file is a queries.jsonl, whatever its name."""
    return head.has(Sign("query_id text", without="video_id moments"))


def read_queries(path: Path) -> Annotations:
    """The queries of a queries.jsonl without judgements; duplicates as in `read_annotations`."""
    builder, read = AnnotationBuilder(str(path)), _once("text", "", _read_query)
    for origin, fields in read_records(path):
        read(builder, origin, fields)
    return builder.annotations()


_ReadLine = Callable[[AnnotationBuilder, Origin, dict[str, Any]], None]


def _read_video(builder: AnnotationBuilder, origin: Origin, fields: dict[str, Any]) -> None:
    line = origin.convert(fields, _Video)
    builder.add_video(str(line.video_id), line.duration, **_others(fields, _Video))


def _read_query(builder: AnnotationBuilder, origin: Origin, fields: dict[str, Any]) -> None:
    line = origin.convert(fields, _Query)
    builder.add_query(str(line.query_id), line.text or "", **_others(fields, _Query))


def _read_pool(builder: AnnotationBuilder, origin: Origin, fields: dict[str, Any]) -> None:
    line = origin.convert(fields, _Pool)
    builder.add_query(str(line.query_id))
    builder.set_pool(str(line.query_id), [str(video_id) for video_id in line.video_ids])


def _others(fields: dict[str, Any], line: type[msgspec.Struct]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in line.__struct_fields__}


def _once(key: str, default: Any, read: _ReadLine) -> _ReadLine:
    """A reader of lines that skips duplicate queries, or refuses them if `key` differs."""
    seen: dict[str, tuple[int | None, Any]] = {}

    def read_first(builder: AnnotationBuilder, origin: Origin, fields: dict[str, Any]) -> None:
        if "query_id" not in fields:
            read(builder, origin, fields)  # raises
        query_id = origin.at("query_id").as_id(fields["query_id"])
        value = fields.get(key, default)
        if query_id not in seen:
            read(builder, origin, fields)
            seen[query_id] = (origin.line, value)
            return
        line, earlier = seen[query_id]
        if value != earlier:
            problem = (
                f"{query_id!r} comes again with another {key} than in line {line} ({repr(earlier)[:60]}):"
            )
            raise origin.at("query_id").error(problem, value, "one line for each query")
        builder.count(builder.REPEATED_QUERY)

    return read_first


def _read_judgement(builder: AnnotationBuilder, origin: Origin, fields: dict[str, Any]) -> None:
    if "moments" in fields:
        raise origin.at("moments").error("is in a run, not in judgements", accepted=_QRELS)
    line = origin.convert(fields, _Judgement)
    start = end = 0.0
    if fields.get("start") is not None or fields.get("end") is not None:
        span = origin.convert(fields, _Span)
        start, end = span.start, span.end
        origin.at("start").check_span(start, end, empty=True)
    builder.add_query(str(line.query_id))
    relevance = 1.0 if line.relevance is None else line.relevance
    about: dict[str, Any] = {"similarity": line.similarity, "caption": line.caption or ""}
    builder.judge(str(line.query_id), str(line.video_id), start, end, relevance, **about)


def open_run(path: Path) -> RunSource:
    """A run of JSON lines, read in blocks of about 250,000 moments.

    Rows are sorted by score, then moment; queries whose scores contradict the order are counted in the log.
    Memory grows with the number of queries, whose ids are kept to find duplicates, not of moments.
    """
    head = read_head(path)
    tasks = _named_tasks(head)
    held = _list_of(head) if not tasks else next(task for task in get_args(Task) if task in tasks)
    answered = dict.fromkeys(tasks, held) if tasks else own_lists(("VR",)) if held == "VR" else None
    return FileRun(path, str(path), (held,), _blocks, "moments", answered)


def _named_tasks(head: FileHead) -> list[Task]:
    """The tasks that the first line names; [] if it names none, or an unknown one."""
    named = head.first_value.get("task") if isinstance(head.first_value, dict) else None
    tasks: list[Any] = named if isinstance(named, list) else [named]
    return tasks if all(task in get_args(Task) for task in tasks) else []


def _list_of(head: FileHead) -> Task:
    """The list of a file without task: VR if it has moments and none of them has times."""
    seen: list[Any] = [head.first_value.get("moments") if isinstance(head.first_value, dict) else None]
    for raw in head.head.split(b"\n")[1:] if not seen[0] else []:
        with suppress(ValueError):  # a blank line, or one that the head cuts
            record = loads(raw)
            seen.append(record.get("moments") if isinstance(record, dict) else None)
    rows = [row for moments in seen if isinstance(moments, list) for row in moments if isinstance(row, dict)]
    timed = any(row.get(key) is not None for row in rows for key in ("start", "end"))
    return "VR" if rows and not timed else "VCMR"


def _blocks(path: Path) -> Iterator[RunBlock]:
    with open_unpacked(path) as stream:
        yield from blocks_of_lines(stream, path)


def blocks_of_lines(stream: IO[bytes], path: Path) -> Iterator[RunBlock]:
    """Blocks of a run's lines, rows in the order of the file. The first fault of the file is reported."""
    seen: dict[str, int] = {}
    waiting: list[tuple[int, _RunLine]] = []
    rows, task = 0, None
    for number, raw in numbered_lines(stream, path):
        try:
            line = _run_line(path, number, raw)
            task = line.task if not seen else task
            if line.task != task:
                before = "no task, as before" if task is None else str(task)
                raise Origin(path, number, "task").error("is another than before:", line.task, before)
            first = seen.setdefault(str(line.query_id), number)
            if first != number:
                problem = f"comes a second time (first in line {first}):"
                raise Origin(path, number, "query_id").error(problem, str(line.query_id), "each query once")
        except FormatError:
            _block(waiting, path)
            raise
        waiting.append((number, line))
        rows += 1 + len(line.moments)
        if rows >= BLOCK_ROWS:
            yield _block(waiting, path)
            waiting, rows = [], 0
    if waiting:
        yield _block(waiting, path)
    refuse_empty(path, bool(seen))


def _run_line(path: Path, number: int, raw: bytes) -> _RunLine:
    """A line of a run. If msgspec refuses it, `json` reads it again, so that the error names the field."""
    # Of a repeated key msgspec keeps the last.
    if raw.count(b'"moments"') == raw.count(b'"query_id"') == 1:
        try:
            raw.isascii() or raw.decode()
            return _decode_line(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    origin, fields = Origin(path, number), parse_line(path, number, raw)
    if "moments" not in fields and "video_id" in fields:
        raise origin.at("video_id").error("is in judgements, not in a run", accepted=_RUN)
    return origin.convert(fields, _RunLine)


def _block(lines: list[tuple[int, _RunLine]], path: Path) -> RunBlock:
    moments = list(chain.from_iterable(line.moments for _, line in lines))
    videos = [moment.video_id for moment in moments]
    if any(type(video_id) is int for video_id in set(videos)):
        videos = [str(video_id) for video_id in videos]
    codes = {video_id: code for code, video_id in enumerate(dict.fromkeys(videos))}
    confidences = [line.confidence for _, line in lines]
    counts = np.array([0, *(len(line.moments) for _, line in lines)], np.int64)
    block = RunBlock(
        query_ids=tuple(str(line.query_id) for _, line in lines),
        offsets=np.cumsum(counts),
        video=np.fromiter(map(codes.__getitem__, videos), np.int32, len(videos)),
        video_ids=tuple(map(str, codes)),
        start=np.array([moment.start for moment in moments], np.float64),
        end=np.array([moment.end for moment in moments], np.float64),
        score=np.array([moment.score for moment in moments], np.float64),
        confidence=np.array(confidences, np.float64) if any(c is not None for c in confidences) else None,
    )
    valid = (block.start >= 0) & (block.start < block.end) | np.isnan(block.start) & np.isnan(block.end)
    if not valid.all():
        for number, line in lines:
            _check_spans(Origin(path, number), line)
    return block


def _check_spans(origin: Origin, line: _RunLine) -> None:
    """Raise FormatError for the first moment with an invalid span."""
    for number, moment in enumerate(line.moments):
        place = origin.at("moments", number)
        if moment.start is None and moment.end is None:
            continue
        if moment.start is None or moment.end is None:
            lacking = place.at("start" if moment.start is None else "end")
            raise lacking.error("is missing", accepted="a finite number, or neither start nor end")
        place.at("start").check_span(moment.start, moment.end)


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write qrels; into a folder also videos.jsonl, queries.jsonl, pools.jsonl and pooled.json.

    A judgement without usable moment is written without start and end. Raises FormatError if the folder has
    pools or a pooled.json of other judgements, which would be read with these.
    """
    if not path.is_dir():
        write_lines(path, _judgement_lines(annotations))
        return
    for name, is_written in ((FILES[3], annotations.pools), (POOLED, annotations.most_grade is not None)):
        left = None if is_written else sibling_file(path / FILES[0], name)
        if left is not None:
            problem = (
                "belongs to other judgements (those to be written have none) and would be read with them"
            )
            raise FormatError(left, problem, accepted="an empty folder, or this one without that file")
    parts: dict[str, Iterable[dict[str, Any]]] = {
        "qrels.jsonl": _judgement_lines(annotations),
        "videos.jsonl": (
            {"video_id": v.id, **({} if v.duration is None else {"duration": v.duration}), **v.metadata}
            for v in annotations.videos
        ),
        "queries.jsonl": ({"query_id": q.id, "text": q.text, **q.metadata} for q in annotations.queries),
    }
    if annotations.pools:
        pools = annotations.pools.items()
        parts["pools.jsonl"] = ({"query_id": q, "video_ids": list(ids)} for q, ids in pools)
    if annotations.most_grade is not None:
        parts[POOLED] = [{"most_grade": annotations.most_grade}]
    mark = path / _UNFINISHED
    with ExitStack() as stack:  # no file is replaced before all are written: those of others would not fit
        for name, lines in parts.items():
            stream = stack.enter_context(write_atomically(path / name))
            write_lines_to(stream, path / name, lines)
            stream.flush()  # a full disk shows now, not when the first files have their names
        with write_atomically(mark):
            pass
    mark.unlink()


def _judgement_lines(annotations: Annotations) -> Iterator[dict[str, Any]]:
    rows = zip(judgement_rows(annotations), caption_fields(annotations), strict=True)
    for (query, video, start, end, relevance), about in rows:
        times = {"start": start, "end": end} if start < end else {}
        names = {"query_id": annotations.queries[query].id, "video_id": annotations.videos[video].id}
        yield {**names, **times, "relevance": relevance, **about}


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write run.jsonl, best first, with the tasks that it answers; of several lists VCMR is written."""
    losses = Losses(path)
    held, blocks = list_to_write(source, losses)
    tasks = [task for task, list_ in (source.answered or {}).items() if list_ == held]
    about = {"task": tasks if len(tasks) > 1 else tasks[0]} if tasks else {}
    lines = chain.from_iterable(_run_lines(block, losses) for block in blocks)
    write_lines(path, (line | about for line in lines))
    losses.log()


def _run_lines(block: RunBlock, losses: Losses) -> Iterator[dict[str, Any]]:
    block = in_order_of_scores(without_empty_spans(block, losses), losses)
    for number, (query_id, rows) in enumerate(rows_of(block)):
        line: dict[str, Any] = {"query_id": query_id}
        if block.confidence is not None and not np.isnan(block.confidence[number]):
            line["confidence"] = float(block.confidence[number])
        line["moments"] = [
            {"video_id": video_id, **({"start": start, "end": end} if start < end else {}), "score": score}
            for video_id, start, end, score in rows
        ]
        yield line
