"""Step 4: find moments on the curves, as arrays."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.lookup import query_words, says
from whenabouts.index.records import ClipBlock, ClipHits
from whenabouts.index.spans import Spans
from whenabouts.index.store import Store
from whenabouts.index.stream import Stream
from whenabouts.moments.zero_shot import Moments
from whenabouts.search.candidates import Allowed
from whenabouts.search.curves import Curve
from whenabouts.search.reranking import FEATURES, features_of, learned_reranking, reranked
from whenabouts.search.understand import EncodedQuery, Understanding
from whenabouts.search.word_units import Rarity
from whenabouts.types import Evidence, Moment, ScoredMoment

_MOST_TEXT = 600
# Moments of each language that others leave no place in a stream's list.
_MOST_OF_CROWDED_OUT = 5


def shortened(words: str) -> str:
    """Words to show, cut off if too long."""
    return words if len(words) <= _MOST_TEXT else words[: _MOST_TEXT - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True, eq=False)
class StreamAnswer:
    """One stream's answer: the retrieved clips, the candidates' clips, and the moments in them.

    `scores` (n,) is the curve over the clips of `block` on which the moments were found.
    """

    stream: str
    nearest: ClipHits | None
    matched: ClipHits | None
    block: ClipBlock
    scores: NDArray[np.float64]
    moments: Moments
    parts_of_words: bool = False
    """Whether parts of words match in the stream (`Stream.parts_of_words`)."""

    def moment(self, row: int) -> Moment:
        """The moment of a row, with its video's id."""
        moments = self.moments
        video_id = self.block.video_ids[int(moments.video[row])]
        return Moment(video_id, float(moments.start[row]), float(moments.end[row]))

    def scored(self, row: int) -> ScoredMoment:
        """A moment with the stream's score and evidence."""
        score = float(self.moments.score[row])
        return ScoredMoment(
            self.moment(row), score, evidence={self.stream: self.strongest(row)}, text=self.text(row)
        )

    def says(self, row: int, words: Collection[str]) -> bool:
        """Whether a moment has each of some words literally."""
        return says(" ".join(self.block.text[self.clips(row)]), words)

    def says_near(self, row: int, query: str, seconds: float) -> bool:
        """Whether each word of a query is said in a moment or within `seconds` of it."""
        words, place, block = set(query_words(query)[0]), int(self.moments.video[row]), self.block
        clips = block.rows(place)
        low, high = float(self.moments.start[row]) - seconds, float(self.moments.end[row]) + seconds
        near = clips.start + np.flatnonzero((block.start[clips] < high) & (block.end[clips] > low))
        return bool(words) and says(" ".join(block.text[i] for i in near.tolist()), words)

    def strongest(self, row: int) -> Evidence:
        """The moment's strongest clip."""
        clips = self.clips(row)
        return self.evidence(row, clips.start + int(np.argmax(self.scores[clips])))

    def evidence(self, row: int, best: int) -> Evidence:
        """A clip of a moment, by its row in the block."""
        block = self.block
        # A soft border may cut through the clip.
        start = max(float(block.start[best]), float(self.moments.start[row]))
        end = min(float(block.end[best]), float(self.moments.end[row]))
        box = None if block.box is None else tuple(block.box[best].tolist())
        place = None if box is None or math.isnan(box[0]) else box
        sure = math.nan if block.recognised is None else float(block.recognised[best])
        recognised = None if math.isnan(sure) else sure
        return Evidence(
            self.stream, float(self.scores[best]), start, end, block.text[best], place, recognised
        )

    def text(self, row: int) -> str:
        """The words in the moment, cut off if too long."""
        return shortened(" ".join(text for text in self.block.text[self.clips(row)] if text))

    def clips(self, row: int) -> slice:
        """The rows of the block that lie in a moment."""
        offset = int(self.block.offsets[int(self.moments.video[row])])
        return slice(
            offset + int(self.moments.first_clip[row]), offset + int(self.moments.last_clip[row]) + 1
        )


