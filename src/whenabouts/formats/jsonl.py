"""Our own JSON lines: qrels.jsonl and run.jsonl, and videos, queries and pools beside the qrels.

One object a line, UTF-8; ids may be whole numbers, which become text; keys that mean nothing here are kept
as metadata of videos and queries and passed over elsewhere. `docs/formats.md` has the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from whenabouts.formats._losses import PARTS, Losses, in_order_of_scores, list_to_write, without_empty_spans
from whenabouts.formats.annotations import AnnotationBuilder, Annotations, Floats, judgement_rows
from whenabouts.formats.files import (
    FileHead,
    FormatError,
    open_unpacked,
    read_head,
    sibling_file,
    write_atomically,
)
from whenabouts.formats.json_records import Record, numbered_lines, parse_line, read_records
from whenabouts.formats.runs import (
    BLOCK_ROWS,
    RunBlock,
    RunRow,
    RunSource,
    Task,
    best_first,
    count_rising,
    refuse_empty,
)
from whenabouts.types import UsageError

if TYPE_CHECKING:
    from whenabouts.formats._run_lines import RunLine

NAME = "jsonl"
ORDER = 10
SUMMARY = "our JSON lines: qrels.jsonl (with videos, queries and pools beside it) and run.jsonl"
KEEPS = frozenset({"grades"})
KEEPS_IN_FOLDER = frozenset(PARTS) - {"saliency", "lists"}

_log = logging.getLogger("whenabouts")

FILES = ("qrels.jsonl", "videos.jsonl", "queries.jsonl", "pools.jsonl")
"""What a folder of judgements holds; the first one brings the others with it."""

_QRELS = "lines with query_id and video_id (qrels)"
_RUN = "lines with query_id and moments (a run)"


def holds(opening: FileHead) -> Literal["annotations", "run"] | None:
    """What a file has, by the keys of its first line."""
    keys = opening.first_object.keys()
    if {"query_id", "moments"} <= keys:
        return "run"
    if {"query_id", "video_id"} <= keys and "timestamp" not in keys:
        return "annotations"
    return None


def recognises(opening: FileHead) -> bool:
    """Whether the first line is a judgement or an answer of ours."""
    return holds(opening) is not None


def judgements_in(path: Path) -> Path:
    """The qrels.jsonl (or .gz) of a folder; any other path as it is."""
    if not path.is_dir():
        return path
    found = sibling_file(path / FILES[0], FILES[0])
    if found is None:
        raise FormatError(
            path, f"is a folder without {FILES[0]}", accepted="a file, or a folder that has one"
        )
    return found


def files_of(path: Path) -> tuple[Path, ...]:
    """The files from which judgements of a path are read: itself, and what lies beside a qrels.jsonl."""
    path = judgements_in(path)
    if path.name.removesuffix(".gz") != FILES[0]:
        return (path,)
    siblings = (sibling_file(path, name) for name in FILES[1:])
    return (path, *(sibling for sibling in siblings if sibling is not None))


def read_annotations(path: Path) -> Annotations:
    """Judgements of qrels.jsonl; of a file of that name (or a folder) also what lies beside it.

    Beside qrels.jsonl (or .gz) are read videos.jsonl, queries.jsonl and pools.jsonl, each where it is there.
    Times are taken as they stand, also where a moment ends after its video. A line without start and end says
    that the video is right and no moment of it is known. A query whose line in queries.jsonl or pools.jsonl
    comes again is counted where both lines say the same; FormatError names both where they do not.
    """
    path, *siblings = files_of(path)
    readers = {
        "videos": _read_video,
        "queries": _Once("text", "").reading(_read_query),
        "pools": _Once("video_ids", []).reading(_read_pool),
    }
    collector = AnnotationBuilder(str(path), cut=False)
    for sibling in siblings:
        read = readers[sibling.name.split(".")[0]]
        for record in read_records(sibling):
            read(collector, record)
    for record in read_records(path, _QRELS):
        _read_judgement(collector, record)
    return collector.annotations()


def holds_queries(opening: FileHead) -> bool:
    """Whether a file is a queries.jsonl, under whatever name."""
    keys = opening.first_object.keys()
    return {"query_id", "text"} <= keys and not keys & {"video_id", "moments"}


def read_queries(path: Path) -> Annotations:
    """The queries of a queries.jsonl without the judgements; lines that come again as `read_annotations`."""
    collector, read = AnnotationBuilder(str(path)), _Once("text", "").reading(_read_query)
    for record in read_records(path):
        read(collector, record)
    return collector.annotations()


def _read_video(collector: AnnotationBuilder, record: Record) -> None:
    duration = record.number("duration", 0) if record.has("duration") else None
    collector.add_video(record.id("video_id"), duration, **_others(record, "video_id", "duration"))


def _read_query(collector: AnnotationBuilder, record: Record) -> None:
    text = record.text("text") if record.has("text") else ""
    collector.add_query(record.id("query_id"), text, **_others(record, "query_id", "text"))


def _read_pool(collector: AnnotationBuilder, record: Record) -> None:
    query_id = record.id("query_id")
    collector.add_query(query_id)
    ids = record.array("video_ids", "a list of video ids")
    collector.set_pool(query_id, [record.as_id(f"video_ids[{i}]", value) for i, value in enumerate(ids)])


@dataclass
class _Once:
    """Keeps apart lines that repeat a query and lines that contradict one: by what they say under `key`."""

    key: str
    nothing: Any
    seen: dict[str, tuple[int | None, Any]] = field(default_factory=dict)

    def reading(
        self, read: Callable[[AnnotationBuilder, Record], None]
    ) -> Callable[[AnnotationBuilder, Record], None]:
        """A reader of lines that are not yet known."""

        def first(collector: AnnotationBuilder, record: Record) -> None:
            query_id, said = record.id("query_id"), record.fields.get(self.key, self.nothing)
            if query_id not in self.seen:
                read(collector, record)
                self.seen[query_id] = (record.line, said)
                return
            line, known = self.seen[query_id]
            if said != known:
                before = f"than in line {line} ({_short(known)}):"
                problem = f"{query_id!r} comes again with another {self.key} {before}"
                raise record.wrong("query_id", problem, said, "one line for each query")
            collector.count(collector.REPEATED_QUERY)

        return first


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 60 else told[:57] + "..."


def _others(record: Record, *known: str) -> dict[str, Any]:
    return {key: value for key, value in record.fields.items() if key not in known}


def _read_judgement(collector: AnnotationBuilder, record: Record) -> None:
    if "moments" in record.fields:
        raise record.wrong("moments", "is in a run, not in judgements", accepted=_QRELS)
    query_id, video_id = record.id("query_id"), record.id("video_id")
    relevance = record.number("relevance", 0) if record.has("relevance") else 1.0
    start = end = 0.0
    if record.has("start") or record.has("end"):
        start, end = record.number("start"), record.number("end")
        record.check_span(start, end, empty=True)
    collector.add_query(query_id)
    collector.judge(query_id, video_id, start, end, relevance)


def open_run(path: Path) -> RunSource:
    """A run of JSON lines, read in blocks of some 250,000 moments.

    Rows are sorted by score, then moment; the log says of how many queries the scores contradicted the order.
    Memory grows with the number of queries (ids are kept, to find one that comes twice), not of moments.
    """
    return JsonLinesRun(path, str(path), _task_of(read_head(path)))


def _task_of(opening: FileHead) -> tuple[Task, ...]:
    """VR where moments are seen and none of them has times."""
    whole_lines = opening.head.split(b"\n")[1:-1]
    seen: list[Any] = [opening.first_object.get("moments")]
    for raw in whole_lines if not seen[0] else []:
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError):
            break
        seen.append(record.get("moments") if isinstance(record, dict) else None)
    rows = [row for moments in seen if isinstance(moments, list) for row in moments if isinstance(row, dict)]
    return ("VR",) if rows and not any("start" in row or "end" in row for row in rows) else ("VCMR",)


@dataclass
class JsonLinesRun:
    """A run.jsonl file."""

    path: Path
    name: str
    tasks: tuple[Task, ...]
    _told: bool = field(default=False, init=False)

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers. Raises UsageError for a list it does not hold, FormatError as it is read."""
        if task not in self.tasks:
            raise UsageError(f"{self.name} holds {', '.join(self.tasks)}, not {task}")
        contradicting = 0
        with open_unpacked(self.path) as stream:
            for block in blocks_of_lines(stream, self.path):
                contradicting += count_rising(block)
                yield best_first(block)
        if contradicting and not self._told:
            self._told = True
            _log.warning(
                "%s: the scores of %d queries contradict the order of their moments; the scores count",
                self.path,
                contradicting,
            )


