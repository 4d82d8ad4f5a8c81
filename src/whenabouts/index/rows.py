"""Values to table rows and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.records import ClipBlock, ClipColumns, ClipHits, StreamInfo, VideoRecord, clip_id
from whenabouts.index.tables import clips_schema, ledger_schema
from whenabouts.types import UsageError

CLIP_COLUMNS = ["video_id", "index", "start", "end"]


def printable(text: str) -> str:
    """Text that a table can hold: bytes that are no UTF-8 (from file names) become replacement signs."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def ledger_rows(records: Iterable[VideoRecord]) -> Any:
    """Ledger rows as an Arrow table."""
    import pyarrow as pa

    return pa.Table.from_pylist([_ledger_row(record) for record in records], schema=ledger_schema())


def _ledger_row(record: VideoRecord) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in ledger_schema().names}
    for name in ("error", "words", "words_signature", "title", "damage", "content_hash"):
        row[name] = printable(row[name])
    row["path"] = os.fsencode(record.path)
    row["streams"] = json.dumps(dict(record.streams))
    row["metadata"] = json.dumps(dict(record.metadata), default=str)
    row["shots"] = None if record.shots is None else [float(border) for border in record.shots]
    return row


def records_of(table: Any) -> list[VideoRecord]:
    """An Arrow table of ledger rows as records, in order of their video id."""
    columns = table.select(ledger_schema().names).to_pydict()
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    records = [_record(row) for row in rows]
    return sorted(records, key=lambda record: record.video_id)


def _record(row: dict[str, Any]) -> VideoRecord:
    row["path"] = os.fsdecode(row["path"])
    row["streams"] = json.loads(row["streams"])
    row["metadata"] = json.loads(row["metadata"])
    row["shots"] = None if row["shots"] is None else tuple(row["shots"])
    return VideoRecord(**row)


def clip_rows(stream: StreamInfo, clips: Mapping[str, ClipColumns]) -> Any:
    """The clips of several videos as an Arrow table, video by video."""
    import pyarrow as pa

    schema = clips_schema(stream.dimension)
    parts = [_video_rows(stream, video_id, columns, schema) for video_id, columns in clips.items()]
    return pa.Table.from_batches(parts, schema=schema)


def _video_rows(stream: StreamInfo, video_id: str, clips: ClipColumns, schema: Any) -> Any:
    import pyarrow as pa

    count = len(clips)
    text = [printable(line) for line in clips.text] if clips.text is not None else [""] * count
    context = [printable(line) for line in clips.context] if clips.context is not None else text
    columns: list[Any] = [
        pa.array([clip_id(video_id, stream.name, index) for index in range(count)], pa.string()),
        pa.array([video_id] * count, pa.string()),
        pa.array(np.arange(count, dtype=np.int32)),
        pa.array(clips.start),
        pa.array(clips.end),
        pa.array(text, pa.string()),
        pa.array(context, pa.string()),
    ]
    if stream.dimension:
        columns.append(_vectors(stream, video_id, clips))
    return pa.record_batch(columns, schema=schema)


def _vectors(stream: StreamInfo, video_id: str, clips: ClipColumns) -> Any:
    import pyarrow as pa

    if clips.vectors is None:
        return pa.nulls(len(clips), pa.list_(pa.float16(), stream.dimension))
    if clips.vectors.shape[1] != stream.dimension:
        raise UsageError(
            f"{video_id}: vectors of width {clips.vectors.shape[1]} were given for stream {stream.name}, "
            f"which holds {stream.dimension} (made by {stream.encoder})"
        )
    values = np.ascontiguousarray(clips.vectors, dtype=np.float16).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(values), stream.dimension)


def hits_of(table: Any, score: NDArray[np.float32], limit: int) -> ClipHits:
    """Rows that were found, with their scores, in total order: score, video id, index."""
    ids = np.asarray(table["video_id"].to_pylist(), dtype=np.str_)
    index = table["index"].to_numpy()
    order = np.lexsort((index, ids, -score))[:limit]
    return ClipHits(
        video_ids=ids[order].tolist(),
        index=index[order].astype(np.int32),
        start=table["start"].to_numpy()[order],
        end=table["end"].to_numpy()[order],
        score=score[order],
    )


def no_hits() -> ClipHits:
    """The answer that holds nothing."""
    none = np.zeros(0)
    return ClipHits([], none.astype(np.int32), none, none, none.astype(np.float32))


def block_of(table: Any, video_ids: Sequence[str], dimension: int) -> ClipBlock:
    """Rows of some videos, sorted into the order of `video_ids` and of the clips' index."""
    place = {video_id: position for position, video_id in enumerate(video_ids)}
    column = table["video_id"].combine_chunks().dictionary_encode()
    names = np.array([place[name] for name in column.dictionary.to_pylist()], dtype=np.int64)
    owner = names[column.indices.to_numpy()] if len(names) else np.zeros(0, np.int64)
    index = table["index"].to_numpy()
    order = np.lexsort((index, owner))
    counts = np.bincount(owner, minlength=len(video_ids))
    return ClipBlock(
        video_ids=list(video_ids),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        index=index[order].astype(np.int32),
        start=table["start"].to_numpy()[order],
        end=table["end"].to_numpy()[order],
        text=table["text"].combine_chunks().take(order).to_pylist(),
        vectors=_matrix(table, dimension)[order],
    )


def _matrix(table: Any, dimension: int) -> NDArray[np.float32]:
    """The vector column as (n, D) float32; rows without a vector are zero."""
    matrix = np.zeros((len(table), dimension), np.float32)
    if dimension == 0:
        return matrix
    column = table["vector"].combine_chunks()
    there = column.is_valid().to_numpy(zero_copy_only=False)
    matrix[there] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
    return matrix
