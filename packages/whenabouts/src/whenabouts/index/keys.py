"""Stores what trained systems compute from a corpus's videos: search keys and encodings.

For each system (by its fingerprint) there are tables beside the clips: `keys_<system>_<stream>` with one row
per search key (video, number, seconds, kind, vector), and `encodings_<system>` with one row per video (its
mark, its rows on the system's grid, and the encoding as bytes). A video is usable only while its mark is that
of its ledger row (`mark_of`). Its row in `encodings` is deleted first and written last, so that a killed run
leaves no video half written.

The kind of a key says in which of the system's streams its video (or segment) has keys: a video without words
is compared by its pictures alone, with others that have no words.

Videos may also be kept as segments of equal length (`segment_clips`). Then each key belongs to a segment:
`index` is the segment's number in the video, `start` and `end` are its seconds, and no encoding is kept,
because the second stage depends on the query. Such tables have a name per length (`system_of`).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.index.handle import SideTable
from whenabouts.index.records import ClipHits, VideoRecord, vector_field
from whenabouts.index.store import Store
from whenabouts.index.vector_index import Distance
from whenabouts.types import UsageError

CACHE_BYTES = 640 * 2**20
"""Size of the cache of `Keys`: reading 400 videos from disk takes longer than everything else in a search.
20,000 videos of 50 clips of width 256 take 510 MB without their keys."""

_SYSTEM = re.compile(r"[0-9a-f]{8,64}")
_FACT = "system:"
LAYOUT = 3
"""Version of the tables' layout; tables of an earlier layout are made again. 1 had no kinds; in 2 the system
PREM had no keys for pauses."""
# Compression shrinks half-precision numbers by a fifth and makes reading three times as slow.
_AS_IT_IS = {"lance-encoding:compression": "none"}
# Stored only with segments, so that older programs read corpora without them.
_OF_SEGMENTS = ("weights", "segment_clips")


def system_of(weights: str, segment_clips: int = 0) -> str:
    """The key of a system's tables: its fingerprint, or a hash of it and the length of segments."""
    if not segment_clips:
        return weights
    return hashlib.sha256(f"{weights} segments of {segment_clips} clips".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SystemKeys:
    """A trained system whose keys a corpus holds.

    `system` is its fingerprint, `name` its display name, `place` the folder or name it was opened from.
    `streams` has the width of its keys by stream, `distance` how they are compared ("l2": unit vectors).
    `ledger` is the version of the ledger up to which all videos were encoded, -1 if some were not.

    Keys of segments have `segment_clips` clips each (0: whole videos). Then `weights` is the fingerprint of
    the trained system, and `system` is made of both (`system_of`).
    """

    system: str
    name: str
    place: str
    streams: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    distance: Distance = "l2"
    ledger: int = -1
    weights: str = ""
    segment_clips: int = 0
    layout: int = LAYOUT

    def __post_init__(self) -> None:
        if not _SYSTEM.fullmatch(self.system):
            raise UsageError(f"{self.system!r} is not a fingerprint of a system: 8 to 64 hexadecimal digits")

    @property
    def trained(self) -> str:
        return self.weights or self.system

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self) | {"streams": dict(self.streams)}
        return {
            name: value for name, value in fields.items() if self.segment_clips or name not in _OF_SEGMENTS
        }

    def table(self, stream: str) -> str:
        """The name of a stream's table of keys."""
        return f"keys_{self.system}_{stream}"

    def kind(self, streams: Collection[str]) -> int:
        """The number of a set of streams: bit i for the i-th by name."""
        return sum(1 << at for at, stream in enumerate(sorted(self.streams)) if stream in streams)

    @property
    def is_current(self) -> bool:
        return self.layout == LAYOUT

    @property
    def encodings(self) -> str:
        """The name of the table of encodings."""
        return f"encodings_{self.system}"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedVideo:
    """One video as a trained system encodes it.

    `rows` is its number of rows on the system's grid before pooling. With 0 rows the system reads nothing in
    the video, which then has no keys and is never found. `duration` is in seconds.

    `keys` are (K, D) by stream, `start` and `end` (K,) the seconds of each key, `index` (K,) its segment
    (None: numbered in order). Two values are opaque bytes here: the `encoding`, by which the system scores
    spans, and `packed`, its own form of the keys with their masks.
    """

    video_id: str
    mark: str
    rows: int
    duration: float
    keys: Mapping[str, NDArray[np.float32]]
    start: Mapping[str, NDArray[np.float64]]
    end: Mapping[str, NDArray[np.float64]]
    encoding: bytes
    packed: bytes = b""
    index: Mapping[str, NDArray[np.int64]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KeptVideo:
    """An `EncodedVideo` as the index returns it; `packed` is empty if it was not read."""

    video_id: str
    mark: str
    rows: int
    duration: float
    encoding: bytes
    packed: bytes = b""


def mark_of(record: VideoRecord) -> str:
    """A hash (16 digits) that changes whenever a video's clips are written again."""
    facts = [record.content_hash, record.indexed_at, record.duration, sorted(record.streams.items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def known_systems(store: Store) -> list[SystemKeys]:
    """The trained systems whose keys a corpus holds."""
    return [_system_keys(fact) for _, fact in sorted(store.facts(_FACT).items())]


def open_keys(store: Store, system: str) -> Keys | None:
    """The keys of a system by its fingerprint; None if they are missing or have another layout."""
    fact = store.fact(_FACT + system)
    info = None if fact is None else _system_keys(fact)
    return Keys(store, info) if info is not None and info.is_current else None


def _system_keys(fact: Mapping[str, Any]) -> SystemKeys:
    return SystemKeys(**{"layout": 1, **fact})  # the first layout did not say so


def add_keys(store: Store, info: SystemKeys) -> Keys:
    """Create the tables of a system's keys, or open existing ones."""
    tables = [
        (SideTable(info.table(stream), info.distance), _keys_schema(width))
        for stream, width in info.streams.items()
    ]
    with store.writing():
        for side, schema in [*tables, (SideTable(info.encodings), _encodings_schema())]:
            if side.name not in store.sides:
                store.add_side(side, schema)
        keys = open_keys(store, info.system)
        if keys is None:
            keys = Keys(store, info)
            keys.describe(info)
    return keys


def remove_keys(store: Store, info: SystemKeys) -> None:
    """Drop all tables of a system."""
    with store.writing():
        store.forget_fact(_FACT + info.system)
        names = [info.encodings, *(info.table(stream) for stream in info.streams)]
        store.remove_sides([name for name in names if name in store.sides])


class Keys:
    """The keys and encodings of one trained system in one corpus.

    Encodings (up to `cache_bytes`) and kinds are cached, so changes by another process are seen only in a new
    object.
    """

    def __init__(self, store: Store, info: SystemKeys, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._cache: ByteCache[tuple[str, bool], KeptVideo] = ByteCache(
            cache_bytes, lambda video: len(video.encoding) + len(video.packed)
        )
        self._kinds: tuple[tuple[str, ...], ...] | None = None
        self.info = info

    def describe(self, info: SystemKeys) -> None:
        """Store the description of the system."""
        self._store.put_fact(_FACT + info.system, info.to_json())
        self.info = info

    def marks(self) -> dict[str, str]:
        """The mark of each encoded video."""
        rows = self._store.read_side(self.info.encodings, ["video_id", "mark"])
        return dict(zip(rows["video_id"].to_pylist(), rows["mark"].to_pylist(), strict=True))

    def count(self) -> int:
        """How many videos are encoded."""
        return self._store.count_side(self.info.encodings)

    def rows(self) -> dict[str, int]:
        """Each encoded video's number of rows on the grid; 0: the system reads nothing in it."""
        table = self._store.read_side(self.info.encodings, ["video_id", "rows"])
        return dict(zip(table["video_id"].to_pylist(), table["rows"].to_pylist(), strict=True))

    def put(self, videos: Sequence[EncodedVideo]) -> None:
        """Write videos in place of their earlier rows."""
        import pyarrow as pa

        if not videos:
            return
        ids = [video.video_id for video in videos]
        self._forget()
        with self._store.writing():
            self._store.replace_in_side(self.info.encodings, ids, None)
            for stream, width in self.info.streams.items():
                schema = _keys_schema(width)
                parts = [_rows_of(self.info, video, stream, schema) for video in videos]
                rows = pa.Table.from_batches(parts, schema=schema)
                self._store.replace_in_side(self.info.table(stream), ids, rows)
            schema = _encodings_schema()
            encodings = [{name: getattr(video, name) for name in schema.names} for video in videos]
            rows = pa.Table.from_pylist(encodings, schema=schema)
            self._store.replace_in_side(self.info.encodings, ids, rows)

    def forget(self, video_ids: Sequence[str]) -> None:
        """Drop videos that are no longer in the corpus."""
        self._forget()
        with self._store.writing():
            for begin in range(0, len(video_ids), 1000):
                part = video_ids[begin : begin + 1000]
                for name in (self.info.encodings, *map(self.info.table, self.info.streams)):
                    self._store.replace_in_side(name, part, None)

    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """The sets of streams, largest first, in exactly which some video (or segment) has keys."""
        if self._kinds is None:
            names = sorted(self.info.streams)
            every = (some for count in range(len(names), 0, -1) for some in combinations(names, count))
            self._kinds = tuple(
                some
                for some in every
                if self._store.count_side(self.info.table(some[0]), kind=self.info.kind(some))
            )
        return self._kinds

    def nearest(
        self,
        stream: str,
        vector: ArrayLike,
        k: int,
        video_ids: Sequence[str] | None = None,
        *,
        kind: Collection[str] | None = None,
    ) -> ClipHits:
        """The k keys of a stream nearest to a search vector (D,), best first.

        `kind`: only videos (or segments) that have keys in exactly these streams.
        """
        only = None if kind is None or len(self.info.streams) == 1 else self.info.kind(kind)
        return self._store.nearest_in_side(self.info.table(stream), vector, k, video_ids, kind=only)

    def read(self, stream: str, columns: Sequence[str]) -> Any:
        """Columns of all keys of a stream, as an Arrow table."""
        return self._store.read_side(self.info.table(stream), columns)

    def bytes_held(self) -> dict[str, int]:
        """Bytes that all keys take in half precision, by stream."""
        return {
            stream: 2 * width * self._store.count_side(self.info.table(stream))
            for stream, width in self.info.streams.items()
        }

    def encodings(self, video_ids: Sequence[str], *, with_keys: bool = True) -> list[KeptVideo]:
        """The encoded videos, in order of `video_ids`; videos not encoded or without rows are left out."""
        cached = self._cache.get_many((name, with_keys) for name in video_ids)
        kept = {name: video for (name, _), video in cached.items()}
        missing = [name for name in video_ids if name not in kept]
        if missing:
            read = self._read(missing, with_keys)
            self._cache.put({(name, with_keys): video for name, video in read.items()})
            kept |= read
        return [kept[name] for name in video_ids if name in kept and kept[name].rows]

    def _forget(self) -> None:
        self._cache.clear()
        self._kinds = None

    def _read(self, video_ids: Sequence[str] | None, with_keys: bool) -> dict[str, KeptVideo]:
        columns = ["video_id", "mark", "rows", "duration", "encoding", *(["packed"] if with_keys else [])]
        rows = self._store.read_side(self.info.encodings, columns, video_ids)
        values = (rows[name].to_pylist() for name in columns)
        return {row[0]: KeptVideo(*row) for row in zip(*values, strict=True)}


def _keys_schema(width: int) -> Any:
    import pyarrow as pa

    columns = [
        ("video_id", pa.string()),
        ("index", pa.int32()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("kind", pa.int32()),
    ]
    return pa.schema([*columns, vector_field(width)])


def _encodings_schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("video_id", pa.string()),
            ("mark", pa.string()),
            ("rows", pa.int32()),
            ("duration", pa.float64()),
            pa.field("encoding", pa.large_binary(), metadata=_AS_IT_IS),
            pa.field("packed", pa.large_binary(), metadata=_AS_IT_IS),
        ]
    )


def _rows_of(info: SystemKeys, video: EncodedVideo, stream: str, schema: Any) -> Any:
    import pyarrow as pa

    keys, width = video.keys[stream], info.streams[stream]
    if keys.shape[1] != width:
        raise UsageError(f"{video.video_id}: keys of width {keys.shape[1]}; stream {stream} holds {width}")
    values = np.ascontiguousarray(keys, dtype=np.float16).reshape(-1)
    index = np.arange(len(keys)) if video.index is None else video.index[stream]
    columns = [
        pa.array([video.video_id] * len(keys), pa.string()),
        pa.array(index.astype(np.int32)),
        pa.array(video.start[stream]),
        pa.array(video.end[stream]),
        pa.array(_kinds_of(info, video, stream)),
        pa.FixedSizeListArray.from_arrays(pa.array(values), width),
    ]
    return pa.record_batch(columns, schema=schema)


def _kinds_of(info: SystemKeys, video: EncodedVideo, stream: str) -> NDArray[np.int32]:
    """(K,) the kind of each key of a stream: that of its video or segment."""
    count = len(video.keys[stream])
    if video.index is None:
        kind = info.kind([name for name, keys in video.keys.items() if len(keys)])
        return np.full(count, kind, np.int32)
    number = video.index[stream]
    kinds = (info.kind([name]) * np.isin(number, of) for name, of in video.index.items())
    return np.asarray(sum(kinds, np.zeros(count, np.int64)), np.int32)


Key = TypeVar("Key")
Value = TypeVar("Value")


class ByteCache(Generic[Key, Value]):
    """The most recently used values, at most `most` bytes of them by `bytes_of`; safe between threads."""

    def __init__(self, most: int, bytes_of: Callable[[Value], int]) -> None:
        self._most, self._bytes_of, self._bytes = most, bytes_of, 0
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """The cached values of some keys."""
        with self._lock:
            cached = [key for key in keys if key in self._values]
            for key in cached:
                self._values.move_to_end(key)
            return {key: self._values[key] for key in cached}

    def put(self, values: Mapping[Key, Value]) -> None:
        """Add values; the least recently used are dropped."""
        with self._lock:
            for key, value in values.items():
                if key in self._values:
                    self._bytes -= self._bytes_of(self._values.pop(key))
                self._values[key] = value
                self._bytes += self._bytes_of(value)
            while self._bytes > self._most:
                self._bytes -= self._bytes_of(self._values.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._bytes = 0
