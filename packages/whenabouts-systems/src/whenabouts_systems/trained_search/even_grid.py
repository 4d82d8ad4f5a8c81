"""Clips of a corpus on an even grid: what a trained system reads, in training and in a search.

A corpus keeps clips as they came: one picture every so many seconds, passages as long as their sentences. A
trained system wants one row a clip of its grid, for all streams. The rule, for every stream:

- row i covers [i * S, (i + 1) * S) seconds of the video and is the mean of the vectors of all clips that
  share time with it, weighted by how much they share;
- a row that shares time with none (nobody speaks) is zero.

Pictures taken every S seconds so come out as they are. The rows of a video of d seconds are ceil(d / S).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import INSTANT, ClipGrid, same_instant, span_seconds
from whenabouts.index.records import ClipBlock, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import UsageError
from whenabouts_bench.formats.sentences import Sentence, in_order

_VIDEOS_AT_A_TIME = 64


@dataclass(frozen=True, slots=True, eq=False)
class GridVideo:
    """One video on a grid: stream -> (T, D) float32 rows, T the same for all streams; and what is said."""

    record: VideoRecord
    duration: float
    streams: Mapping[str, NDArray[np.float32]]
    sentences: tuple[Sentence, ...] = ()


def check_stream(store: Store, name: str, clip_seconds: float) -> StreamInfo:
    """A stream of a corpus that can be put on a grid of so long clips.

    Raises UsageError where there is no such stream, where it has no vectors, and where its pictures were
    taken at another distance: none of them would be made up.
    """
    info = store.stream(name)
    if not info.dimension:
        raise UsageError(
            f"{store.place}: stream {name} has no vectors (searched by letter only); index with a sentence "
            "encoder"
        )
    taken = info.settings.get("clip_seconds")
    if taken is not None and not same_instant(float(taken), clip_seconds):
        raise UsageError(
            f"{store.place}: stream {name} has clips of {float(taken):g} s, not of {clip_seconds:g} s; index "
            f"the videos into a new corpus with --clip-seconds {clip_seconds:g}, or use what was made for "
            f"{float(taken):g} s"
        )
    return info


def videos_on_grid(
    store: Store,
    streams: Sequence[str],
    clip_seconds: float,
    records: Sequence[VideoRecord],
    transcript: str = "",
) -> Iterator[GridVideo]:
    """Videos with their rows, in the order of `records`; those without any time (and clips) are left out.

    `transcript` is the stream whose words are their sentences ("": they have none).
    """
    for begin in range(0, len(records), _VIDEOS_AT_A_TIME):
        part = records[begin : begin + _VIDEOS_AT_A_TIME]
        ids = [record.video_id for record in part]
        blocks = {name: store.clips_of(name, ids) for name in streams}
        words = store.clips_of(transcript, ids, vectors=False) if transcript else None
        for place, record in enumerate(part):
            duration = duration_of(record, blocks.values(), place)
            grid = ClipGrid(clip_seconds, duration)
            if len(grid):
                rows = {name: rows_on(grid, block, place) for name, block in blocks.items()}
                yield GridVideo(record, duration, rows, () if words is None else sentences_in(words, place))


def duration_of(record: VideoRecord, blocks: Iterable[ClipBlock], place: int) -> float:
    """Seconds of a video: as its file says, else where the last clip ends."""
    if record.duration:
        return record.duration
    ends = [block.end[block.rows(place)] for block in blocks]
    return max((float(end.max()) for end in ends if len(end)), default=0.0)


def sentences_in(words: ClipBlock, place: int) -> tuple[Sentence, ...]:
    """What is said in the block's video number `place`, passage by passage."""
    own = words.rows(place)
    passages = zip(words.start[own].tolist(), words.end[own].tolist(), words.text[own], strict=True)
    return in_order(Sentence(*passage) for passage in passages)


def rows_on(grid: ClipGrid, block: ClipBlock, place: int) -> NDArray[np.float32]:
    """(T, D): the clips of the block's video number `place` on a grid; see the module."""
    own = block.rows(place)
    start, end, vectors = block.start[own], block.end[own], block.vectors[own]
    rows = np.zeros((len(grid), block.vectors.shape[1]), np.float32)
    clip, cell, shared = _shared_time(grid, start, end)
    if not len(clip):
        return rows
    order = np.argsort(cell, kind="stable")
    clip, cell, shared = clip[order], cell[order], shared[order]
    begins = np.flatnonzero(np.diff(cell, prepend=-1))
    weights = shared / np.repeat(np.add.reduceat(shared, begins), np.diff(begins, append=len(cell)))
    weighted = vectors[clip] * weights.astype(np.float32)[:, None]
    rows[cell[begins]] = np.add.reduceat(weighted, begins, axis=0)
    return rows


def _shared_time(
    grid: ClipGrid, start: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Pairs of a clip and a cell of the grid that share time: clips, cells, seconds; clip by clip."""
    low, high = grid.spans_of(start, end)
    counts = high - low + 1
    clip = np.repeat(np.arange(len(start)), counts)
    cell = np.arange(len(clip)) - np.repeat(np.cumsum(counts) - counts, counts) + low[clip]
    begins, ends = span_seconds(cell, cell, grid.clip_seconds)
    shared = np.minimum(end[clip], ends) - np.maximum(start[clip], begins)
    there = shared > INSTANT
    return clip[there], cell[there], shared[there]
