"""LanceDB as the store needs it: a lean import, connections, schemas, safe literals, errors that speak.

`import lancedb` takes about one second of processor time, half of it for the generated REST client of
namespaces, whose API classes nothing here (nor in an embedded LanceDB) touches. `import_lancedb` leaves
that package's body to be run by whoever first asks it for a name; measured 1.07 s -> 0.55 s.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.product.index.records import (
    ClipBlock,
    ClipColumns,
    ClipHits,
    DiskFull,
    StoreError,
    StreamInfo,
    VideoRecord,
    clip_id,
)
from whenabouts.types import UsageError, WhenaboutsError

_DEFERRED = "lance_namespace_urllib3_client"
# The kinds of exceptions that LanceDB raises for what happens on disk or in the network.
LANCE_ERRORS = (RuntimeError, OSError, ValueError)


def import_lancedb() -> ModuleType:
    """The `lancedb` module, imported without the REST client it does not need here."""
    if "lancedb" not in sys.modules:
        # Rust logs notes on empty partitions to standard error; nothing is printed from a library.
        os.environ.setdefault("LANCEDB_LOG", "error")
        _defer(_DEFERRED)
    return importlib.import_module("lancedb")


def _defer(name: str) -> None:
    """Let package `name` be there, and run its body only when a name in it is used."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader = spec.loader
    module = importlib.util.module_from_spec(spec)

    def load_and_get(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        module.__dict__.pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, attribute)

    module.__dict__["__getattr__"] = load_and_get
    sys.modules[name] = module


def is_remote(place: str) -> bool:
    """Whether `place` is an object store's URI and not a folder."""
    return "://" in place and not place.startswith("file://")


def folder_of(place: str) -> Path:
    """The folder of a local place; `file://` is understood."""
    return Path(place.removeprefix("file://")).expanduser()


def connect(place: str, storage_options: Mapping[str, str] | None) -> Any:
    """A LanceDB connection to a folder that is there, or to an object store."""
    lancedb = import_lancedb()
    options = dict(storage_options) if storage_options else None
    return lancedb.connect(place if is_remote(place) else str(folder_of(place)), storage_options=options)


def open_table(db: Any, name: str) -> Any | None:
    """A table, or None where it is not there."""
    try:
        return db.open_table(name)
    except ValueError as error:
        if "not found" in str(error):
            return None
        raise


def has_index(table: Any, column: str) -> bool:
    """Whether a column is indexed."""
    return any(index.columns == [column] for index in table.list_indices())


def literal(value: str) -> str:
    """A string as an SQL literal; quotes cannot end it.

    >>> print(literal("Bob's"))
    'Bob''s'
    """
    return "'" + value.replace("'", "''") + "'"


def among(column: str, values: Iterable[str]) -> str:
    """The condition that a text column is one of `values` (at least one)."""
    return f"{column} IN ({', '.join(literal(value) for value in values)})"


def description_schema() -> Any:
    """Schema of table `corpus`: facts by key, and the lease of a writer on an object store."""
    import pyarrow as pa

    return pa.schema(
        [("key", pa.string()), ("value", pa.string()), ("owner", pa.string()), ("expires", pa.float64())]
    )


def ledger_schema() -> Any:
    """Schema of table `videos`: one row per video. Paths are bytes, as file names are."""
    import pyarrow as pa

    text = (
        "content_hash",
        "kind",
        "state",
        "error",
        "streams",
        "words",
        "words_signature",
        "title",
        "metadata",
    )
    return pa.schema(
        [("video_id", pa.string()), ("path", pa.binary()), ("size", pa.int64()), ("modified_ns", pa.int64())]
        + [(name, pa.string()) for name in text]
        + [("duration", pa.float64()), ("has_picture", pa.bool_()), ("shots", pa.list_(pa.float64()))]
        + [("damage", pa.string()), ("indexed_at", pa.float64())]
    )


def clips_schema(dimension: int) -> Any:
    """Schema of a table of clips: half-precision vectors of width `dimension`, no column for 0."""
    import pyarrow as pa

    columns = [
        ("id", pa.string()),
        ("video_id", pa.string()),
        ("index", pa.int32()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("text", pa.string()),
        ("context", pa.string()),
    ]
    return pa.schema(columns + ([vector_field(dimension)] if dimension else []))


def vector_field(dimension: int) -> Any:
    """The vector column: nullable, float16 (half the disk and half the time of float32, same recall)."""
    import pyarrow as pa

    return pa.field("vector", pa.list_(pa.float16(), dimension))


@contextlib.contextmanager
def speaking(place: str, action: str) -> Iterator[None]:
    """Turn what LanceDB and the system raise into errors that name the corpus, the cause and the remedy."""
    try:
        yield
    except WhenaboutsError:
        raise
    except LANCE_ERRORS as error:
        cause = _cause(error)
        if "No space left" in cause or "os error 28" in cause or "StorageFull" in cause:
            raise DiskFull(
                f"{place}: the disk is full{_room(place)}; what was indexed before is kept. "
                "Free some space and run the same command again"
            ) from error
        if "Permission denied" in cause or "os error 13" in cause:
            raise StoreError(
                f"{place}: cannot {action}: permission denied; check who owns the folder"
            ) from error
        raise StoreError(f"{place}: cannot {action}: {cause}") from error


def _cause(error: BaseException) -> str:
    """The first lines of an error, without the source positions of the Rust code."""
    text = " ".join(str(error).split())
    return text.split(", /", 1)[0][:600]


def _room(place: str) -> str:
    if is_remote(place):
        return ""
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(folder_of(place)).free / 1e6:.1f} MB free)"
    return ""


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
