"""Step 3: score each clip of the candidate videos, by meaning and by words."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.records import ClipBlock, ClipHits
from whenabouts.index.store import Store
from whenabouts.index.stream import Stream
from whenabouts.moments.fusion import fuse
from whenabouts.search.candidates import Candidates
from whenabouts.search.stored_calibration import MeasuredCorpus
from whenabouts.search.understand import EncodedQuery, clips_inside

# Added to the lowest score, so that no moment extends over excluded clips.
_NO_ANSWER = -10.0


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The clips of a stream's candidate videos, and their scores (n,)."""

    stream: Stream
    nearest: ClipHits | None
    matched: ClipHits | None
    block: ClipBlock
    scores: NDArray[np.float64]


def curve_of(store: Store, measured: MeasuredCorpus, query: EncodedQuery, candidates: Candidates) -> Curve:
    """Compare a query with each clip of its candidate videos."""
    stream, matched, cosine = candidates.stream, candidates.matched, None
    part = query.streams[stream.name]
    if part.vector is None:
        block = store.clips_of(stream.name, candidates.videos, vectors=False)
    else:
        # With one thread, because the threads of a matrix product busy-wait for longer than they work.
        block, cosine = store.compared(stream.name, candidates.videos, part.vector)
    bm25 = _bm25(block, matched) if part.vector is None or stream.shows_words(block) else None
    scores = fuse(cosine, bm25, None if part.is_alike else measured.scale_of(block, stream.name, query.text))
    if query.excluded is not None:
        scores[clips_inside(block, query.excluded)] = scores.min(initial=0.0) + _NO_ANSWER
    return Curve(stream, candidates.nearest, matched, block, scores)


def _bm25(block: ClipBlock, matched: ClipHits | None) -> NDArray[np.float64]:
    """The BM25 score of each clip of a block, 0 without a match."""
    scores = np.zeros(len(block))
    if matched is None:
        return scores
    first = {
        video_id: int(offset) for video_id, offset in zip(block.video_ids, block.offsets[:-1], strict=True)
    }
    owner = np.array([*map(first.get, matched.video_ids, itertools.repeat(-1))], np.int64)
    inside = owner >= 0
    scores[owner[inside] + matched.index[inside]] = matched.score[inside]
    return scores