def blocks_of_lines(stream: IO[bytes], path: Path) -> Iterator[RunBlock]:
    """Blocks of the lines of a run, rows in the order of the file. The first fault of a file is blamed."""
    from whenabouts.formats._run_lines import decoder

    decode = decoder(partial(with_care, path))
    seen: dict[str, int] = {}
    waiting: list[tuple[int, bytes, RunLine]] = []
    rows = 0
    for number, raw in numbered_lines(stream, path):
        try:
            line = decode(number, raw)
            if seen.setdefault(line.query_id, number) != number:
                _refuse_repeated(path, number, raw, seen)
        except FormatError:
            _block(waiting, path)
            raise
        waiting.append((number, raw, line))
        rows += 1 + len(line.moments)
        if rows >= BLOCK_ROWS:
            yield _block(waiting, path)
            waiting, rows = [], 0
    if waiting:
        yield _block(waiting, path)
    refuse_empty(path, bool(seen))


def _refuse_repeated(path: Path, number: int, raw: bytes, seen: dict[str, int]) -> None:
    record = parse_line(path, number, raw)
    query_id, _ = answers(record)
    problem = f"comes a second time (first in line {seen[query_id]}):"
    raise record.wrong("query_id", problem, query_id, "each query once")


def _block(lines: list[tuple[int, bytes, RunLine]], path: Path) -> RunBlock:
    moments = list(chain.from_iterable(line.moments for _, _, line in lines))
    videos = [moment.video_id for moment in moments]
    codes = {video_id: code for code, video_id in enumerate(dict.fromkeys(videos))}
    counts = np.array([0, *(len(line.moments) for _, _, line in lines)], np.int64)
    block = RunBlock(
        query_ids=tuple(line.query_id for _, _, line in lines),
        offsets=np.cumsum(counts),
        video=np.fromiter(map(codes.__getitem__, videos), np.int32, len(videos)),
        video_ids=tuple(codes),
        start=np.array([moment.start for moment in moments], np.float64),
        end=np.array([moment.end for moment in moments], np.float64),
        score=np.array([moment.score for moment in moments], np.float64),
        confidence=_confidences([line.confidence for _, _, line in lines]),
    )
    lacking = np.isnan(block.start)
    sound = (block.start >= 0) & (block.start < block.end) | lacking & np.isnan(block.end)
    finite = np.isfinite(block.score).all() and np.isfinite(block.end[~lacking]).all()
    sure = block.confidence is None or (np.nanmin(block.confidence) >= 0 and np.nanmax(block.confidence) <= 1)
    if not (sound.all() and finite and sure) or "" in codes:
        for number, raw, _ in lines:
            answers(parse_line(path, number, raw))
    return block


