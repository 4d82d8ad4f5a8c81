"""Step 2: which videos, and which time ranges in them, may answer a query."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.filters import Filter
from whenabouts.index.lookup import rows_of
from whenabouts.index.records import ClipHits
from whenabouts.index.spans import Spans
from whenabouts.index.store import Store
from whenabouts.index.stream import Stream
from whenabouts.people.naming import People
from whenabouts.search.understand import NEAREST_CLIPS, EncodedQuery, Understanding, clips_inside
from whenabouts.types import Moment, ScoredMoment, number_of

# Most clips with matching words that a stream retrieves.
MATCHED_CLIPS = 1000
CANDIDATE_VIDEOS = 40
"""Most videos whose clips are all scored."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The videos (ids; None: all) and time ranges (None: all) that a filter allows.

    `notes` are for the user.
    """

    videos: Sequence[str] | None = None
    spans: Spans | None = None
    notes: tuple[str, ...] = ()

    def hits(self, find: Callable[[int], ClipHits], count: int) -> ClipHits:
        """The best `count` allowed hits of `find`, which is asked for more until enough are allowed."""
        count_to_find = count
        while True:
            hits = find(count_to_find)
            if self.spans is None:
                return hits
            kept = np.flatnonzero(self.spans.touch(hits.video_ids, hits.start, hits.end))[:count]
            if len(kept) == count or len(hits) < count_to_find:
                inside = np.zeros(len(hits), np.bool_)
                inside[kept] = True
                return rows_of(hits, inside)
            count_to_find *= 4

    def moments(self, moments: Iterable[ScoredMoment]) -> list[ScoredMoment]:
        """The moments that overlap an allowed time range, clipped to it."""
        if self.spans is None:
            return list(moments)
        cut = ((scored, self.spans.cut(scored.moment)) for scored in moments)
        return [replace(scored, moment=moment) for scored, moment in cut if moment is not None]


EVERYWHERE = Allowed()


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The retrieved clips of a stream (None: not compared), and the videos to look into."""

    stream: Stream
    nearest: ClipHits | None
    matched: ClipHits | None
    videos: list[str]


class Retrieval:
    """Finds candidates in one store."""

    def __init__(self, store: Store, understanding: Understanding) -> None:
        self._store, self._understanding = store, understanding
        self._people = People(store)

    def allowed(self, filter: Filter | None) -> Allowed:
        """The videos and time ranges that a filter allows, and notes on the filter."""
        if filter is None or filter.is_empty:
            return EVERYWHERE
        videos, people = self._store.ledger().records, self._people.streams
        of_videos, of_people = filter.parted(people)
        ids = of_videos.choose(videos)
        notes, spans = of_videos.notes(videos, people), None
        for condition in of_people:
            ranges, note = self._people.allowed(condition, self._store.ledger().of(ids))
            spans = ranges if spans is None else spans & ranges
            notes += [note] if note else []
        if spans is not None:
            ids = [video_id for video_id in ids if video_id in spans.by_video]
        if not ids and not notes:
            count = len(self._store.ledger().listed)
            notes = [f"none of the {number_of(count, 'video')} of this corpus passes the filters"]
        return Allowed(ids, spans, tuple(notes))

    def of_stream(self, name: str, query: EncodedQuery, allowed: Allowed = EVERYWHERE) -> Candidates:
        """A stream's nearest clips, those with matching words, and the videos of the best of both."""
        stream, store, part = self._understanding.streams[name], self._store, query.streams[name]
        vector, nearest, matched = part.vector, None, None
        if part.nearest is not None and allowed is EVERYWHERE:
            nearest = part.nearest
        elif vector is not None:
            excluded = 0 if query.excluded is None else self.clips_in(name, query.excluded)
            nearest = allowed.hits(
                lambda k: store.nearest(name, vector, k, video_ids=allowed.videos, like_clips=part.is_alike),
                NEAREST_CLIPS + excluded,
            )
        if query.text and stream.has_words is not False:
            parts = stream.parts_of_words
            matched = allowed.hits(
                lambda k: store.match_text(name, query.text, k, video_ids=allowed.videos, parts=parts),
                MATCHED_CLIPS,
            )
        return Candidates(stream, nearest, matched, _videos_of(nearest, matched))

    def videos(self, text: str, streams: Iterable[str], allowed: Sequence[str] | None = None) -> list[str]:
        """The videos of the streams' nearest clips, best first."""
        query = self._understanding.encode(text, streams)
        each = [self.of_stream(name, query, Allowed(allowed)) for name in query.streams]
        return _videos_of(*(hits for of_stream in each for hits in (of_stream.nearest, of_stream.matched)))

    def video_scores(
        self, text: str, streams: Iterable[str], video_ids: Sequence[str]
    ) -> NDArray[np.float64]:
        """(V,) the cosine of each video's best clip with a query, averaged over the streams.

        Streams without vectors are left out; a video without clips scores 0 in a stream.
        """
        query = self._understanding.encode(text, streams)
        vectors = [(name, part.vector) for name, part in query.streams.items() if part.vector is not None]
        best = [self._best_clips(name, vector, video_ids) for name, vector in vectors]
        return np.asarray(np.mean(best, 0) if best else np.zeros(len(video_ids)), np.float64)

    def _best_clips(self, stream: str, vector: NDArray[np.float32], video_ids: Sequence[str]) -> list[float]:
        scores: dict[str, float] = {}
        missing = list(video_ids)
        while missing:  # one long video may have all the nearest clips
            hits = self._store.nearest(stream, vector, NEAREST_CLIPS, video_ids=missing)
            for video, score in zip(hits.video_ids, hits.score.tolist(), strict=True):
                scores.setdefault(video, score)
            missing = [video for video in missing if video not in scores] if len(hits) else []
        return [scores.get(video, 0.0) for video in video_ids]

    def clips_in(self, stream: str, moment: Moment) -> int:
        """The number of a stream's clips that overlap a moment."""
        block = self._store.clips_of(stream, [moment.video_id], vectors=False)
        return int(np.count_nonzero(clips_inside(block, moment)))


def _videos_of(*hits: ClipHits | None) -> list[str]:
    """The videos of the best hits, taken from the lists in turn, best first."""
    lists = [list(dict.fromkeys(clips.video_ids)) for clips in hits if clips is not None]
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*lists))
    videos = dict.fromkeys(video_id for video_id in in_turn if video_id is not None)
    return list(itertools.islice(videos, CANDIDATE_VIDEOS))
