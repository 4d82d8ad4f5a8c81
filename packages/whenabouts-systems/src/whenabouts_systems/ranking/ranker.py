"""Answer any number of queries, a block at a time: retrieve videos, localize moments, rank them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_bench.formats.runs import RunBlock, Task
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.protocol import QueryEncoding
from whenabouts_systems.ranking.candidates import (
    Candidates,
    RankedVideos,
    allowed_videos,
    best_units,
    can_retrieve,
    query_blocks,
    score_corpus,
)
from whenabouts_systems.ranking.encoded_corpus import (
    Indices,
    Mask,
    MemoryCorpus,
    Progress,
    Queries,
    System,
    device_of,
    encode_queries,
)
from whenabouts_systems.ranking.localize import can_localize
from whenabouts_systems.ranking.proposals import Proposals, SegmentSettings, joined_segments
from whenabouts_systems.ranking.rank import Moments, rank, rank_proposals
from whenabouts_systems.ranking.units import Footage, Units, segment_clips

# The most queries that are answered together, and the most float32 numbers in memory for them.
_QUERIES = 4096
_QUERIES_BY_SEGMENTS = 512
_NUMBERS = 1 << 26
_CLIPS = 128
# Added to the suppression threshold in pools, so that rounding suppresses no overlap equal to it.
_SLACK = 1e-9

Videos = Mapping[str, Collection[str]]
"""Query id -> the only videos that may answer it."""


@dataclass(frozen=True, eq=False)
class SegmentCorpus:
    """A corpus cut into segments for a retriever: the segments (`units`) and their encodings."""

    units: Units
    encoded: MemoryCorpus
    settings: SegmentSettings

    @property
    def silent_videos(self) -> int:
        """The number of videos in which the system has no features for any segment."""
        return len(self.units.footage.videos) - len(np.unique(self.units.video[self.encoded.audible]))

    def nearest(self, model: Any, queries: QueryEncoding, allowed: Tensor | None = None) -> Candidates:
        """The `depth` best segments of each query; `allowed` (Q, V) bool restricts its videos.

        Segments without features (pauses, if the system reads only subtitles) are not retrieved.
        """
        scores = score_corpus(model, queries, self.encoded)
        eligible = torch.from_numpy(self.encoded.audible).expand(len(queries), -1)
        if allowed is not None:
            eligible = eligible & allowed[:, torch.from_numpy(self.units.video)]
        return best_units(scores, self.settings.depth, eligible)

    def proposals(self, model: Any, queries: QueryEncoding, allowed: Tensor | None = None) -> Proposals:
        """The best segments of each query, adjacent ones joined, best first."""
        return joined_segments(self.nearest(model, queries, allowed), self.units, self.settings)


class Ranker:
    """Answers queries with one or two trained systems: retrieve, localize, rank.

    | task | answers | score |
    | --- | --- | --- |
    | VCMR | moments in the `decoding.top_videos` best videos | `span + video_weight * video` |
    | SVMR | moments in a given video | `span` |
    | VR | videos | `video` |

    The order is total and does not depend on the blocks of queries and videos. VR lists as many videos as the
    retriever's `decoding.top_videos`, or as the longest list of a run file.

    A video for which the retriever has no features (no words, if it reads only subtitles) is never an answer,
    because its score does not depend on its content. If it is the given video (SVMR), its moments are scored.

    In pools (MVMR) suppression looks at all spans of every video and not only at the `spans_before_nms` best,
    so that enough moments survive. Scores of different videos are compared without normalisation (paper 001,
    section 5; the released program does the same).

    `retriever` chooses the videos in place of the system: another `Ranker` on the same videos, or
    `RankedVideos` of any program. `video_weight` is the weight of the video's score; None uses the system's.
    After `by_segments` the retriever is a system with a `SegmentCorpus`, the corpus is `Footage`, and a video
    scores what its best segment scores.
    """

    def __init__(
        self,
        trained: System,
        corpus: MemoryCorpus | Footage,
        *,
        decoding: Decoding | None = None,
        retriever: Ranker | RankedVideos | tuple[System, SegmentCorpus] | None = None,
        video_weight: float | None = None,
    ) -> None:
        if isinstance(retriever, Ranker) and retriever.corpus.ids != _ids(corpus):
            raise _other_videos(len(retriever.corpus), len(_ids(corpus)), "encode the same videos for both")
        self.trained: System = trained
        self.decoding: Decoding = decoding if decoding is not None else trained.decoding
        self.retriever = retriever
        self.video_weight = video_weight
        self._corpus = corpus
        self._names = _ids(corpus)
        self._row_of = {name: row for row, name in enumerate(self._names)}

    @classmethod
    def by_segments(
        cls,
        retriever: tuple[System, Footage],
        localizer: tuple[System, Footage],
        settings: SegmentSettings,
        *,
        decoding: Decoding | None = None,
        video_weight: float | None = None,
        progress: Progress | None = None,
    ) -> Ranker:
        """A ranker of long videos: the retriever chooses segments, the localizer searches the joined ones.

        Each of the two trained systems comes with its features of the videos. Raises UsageError if one cannot
        do its part, if they have different videos, or if the length of segments does not fit the retriever.
        """
        (chooser, footage), (trained, localizer_footage) = retriever, localizer
        inputs, model = footage.inputs, chooser.model
        clips = segment_clips(inputs, settings.seconds, chooser.system)
        if {video.id for video in footage.videos} != {video.id for video in localizer_footage.videos}:
            raise _other_videos(
                len(footage.videos), len(localizer_footage.videos), "both must read the same split"
            )
        if not can_retrieve(model):
            raise UsageError("this system cannot choose videos or segments; name a retriever")
        units = Units.cut(footage, clips * inputs.clip_seconds)
        settings = replace(settings, seconds=clips * inputs.clip_seconds)
        segments = SegmentCorpus(units, units.encoded(model, progress=progress), settings)
        return cls(
            trained,
            localizer_footage,
            decoding=decoding,
            retriever=(chooser, segments),
            video_weight=video_weight,
        )

    @property
    def corpus(self) -> MemoryCorpus:
        """The encoded whole videos; not after `by_segments`."""
        assert isinstance(self._corpus, MemoryCorpus)
        return self._corpus

    @property
    def segments(self) -> SegmentCorpus | None:
        """The retriever's segments; None if it chooses whole videos."""
        return self.retriever[1] if isinstance(self.retriever, tuple) else None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that its systems can do."""
        localizes = can_localize(self.trained.model)
        able: dict[Task, bool] = {
            "VCMR": self._retrieves and localizes,
            "SVMR": localizes,
            "VR": self._retrieves,
        }
        return tuple(task for task, can in able.items() if can)

    @property
    def _retrieves(self) -> bool:
        if isinstance(self.retriever, RankedVideos | tuple):
            return True
        return can_retrieve((self.retriever or self).trained.model)

    @property
    def unfindable(self) -> int:
        """The number of videos that are never answered, because the retriever has no features of them."""
        return self.segments.silent_videos if self.segments is not None else int((~self._audible).sum())

    @property
    def _audible(self) -> Mask:
        """(V,) which videos may be answers: those that are not silent for the retriever."""
        if isinstance(self.retriever, RankedVideos):
            return np.ones(len(self.corpus), bool)
        chooser = self.retriever if isinstance(self.retriever, Ranker) else self
        return chooser.corpus.audible

    def rank(self, query_ids: Sequence[str], queries: Queries, **more: Any) -> Iterator[RunBlock]:
        """The best moments of the corpus for each query (VCMR). `more` is as in `answers`."""
        task: Task = "VCMR"
        for lists in self.answers(query_ids, queries, (task,), **more):
            yield lists[task]

    def answers(
        self,
        query_ids: Sequence[str],
        queries: Queries,
        tasks: Collection[Task],
        *,
        given: Mapping[str, str] | None = None,
        pools: Videos | None = None,
        retrieval_queries: Queries | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Mapping[Task, RunBlock]]:
        """The ranked lists of each of `tasks`, a block of queries at a time.

        `given` (SVMR) is query id -> video; a query without a video is left out of that list. `pools` (MVMR)
        restricts queries to some videos; a system that cannot choose videos then ranks all of a pool.
        `retrieval_queries` are the retriever's inputs, if they differ from the localizer's `queries`. Raises
        UsageError for a task that the systems cannot do.
        """
        self._check(tasks, pooled=pools is not None)
        for some in query_blocks(len(query_ids), self._together(pooled=pools is not None)):
            numbers = np.arange(some.start, some.stop)
            block = _QueryBlock([query_ids[at] for at in some], numbers, retrieval_queries or queries)
            encoding = encode_queries(self.trained, queries, numbers)
            lists: dict[Task, RunBlock] = {}
            if "VCMR" in tasks or "VR" in tasks:
                listed = self._listed if "VR" in tasks else 0
                candidates = self._candidates(block, encoding, pools, listed)
                if "VR" in tasks:
                    lists["VR"] = self._block(block.ids, self._videos(candidates))
                    if isinstance(candidates, Candidates):  # joined segments already limit proposals
                        candidates = candidates.first(self.decoding.top_videos)
                if "VCMR" in tasks:
                    moments = self._moments(encoding, candidates, self.video_weight, pooled=pools is not None)
                    lists["VCMR"] = self._block(block.ids, moments)
            if "SVMR" in tasks:
                lists["SVMR"] = self._within(block, encoding, given or {}, pooled=pools is not None)
            yield {task: lists[task] for task in tasks}
            if progress is not None:
                progress(some.stop, len(query_ids))

    def _check(self, tasks: Collection[Task], *, pooled: bool) -> None:
        localizes = can_localize(self.trained.model)
        for task in tasks:
            if task in self.tasks or (task == "VCMR" and pooled and localizes):
                continue
            if self.segments is not None:
                raise UsageError(f"{self.trained.system} finds no moments and cannot answer {task}")
            remedy = "; a retriever (--retriever RUN) chooses videos for it" if task != "SVMR" else ""
            if not localizes:
                remedy = "; a localizer (--localizer RUN) finds moments in the videos that it chooses"
            able = ", ".join(self.tasks) or "nothing"
            raise UsageError(f"{self.trained.system} cannot answer {task}; it answers {able}{remedy}")

    def _together(self, *, pooled: bool) -> int:
        """The number of queries to answer together."""
        if self.segments is not None:
            return max(1, min(_QUERIES_BY_SEGMENTS, _NUMBERS // max(1, len(self.segments.units))))
        decoding, count = self.decoding, _CLIPS
        if not (pooled and decoding.nms is not None):
            spans = decoding.spans_per_query if decoding.nms is None else decoding.spans_before_nms
            count = max(_CLIPS, spans)
        of_query = min(decoding.top_videos, len(self.corpus)) * count
        return max(1, min(_QUERIES, _NUMBERS // of_query, 2 * _NUMBERS // len(self.corpus)))

    @property
    def _listed(self) -> int:
        """The number of videos that VR lists for a query."""
        if isinstance(self.retriever, RankedVideos):
            return self.retriever.longest
        return (self.retriever if isinstance(self.retriever, Ranker) else self).decoding.top_videos

    def _candidates(
        self, block: _QueryBlock, encoding: QueryEncoding, pools: Videos | None, listed: int
    ) -> Candidates | Proposals:
        """Where to search for each query's moments: at least `listed` videos, or proposals from segments."""
        allowed = None if pools is None else allowed_videos(block.ids, pools, self._row_of)
        if isinstance(self.retriever, tuple):
            return self._proposals(block, allowed)
        widest = None  # the size of the largest pool, if every query has one
        if pools is not None and all(name in pools for name in block.ids):
            widest = max((len(pools[name]) for name in block.ids), default=0)
        if self._takes_whole(widest, listed):
            scores = torch.zeros((len(block), len(self.corpus)), device=device_of(self.trained.model))
            chosen = False
        else:
            scores, chosen = self._video_scores(block, encoding), self._retrieves
        if not self._audible.all():
            audible = torch.from_numpy(self._audible)
            allowed = audible.expand(len(block), -1) if allowed is None else allowed & audible
        count = max(self.decoding.top_videos, listed)
        if widest is not None:
            # A system that cannot choose videos searches the whole pool.
            count = min(count, widest) if chosen else widest
        return best_units(scores, count, allowed)

    def _proposals(self, block: _QueryBlock, allowed: Tensor | None) -> Proposals:
        """Proposals from segments, with this ranker's rows of videos."""
        assert isinstance(self.retriever, tuple)
        chooser, segments = self.retriever
        videos = segments.units.footage.videos
        row = np.array([self._row_of[video.id] for video in videos], np.int64)
        if allowed is not None:
            allowed = allowed[:, torch.from_numpy(row)]
        queries = encode_queries(chooser, block.retrieval, block.numbers)
        proposals = segments.proposals(chooser.model, queries, allowed)
        return replace(proposals, video=row[proposals.video])

    def _takes_whole(self, widest: int | None, listed: int) -> bool:
        """Whether video scores do not matter: whole pools are searched, and the scores' weight is 0."""
        if widest is None or self.retriever is not None or listed:
            return False
        weight = self.trained.model.video_weight if self.video_weight is None else self.video_weight
        return widest <= self.decoding.top_videos and not float(weight)

    def _video_scores(self, block: _QueryBlock, encoding: QueryEncoding) -> Tensor:
        """(Q, V): the retriever's score of each video; zeros if no system can choose videos."""
        device = device_of(self.trained.model)
        if isinstance(self.retriever, RankedVideos):
            return self.retriever.scores(block.ids, self.corpus).to(device)
        chooser = self.retriever if isinstance(self.retriever, Ranker) else self
        if not can_retrieve(chooser.trained.model):
            return torch.zeros((len(block), len(self.corpus)), device=device)
        if chooser is not self:
            encoding = encode_queries(chooser.trained, block.retrieval, block.numbers)
        return score_corpus(chooser.trained.model, encoding, chooser.corpus)

    def _within(
        self, block: _QueryBlock, encoding: QueryEncoding, given: Mapping[str, str], *, pooled: bool
    ) -> RunBlock:
        """Moments in the given video of each query that has one.

        Scores of whole videos do not count; those of segments do.
        """
        places = [at for at, name in enumerate(block.ids) if name in given]
        some = _QueryBlock([block.ids[at] for at in places], block.numbers[places], block.retrieval)
        if not places:
            return self._block([], Moments.none())
        encoding = encoding.take(torch.tensor(places, device=device_of(self.trained.model)))
        if self.segments is not None:
            videos = {name: (given[name],) for name in some.ids}
            allowed = allowed_videos(some.ids, videos, self._row_of)
            moments = self._moments(
                encoding, self._proposals(some, allowed), self.video_weight, pooled=pooled
            )
        else:
            rows = self.corpus.rows_of([given[name] for name in some.ids])
            candidates = Candidates.ragged(list(rows[:, None]), device_of(self.trained.model))
            moments = self._moments(encoding, candidates, 0.0, pooled=pooled)
        return self._block(some.ids, moments)

    def _moments(
        self,
        encoding: QueryEncoding,
        candidates: Candidates | Proposals,
        weight: float | None,
        *,
        pooled: bool,
    ) -> Moments:
        decoding = self.decoding
        if isinstance(candidates, Proposals):
            assert self.segments is not None and not isinstance(self._corpus, MemoryCorpus)
            return rank_proposals(
                self.trained,
                self._corpus,
                encoding,
                candidates,
                decoding,
                self.segments.settings.padding_seconds,
                nms=decoding.nms,
                weight=weight,
            )
        if pooled and decoding.nms is not None:
            decoding = replace(decoding, nms=min(1.0, decoding.nms + _SLACK))
        return rank(self.trained, self.corpus, encoding, candidates, decoding, weight=weight, exact=pooled)

    def _videos(self, candidates: Candidates | Proposals) -> Moments:
        """The videos of candidates, each once, best first."""
        if isinstance(candidates, Proposals):
            pairs = np.stack([candidates.query, candidates.video], 1)
            _, first = np.unique(pairs, axis=0, return_index=True)
            first.sort()
            score = candidates.score[first].astype(np.float64)
            return Moments.whole(candidates.query[first], candidates.video[first], score)
        candidates = candidates.first(self._listed)
        exist = candidates.exist.cpu().numpy()
        score = candidates.scores.double().cpu().numpy()[exist]
        return Moments.whole(exist.nonzero()[0], candidates.rows.cpu().numpy()[exist], score)

    def _block(self, query_ids: Sequence[str], moments: Moments) -> RunBlock:
        offsets = np.concatenate([[0], np.bincount(moments.query, minlength=len(query_ids)).cumsum()])
        return RunBlock(
            tuple(query_ids),
            offsets.astype(np.int64),
            self._names,
            moments.video.astype(np.int32),
            moments.start,
            moments.end,
            moments.score,
        )


@dataclass(frozen=True, eq=False)
class _QueryBlock:
    """A block of queries: ids, numbers, and the function that gives the retriever's inputs."""

    ids: list[str]
    numbers: Indices
    retrieval: Queries

    def __len__(self) -> int:
        return len(self.ids)


def _ids(corpus: MemoryCorpus | Footage) -> tuple[str, ...]:
    """The video ids in the order of the rows."""
    return corpus.ids if isinstance(corpus, MemoryCorpus) else tuple(video.id for video in corpus.videos)


def _other_videos(retriever: int, localizer: int, remedy: str) -> UsageError:
    return UsageError(
        f"the retriever has {retriever} videos and the localizer {localizer}, and they are not the same; "
        f"{remedy}"
    )
