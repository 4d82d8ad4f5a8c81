"""Decode a TREC run in large chunks; a chunk that the fast reader refuses is read line by line."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from whenabouts.intake.files import FormatError
from whenabouts_bench.formats.annotations import Floats, Indices
from whenabouts_bench.formats.json_records import LONGEST_LINE, numbered_lines
from whenabouts_bench.formats.runs import RunBlock, refuse_empty

AnswerOf = Callable[[Path, int, bytes], tuple[str, str, float, float, float]]
"""(file, line number, line) -> query, video, start, end, score (`trec.answer_of`)."""

CHUNK_BYTES = 1 << 24
"""About 250,000 lines. A few copies of a chunk are in memory at a time."""

_COLUMNS = ("query", "q0", "document", "rank", "score", "tag")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class _Piece:
    """N consecutive lines in G groups; each group is the lines of one query."""

    query_ids: list[str]
    first_lines: Indices
    """(G,) number of the first line of each group"""
    counts: Indices
    """(G,) rows of each group"""
    video: Any
    """(N,) pyarrow strings"""
    numbers: Floats
    """(3, N) start, end (NaN without a moment), score"""

    def cut(self, group: int) -> tuple[_Piece, _Piece]:
        """The groups before `group`, and the others."""
        row = int(self.counts[:group].sum())
        return self._part(slice(group), slice(row)), self._part(slice(group, None), slice(row, None))

    def _part(self, groups: slice, rows: slice) -> _Piece:
        columns = (self.query_ids[groups], self.first_lines[groups], self.counts[groups])
        return _Piece(*columns, self.video[rows], self.numbers[:, rows])


def blocks_of_lines(stream: IO[bytes], path: Path, answer_of: AnswerOf) -> Iterator[RunBlock]:
    """Blocks of a run, rows in the order of the file; queries are never split."""
    seen: set[str] = set()
    waiting: list[_Piece] = []
    for first_line, chunk in _chunks(stream, path):
        piece = _fast(first_line, chunk) or _careful(path, first_line, chunk, answer_of)
        if not piece.query_ids:
            continue
        if waiting and waiting[-1].query_ids[-1] == piece.query_ids[0]:
            more, piece = piece.cut(1)
            waiting.append(more)
        for query_id, line in zip(piece.query_ids, piece.first_lines.tolist(), strict=True):
            if query_id in seen:
                problem = "is not in consecutive lines:"
                accepted = "the lines of a query together (`sort -s -k1,1` brings them together)"
                raise FormatError(path, problem, line=line, field="query", value=query_id, accepted=accepted)
            seen.add(query_id)
        if not piece.query_ids:
            continue
        head, tail = piece.cut(len(piece.query_ids) - 1)
        if waiting or head.query_ids:
            yield _block([*waiting, head])
        waiting = [tail]
    refuse_empty(path, bool(waiting))
    yield _block(waiting)


def _chunks(stream: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    """(number of the first line, whole lines)."""
    line, partial = 1, b""
    while more := stream.read(CHUNK_BYTES):
        if line == 1 and not partial:
            more = more.removeprefix(_BOM)
        end = more.rfind(b"\n") + 1
        if not end:
            partial += more
            if len(partial) > LONGEST_LINE:
                raise FormatError(path, f"has more than {LONGEST_LINE >> 20} MiB in one line", line=line)
            continue
        chunk = partial + more[:end]
        partial = more[end:]
        yield line, chunk
        line += chunk.count(b"\n")
    if partial:
        yield line, partial + b"\n"


def _fast(first_line: int, chunk: bytes) -> _Piece | None:
    """The lines of a chunk; None if one needs careful reading."""
    lines = chunk.count(b"\n")
    try:
        if not chunk.isascii():
            chunk.decode()  # Arrow does not read all columns, so it does not check their UTF-8.
        table = csv.read_csv(
            pa.BufferReader(_plain(chunk)),
            csv.ReadOptions(column_names=_COLUMNS, block_size=1 << 22),
            csv.ParseOptions(delimiter=" ", quote_char=False),
            csv.ConvertOptions(
                include_columns=["query", "document", "score"],
                column_types={"query": pa.string(), "document": pa.string(), "score": pa.float64()},
                null_values=[],
            ),
        ).combine_chunks()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    if len(table) != lines:  # Arrow ends lines at bare carriage returns, too.
        return None
    split = _split(table["document"].combine_chunks())
    if split is None:
        return None
    video, start, end = split
    numbers = np.stack([start, end, table["score"].to_numpy()])
    valid = ((start >= 0) & (start < end) & (end < np.inf)) | (np.isnan(start) & np.isnan(end))
    query = table["query"].combine_chunks()
    if not (valid.all() and np.isfinite(numbers[2]).all()) or pc.any(pc.equal(query, "")).as_py():
        return None
    return _grouped(query, np.arange(first_line, first_line + lines), video, numbers)


def _plain(chunk: bytes) -> bytes:
    """The chunk with single blanks between fields. May raise ArrowInvalid for a bare carriage return."""
    white = np.frombuffer(chunk, np.uint8) <= ord(" ")
    if not (white[0] or b"\t" in chunk or (white[1:] & white[:-1]).any()):
        return chunk
    chunk = chunk.replace(b"\r\n", b"\n").replace(b"\t", b" ")
    if b"\r" in chunk:
        raise pa.ArrowInvalid("a carriage return within a line")
    return re.sub(b" *\n *", b"\n", re.sub(b" {2,}", b" ", chunk).removeprefix(b" "))


def _split(document: Any) -> tuple[Any, Floats, Floats] | None:
    """(videos, starts, ends) of documents; NaN times for whole videos; None if one needs careful reading."""
    moments = np.asarray(pc.match_substring(document, "@").to_numpy(zero_copy_only=False), np.bool_)
    start, end = np.full((2, len(document)), np.nan)
    if pc.any(pc.equal(document, "")).as_py():
        return None
    if not moments.any():
        return document, start, end
    mask = pa.array(moments)
    parts = pc.split_pattern(document.filter(mask), "@", max_splits=1, reverse=True).flatten()
    times = pc.split_pattern(parts[1::2], "-", max_splits=1).flatten()
    video = parts[::2]
    if len(times) != 2 * len(video) or pc.any(pc.equal(video, "")).as_py():
        return None
    try:
        start[moments] = pc.cast(times[::2], pa.float64()).to_numpy()
        end[moments] = pc.cast(times[1::2], pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    if not np.isfinite(start[moments]).all():
        return None
    return pc.replace_with_mask(document, mask, video), start, end


def _grouped(query: Any, lines: Indices, video: Any, numbers: Floats) -> _Piece:
    """Group consecutive rows of the same query."""
    if not len(query):
        return _Piece([], lines, lines, video, numbers)
    changes = pc.not_equal(query[1:], query[:-1]).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    counts = np.diff(np.append(starts, len(query)))
    return _Piece(query.take(pa.array(starts)).to_pylist(), lines[starts], counts, video, numbers)


def _careful(path: Path, first_line: int, chunk: bytes, answer_of: AnswerOf) -> _Piece:
    """The lines of a chunk, read one by one; raises FormatError with the line number."""
    lines: list[int] = []
    rows: list[tuple[str, str, float, float, float]] = []
    for number, raw in numbered_lines(io.BytesIO(chunk), path, first_line):
        lines.append(number)
        rows.append(answer_of(path, number, raw))
    query, video, *numbers = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    return _grouped(
        pa.array(query, pa.string()),
        np.array(lines, np.int64),
        pa.array(video, pa.string()),
        np.array(numbers, np.float64).reshape(3, -1),
    )


def _block(pieces: list[_Piece]) -> RunBlock:
    """The rows of pieces; a piece's first group may continue the last query of the piece before."""
    video = pa.chunked_array([piece.video for piece in pieces], pa.string()).combine_chunks()
    coded = video.dictionary_encode()
    numbers = np.concatenate([piece.numbers for piece in pieces], axis=1)
    query_ids: list[str] = []
    counts: list[int] = []
    for piece in pieces:
        for query_id, count in zip(piece.query_ids, piece.counts.tolist(), strict=True):
            if query_ids and query_ids[-1] == query_id:
                counts[-1] += count
            else:
                query_ids.append(query_id)
                counts.append(count)
    return RunBlock(
        query_ids=tuple(query_ids),
        offsets=np.cumsum([0, *counts]),
        video_ids=tuple(coded.dictionary.to_pylist()),
        video=coded.indices.to_numpy(),
        start=numbers[0],
        end=numbers[1],
        score=numbers[2],
    )
