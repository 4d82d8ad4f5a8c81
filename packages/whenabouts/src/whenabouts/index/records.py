"""The types of a corpus's contents (ledger rows, clips, hits) and their Arrow tables."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts.video.files import absolute, folded_name
from whenabouts.video.objects import SCHEME

SOUND_TRACKS = "sound_tracks"
SOUND_TRACK = "sound_track"
"""Metadata keys of a video with several sound tracks: their languages, and the indexed one, from 1."""
SHOTS_BY = "shots_by"
"""The metadata key for the finder of a video's shots, unless that is the built-in one."""

# In the year 9999, the last that `datetime` knows.
_LAST_DATE = 253_000_000_000
_STREAM_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


class StoreError(WhenaboutsError):
    """A corpus that cannot be read or written; the message names it, the cause and the remedy."""


class NotACorpus(StoreError):
    """The place holds no corpus."""


class StoreRefused(StoreError):
    """An object store refused a request (credentials, clock, permission, room), or cannot be reached."""


class NewerCorpus(StoreError):
    """The corpus was written by a newer version of whenabouts."""


class EncoderMismatch(StoreError):
    """Another encoder made the vectors of a stream."""


class DiskFull(StoreError):
    """There was no room to write; earlier data are untouched."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One modality of a corpus, and the encoder that made its vectors.

    `fingerprint` names encoder, weights and clip settings; vectors with different fingerprints are never
    compared. `dimension` is the width D, 0 for a stream without vectors. `settings` (JSON values) are for
    display and for `index`.
    """

    name: str
    encoder: str
    fingerprint: str
    dimension: int
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not _STREAM_NAME.fullmatch(self.name):
            raise UsageError(
                f"stream name {self.name!r} must be lower-case letters, digits and underscores, letter first"
            )
        if self.dimension < 0:
            raise UsageError(f"stream {self.name}: dimension {self.dimension} is negative")


@dataclass(frozen=True, slots=True)
class VideoRecord:
    """The ledger's row of one video.

    - `streams`: each finished stream with its fingerprint.
    - `stream_times`: when each stream was finished, in seconds since 1970; earlier versions stored none.
    - `modified_ns`, `size`, `content_hash`: the indexed file; 0, -1 and "" while its clips are being written,
      so that a row left by a crash matches no file.
    - `words`: the source of its words; `words_signature`: a summary of its subtitle files.
    - `shots`: seconds at which a shot starts (None: never looked for). `duration`: seconds.
    - `state`: "gone" if the file was missing when its folder was indexed; the video can still be searched.
    - `damage`: the parts that could not be read. `indexed_at`: seconds since 1970.
    """

    video_id: str
    path: str
    size: int = 0
    modified_ns: int = 0
    content_hash: str = ""
    kind: Literal["media", "transcript"] = "media"
    duration: float | None = None
    state: Literal["done", "failed", "gone"] = "done"
    error: str = ""
    streams: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    words: str = ""
    words_signature: str = ""
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    has_picture: bool = False
    shots: Sequence[float] | None = None
    damage: str = ""
    indexed_at: float = 0.0
    stream_times: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        check_video_id(self.video_id)

    def check_start(self, seconds: float) -> None:
        """Raise UsageError if a moment that starts there is after the video's end."""
        if self.duration is not None and seconds >= self.duration:
            raise UsageError(self.beyond(seconds))

    def beyond(self, seconds: float) -> str:
        """What is wrong with a time after the video's end."""
        lasts = f"which lasts {self.duration or 0:.3f} s; times count from the start of the file"
        return f"{seconds:g} s is after the end of {self.file_name}, {lasts}"

    def moved_to(self, path: Path) -> VideoRecord:
        """The row with another path, and with the new name as its title if the old one was the title."""
        was_name = self.title == spoken_name(Path(self.path))
        return replace(self, path=str(path), title=spoken_name(path) if was_name else self.title)

    @property
    def file_name(self) -> str:
        """The name of the file, as valid Unicode; the id where the path is unknown."""
        return unambiguous(self.path).rsplit("/", 1)[-1] or self.video_id

    @property
    def is_gone(self) -> bool:
        """Whether the file is missing; on object stores, whether the last index run missed it."""
        return self.state == "gone" or (not self.path.startswith(SCHEME) and is_missing(Path(self.path)))

    @property
    def language(self) -> str:
        """The language of the video's words, from its metadata (ISO 639-1; "mul": several), "" if unknown."""
        language = self.metadata.get("language")
        return language if isinstance(language, str) else ""


