"""The nearest keys of an index, as the videos or the segments that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cuepoint.index.keys import Keys
from cuepoint.index.records import ClipHits

Indices = NDArray[np.int64]
Vectors = Mapping[str, NDArray[np.float32]]

NEAREST_KEYS = 800
"""Keys asked of the index, for each stream; more where they belong to few videos, or segments."""
_MORE_KEYS, _MOST_KEYS = 4, 12_800


def nearest_videos(
    keys: Keys, vectors: Vectors, count: int, allowed: Sequence[str] | None = None
) -> dict[str, float]:
    """About `count` videos whose best keys are nearest, best first, with the mean over the streams.

    A video that one stream finds and another does not is taken to score there what the last key found did:
    it cannot score more.
    """
    hits = _hits(keys, vectors, count, allowed, lambda found: len(set(found.video_ids)))
    best: dict[str, dict[str, float]] = {}
    for stream, found in hits.items():
        for name, score in zip(found.video_ids, found.score.tolist(), strict=True):
            best.setdefault(name, {}).setdefault(stream, score)  # hits come best first
    floors = {stream: float(found.score[-1]) if len(found) else 0.0 for stream, found in hits.items()}
    mean = {name: sum({**floors, **scores}.values()) / len(hits) for name, scores in best.items()}
    return {name: mean[name] for name in sorted(mean, key=lambda name: (-mean[name], name))[:count]}


def nearest_segments(
    keys: Keys, vectors: Vectors, count: int, allowed: Sequence[str] | None = None
) -> tuple[list[str], Indices]:
    """About `count` segments whose best keys are nearest, best first: ids of videos, numbers (N,) in these.

    As in `nearest_videos`, a stream that does not find a segment gives it what its last key scored.
    """
    hits = list(_hits(keys, vectors, count, allowed, lambda found: len(_segments(found)[1])).values())
    names, places, at = _segments(*hits)
    if not len(places):
        return [], places
    best = np.repeat([[float(found.score[-1]) if len(found) else 0.0] for found in hits], len(places), axis=1)
    stream = np.repeat(np.arange(len(hits)), [len(found) for found in hits])
    np.maximum.at(best, (stream, at), np.concatenate([found.score for found in hits]).astype(np.float64))
    order = np.lexsort((np.arange(len(places)), -best.mean(0)))[:count]
    return [names[video] for video in places[order, 0].tolist()], places[order, 1]


def _segments(*hits: ClipHits) -> tuple[list[str], Indices, Indices]:
    """Names of videos, the different segments (N, 2) as video and number, and that of each hit, in order."""
    names, video = np.unique(
        np.concatenate([np.asarray(found.video_ids, np.str_) for found in hits]), return_inverse=True
    )
    number = np.concatenate([found.index for found in hits]).astype(np.int64)
    told = np.stack([video.reshape(-1).astype(np.int64), number], 1)
    places, at = np.unique(told, axis=0, return_inverse=True)
    return names.tolist(), places, at.reshape(-1)


def _hits(
    keys: Keys,
    vectors: Vectors,
    count: int,
    allowed: Sequence[str] | None,
    different: Callable[[ClipHits], int],
) -> dict[str, ClipHits]:
    """By stream the nearest keys, so many that they are of `count` different ones or there are no more."""
    return {stream: _enough(keys, stream, one, count, allowed, different) for stream, one in vectors.items()}


def _enough(
    keys: Keys,
    stream: str,
    vector: NDArray[np.float32],
    count: int,
    allowed: Sequence[str] | None,
    different: Callable[[ClipHits], int],
) -> ClipHits:
    asked = NEAREST_KEYS
    while True:
        hits = keys.nearest(stream, vector, asked, allowed)
        if len(hits) < asked or asked >= _MOST_KEYS or different(hits) >= count:
            return hits
        asked *= _MORE_KEYS
