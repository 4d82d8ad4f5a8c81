"""Read videos of a corpus as footage: the rows of their clips on a system's grid, when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import clip_counts
from whenabouts.index.keys import ByteCache, KeptVideo, mark_of
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.streams import stream as stream_named
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats.sentences import Sentence
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.ranking.encoded_corpus import Floats, Indices
from whenabouts_systems.trained_search.even_grid import videos_on_grid

Streams = Mapping[str, NDArray[np.floating[Any]]]
Item = TypeVar("Item")

ROWS_AT_A_TIME = 60_000
"""The most rows that are read together: 25 hours in clips of 1.5 seconds, 180 MB at width 768."""
ROWS_BYTES = 256 * 2**20
"""The size of the cache of rows in half precision: 60 hours of pictures and words."""
# The assumed duration of a video of unknown duration, for estimates of size.
_UNKNOWN_SECONDS = 3600.0


def in_parts(items: Sequence[Item], sizes: Sequence[float], limit: float, count: int) -> Iterator[list[Item]]:
    """Parts of `items`, in order, of at most `count` items whose sizes add up to at most `limit`.

    A larger item is a part alone.

    >>> list(in_parts("abcd", [2, 2, 9, 1], 4, 10))
    [['a', 'b'], ['c'], ['d']]
    """
    part: list[Item] = []
    filled = 0.0
    for item, size in zip(items, sizes, strict=True):
        if part and (filled + size > limit or len(part) >= count):
            yield part
            part, filled = [], 0.0
        part.append(item)
        filled += size
    if part:
        yield part


def rows_about(records: Sequence[VideoRecord], clip_seconds: float) -> list[float]:
    """The approximate number of rows of each video on a grid; the exact one is known after reading."""
    return [(record.duration or _UNKNOWN_SECONDS) / clip_seconds for record in records]


def transcript_of(store: Store, inputs: Inputs) -> str:
    """The stream whose words the system reads as sentences; "" if it reads no sentences.

    Raises UsageError if the corpus has no such stream.
    """
    if not inputs.reads_sentences:
        return ""
    spoken = [name for name in store.streams if stream_named(name).transcript]
    if not spoken:
        raise UsageError(f"{store.place} has no speech, which the system reads; index subtitles or speech")
    return spoken[0]


@dataclass(frozen=True, eq=False)
class StoredVideo:
    """The rows and the sentences of a video."""

    streams: Streams
    sentences: tuple[Sentence, ...] = ()


class StoredRows:
    """Rows of a corpus's videos on a system's grid, in half precision like exported features.

    Whole videos are read, because reading many time ranges takes a table fifty times as long. The videos
    read last are cached until they are rewritten.
    """

    def __init__(self, store: Store, inputs: Inputs, cache_bytes: int = ROWS_BYTES) -> None:
        self.inputs = inputs
        self._store, self._cache_bytes = store, cache_bytes
        self._transcript = transcript_of(store, inputs)
        self._cache: ByteCache[tuple[str, str], StoredVideo] = ByteCache(cache_bytes, _bytes_of)

    def counts(self, durations: Floats) -> Indices:
        """(V,) the numbers of rows of videos with the given durations (V,) in seconds."""
        return np.maximum(clip_counts(durations, self.inputs.clip_seconds), 1)

    def of(self, video: KeptVideo) -> StoredVideo:
        """A video's rows and sentences. If it changed or was removed since encoding: zeros, no sentences."""
        key = video.video_id, video.mark
        cached = self._cache.get_many([key])
        return cached[key] if key in cached else self._read([video])[key]

    def read_ahead(self, videos: Sequence[KeptVideo]) -> None:
        """Read videos that will be needed together, as many as the cache holds."""
        cached = self._cache.get_many([(video.video_id, video.mark) for video in videos])
        missing = [video for video in videos if (video.video_id, video.mark) not in cached]
        sizes = self.counts(np.array([video.duration for video in missing], np.float64)) * self._row_bytes
        self._read(missing[: int(np.searchsorted(sizes.cumsum(), self._cache_bytes, side="right"))])

    @property
    def _row_bytes(self) -> int:
        return 2 * sum(stream.width for stream in self.inputs.streams.values())

    def _read(self, videos: Sequence[KeptVideo]) -> dict[tuple[str, str], StoredVideo]:
        records = {record.video_id: record for record in self._store.videos([v.video_id for v in videos])}
        current = [
            records[video.video_id]
            for video in videos
            if video.video_id in records and mark_of(records[video.video_id]) == video.mark
        ]
        streams, clip = list(self.inputs.streams), self.inputs.clip_seconds
        current_videos: dict[str, StoredVideo] = {}
        for part in in_parts(current, rows_about(current, clip), ROWS_AT_A_TIME, len(current)):
            for grid in videos_on_grid(self._store, streams, clip, part, self._transcript):
                current_videos[grid.record.video_id] = StoredVideo(grid.streams, grid.sentences)
        counts = self.counts(np.array([video.duration for video in videos], np.float64)).tolist()
        absent = StoredVideo({})
        read = {}
        for video, count in zip(videos, counts, strict=True):
            stored = current_videos.get(video.video_id, absent)
            fitted = StoredVideo(self._fitted(stored.streams, count), stored.sentences)
            read[video.video_id, video.mark] = fitted
        self._cache.put(read)
        return read

    def _fitted(self, rows: Streams, count: int) -> Streams:
        """Exactly `count` rows of each stream in half precision, filled up with zeros."""
        fitted = {}
        for stream, settings in self.inputs.streams.items():
            block = np.zeros((count, settings.width), np.float16)
            if stream in rows:
                first = rows[stream][:count]
                block[: len(first)] = first
            fitted[stream] = block
        return fitted


def _bytes_of(video: StoredVideo) -> int:
    words = sum(len(sentence.text) for sentence in video.sentences)
    return sum(values.nbytes for values in video.streams.values()) + words


@dataclass(frozen=True, eq=False)
class StoredFootage:
    """Some videos of a corpus as footage for a system (`units.Footage`)."""

    rows: StoredRows
    kept: Sequence[KeptVideo]

    @property
    def inputs(self) -> Inputs:
        """The settings by which the system's rows are prepared."""
        return self.rows.inputs

    @cached_property
    def videos(self) -> list[Video]:
        """The videos."""
        return [Video(video.video_id, video.duration) for video in self.kept]

    @cached_property
    def durations(self) -> Floats:
        """(V,) the length of each video in seconds."""
        return np.array([video.duration for video in self.kept], np.float64)

    @cached_property
    def row_counts(self) -> Indices:
        """(V,) the number of rows of each video."""
        return self.rows.counts(self.durations)

    def rows_of_video(self, row: int) -> Streams:
        """Stream -> (T, D) rows of a video."""
        return self.rows.of(self.kept[row]).streams

    def sentences_of_video(self, row: int) -> Sequence[Sentence]:
        """The sentences of a video."""
        return self.rows.of(self.kept[row]).sentences

    def read_ahead(self, rows: Indices) -> None:
        """Read videos that will be needed together."""
        self.rows.read_ahead([self.kept[row] for row in np.unique(rows).tolist()])
