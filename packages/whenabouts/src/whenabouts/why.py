"""Explains why a moment is, or is not, among the answers: one query followed from stage to stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whenabouts.index.records import unambiguous
from whenabouts.search.answer_probability import hits_inside
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.searcher import Searcher
from whenabouts.search.understand import checked_query, clips_inside
from whenabouts.streams import stream as stream_named
from whenabouts.times import format_time
from whenabouts.types import Moment, ScoredMoment

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus

# IoU from which a moment counts as the given one.
_SAME_MOMENT = 0.3


@dataclass(frozen=True, slots=True)
class StreamWhy:
    """How one stream ranked and scored the moment.

    `retrieved_at` is the rank (from 1) of the first retrieved clip in the moment, `video_at` that of the
    moment's video, None if not retrieved. `nearest` is the moment of that video with the largest overlap;
    `second_look` is the contribution of each of its features to its score (`reranking.FEATURES`), empty for
    streams without words.
    """

    stream: str
    clips: int
    retrieved_at: int | None
    video_at: int | None
    best_score: float | None
    best_elsewhere: float | None
    nearest: Moment | None
    second_look: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "clips_in_moment": self.clips,
            "absent": "" if self.clips else stream_named(self.stream).absent,
            "clip_rank": self.retrieved_at,
            "video_rank": self.video_at,
            "score": self.best_score,
            "best_score_in_other_videos": self.best_elsewhere,
            "localized": [self.nearest.start, self.nearest.end] if self.nearest else None,
            "second_look": {name: round(points, 3) for name, points in self.second_look.items()},
        }


@dataclass(frozen=True, slots=True)
class Why:
    """The moment's rank among the answers (None: not found), and each stream's part in it."""

    query: str
    moment: Moment
    k: int
    rank: int | None
    localized: Moment | None
    streams: tuple[StreamWhy, ...]
    lost_to: tuple[ScoredMoment, ...]

    @property
    def is_listed(self) -> bool:
        return self.rank is not None and self.rank <= self.k

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "moment": {"video_id": self.moment.video_id, "start": self.moment.start, "end": self.moment.end},
            "found": self.is_listed,
            "rank": self.rank,
            "localized": [self.localized.start, self.localized.end] if self.localized else None,
            "streams": [stream.to_json() for stream in self.streams],
            "lost_to": [
                {"video_id": m.video_id, "start": m.start, "end": m.end, "text": m.text[:160]}
                for m in self.lost_to
            ],
        }

    def lines(self) -> list[str]:
        lines = [f"“{self.query}” and {_span(self.moment)}"]
        if self.rank is not None and self.localized is not None:
            verdict = "found" if self.is_listed else f"found, but after the first {self.k}"
            overlap = self.localized.iou(self.moment)
            lines.append(f"{verdict}: rank {self.rank}, as {_span(self.localized)} (overlap {overlap:.2f})")
        else:
            lines.append("not found")
        for stream in self.streams:
            lines += _stream_lines(stream)
        if self.lost_to:
            lines.append("ahead of it:")
            lines += [f"  {_span(m.moment)}  {m.text[:100]}" for m in self.lost_to]
        return [unambiguous(line) for line in lines]


def why(corpus: Corpus, query: str, moment: str | Moment, k: int = 10) -> Why:
    """The stages that a moment passed in a search, and the moments that came first.

    `moment` is VIDEO@START-END or a moment. Raises UsageError as `Corpus.search`.
    """
    corpus.refresh()
    searcher, target = corpus.searcher(), corpus.moment(moment)
    words, _ = checked_query(query, k, 0.0)
    answers = searcher.find_all(words)
    ranked = searcher.rank(words, answers)
    overlaps = [scored.moment.iou(target) for scored in ranked]
    place = next((place for place, overlap in enumerate(overlaps) if overlap >= _SAME_MOMENT), None)
    return Why(
        query=query,
        moment=target,
        k=k,
        rank=None if place is None else place + 1,
        localized=None if place is None else ranked[place].moment,
        streams=tuple(_stream_why(searcher, words, answer, target) for answer in answers),
        lost_to=tuple(ranked[: min(k, place if place is not None else k, 5)]),
    )


def _stream_why(searcher: Searcher, query: str, answer: StreamAnswer, moment: Moment) -> StreamWhy:
    block, video_at, elsewhere = answer.block, None, None
    inside = answer.scores[clips_inside(block, moment)]
    if moment.video_id in block.video_ids:
        place = block.video_ids.index(moment.video_id)
        video_at, outside = place + 1, np.delete(answer.scores, np.r_[block.rows(place)])
        elsewhere = float(outside.max()) if len(outside) else None
    shared_time = [answer.moment(row).overlap(moment) for row in range(len(answer.moments))]
    nearest = int(np.argmax(shared_time)) if any(shared_time) else None
    return StreamWhy(
        stream=answer.stream,
        clips=searcher.retrieval.clips_in(answer.stream, moment),
        retrieved_at=_first_inside(answer, moment),
        video_at=video_at,
        best_score=float(inside.max()) if len(inside) else None,
        best_elsewhere=elsewhere,
        nearest=None if nearest is None else answer.moment(nearest),
        second_look={} if nearest is None else searcher.localization.second_look(query, answer, nearest),
    )


def _first_inside(answer: StreamAnswer, moment: Moment) -> int | None:
    """The best rank of a retrieved clip in the moment, in either list."""
    hits_of_both = filter(None, (answer.nearest, answer.matched))
    inside = (hits_inside(hits, moment) for hits in hits_of_both)
    return min((int(np.argmax(some)) + 1 for some in inside if some.any()), default=None)


def _stream_lines(stream: StreamWhy) -> list[str]:
    head = f"  {stream.stream}: "
    if not stream.clips:
        return [f"{head}has nothing in this moment: {stream_named(stream.stream).absent}"]
    if stream.video_at is None:
        return [head + "the video was not retrieved: other videos' clips fit the query better"]
    at = stream.retrieved_at
    where = "not retrieved itself" if at is None else f"retrieved at rank {at}"
    lines = [f"{head}video retrieved at rank {stream.video_at}; the moment was {where}"]
    if stream.best_score is not None and stream.best_elsewhere is not None:
        lines.append(
            f"    scores {stream.best_score:.3f} there, {stream.best_elsewhere:.3f} at best in other videos"
        )
    if stream.nearest is None:
        lines.append("    no moment was localized on it: its scores do not stand out in the video")
    else:
        lines.append(f"    localized as {_span(stream.nearest)}")
    if stream.second_look:
        added = ", ".join(f"{name} {points:+.2f}" for name, points in stream.second_look.items())
        lines.append(f"    the second look adds {sum(stream.second_look.values()):+.2f} ({added})")
    return lines


def _span(moment: Moment) -> str:
    return f"{moment.video_id}@{format_time(moment.start)}-{format_time(moment.end)}"
