"""Judgements in memory, as columns: `Annotations`, which readers of files build and evaluation reads."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import Judgement, Moment, Qrels, Query, UsageError, Video

_log = logging.getLogger("whenabouts")

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Annotations:
    """Videos, queries and judgements: one split of a data set, or one file of judgements.

    Judgement i says that [start[i], end[i]) seconds of `videos[video[i]]` answer `queries[query[i]]` with the
    grade `relevance[i]`. The columns are (N,), sorted by query, then in the order of the file. start == end
    marks a judgement without usable moment: the video is right, but no span can hit it.

    `pools` are the videos to search per query, if the data set has them (MVMR). `counts` says how often each
    rule for odd data applied (see `AnnotationBuilder`). `similarity` (N,) and `captions` (N,) are the judged
    moments' captions and their cosines with the query (pseudo training sets, paper 004): NaN and "" if
    missing, None if all are. `most_grade` is the highest grade of the scale if the judgements come from
    pools, so that other moments are unjudged; else None.
    """

    name: str
    videos: tuple[Video, ...]
    queries: tuple[Query, ...]
    query: Indices
    video: Indices
    start: Floats
    end: Floats
    relevance: Floats
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    similarity: Floats | None = None
    captions: tuple[str, ...] | None = None
    most_grade: float | None = None

    def where(self, kept: NDArray[np.bool_]) -> Annotations:
        """The judgements for which `kept` (N,) is true, with all queries and videos."""
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in ("query", "video", "start", "end", "relevance")},
            similarity=None if self.similarity is None else self.similarity[kept],
            captions=None if self.captions is None else tuple(compress(self.captions, kept.tolist())),
        )

    @property
    def protocol(self) -> str:
        """The default evaluation protocol.

        Pools of judged queries: mvmr (the pool of an unjudged query may be its given video). Grades: rvmr.
        Saliency: qvh. Types of queries (v, t, vt): tvr. Else vcmr.
        """
        judged = {self.queries[number].id for number in set(self.query.tolist())}
        if not judged.isdisjoint(self.pools):
            return "mvmr"
        if len(set(self.relevance.tolist())) > 1:
            return "rvmr"
        first = self.queries[0].metadata if self.queries else {}
        if "saliency_scores" in first:
            return "qvh"
        return "tvr" if first.get("type") in ("v", "t", "vt") else "vcmr"

    @cached_property
    def first_judgements(self) -> Indices:
        """(J,) each judged query's first judgement above grade 0, else its first."""
        order = np.lexsort((self.relevance <= 0, self.query))
        return np.asarray(order[np.unique(self.query[order], return_index=True)[1]])

    @cached_property
    def search_pools(self) -> Mapping[str, tuple[str, ...]]:
        """Query id -> the pool to search; the only video of an unjudged query is its given video instead."""
        judged = self.first_videos
        return {name: pool for name, pool in self.pools.items() if name in judged or len(pool) != 1}

    @cached_property
    def given_videos(self) -> Mapping[str, str]:
        """Query id -> the video that SVMR searches: that of `first_videos`, or the only video of its pool."""
        pools = {query_id: videos[0] for query_id, videos in self.pools.items() if len(videos) == 1}
        return {**pools, **self.first_videos}

    @cached_property
    def first_videos(self) -> Mapping[str, str]:
        """Query id -> the video of its `first_judgements`; without queries that are not judged."""
        rows = self.first_judgements
        pairs = zip(self.query[rows].tolist(), self.video[rows].tolist(), strict=True)
        return {self.queries[query].id: self.videos[video].id for query, video in pairs}

    @cached_property
    def qrels(self) -> Qrels:
        """Query id -> judgements with a usable moment."""
        judged: dict[str, list[Judgement]] = {query.id: [] for query in self.queries}
        for query, video, start, end, relevance in judgement_rows(self):
            if start < end:
                moment = Moment(self.videos[video].id, start, end)
                judged[self.queries[query].id].append(Judgement(moment, relevance))
        return judged

    @classmethod
    def from_qrels(cls, qrels: Qrels, name: str = "qrels") -> Annotations:
        """Annotations from judgements made in Python."""
        builder = AnnotationBuilder(name)
        for query_id, judgements in qrels.items():
            builder.add_query(query_id)
            for judgement in judgements:
                if not isinstance(judgement, Judgement):
                    raise UsageError(
                        f"query {query_id!r}: {judgement!r}: judgements are Judgements of Moments"
                    )
                moment = judgement.moment
                builder.judge(query_id, moment.video_id, moment.start, moment.end, judgement.relevance)
        return builder.annotations()