EXTRA_COLUMNS = ("box", "recognised")
"""Optional columns of a table of clips, added when a video's clips first have them."""


@dataclass(frozen=True, slots=True, eq=False)
class ClipColumns:
    """The clips of one video in one stream, in order of their index.

    - `start`, `end`: (n,) seconds.
    - `vectors`: (n, D) of unit length, or None (found by words only).
    - `text`: n strings to show; `context`: n strings for full-text search (None: the text).
    - `box`: (n, 4) place in the picture, left, top, right, bottom in 0..1; None: no place.
    - `recognised`: (n,) in [0, 1], the recogniser's certainty of the words; None: they were written.

    Raises `UsageError` if lengths differ, a number is not finite, or a clip is not 0 <= start < end.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    text: Sequence[str] | None = None
    vectors: NDArray[np.floating[Any]] | None = None
    context: Sequence[str] | None = None
    box: NDArray[np.floating[Any]] | None = None
    recognised: NDArray[np.floating[Any]] | None = None

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.float64))
        names = ("start", "end", "text", "vectors", "context", *EXTRA_COLUMNS)
        columns = {name: column for name in names if (column := getattr(self, name)) is not None}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(f"clip columns differ in length: {lengths}")
        numbers = [column for name, column in columns.items() if name not in ("text", "context")]
        if not all(np.isfinite(column).all() for column in numbers):
            raise UsageError("clip times, vectors and boxes must be finite numbers; one is NaN or infinite")
        if not ((self.start >= 0) & (self.start < self.end)).all():
            raise UsageError("a clip is empty, reversed or negative; clips need 0 <= start < end")
        if self.vectors is not None and self.vectors.ndim != 2:
            raise UsageError(f"clip vectors have shape {self.vectors.shape}; (clips, dimension) is needed")

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class ClipHits:
    """Clips that answer a query, best first; ties by video id, then index.

    All columns have length n; times are in seconds. `score` is the cosine (`nearest`) or BM25 (`match_text`).
    """

    video_ids: list[str]
    index: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    score: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.video_ids)


@dataclass(frozen=True, slots=True, eq=False)
class ClipBlock:
    """All clips of some videos in one stream, video by video, each in order of its index.

    Clips of `video_ids[i]` are rows `offsets[i]` up to `offsets[i + 1]`; a video without clips has an empty
    range. `vectors` is (n, D) float32, zero for a clip without one. `box` (n, 4) is the place in the picture,
    NaN without one, None if the stream has none. `recognised` (n,) is the recogniser's certainty, NaN for
    written words, None if all are written.
    """

    video_ids: list[str]
    offsets: NDArray[np.int64]
    index: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    text: list[str]
    vectors: NDArray[np.float32]
    box: NDArray[np.float32] | None = None
    recognised: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, position: int) -> slice:
        """The rows of the video at a position of `video_ids`."""
        return slice(int(self.offsets[position]), int(self.offsets[position + 1]))

    def take(self, kept: NDArray[np.bool_]) -> ClipBlock:
        """The clips at `kept`; the videos stay the same."""
        offsets = np.concatenate([[0], np.cumsum(kept)])[self.offsets].astype(np.int64)
        return replace(
            self,
            offsets=offsets,
            index=self.index[kept],
            start=self.start[kept],
            end=self.end[kept],
            text=[text for text, keep in zip(self.text, kept.tolist(), strict=True) if keep],
            vectors=self.vectors[kept],
            box=None if self.box is None else self.box[kept],
            recognised=None if self.recognised is None else self.recognised[kept],
        )

    def recognised_at(self, rows: slice) -> float | None:
        """Mean certainty of the recogniser over some rows; None if their words were written."""
        sure = math.nan if self.recognised is None else float(self.recognised[rows].mean())
        return None if math.isnan(sure) else sure


@dataclass(frozen=True, slots=True)
class StreamStats:
    """Size and state of one stream: clips, fragments on disk, clips outside the vector index.

    `recall`: share of the nearest clips of sample queries that the index finds; None if not measured.
    """

    clips: int
    fragments: int
    unindexed: int
    vector_index: bool
    recall: float | None = None


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Statistics of a corpus. `bytes` counts all files, old versions included; None on object stores."""

    videos: int
    failed: int
    hours: float
    streams: Mapping[str, StreamStats]
    bytes: int | None