class Localization:
    """Finds moments on the curves of one store."""

    def __init__(self, store: Store, understanding: Understanding) -> None:
        self._store, self._understanding = store, understanding
        self._rarity: dict[str, tuple[Any, Rarity]] = {}

    def of_curve(self, curve: Curve, query: EncodedQuery, allowed: Allowed) -> StreamAnswer:
        """The moments of one stream, after a second look by learned weights (`reranking.py`)."""
        stream, name = curve.stream, curve.stream.name
        block, scores, runs = inside(curve.block, curve.scores, allowed.spans)
        moments = runs.of_videos(self._moments_of(stream, runs.block, scores))
        if query.excluded is not None:
            moments = _outside(moments, block, query.excluded)
        if len(moments) and query.text and stream.shows_words(block):
            moments = reranked(query.text, block, scores, moments, self.rarity([name])[name])
        moments = cut(moments, block, allowed.spans)
        parts = bool(stream.parts_of_words)
        return StreamAnswer(name, curve.nearest, curve.matched, block, scores, moments, parts)

    def _moments_of(self, stream: Stream, block: ClipBlock, scores: NDArray[np.float64]) -> Moments:
        """The stream's moments on a curve; then the best of each language that none of them is in.

        A sentence model finds some clips near a word that it does not know. They may be so many that they
        leave no place for a language with few clips, even if the word is said there.
        """

        def localized(block: ClipBlock, scores: NDArray[np.float64]) -> Moments:
            return stream.moments(block, scores, lambda: self._shots(block.video_ids))

        moments = localized(block, scores)
        if stream.shows_words(block):
            language_of = self._store.ledger().language_of
            spoken = np.array([language_of.get(video_id, "") for video_id in block.video_ids], np.str_)
            for language in np.setdiff1d(spoken, spoken[moments.video]):
                inside = np.repeat(spoken == language, np.diff(block.offsets))
                others = localized(block.take(inside), scores[inside])
                moments = moments.followed_by(others.take(slice(_MOST_OF_CROWDED_OUT)))
        return moments

    def _shots(self, video_ids: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Shot borders of some videos in seconds (B,), and the offset of each video's in them (V + 1,)."""
        shots = {record.video_id: record.shots or () for record in self._store.ledger().of(video_ids)}
        rows = [shots.get(video_id, ()) for video_id in video_ids]
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return np.array([border for row in rows for border in row], np.float64), offsets

    def rarity(self, streams: Iterable[str]) -> Mapping[str, Rarity]:
        """Rarity of words by stream, for streams with words; cached per state of the stream."""
        counted = {}
        for name in streams:
            if self._understanding.streams[name].has_words is False:
                continue
            state, kept = self._understanding.state_of(name), self._rarity.get(name)
            if kept is None or kept[0] != state:
                kept = self._rarity[name] = state, Rarity.in_stream(self._store, name)
            counted[name] = kept[1]
        return counted

    def second_look(self, query: str, answer: StreamAnswer, row: int) -> dict[str, float]:
        """How much each feature added to a moment's score; empty for a stream without words."""
        if not self._understanding.streams[answer.stream].shows_words(answer.block):
            return {}
        rarity, moment = self.rarity([answer.stream])[answer.stream], answer.moments.take(np.array([row]))
        features = features_of(query, answer.block, answer.scores, moment, rarity)
        return dict(zip(FEATURES, learned_reranking().added(features)[0].tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Clips as runs without a gap: a block whose "videos" are the runs, and the video of each run.

    Moments are found in each run separately, so that none extends over excluded clips.
    """

    block: ClipBlock
    video: NDArray[np.int64]
    first: NDArray[np.int64]

    def of_videos(self, moments: Moments) -> Moments:
        """Moments of the runs as moments of their videos, with clips counted in the video."""
        run = moments.video
        return replace(
            moments,
            video=self.video[run],
            first_clip=moments.first_clip + self.first[run],
            last_clip=moments.last_clip + self.first[run],
        )


def inside(
    block: ClipBlock, scores: NDArray[np.float64], spans: Spans | None
) -> tuple[ClipBlock, NDArray[np.float64], Runs]:
    """The clips that overlap allowed time ranges, their scores, and their runs."""
    videos = np.arange(len(block.video_ids))
    if spans is None:
        return block, scores, Runs(block, videos, np.zeros(len(videos), np.int64))
    touching = [
        spans.touch_in(video_id, block.start[rows], block.end[rows])
        for video_id, rows in ((name, block.rows(place)) for place, name in enumerate(block.video_ids))
    ]
    kept = np.concatenate([np.zeros(0, np.bool_), *touching])
    video, rows = np.repeat(videos, np.diff(block.offsets))[kept], np.flatnonzero(kept)
    touched = block.take(kept)
    begins = np.append(True, (np.diff(rows) > 1) | (np.diff(video) > 0))[: len(rows)]
    first = np.flatnonzero(begins)
    owner = video[first]
    offsets = np.append(first, len(rows)).astype(np.int64)
    runs = replace(touched, video_ids=[block.video_ids[place] for place in owner.tolist()], offsets=offsets)
    return touched, scores[kept], Runs(runs, owner, first - touched.offsets[owner])


def cut(moments: Moments, block: ClipBlock, spans: Spans | None) -> Moments:
    """Moments clipped to the allowed time ranges, from the first to the last that they overlap."""
    if spans is None or not len(moments):
        return moments
    rows = zip(moments.video.tolist(), moments.start.tolist(), moments.end.tolist(), strict=True)
    cut = [spans.cut(Moment(block.video_ids[video], start, end)) for video, start, end in rows]
    kept = moments.take(np.flatnonzero([moment is not None for moment in cut]))
    start, end = np.array([(m.start, m.end) for m in cut if m is not None]).reshape(-1, 2).T
    return replace(kept, start=start, end=end)


def _outside(moments: Moments, block: ClipBlock, excluded: Moment) -> Moments:
    """The moments that do not overlap an excluded one."""
    if excluded.video_id not in block.video_ids:
        return moments
    in_video = moments.video == block.video_ids.index(excluded.video_id)
    return moments.take(~(in_video & (moments.start < excluded.end) & (moments.end > excluded.start)))
