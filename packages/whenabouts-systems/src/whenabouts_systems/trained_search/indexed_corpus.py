"""Read what the index stores of a corpus for a trained system: encodings, search keys and segments.

`trained_search/opened.py` keeps one while the corpus stays the same. Shapes: V videos, N units found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray

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
"""The number of keys that a query first asks the index for, in each stream."""
_MORE_KEYS, _MAX_KEYS = 4, 12_800


class IndexedCorpus:
    """A corpus as the index stores it for one system: whole videos, or segments.

    A unit is a whole video, or a segment of one; units are numbered video after video (`place_of`). The index
    keeps keys of segments but no encodings, so `select` works on whole videos. `stale` names videos that
    changed since they were encoded: no answer has them.
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
        """(V,) each video's number of rows on the system's grid; 0 if the system has no features of it."""
        return np.array([self._lengths[name] for name in self.ids], np.int64)

    @cached_property
    def _first(self) -> Indices:
        """(V + 1,) the number of each video's first unit, then the count of all units."""
        clips = self.keys.info.segment_clips
        counts = -(-self.rows // clips) if clips else np.ones(len(self.ids), np.int64)
        return np.concatenate([[0], counts.cumsum()]).astype(np.int64)

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Video id -> its row in `ids`."""
        return {name: row for row, name in enumerate(self.ids)}

    def allowed(self, video_ids: Sequence[str] | None) -> Mask:
        """(V,) bool: which videos answers may have, of `video_ids` (None: of all)."""
        if video_ids is None:
            allowed = np.ones(len(self.ids), bool)
        else:
            allowed = np.zeros(len(self.ids), bool)
            allowed[self.rows_of(video_ids)] = True
        allowed[self.rows_of(self._stale)] = False
        return allowed

    def select(self, rows: Indices) -> MemoryCorpus:
        """Videos read into memory on the model's device, without those that have no features.

        Raises UsageError if no video remains.
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
        """The stored bytes of some videos, without those that have no features."""
        return self.keys.encodings([self.ids[row] for row in rows.tolist()], with_keys=with_keys)

    def nearest(self, vectors: Vectors, k: int, allowed: Mask | None = None) -> tuple[Indices, Floats]:
        """The numbers (N,) and scores (N,) of about k units, best first; see `nearest_units`.

        `allowed` (V,) restricts the videos.
        """
        whole = not self.keys.info.segment_clips
        names, number, scores = nearest_units(self._key_search, vectors, k, self.names(allowed), whole=whole)
        video = np.array([self.row_of.get(name, -1) for name in names.tolist()], np.int64)
        rows = self._first[video] + number
        # Another program may have removed or rewritten a video since: its keys no longer fit.
        is_current = (video >= 0) & (rows < self._first[video + 1])
        return rows[is_current], scores[is_current]

    @cached_property
    def _key_search(self) -> Keys | ExactKeys:
        # A stale corpus serves this one query, so building a faster search would not pay.
        return self.keys if self._stale else quickest(self.keys, device_of(self.trained.model))

    def place_of(self, units: Indices) -> tuple[Indices, Indices]:
        """The video row (N,) of each unit, and the unit's number (N,) within its video."""
        video = np.searchsorted(self._first, units, side="right") - 1
        return video, units - self._first[video]

    def rows_of(self, video_ids: Iterable[str]) -> Indices:
        """The rows of the given videos, except videos that this corpus lacks."""
        rows = [self.row_of[name] for name in video_ids if name in self.row_of]
        return np.array(rows, np.int64)

    def names(self, allowed: Mask | None) -> list[str] | None:
        """The video ids of a mask (V,); None if it allows all."""
        if allowed is None or allowed.all():
            return None
        return [self.ids[row] for row in np.flatnonzero(allowed).tolist()]


# From nearest keys to their videos or segments ------------------------------------------------------


def nearest_units(
    keys: Keys | ExactKeys,
    vectors: Vectors,
    count: int,
    video_ids: Sequence[str] | None = None,
    *,
    whole: bool,
) -> tuple[Names, Indices, Floats]:
    """The video names (N,), segment numbers (N,; 0 if `whole`) and scores (N,) of at most `count` best units.

    A unit's score is the mean, over its streams, of its best key; best units come first. Units of a kind
    (`Keys.kinds`: the streams they have) are searched separately. Otherwise units with pictures and words
    could push one with pictures alone out of the list of nearest pictures, although their means are lower.
    Within a kind, a unit that one stream did not retrieve gets the score of the last key that this stream
    retrieved, which is an upper bound.
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
    """The nearest keys: enough to cover `count` different units, or all, or `_MAX_KEYS`."""
    count_of_keys = NEAREST_KEYS
    while True:
        hits = keys.nearest(stream, vector, count_of_keys, video_ids, kind=kind)
        if len(hits) < count_of_keys or count_of_keys >= _MAX_KEYS or len(_units([hits], whole)[1]) >= count:
            return hits
        count_of_keys *= _MORE_KEYS


def _means(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Floats]:
    """The units of the hits of all streams, with each unit's mean over the streams of its best key."""
    names, units, at = _units(hits, whole)
    floors = [[float(nearest.score[-1]) if len(nearest) else 0.0] for nearest in hits]
    best = np.repeat(floors, len(units), axis=1)
    stream = np.repeat(np.arange(len(hits)), [len(nearest) for nearest in hits])
    scores = np.concatenate([nearest.score for nearest in hits]).astype(np.float64)
    np.maximum.at(best, (stream, at), scores)
    return names[units[:, 0]], units[:, 1], best.mean(0)


def _units(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Indices]:
    """Video names, distinct units (N, 2) as (index of the name, number), and each hit's unit."""
    ids = np.concatenate([np.asarray(nearest.video_ids, np.str_) for nearest in hits])
    number = np.concatenate([nearest.index for nearest in hits]).astype(np.int64)
    names, video = np.unique(ids, return_inverse=True)
    pairs = np.stack([video.reshape(-1).astype(np.int64), np.zeros_like(number) if whole else number], 1)
    units, at = np.unique(pairs, axis=0, return_inverse=True)
    return names, units, at.reshape(-1)


# The stored encoding of a video ---------------------------------------------------------------------


def unpacked(videos: Sequence[KeptVideo]) -> VideoEncoding:
    """The encodings of one or more videos, padded to the longest, in float32.

    They have keys if `videos` were read with keys. 300 videos of 50 different lengths take 28 ms.
    """
    load = safetensors.torch.load
    kept = [load(video.encoding) | (load(video.packed) if video.packed else {}) for video in videos]
    tensors = {}
    for name, first in kept[0].items():
        parts = [video[name] for video in kept]
        size = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
        dtype = torch.float32 if first.dtype == torch.float16 else first.dtype
        tensors[name] = torch.zeros((len(parts), *size), dtype=dtype)
        for row, part in zip(tensors[name], parts, strict=True):
            row[tuple(map(slice, part.shape))] = part
    return from_tensors(tensors)


def key_seconds(trained: Trained, cells: int, rows: int, duration: float) -> float:
    """How long a cell of a video's grid is: from the system's inputs, else an equal share of the video."""
    if cells == trained.inputs.cells_of(rows):
        return trained.inputs.clip_seconds_of(rows, duration)
    return duration / cells