def _confidences(told: list[float | None]) -> Floats | None:
    """(Q,) how sure each first answer is; None where no line says."""
    if all(one is None for one in told):
        return None
    return np.array([np.nan if one is None else one for one in told], np.float64)


def with_care(path: Path, number: int, raw: bytes) -> RunLine:
    """A line of a run by the careful reading."""
    from whenabouts.formats._run_lines import RunLine, RunMoment

    record = parse_line(path, number, raw)
    query_id, rows = answers(record)
    sure = record.number("confidence", 0) if record.has("confidence") else None
    return RunLine(query_id, [RunMoment(video, score, start, end) for video, start, end, score in rows], sure)


def answers(record: Record) -> tuple[str, list[RunRow]]:
    """(query id, rows) of a line of a run: the careful reading, which says what is wrong with a line."""
    if "moments" not in record.fields and "video_id" in record.fields:
        raise record.wrong("video_id", "is in judgements, not in a run", accepted=_RUN)
    if record.has("confidence") and not record.number("confidence", 0) <= 1:
        raise record.wrong("confidence", "is no share:", record.fields["confidence"], "a number from 0 to 1")
    return record.id("query_id"), [_row(moment) for moment in record.records("moments")]


def _row(moment: Record) -> RunRow:
    video_id, score = moment.id("video_id"), moment.number("score")
    if not (moment.has("start") or moment.has("end")):
        return video_id, np.nan, np.nan, score
    start, end = moment.number("start"), moment.number("end")
    moment.check_span(start, end)
    return video_id, start, end, score


