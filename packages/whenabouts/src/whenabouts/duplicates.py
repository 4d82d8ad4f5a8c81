"""Find segments that also appear in other videos, re-encoded ones included.

Two videos show the same if their frames, compared in step, are similar for some seconds. Frames are compared
by the vectors of a stream whose clips are frames; `LEAST` was chosen on one half of the videos of
`benchmarks/likeness.py` and measured on the other half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.absent import copied_files
from whenabouts.index.records import ClipBlock
from whenabouts.streams import stream as stream_named
from whenabouts.types import Moment, UsageError

if TYPE_CHECKING:
    from whenabouts.opened_corpus import OpenedCorpus

LEAST = 0.7
"""Cosine from which two frames count as equal."""
LEAST_SECONDS = 3.0
"""Least length of a repeat."""
# Videos compared at a time: bounds the memory.
_BLOCK = 16
# Frames in the middle that may fail, for example at a cut between two frames.
_GAP = 1

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A moment whose pictures appear again in another video; `similarity` is their mean cosine."""

    moment: Moment
    again: Moment
    similarity: float

    def to_json(self) -> dict[str, Any]:
        moments = {"moment": self.moment, "again": self.again}
        spans = {
            name: {"video_id": span.video_id, "start": round(span.start, 3), "end": round(span.end, 3)}
            for name, span in moments.items()
        }
        return {**spans, "similarity": round(self.similarity, 4)}


def copies(corpus: OpenedCorpus, videos: Sequence[str] = ()) -> dict[str, str]:
    """Path of each byte-identical copy that `index` found -> id of its video in `videos` (empty: all)."""
    corpus.refresh()
    chosen = corpus.resolve_all(videos) if videos else corpus.store.ledger().listed
    ids = {record.content_hash: record.video_id for record in chosen}
    files = sorted(copied_files(corpus.store).items())
    return {path: ids[content] for path, content in files if content in ids}


def duplicates(corpus: OpenedCorpus, videos: Sequence[str] = (), *, least: float = LEAST) -> list[Repeat]:
    """Time ranges of `videos` (empty: all) whose pictures appear again in another video, longest first.

    Every frame is compared with every frame of the other videos; from a cosine of `least` on they are equal.
    Raises UsageError if `least` is not in (0, 1], for an unknown video, and for one without frames.
    """
    if not 0 < least <= 1:
        raise UsageError(f"the least similarity is {least:g}; give a number above 0, and 1 at most")
    corpus.refresh()
    if (stream := frames_of(corpus)) is None:
        raise UsageError(f"{corpus.location} has no frames to compare; index with --likeness")
    records, holds = corpus.resolve_all(videos), stream_named(stream).holds
    if without := [record.video_id for record in records if not holds(record)]:
        raise UsageError(f"{without[0]} has no frames in the stream {stream}, so nothing can be compared")
    chosen = list(dict.fromkeys(record.video_id for record in records))
    all_ids = [record.video_id for record in corpus.store.ledger().listed if holds(record)]
    repeats: list[Repeat] = []
    for first in _blocks(chosen or all_ids):
        block = corpus.store.clips_of(stream, first)
        for others in _blocks(all_ids):
            repeats += _between(block, corpus.store.clips_of(stream, others), least, is_ordered=not chosen)
    return sorted(repeats, key=lambda repeat: (-repeat.moment.duration, repeat.moment, repeat.again))


def _blocks(video_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(video_ids), _BLOCK):
        yield video_ids[start : start + _BLOCK]


def _between(block: ClipBlock, other: ClipBlock, least: float, *, is_ordered: bool) -> Iterator[Repeat]:
    """The repeats between the videos of two blocks; `is_ordered`: each pair once.

    A pair is always compared in the order of its ids, so that both directions give the same repeats.
    """
    for place, video_id in enumerate(block.video_ids):
        for again, other_id in enumerate(other.video_ids):
            if video_id < other_id:
                yield from _of_pair(block, place, other, again, least)
            elif video_id > other_id and not is_ordered:
                for repeat in _of_pair(other, again, block, place, least):
                    yield Repeat(repeat.again, repeat.moment, repeat.similarity)


def _of_pair(block: ClipBlock, place: int, other: ClipBlock, again: int, least: float) -> Iterator[Repeat]:
    cosines = block.vectors[block.rows(place)] @ other.vectors[other.rows(again)].T
    for first, second, length in stretches(cosines, least):
        moment, seen_again = _span(block, place, first, length), _span(other, again, second, length)
        # The last frame of a video may be shorter than the frame that it repeats.
        if max(moment.duration, seen_again.duration) >= LEAST_SECONDS:
            similarity = float(np.diagonal(cosines[first:, second:])[:length].mean())
            yield Repeat(moment, seen_again, similarity)


def _span(block: ClipBlock, place: int, first: int, length: int) -> Moment:
    row = block.rows(place).start + first
    return Moment(block.video_ids[place], float(block.start[row]), float(block.end[row + length - 1]))


def stretches(cosines: Floats, least: float) -> list[tuple[int, int, int]]:
    """Segments in which two videos are similar in step: both first frames and the length; longest first.

    `cosines` (A, B) of the frames of both. Two segments share frames of at most one video, because a still
    video is similar in step at any offset.
    """
    # Cells that are similar, by diagonals.
    rows, columns = np.nonzero(cosines >= least)
    if not len(rows):
        return []
    order = np.lexsort((rows, columns - rows))
    rows, columns = rows[order], columns[order]
    ends = np.flatnonzero((np.diff(columns - rows) > 0) | (np.diff(rows) > 1 + _GAP)) + 1
    starts, ends = np.append(0, ends), np.append(ends, len(rows))
    lengths = rows[ends - 1] - rows[starts] + 1
    means = np.add.reduceat(cosines[rows, columns], starts) / (ends - starts)
    runs = np.stack([rows[starts], columns[starts], lengths], axis=1)
    is_covered, is_covered_again = np.zeros(cosines.shape[0], np.bool_), np.zeros(cosines.shape[1], np.bool_)
    kept = []
    for run in runs[np.lexsort((runs[:, 1], runs[:, 0], -means, -lengths))]:
        first, second, length = run.tolist()
        frames, frames_again = slice(first, first + length), slice(second, second + length)
        if not (is_covered[frames].any() and is_covered_again[frames_again].any()):
            is_covered[frames] = is_covered_again[frames_again] = True
            kept.append((first, second, length))
            if is_covered.all() and is_covered_again.all():
                break
    return kept


def frames_of(corpus: OpenedCorpus) -> str | None:
    """The stream whose clips are frames with vectors, preferably one that takes no text; or None."""
    meets = {name: stream_named(name).meets for name, info in corpus.store.streams.items() if info.dimension}
    able = (name for name in meets if "picture" in meets[name])
    return min(able, key=lambda name: ("text" in meets[name], name), default=None)
