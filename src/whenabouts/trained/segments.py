"""Videos of a corpus in segments of equal length: read, cut, and encoded for the index.

What mathematics there is lies in `ranking/segments.py`; here are the videos of an index as the footage that
it asks for, and a retriever's keys of their segments as the index keeps them (`index/keys.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import clip_counts
from whenabouts.index.even_grid import GridVideo, videos_on_grid
from whenabouts.index.keys import ByteCache, EncodedVideo, KeptVideo, mark_of
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.models.inputs import Inputs
from whenabouts.ranking.encoded_corpus import device_of, evaluating
from whenabouts.ranking.units import Units
from whenabouts.types import UsageError, Video

if TYPE_CHECKING:
    from whenabouts.models.trained import Trained

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Streams = Mapping[str, NDArray[np.floating[Any]]]
Item = TypeVar("Item")

MOST_SEGMENTS = 10_000_000
"""A corpus is not cut into more: 11,000 hours in segments of 4 seconds."""
ROWS_AT_A_TIME = 60_000
"""Rows of videos that are read together: 25 hours in clips of 1.5 seconds, 180 MB of width 768."""
ROWS_BYTES = 256 * 2**20
"""What is remembered of the videos read last, in half precision: 60 hours of pictures and words."""
_CLIPS_AT_ONCE = 6_400
# What a video of unknown length is taken to be, where only much or little is asked.
_UNKNOWN_SECONDS = 3600.0


def check_count(records: Sequence[VideoRecord], seconds: float, place: str) -> None:
    """Refuse to cut a corpus into more segments (of so many seconds) than an index should hold."""
    lengths = np.array([record.duration or 0.0 for record in records])
    count, hours = int(clip_counts(lengths, seconds).sum()), lengths.sum() / 3600
    if count > MOST_SEGMENTS:
        enough = int(np.ceil(seconds * count / MOST_SEGMENTS))
        raise UsageError(
            f"segments of {seconds:g} s would be {count:,} in the {hours:,.0f} hours of {place}, more than "
            f"{MOST_SEGMENTS:,}; give {enough} s or more"
        )


def in_parts(items: Sequence[Item], sizes: Sequence[float], most: float, count: int) -> Iterator[list[Item]]:
    """Items some at a time: at most `count`, whose sizes add up to no more than `most` (one at least).

    >>> list(in_parts("abcd", [2, 2, 9, 1], 4, 10))
    [['a', 'b'], ['c'], ['d']]
    """
    part: list[Item] = []
    filled = 0.0
    for item, size in zip(items, sizes, strict=True):
        if part and (filled + size > most or len(part) >= count):
            yield part
            part, filled = [], 0.0
        part.append(item)
        filled += size
    if part:
        yield part


def rows_about(records: Sequence[VideoRecord], clip_seconds: float) -> list[float]:
    """About how many rows each video has on a grid; more is not known before it is read."""
    return [(record.duration or _UNKNOWN_SECONDS) / clip_seconds for record in records]


@dataclass(frozen=True, eq=False)
class _Read:
    """Videos that were read, as footage of a system (`ranking.units.Footage`)."""

    inputs: Inputs
    grids: Sequence[GridVideo]

    @cached_property
    def videos(self) -> list[Video]:
        return [Video(grid.record.video_id, grid.duration) for grid in self.grids]

    @cached_property
    def durations(self) -> Floats:
        return np.array([grid.duration for grid in self.grids], np.float64)

    @cached_property
    def row_counts(self) -> Indices:
        return np.array([max(map(len, grid.streams.values())) for grid in self.grids], np.int64)

    def rows_of_video(self, row: int) -> Streams:
        return self.grids[row].streams


def encoded_segments(trained: Trained, grids: Sequence[GridVideo], clips: int) -> list[EncodedVideo]:
    """Videos (at least one) with a system's keys of their segments, of so many clips each.

    A segment in which the system reads nothing has no keys, and a video of such segments has 0 rows.
    """
    footage = _Read(trained.inputs, grids)
    segments = Units.cut(footage, clips * trained.inputs.clip_seconds)
    keys = _keys_of(trained, segments)
    start, end = segments.start, segments.end
    borders = np.searchsorted(segments.video, np.arange(len(grids) + 1))
    found = []
    for at, grid in enumerate(grids):
        mine = {name: _between(owner, borders[at], borders[at + 1]) for name, (owner, _) in keys.items()}
        number = {name: keys[name][0][part] for name, part in mine.items()}
        found.append(
            EncodedVideo(
                grid.record.video_id,
                mark_of(grid.record),
                int(footage.row_counts[at]) if any(map(len, number.values())) else 0,
                grid.duration,
                {name: keys[name][1][part] for name, part in mine.items()},
                {name: start[numbers] for name, numbers in number.items()},
                {name: end[numbers] for name, numbers in number.items()},
                b"",
                index={name: numbers - borders[at] for name, numbers in number.items()},
            )
        )
    return found


def _between(owner: Indices, low: int, high: int) -> slice:
    """Where the keys of the segments from `low` to `high` - 1 lie; `owner` (K,) is sorted."""
    first, stop = np.searchsorted(owner, [low, high])
    return slice(int(first), int(stop))


def _keys_of(trained: Trained, segments: Units) -> dict[str, tuple[Indices, NDArray[np.float32]]]:
    """By stream: the segment (K,) of each key, in order, and the keys (K, D)."""
    model = trained.model
    owners: defaultdict[str, list[Indices]] = defaultdict(list)
    vectors: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    lengths = segments.stop - segments.first
    order = np.argsort(lengths, kind="stable")
    for alike in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):  # so that nothing is padding
        most = max(1, _CLIPS_AT_ONCE // trained.inputs.clips_of(int(lengths[alike[0]])))
        for low in range(0, len(alike), most):
            numbers = alike[low : low + most]
            clips = segments.clip_batch(numbers)
            with evaluating(model):
                encoding = model.encode_videos(clips.to(device_of(model))).to("cpu")
            for stream, keys in encoding.keys.items():
                real = encoding.key_masks[stream].bool()
                real = real if clips.silent is None else real & ~clips.silent.cpu()[:, None]
                owners[stream].append(numbers[real.nonzero()[:, 0].numpy()])
                vectors[stream].append(keys[real].float().numpy())
    found = {}
    for stream, parts in owners.items():
        owner = np.concatenate(parts)
        sorted_by = np.argsort(owner, kind="stable")
        found[stream] = owner[sorted_by], np.concatenate(vectors[stream])[sorted_by]
    return found


class StoredRows:
    """Rows of a corpus's videos on a system's grid, in half precision as exports have them.

    Videos are read whole: many stretches by their times take a table fifty times as long. Those read last are
    remembered, and forgotten when they are written anew.
    """

    def __init__(self, store: Store, inputs: Inputs, cache_bytes: int = ROWS_BYTES) -> None:
        self.inputs = inputs
        self._store, self._most = store, cache_bytes
        self._cache: ByteCache[tuple[str, str], Streams] = ByteCache(cache_bytes, _bytes_of)

    def counts(self, durations: Floats) -> Indices:
        """(V,) how many rows videos of so many seconds have."""
        return np.maximum(clip_counts(durations, self.inputs.clip_seconds), 1)

    def of(self, video: KeptVideo) -> Streams:
        """The rows of a video; zeros where it was written anew or taken out since it was encoded."""
        key = video.video_id, video.mark
        found = self._cache.get_many([key])
        return found[key] if key in found else self._read([video])[key]

    def read_ahead(self, videos: Sequence[KeptVideo]) -> None:
        """Read videos together that will be asked for, as many as are remembered."""
        there = self._cache.get_many([(video.video_id, video.mark) for video in videos])
        missing = [video for video in videos if (video.video_id, video.mark) not in there]
        sizes = self.counts(np.array([video.duration for video in missing], np.float64)) * self._row_bytes
        self._read(missing[: int(np.searchsorted(sizes.cumsum(), self._most, side="right"))])

    @property
    def _row_bytes(self) -> int:
        return 2 * sum(told.width for told in self.inputs.streams.values())

    def _read(self, videos: Sequence[KeptVideo]) -> dict[tuple[str, str], Streams]:
        records = {record.video_id: record for record in self._store.videos([one.video_id for one in videos])}
        there = [
            records[one.video_id]
            for one in videos
            if one.video_id in records and mark_of(records[one.video_id]) == one.mark
        ]
        streams, clip = list(self.inputs.streams), self.inputs.clip_seconds
        found: dict[str, Streams] = {}
        for part in in_parts(there, rows_about(there, clip), ROWS_AT_A_TIME, len(there)):
            for grid in videos_on_grid(self._store, streams, clip, part):
                found[grid.record.video_id] = grid.streams
        counts = self.counts(np.array([video.duration for video in videos], np.float64)).tolist()
        read = {
            (one.video_id, one.mark): self._fitted(found.get(one.video_id, {}), count)
            for one, count in zip(videos, counts, strict=True)
        }
        self._cache.put(read)
        return read

    def _fitted(self, rows: Streams, count: int) -> Streams:
        """Exactly `count` rows of each stream in half precision, zeros where there are fewer."""
        fitted = {}
        for stream, told in self.inputs.streams.items():
            block = np.zeros((count, told.width), np.float16)
            if stream in rows:
                own = rows[stream][:count]
                block[: len(own)] = own
            fitted[stream] = block
        return fitted


def _bytes_of(rows: Streams) -> int:
    return sum(one.nbytes for one in rows.values())


@dataclass(frozen=True, eq=False)
class StoredFootage:
    """Some videos of a corpus as footage of a system (`ranking.units.Footage`)."""

    rows: StoredRows
    kept: Sequence[KeptVideo]

    @property
    def inputs(self) -> Inputs:
        """How rows are made ready for the system."""
        return self.rows.inputs

    @cached_property
    def videos(self) -> list[Video]:
        """The videos."""
        return [Video(one.video_id, one.duration) for one in self.kept]

    @cached_property
    def durations(self) -> Floats:
        """(V,) seconds."""
        return np.array([one.duration for one in self.kept], np.float64)

    @cached_property
    def row_counts(self) -> Indices:
        """(V,) rows of each video."""
        return self.rows.counts(self.durations)

    def rows_of_video(self, row: int) -> Streams:
        """Stream -> (T, D) rows of a video."""
        return self.rows.of(self.kept[row])

    def read_ahead(self, rows: Indices) -> None:
        """Read videos that will be asked for, together."""
        self.rows.read_ahead([self.kept[row] for row in np.unique(rows).tolist()])
