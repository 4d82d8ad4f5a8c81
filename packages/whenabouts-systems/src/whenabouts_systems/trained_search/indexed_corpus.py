"""One's own videos as a trained system keeps them in the index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import safetensors.torch
import torch
from numpy.typing import ArrayLike, NDArray

from whenabouts.index.keys import KeptVideo, Keys
from whenabouts.index.records import ClipHits
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.encoded_corpus import (
    Floats,
    Indices,
    Mask,
    MemoryCorpus,
    device_of,
    from_tensors,
)
from whenabouts_systems.trained_search.exact_keys import ExactKeys, quickest

Names = NDArray[np.str_]
Vectors = Mapping[str, NDArray[np.float32]]

NEAREST_KEYS = 800
"""Keys asked of the index, for each stream; more where they belong to few videos, or segments."""
_MORE_KEYS, _MOST_KEYS = 4, 12_800


class IndexedCorpus:
    """What the index keeps of a corpus for one system: an `EncodedCorpus` of whole videos, or of segments.

    A unit is a whole video, or one of its segments; units are numbered video after video (`place_of`). Of
    segments keys alone are kept, and `take` and `select` are of whole videos.
    """

    def __init__(self, keys: Keys, trained: Trained, stale: Sequence[str] = ()) -> None:
        self.keys, self.trained, self._stale = keys, trained, frozenset(stale)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The videos, sorted."""
        return tuple(sorted(self._lengths))

    @cached_property
    def _lengths(self) -> Mapping[str, int]:
        return self.keys.rows()

    @cached_property
    def rows(self) -> Indices:
        """(V,) how many rows each video has on the system's grid; 0 where the system reads nothing in it."""
        return np.array([self._lengths[name] for name in self.ids], np.int64)

    @cached_property
    def _first(self) -> Indices:
        """(V + 1,) the number of the first unit of each video, and of all units."""
        clips = self.keys.info.segment_clips
        counts = -(-self.rows // clips) if clips else np.ones(len(self.ids), np.int64)
        return np.concatenate([[0], counts.cumsum()]).astype(np.int64)

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """The row of each video."""
        return {name: row for row, name in enumerate(self.ids)}

    def allowed(self, video_ids: Sequence[str] | None) -> Mask:
        """(V,) bool: those of some videos (None: all) that may be answered."""
        if video_ids is None:
            allowed = np.ones(len(self.ids), bool)
        else:
            allowed = np.zeros(len(self.ids), bool)
            allowed[self.rows_of(video_ids)] = True
        allowed[self.rows_of(self._stale)] = False
        return allowed

    def take(self, rows: ArrayLike) -> VideoEncoding:
        """Some videos as one encoding, in the order of `rows`."""
        return self.select(np.asarray(rows, np.int64)).blocks[0]

    def select(self, rows: Indices) -> MemoryCorpus:
        """Some videos read into memory, where the system's model is; those that are silent are left out.

        Raises UsageError where none is left.
        """
        kept = self.kept(rows)
        if not kept:
            raise UsageError("no videos were asked for")
        videos = unpacked(kept).to(device_of(self.trained.model))
        seconds = [
            key_seconds(self.trained, count, video.rows, video.duration)
            for count, video in zip(videos.mask.sum(1).tolist(), kept, strict=True)
        ]
        return MemoryCorpus.of_block(
            [video.video_id for video in kept], videos, seconds, [video.duration for video in kept]
        )

    def kept(self, rows: Indices, *, with_keys: bool = True) -> list[KeptVideo]:
        """What is kept of some videos, as bytes; those that are silent are left out."""
        return self.keys.encodings([self.ids[row] for row in rows.tolist()], with_keys=with_keys)

    def nearest(self, vectors: Vectors, k: int, allowed: Mask | None = None) -> tuple[Indices, Floats]:
        """About k units whose best keys are nearest, best first: rows, and the mean over their streams.

        `allowed` (V,) leaves only some videos.
        """
        whole = not self.keys.info.segment_clips
        names, number, scores = nearest_units(self._key_search, vectors, k, self.names(allowed), whole=whole)
        video = np.array([self.row_of.get(name, -1) for name in names.tolist()], np.int64)
        rows = self._first[video] + number
        # What another program takes out or writes anew in this moment is not what the keys were of.
        there = (video >= 0) & (rows < self._first[video + 1])
        return rows[there], scores[there]

    @cached_property
    def _key_search(self) -> Keys | ExactKeys:
        """What the nearest keys are asked of."""
        # One that is stale serves this query alone.
        return self.keys if self._stale else quickest(self.keys, device_of(self.trained.model))

    def place_of(self, units: Indices) -> tuple[Indices, Indices]:
        """The video (N,) of each unit, and its number (N,) among the units of that video."""
        video = np.searchsorted(self._first, units, side="right") - 1
        return video, units - self._first[video]

    def rows_of(self, video_ids: Iterable[str]) -> Indices:
        """The rows of those of some videos that are here."""
        rows = [self.row_of[name] for name in video_ids if name in self.row_of]
        return np.array(rows, np.int64)

    def names(self, allowed: Mask | None) -> list[str] | None:
        """The videos of a mask; None where these are all."""
        if allowed is None or allowed.all():
            return None
        return [self.ids[row] for row in np.flatnonzero(allowed).tolist()]


# The nearest keys, as the videos or the segments that they belong to --------------------------------


def nearest_units(
    keys: Keys | ExactKeys,
    vectors: Vectors,
    count: int,
    video_ids: Sequence[str] | None = None,
    *,
    whole: bool,
) -> tuple[Names, Indices, Floats]:
    """About `count` units whose best keys are nearest: names (N,) of videos, numbers (N,) of segments (0 of
    `whole` videos), scores (N,), best first.

    A system's score is the mean, over the streams that a unit has, of its best key. What has no words is so
    compared by its pictures alone, and its pictures may all be farther than those of what has words and is
    retrieved by neither. So each kind (`Keys.kinds`: which streams there are) is searched by itself; within a
    kind a stream that does not retrieve a unit gives it what its last key scored: it cannot score more there.
    """
    parts = [(np.zeros(0, np.str_), np.zeros(0, np.int64), np.zeros(0))]
    for kind in keys.kinds():
        hits = [_enough_keys(keys, stream, vectors[stream], count, video_ids, kind, whole) for stream in kind]
        parts.append(_means(hits, whole))
    names, number, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((number, names, -scores))[:count]
    return names[order], number[order], scores[order]


def _enough_keys(
    keys: Keys | ExactKeys,
    stream: str,
    vector: NDArray[np.float32],
    count: int,
    video_ids: Sequence[str] | None,
    kind: Sequence[str],
    whole: bool,
) -> ClipHits:
    """The nearest keys, so many that they are of `count` different units or there are no more."""
    most = NEAREST_KEYS
    while True:
        hits = keys.nearest(stream, vector, most, video_ids, kind=kind)
        if len(hits) < most or most >= _MOST_KEYS or len(_units([hits], whole)[1]) >= count:
            return hits
        most *= _MORE_KEYS


def _means(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Floats]:
    """What the nearest keys of each stream are of, with the mean over the streams of the best key."""
    names, units, at = _units(hits, whole)
    floors = [[float(nearest.score[-1]) if len(nearest) else 0.0] for nearest in hits]
    best = np.repeat(floors, len(units), axis=1)
    stream = np.repeat(np.arange(len(hits)), [len(nearest) for nearest in hits])
    scores = np.concatenate([nearest.score for nearest in hits]).astype(np.float64)
    np.maximum.at(best, (stream, at), scores)
    return names[units[:, 0]], units[:, 1], best.mean(0)


def _units(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Indices]:
    """Names of videos, the different units (N, 2) as video and number, and that of each hit, in order."""
    ids = np.concatenate([np.asarray(nearest.video_ids, np.str_) for nearest in hits])
    number = np.concatenate([nearest.index for nearest in hits]).astype(np.int64)
    names, video = np.unique(ids, return_inverse=True)
    pairs = np.stack([video.reshape(-1).astype(np.int64), np.zeros_like(number) if whole else number], 1)
    units, at = np.unique(pairs, axis=0, return_inverse=True)
    return names, units, at.reshape(-1)


# What is kept of a video ----------------------------------------------------------------------------


def unpacked(videos: Sequence[KeptVideo]) -> VideoEncoding:
    """The encodings of some videos (at least one), padded to the longest, in full precision.

    They have keys where these were read. 300 videos of 50 different lengths take 28 ms; joining those of one
    length without the library took 94 ms (and 14 in place of 49 where all were of one length).
    """
    load = safetensors.torch.load
    kept = [load(video.encoding) | (load(video.packed) if video.packed else {}) for video in videos]
    tensors = {}
    for name, first in kept[0].items():
        parts = [own[name] for own in kept]
        size = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
        whole = torch.float32 if first.dtype == torch.float16 else first.dtype
        tensors[name] = torch.zeros((len(parts), *size), dtype=whole)
        for row, part in zip(tensors[name], parts, strict=True):
            row[tuple(map(slice, part.shape))] = part
    return from_tensors(tensors)


def key_seconds(trained: Trained, cells: int, rows: int, duration: float) -> float:
    """Seconds that one of a video's cells stands for: as its inputs say, or an equal share of the video."""
    if cells == trained.inputs.cells_of(rows):
        return trained.inputs.clip_seconds_of(rows, duration)
    return duration / cells
