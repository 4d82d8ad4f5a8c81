"""A query as a stream compares it, and what one stream has to say to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import query_words, says
from whenabouts.index.records import ClipBlock, ClipHits
from whenabouts.moments.zero_shot import Moments
from whenabouts.search.snippet import Weights, best_clip, from_answer, shortened
from whenabouts.types import Evidence, Moment, ScoredMoment

TextVectors = Mapping[tuple[str, str], NDArray[np.float32]]
"""The vector (D,) of a query's words by stream and words."""
TextHits = Mapping[tuple[str, str], tuple[Hashable, ClipHits]]
"""The nearest clips of a whole stream to such a vector, and the state of the stream that they are of."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTexts:
    """Queries that were encoded together, by the encoders of one `version` of a corpus's description.

    `nearest` holds the nearest clips of those for which an index was asked at once.
    """

    version: int
    vectors: TextVectors
    nearest: TextHits = field(default_factory=lambda: MappingProxyType({}))

    def at(self, version: int) -> EncodedTexts:
        """What was encoded, if the corpus is still described as it was; else nothing."""
        return self if version == self.version else NOT_ENCODED

    def hits(self, stream: str, text: str, state: Callable[[], Hashable]) -> ClipHits | None:
        """The nearest clips of a stream, if it is still in the state they were kept in; else None."""
        kept = self.nearest.get((stream, text))
        return kept[1] if kept is not None and kept[0] == state() else None


NOT_ENCODED = EncodedTexts(-1, MappingProxyType({}))


@dataclass(frozen=True, slots=True, eq=False)
class StreamQuery:
    """A query as one stream compares it: by `vector` (None: by words alone).

    `is_alike`: the vector is made of an example, so that what was measured of cosines with sentences does
    not apply. `nearest` are its nearest clips of the whole stream, where they are known.
    """

    vector: NDArray[np.float32] | None
    is_alike: bool = False
    nearest: ClipHits | None = None


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query made ready: its words, and how each stream compares it. What overlaps `apart` is no answer."""

    text: str
    streams: Mapping[str, StreamQuery]
    apart: Moment | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StreamAnswer:
    """What one stream has to say: the clips that were retrieved, the candidates' clips, the moments in them.

    `scores` (n,) is what each clip of `block` scored: the curve that the moments were found on.
    """

    stream: str
    nearest: ClipHits | None
    matched: ClipHits | None
    block: ClipBlock
    scores: NDArray[np.float64]
    moments: Moments

    def moment(self, row: int) -> Moment:
        """The video and the span of a row of the moments."""
        moments = self.moments
        video_id = self.block.video_ids[int(moments.video[row])]
        return Moment(video_id, float(moments.start[row]), float(moments.end[row]))

    def scored(self, row: int) -> ScoredMoment:
        """A moment as the stream scores it, with its evidence."""
        score = float(self.moments.score[row])
        return ScoredMoment(
            self.moment(row), score, evidence={self.stream: self.evidence(row)}, text=self.text(row)
        )

    def says(self, row: int, words: Collection[str]) -> bool:
        """Whether each of some words is said in a moment, as it is."""
        return says(" ".join(self.block.text[self._clips(row)]), words)

    def says_near(self, row: int, query: str, seconds: float) -> bool:
        """Whether each word of a query is said in a moment or within some seconds of it."""
        words, place, block = set(query_words(query)[0]), int(self.moments.video[row]), self.block
        own = block.rows(place)
        low, high = float(self.moments.start[row]) - seconds, float(self.moments.end[row]) + seconds
        near = own.start + np.flatnonzero((block.start[own] < high) & (block.end[own] > low))
        return bool(words) and says(" ".join(block.text[i] for i in near.tolist()), words)

    def evidence(self, row: int) -> Evidence:
        """The moment's strongest clip."""
        clips = self._clips(row)
        return self._evidence(row, clips.start + int(np.argmax(self.scores[clips])))

    def snippet(self, video_id: str, piece: Evidence, weights: Weights) -> Evidence:
        """The clip to show for what is evidence of a moment: the one with most of a query's words."""
        moments, video = self.moments, self.block.video_ids.index(video_id)
        own = (moments.video == video) & (moments.start <= piece.start) & (piece.end <= moments.end)
        row = int(np.flatnonzero(own)[0])
        clips = self._clips(row)
        best = best_clip(self.block.text[clips], self.scores[clips], weights)
        shown = self._evidence(row, clips.start + best)
        return replace(shown, text=from_answer(shown.text, weights))

    def _evidence(self, row: int, best: int) -> Evidence:
        block = self.block
        # A soft border may cut through the clip.
        start = max(float(block.start[best]), float(self.moments.start[row]))
        end = min(float(block.end[best]), float(self.moments.end[row]))
        box = None if block.box is None else tuple(block.box[best].tolist())
        place = None if box is None or math.isnan(box[0]) else box
        recognised = block.recognised_at(slice(best, best + 1))
        return Evidence(
            self.stream, float(self.scores[best]), start, end, block.text[best], place, recognised
        )

    def text(self, row: int) -> str:
        """The words inside the moment, cut off where they become many."""
        return shortened(" ".join(text for text in self.block.text[self._clips(row)] if text))

    def _clips(self, row: int) -> slice:
        offset = int(self.block.offsets[int(self.moments.video[row])])
        return slice(
            offset + int(self.moments.first_clip[row]), offset + int(self.moments.last_clip[row]) + 1
        )
