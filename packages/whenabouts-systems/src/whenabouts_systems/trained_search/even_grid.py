"""Resample a corpus's clips to an even grid, as trained systems read them in training and in a search.

A corpus stores clips of uneven lengths: a picture every few seconds, passages as long as their sentences. A
trained system needs one row for each clip of its grid, in all streams:

- row i covers [i * S, (i + 1) * S) seconds of the video. It is the mean of the vectors of all clips that
  overlap it, weighted by the overlapping time;
- a row without an overlapping clip (nobody speaks) is zero.

Pictures taken every S seconds thus stay unchanged. A video of d seconds has ceil(d / S) rows.
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
    """One video on a grid: `streams` maps each to (T, D) float32 rows with the same T. Times are seconds."""

    record: VideoRecord
    duration: float
    streams: Mapping[str, NDArray[np.float32]]
    sentences: tuple[Sentence, ...] = ()


def check_stream(store: Store, name: str, clip_seconds: float) -> StreamInfo:
    """The stream of a corpus, checked to fit a grid of clips of `clip_seconds`.

    Raises UsageError if the corpus lacks the stream, if the stream has no vectors, or if its pictures were
    taken at another interval, because rows without a picture would have to be invented.
    """
    info = store.stream(name)
    if not info.dimension:
        raise UsageError(
            f"{store.place}: stream {name} has no vectors (only its words are searched); index with a "
            "sentence encoder"
        )
    interval = info.settings.get("clip_seconds")
    if interval is not None and not same_instant(float(interval), clip_seconds):
        raise UsageError(
            f"{store.place}: stream {name} has clips of {float(interval):g} s, not of {clip_seconds:g} s; "
            f"index the videos into a new corpus with --clip-seconds {clip_seconds:g}, or use a system for "
            f"clips of {float(interval):g} s"
        )
    return info


def videos_on_grid(
    store: Store,
    streams: Sequence[str],
    clip_seconds: float,
    records: Sequence[VideoRecord],
    transcript: str = "",
) -> Iterator[GridVideo]:
    """The videos of `records` on the grid, in order; a video with neither duration nor clips is skipped.

    `transcript` is the stream whose passages become the sentences ("": no sentences).
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
    """The length of a video in seconds: from its record, else the end of its last clip."""
    if record.duration:
        return record.duration
    ends = [block.end[block.rows(place)] for block in blocks]
    return max((float(end.max()) for end in ends if len(end)), default=0.0)


def sentences_in(words: ClipBlock, place: int) -> tuple[Sentence, ...]:
    """The passages of speech in the block's video number `place`."""
    rows = words.rows(place)
    passages = zip(words.start[rows].tolist(), words.end[rows].tolist(), words.text[rows], strict=True)
    return in_order(Sentence(*passage) for passage in passages)


def rows_on(grid: ClipGrid, block: ClipBlock, place: int) -> NDArray[np.float32]:
    """(T, D): the clips of the block's video number `place` on a grid, by the module's rule."""
    of_video = block.rows(place)
    start, end, vectors = block.start[of_video], block.end[of_video], block.vectors[of_video]
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
    """The N pairs of a clip and a grid cell that overlap, clip by clip: clips, cells, shared seconds."""
    low, high = grid.spans_of(start, end)
    counts = high - low + 1
    clip = np.repeat(np.arange(len(start)), counts)
    cell = np.arange(len(clip)) - np.repeat(np.cumsum(counts) - counts, counts) + low[clip]
    begins, ends = span_seconds(cell, cell, grid.clip_seconds)
    shared = np.minimum(end[clip], ends) - np.maximum(start[clip], begins)
    overlaps = shared > INSTANT
    return clip[overlaps], cell[overlaps], shared[overlaps]