def write_annotations(annotations: Annotations, path: Path) -> None:
    """Write qrels; into a folder also videos.jsonl, queries.jsonl and pools.jsonl.

    A judgement without a usable moment is written without start and end. Raises FormatError for a folder
    with pools of other judgements, which would be read with these.
    """
    if not path.is_dir():
        _write_lines(path, _judgement_lines(annotations))
        return
    left = None if annotations.pools else sibling_file(path / FILES[0], FILES[3])
    if left is not None:
        raise FormatError(
            left,
            "belongs to other judgements (those to be written have no pools) and would be read with them",
            accepted="an empty folder, or this one without that file",
        )
    _write_lines(path / "videos.jsonl", map(_video_line, annotations.videos))
    _write_lines(
        path / "queries.jsonl",
        ({"query_id": query.id, "text": query.text, **query.metadata} for query in annotations.queries),
    )
    if annotations.pools:
        pools = annotations.pools.items()
        _write_lines(path / "pools.jsonl", ({"query_id": q, "video_ids": list(ids)} for q, ids in pools))
    _write_lines(path / "qrels.jsonl", _judgement_lines(annotations))


def _video_line(video: Any) -> dict[str, Any]:
    duration = {} if video.duration is None else {"duration": video.duration}
    return {"video_id": video.id, **duration, **video.metadata}


def _judgement_lines(annotations: Annotations) -> Iterator[dict[str, Any]]:
    for query, video, start, end, relevance in judgement_rows(annotations):
        times = {"start": start, "end": end} if start < end else {}
        names = {"query_id": annotations.queries[query].id, "video_id": annotations.videos[video].id}
        yield {**names, **times, "relevance": relevance}


def write_run(source: RunSource, path: Path, annotations: Annotations | None = None) -> None:
    """Write run.jsonl, best first. Of several lists the moments of the corpus are written (VCMR)."""
    losses = Losses(path)
    _, blocks = list_to_write(source, losses)
    _write_lines(path, chain.from_iterable(_run_lines(block, losses) for block in blocks))
    losses.tell()


def _run_lines(block: RunBlock, losses: Losses) -> Iterator[dict[str, Any]]:
    block = in_order_of_scores(without_empty_spans(block, losses), losses)
    video, start, end, score = (c.tolist() for c in (block.video, block.start, block.end, block.score))
    moments: list[dict[str, Any]] = [
        {"video_id": block.video_ids[v], "start": s, "end": e, "score": p}
        if s < e
        else {"video_id": block.video_ids[v], "score": p}
        for v, s, e, p in zip(video, start, end, score, strict=True)
    ]
    for number, query_id in enumerate(block.query_ids):
        sure = {} if block.confidence is None else _told(float(block.confidence[number]))
        own = moments[block.offsets[number] : block.offsets[number + 1]]
        yield {"query_id": query_id, **sure, "moments": own}


def _told(confidence: float) -> dict[str, float]:
    return {"confidence": confidence} if confidence == confidence else {}


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    encode: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    with write_atomically(path) as stream:
        for line in lines:
            try:
                stream.write(encode(line).encode() + b"\n")
            except UnicodeEncodeError:
                raise FormatError(path, "cannot be written: no valid Unicode:", value=line) from None
            except ValueError as error:
                raise FormatError(path, f"cannot be written ({error}):", value=line) from None