def is_missing(path: Path) -> bool:
    """Whether no file is there; false for a path that may not be read, because the file may still exist."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


_DIGITS = re.compile("[0-9]+")


def natural_key(text: str) -> str:
    """A sort key under which digits in a text compare as numbers.

    >>> sorted(["talk 10", "talk 2", "talk"], key=natural_key)
    ['talk', 'talk 2', 'talk 10']
    """
    # A longer number is greater, and any number comes before any other letter.
    return _DIGITS.sub(lambda digits: _number_key(digits.group().lstrip("0")), text)


def _number_key(digits: str) -> str:
    return f"\0{chr(min(len(digits), 0x10FFFF))}{digits}"


def clip_id(video_id: str, stream: str, index: int) -> str:
    """The id of a clip, from its video, stream and number.

    >>> clip_id("dinner", "words", 7)
    'dinner/words/000007'
    """
    return f"{video_id}/{stream}/{index:06d}"


def check_video_id(video_id: str) -> None:
    """Raise UsageError for an id that no table can hold: empty, with a NUL, or not encodable as UTF-8."""
    try:
        video_id.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"video id {video_id!r} holds bytes that are not UTF-8: {error.reason}") from None
    if not video_id or "\0" in video_id:
        raise UsageError(f"video id {video_id!r} is empty or holds a NUL character")


def unit_query(vector: ArrayLike, dimension: int, stream: str) -> NDArray[np.float32]:
    """A query vector as (D,) float32; raises `UsageError` for another width or a non-finite number."""
    query = np.asarray(vector, dtype=np.float32)
    if query.shape != (dimension,):
        raise UsageError(f"query vector has shape {query.shape}; stream {stream} holds ({dimension},)")
    if not np.isfinite(query).all():
        raise UsageError("query vector holds NaN or infinity")
    return query


def video_id_for(path: Path, content_hash_hex: str, taken: Collection[str] = ()) -> str:
    """The id of a new video: its file's name and eight digits of its content hash.

    The digits distinguish videos with one name. A video keeps its id when its content changes, so the id may
    be `taken`: then a number is added.

    >>> video_id_for(Path("My holiday?.mp4"), "00ff" * 8)
    'My_holiday-00ff00ff'
    >>> video_id_for(Path("a.mp4"), "00ff" * 8, {"a-00ff00ff"})
    'a-00ff00ff-2'
    """
    plain = f"{_name(path)}-{content_hash_hex[:8]}"
    chosen, number = plain, 1
    while chosen in taken:
        number += 1
        chosen = f"{plain}-{number}"
    return chosen


def failed_id_for(path: Path) -> str:
    """The ledger key of a file that could not be read and so has no content hash."""
    digest = hashlib.blake2b(unambiguous(path).encode(), digest_size=16).hexdigest()
    return f"{_name(path)}-failed-{digest[:8]}"


def _name(path: Path) -> str:
    stem = unicodedata.normalize("NFC", unambiguous(path.stem))
    return re.sub(r"[^\w.-]+", "_", stem).strip("_.-")[:60] or "video"


class VideoNames:
    """Finds the videos of a corpus by id, path, file name, or file name without its ending.

    If no name matches exactly, Unicode form and letter case are ignored.
    """

    def __init__(self, paths: Iterable[tuple[str, str]]) -> None:
        """`paths` are (id, path) of each video."""
        self._ways: tuple[dict[str, list[str]], ...] = tuple(defaultdict(list) for _ in range(4))
        self._folded: tuple[dict[str, list[str]], ...] = tuple(defaultdict(list) for _ in range(4))
        for video_id, place in paths:
            path = Path(place)
            names = (video_id, place, path.name, path.stem)
            for way, folded, name in zip(self._ways, self._folded, names, strict=True):
                way[name].append(video_id)
                folded[folded_name(name)].append(video_id)

    def fitting(self, name: str, *, by_path: bool = True) -> list[str]:
        """The ids of the videos that match a name, by the first kind of name that matches any."""
        ids, paths, *others = range(len(self._ways))
        ways = [(ids, name)]
        ways += [(paths, name), (paths, str(absolute(Path(name))))] if by_path else []
        ways += [(way, name) for way in others]
        exact = (self._ways[way].get(key) for way, key in ways)
        folded = (self._folded[way].get(folded_name(key)) for way, key in ways)
        return next((fitting for fitting in itertools.chain(exact, folded) if fitting), [])

    def beginning(self, name: str) -> list[str]:
        """The ids of the videos whose id or file name begins with a name, case ignored."""
        start = folded_name(name.strip())
        ids, _, files, _ = self._folded
        some = (each for way in (ids, files) for key, each in way.items() if start and key.startswith(start))
        return list(dict.fromkeys(itertools.chain.from_iterable(some)))


def spoken_name(path: Path) -> str:
    """A file's name as words, used if there is no title.

    >>> spoken_name(Path("My_summer-holiday.2.mp4"))
    'My summer holiday 2'
    """
    return " ".join(re.sub(r"[_.-]", " ", unambiguous(path.stem)).split())


def unambiguous(path: Path | str) -> str:
    """A path or text as valid Unicode; other bytes are escaped, so that distinct names stay distinct."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def description_schema() -> Any:
    """Schema of table `corpus`: facts by key (JSON), and the writer's lease (`owner`, `expires`)."""
    import pyarrow as pa

    return pa.schema(
        [("key", pa.string()), ("value", pa.string()), ("owner", pa.string()), ("expires", pa.float64())]
    )