class AnnotationBuilder:
    """Collects annotations while a file is read, and applies the rules for odd data.

    - A moment that ends after its video, if the duration is known, is clipped there if `cut` is true
      (released evaluations may compare raw times).
    - A moment that starts before 0 starts at 0.
    - An empty or reversed moment (also after clipping) keeps its video and loses its span.
    - A duplicate query id with another text is left out.
    - A duplicate video in a pool counts once.
    - Duplicate judgements stay: two descriptions may have been given of one moment, and released
      evaluations of ranked moments count each. So do those that give one moment several grades.
    - A video that comes again with another length has the last one.

    Each rule that applied is counted, logged once by `annotations`, and kept in `Annotations.counts`.
    """

    CUT = "moments end after their video"
    EARLY = "moments start before 0"
    EMPTY = "moments have no length"
    REVERSED = "moments end before they start"
    REPEATED_QUERY = "query ids come twice"
    REPEATED_JUDGEMENT = "judgements come twice"
    SEVERAL_GRADES = "judgements grade a moment that their query has with another grade"
    OTHER_LENGTH = "videos come again with another length"
    REPEATED_IN_POOL = "videos come twice in a pool"

    def __init__(self, name: str, *, cut: bool = True) -> None:
        self.name = name
        self.most_grade: float | None = None
        self._cut = cut
        self._videos: dict[str, Video] = {}
        self._queries: dict[str, Query] = {}
        self._video_codes: dict[str, int] = {}
        self._query_codes: dict[str, int] = {}
        # Arrays, because pseudo training sets have millions of judgements, and tuples need ten times as much.
        self._rows = array("d")
        self._similarity = array("d")
        self._captions: list[str] = []
        self._texts: dict[str, str] = {}
        self._pools: dict[str, tuple[str, ...]] = {}
        self._counts: dict[str, int] = {}

    def count(self, what: str, times: int = 1) -> None:
        """Count an applied rule for odd data."""
        self._counts[what] = self._counts.get(what, 0) + times

    def add_video(self, /, video_id: str, duration: float | None = None, **metadata: Any) -> None:
        """Add a video; repeated calls add a duration or metadata."""
        earlier = self._videos.get(video_id)
        if earlier is not None:
            if duration is None and not metadata:
                return
            if None not in (duration, earlier.duration) and duration != earlier.duration:
                self.count(self.OTHER_LENGTH)
            duration = earlier.duration if duration is None else duration
            metadata = {**earlier.metadata, **metadata}
        self._video_codes.setdefault(video_id, len(self._video_codes))
        self._videos[video_id] = Video(video_id, duration, metadata=MappingProxyType(metadata))

    def add_query(self, /, query_id: str, text: str = "", **metadata: Any) -> bool:
        """Add a query; False if its id has another text, and then its judgements must not be added."""
        earlier = self._queries.get(query_id)
        if earlier is None:
            self._query_codes[query_id] = len(self._query_codes)
            self._queries[query_id] = Query(query_id, text, MappingProxyType(metadata))
        elif text and earlier.text != text:
            self.count(self.REPEATED_QUERY)
            return False
        return True

    def judge(
        self,
        query_id: str,
        video_id: str,
        start: float,
        end: float,
        relevance: float = 1.0,
        *,
        similarity: float | None = None,
        caption: str = "",
    ) -> None:
        """Add a judgement of an added query, times in seconds. UsageError if a number is not finite."""
        if not (math.isfinite(start) and math.isfinite(end) and math.isfinite(relevance)):
            raise UsageError(
                f"{self.name}: query {query_id!r}: {start!r}-{end!r}, relevance {relevance!r}: must be finite"
            )
        self.add_video(video_id)
        start, end = self._usable(video_id, start, end)
        self._rows.extend((self._query_codes[query_id], self._video_codes[video_id], start, end, relevance))
        self._similarity.append(math.nan if similarity is None else similarity)
        self._captions.append(self._texts.setdefault(caption, caption))

    def _usable(self, video_id: str, start: float, end: float) -> tuple[float, float]:
        duration = self._videos[video_id].duration
        if start >= end:
            self.count(self.REVERSED if start > end else self.EMPTY)
            return max(0.0, start), max(0.0, start)
        if start < 0:
            self.count(self.EARLY)
            start = 0.0
        if duration is not None and end > duration:
            self.count(self.CUT)
            end = duration if self._cut else end
        if start >= end:
            self.count(self.EMPTY)
            return start, start
        return start, end

    def set_pool(self, query_id: str, video_ids: Sequence[str]) -> None:
        """Set the videos to search for a query; duplicates count once."""
        once = tuple(dict.fromkeys(video_ids))
        for video_id in once:
            self.add_video(video_id)
        if len(once) < len(video_ids):
            self.count(self.REPEATED_IN_POOL, len(video_ids) - len(once))
        self._pools[query_id] = once

    def annotations(self) -> Annotations:
        """The collected annotations; logs the rules that applied."""
        rows = np.array(self._rows, np.float64).reshape(-1, 5)
        counts = dict(self._counts)
        repeated, graded_again = _repeated(rows)
        counts |= {self.REPEATED_JUDGEMENT: repeated} if repeated else {}
        counts |= {self.SEVERAL_GRADES: graded_again} if graded_again else {}
        for what, times in counts.items():
            _log.info("%s: %d %s", self.name, times, what)
        order = np.argsort(rows[:, 0], kind="stable")
        rows, similarity = rows[order], np.array(self._similarity)[order]
        return Annotations(
            name=self.name,
            videos=tuple(self._videos.values()),
            queries=tuple(self._queries.values()),
            query=rows[:, 0].astype(np.int64),
            video=rows[:, 1].astype(np.int64),
            start=np.ascontiguousarray(rows[:, 2]),
            end=np.ascontiguousarray(rows[:, 3]),
            relevance=np.ascontiguousarray(rows[:, 4]),
            pools=MappingProxyType(self._pools),
            counts=MappingProxyType(counts),
            similarity=None if np.isnan(similarity).all() else similarity,
            captions=tuple(self._captions[row] for row in order.tolist()) if any(self._texts) else None,
            most_grade=self.most_grade,
        )


def _repeated(rows: NDArray[np.float64]) -> tuple[int, int]:
    """(judgements that repeat an earlier one, judgements that repeat a moment with another grade)."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    is_same = ordered[1:] == ordered[:-1]
    same_moment, same_grade = is_same[:, :4].all(axis=1), is_same[:, 4]
    return int((same_moment & same_grade).sum()), int((same_moment & ~same_grade).sum())


def judgement_rows(annotations: Annotations) -> Iterator[tuple[int, int, float, float, float]]:
    """(query index, video index, start, end, relevance) of each judgement, in order."""
    names = ("query", "video", "start", "end", "relevance")
    return zip(*(getattr(annotations, name).tolist() for name in names), strict=True)


def caption_fields(annotations: Annotations) -> Iterator[dict[str, Any]]:
    """`caption` and `similarity` of each judgement, where present, in order."""
    count = len(annotations.query)
    captions = annotations.captions or ("",) * count
    similarity = [math.nan] * count if annotations.similarity is None else annotations.similarity.tolist()
    for caption, value in zip(captions, similarity, strict=True):
        yield {
            **({"caption": caption} if caption else {}),
            **({"similarity": value} if math.isfinite(value) else {}),
        }
