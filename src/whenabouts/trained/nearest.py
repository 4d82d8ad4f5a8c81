"""The nearest keys of an index, as the videos or the segments that they belong to.

A system's video score is the mean, over the streams that a video has, of its best key. What has no words is
so compared by its pictures alone, and its pictures may all be farther than those of what has words and is
found by neither. So each kind (`Keys.kinds`: which streams there are) is asked for by itself; within a kind a
stream that does not find a video, or segment, gives it what its last key scored: it cannot score more there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.keys import Keys
from whenabouts.index.records import ClipHits

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Names = NDArray[np.str_]
Vectors = Mapping[str, NDArray[np.float32]]

NEAREST_KEYS = 800
"""Keys asked of the index, for each stream; more where they belong to few videos, or segments."""
_MORE_KEYS, _MOST_KEYS = 4, 12_800


def nearest_videos(
    keys: Keys, vectors: Vectors, count: int, allowed: Sequence[str] | None = None
) -> dict[str, float]:
    """About `count` videos whose best keys are nearest, best first, with the mean over their streams."""
    names, _, scores = _nearest(keys, vectors, count, allowed, whole=True)
    return dict(zip(names.tolist(), scores.tolist(), strict=True))


def nearest_segments(
    keys: Keys, vectors: Vectors, count: int, allowed: Sequence[str] | None = None
) -> tuple[list[str], Indices]:
    """As `nearest_videos`, of segments: ids of videos, numbers (N,) in these."""
    names, number, _ = _nearest(keys, vectors, count, allowed, whole=False)
    return names.tolist(), number


def _nearest(
    keys: Keys, vectors: Vectors, count: int, allowed: Sequence[str] | None, *, whole: bool
) -> tuple[Names, Indices, Floats]:
    """Names (N,) of videos, numbers (N,) of segments (0 where they are `whole`), scores (N,), best first."""
    found = [(np.zeros(0, np.str_), np.zeros(0, np.int64), np.zeros(0))]
    for kind in keys.kinds():
        hits = [_enough(keys, stream, vectors[stream], count, allowed, kind, whole) for stream in kind]
        found.append(_means(hits, whole))
    names, number, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((number, names, -scores))[:count]
    return names[order], number[order], scores[order]


def _enough(
    keys: Keys,
    stream: str,
    vector: NDArray[np.float32],
    count: int,
    allowed: Sequence[str] | None,
    kind: Sequence[str],
    whole: bool,
) -> ClipHits:
    """The nearest keys, so many that they are of `count` different ones or there are no more."""
    asked = NEAREST_KEYS
    while True:
        hits = keys.nearest(stream, vector, asked, allowed, kind=kind)
        if len(hits) < asked or asked >= _MOST_KEYS or len(_places([hits], whole)[1]) >= count:
            return hits
        asked *= _MORE_KEYS


def _means(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Floats]:
    """What the nearest keys of each stream are of, with the mean over the streams of the best key."""
    names, places, at = _places(hits, whole)
    floors = [[float(found.score[-1]) if len(found) else 0.0] for found in hits]
    best = np.repeat(floors, len(places), axis=1)
    stream = np.repeat(np.arange(len(hits)), [len(found) for found in hits])
    np.maximum.at(best, (stream, at), np.concatenate([found.score for found in hits]).astype(np.float64))
    return names[places[:, 0]], places[:, 1], best.mean(0)


def _places(hits: Sequence[ClipHits], whole: bool) -> tuple[Names, Indices, Indices]:
    """Names of videos, the different places (N, 2) as video and number, and that of each hit, in order."""
    ids = np.concatenate([np.asarray(found.video_ids, np.str_) for found in hits])
    number = np.concatenate([found.index for found in hits]).astype(np.int64)
    names, video = np.unique(ids, return_inverse=True)
    told = np.stack([video.reshape(-1).astype(np.int64), np.zeros_like(number) if whole else number], 1)
    places, at = np.unique(told, axis=0, return_inverse=True)
    return names, places, at.reshape(-1)