_LATE = "stream_times"
"""Ledgers of earlier versions lack this column; the next write adds it, with null in old rows."""
_MAY_LACK = ("duration", "shots", _LATE)


def ledger_schema() -> Any:
    """Schema of table `videos`: one row per video. Paths are bytes, because file names are bytes."""
    import pyarrow as pa

    text = ["content_hash", "kind", "state", "error", "streams", "words", "words_signature"]
    text += ["title", "metadata"]
    return pa.schema(
        [("video_id", pa.string()), ("path", pa.binary()), ("size", pa.int64()), ("modified_ns", pa.int64())]
        + [(name, pa.string()) for name in text]
        + [("duration", pa.float64()), ("has_picture", pa.bool_()), ("shots", pa.list_(pa.float64()))]
        + [("damage", pa.string()), ("indexed_at", pa.float64()), ("stream_times", pa.string())]
    )


def clips_schema(dimension: int, extra: Sequence[str] = ()) -> Any:
    """Schema of a table of clips: half-precision vectors of width `dimension`, no vector column for 0.

    `extra` are the EXTRA_COLUMNS that the table has.
    """
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
    vectors = [vector_field(dimension)] if dimension else []
    return pa.schema(columns + vectors + [extra_field(name) for name in extra])


def extra_field(name: str) -> Any:
    """The field of one of EXTRA_COLUMNS."""
    import pyarrow as pa

    return pa.field(name, pa.list_(pa.float32(), 4) if name == "box" else pa.float32())


def vector_field(dimension: int) -> Any:
    """The vector column: nullable float16 (half the disk and half the time of float32, same recall)."""
    import pyarrow as pa

    return pa.field("vector", pa.list_(pa.float16(), dimension))


def printable(text: str) -> str:
    """The text with a replacement character for each byte that is not UTF-8 (in file names)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def ledger_rows(records: Iterable[VideoRecord]) -> Any:
    """Ledger rows as an Arrow table."""
    import pyarrow as pa

    return pa.Table.from_pylist([_ledger_row(record) for record in records], schema=ledger_schema())


def _ledger_row(record: VideoRecord) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in ledger_schema().names}
    for name in ("error", "words", "words_signature", "title", "damage", "content_hash"):
        row[name] = printable(row[name])
    row["path"] = os.fsencode(record.path)
    for name in ("streams", "stream_times"):
        row[name] = json.dumps(dict(getattr(record, name)))
    row["metadata"] = json.dumps(dict(record.metadata), default=str)
    row["shots"] = None if record.shots is None else [float(border) for border in record.shots]
    return row


def records_of(table: Any) -> list[VideoRecord]:
    """An Arrow table of ledger rows as records, by video id. Raises StoreError for damaged rows."""
    if _LATE not in table.schema.names:
        table = table.append_column(_LATE, [["{}"] * table.num_rows])
    for name in ledger_schema().names:
        is_there = name in table.schema.names
        if not is_there or (name not in _MAY_LACK and table.column(name).null_count):
            raise _damaged(f"a row lacks its {name}")
    columns = table.select(ledger_schema().names).to_pydict()
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    records = [_record(row) for row in rows]
    return sorted(records, key=lambda record: record.video_id)


def _record(row: dict[str, Any]) -> VideoRecord:
    if b"\0" in row["path"]:  # no file has such a name, and no call of the system takes it
        raise _damaged(f"the path of {row['video_id']!r:.60} holds the character NUL")
    if not 0 <= row["indexed_at"] < _LAST_DATE:
        raise _damaged(f"{row['video_id']!r:.60} was indexed at no date")
    row["path"] = os.fsdecode(row["path"])
    row["streams"] = _read_object(row, "streams")
    row["stream_times"] = _times(row)
    row["metadata"] = _read_object(row, "metadata")
    row["shots"] = None if row["shots"] is None else tuple(row["shots"])
    return VideoRecord(**row)


def _read_object(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    try:
        value = json.loads(row[column])
    except (ValueError, TypeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _damaged(f"{column} of {row['video_id']!r:.60} holds no JSON object")
    return value


def _damaged(problem: str) -> StoreError:
    return StoreError(f"the ledger is damaged: {problem}; restore the corpus from a copy")


def _times(row: Mapping[str, Any]) -> dict[str, float]:
    """When each stream was finished, without invalid times; rows of earlier versions have none."""
    times = _read_object(row, _LATE) if row[_LATE] else {}
    return {name: at for name, at in times.items() if isinstance(at, int | float) and 0 <= at < _LAST_DATE}


def clip_rows(stream: StreamInfo, clips: Mapping[str, ClipColumns], extra: Sequence[str] = ()) -> Any:
    """The clips of several videos as an Arrow table, video by video; `extra` as in `clips_schema`."""
    import pyarrow as pa

    schema = clips_schema(stream.dimension, extra)
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
    columns += [_extra(clips, name) for name in EXTRA_COLUMNS if name in schema.names]
    return pa.record_batch(columns, schema=schema)


def _extra(clips: ClipColumns, name: str) -> Any:
    import pyarrow as pa

    column = getattr(clips, name)
    if column is None:
        return pa.nulls(len(clips), extra_field(name).type)
    values = pa.array(np.ascontiguousarray(column, dtype=np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, 4) if name == "box" else values


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
