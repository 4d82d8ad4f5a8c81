"""Rank: queries -> the best moments of a corpus, block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.formats.runs import RunBlock, Task
from whenabouts.models.decoding import BestSpans, Decoding, seconds_of
from whenabouts.models.protocol import QueryBatch, QueryEncoding, joined
from whenabouts.overlap import suppress
from whenabouts.ranking.corpus import CorpusEncoding, Progress, device_of, evaluating
from whenabouts.ranking.localize import best_moments, can_localize
from whenabouts.ranking.pools import PoolScorer, pool_moments, widest
from whenabouts.ranking.retrieve import Candidates, best_videos, can_retrieve, query_blocks, score_corpus
from whenabouts.ranking.video_run import VideoRun
from whenabouts.types import UsageError

Indices = NDArray[np.int64]
Queries = Callable[[Indices], QueryBatch]
"""Gives some queries, by their numbers, as the model reads them."""

# Queries that are answered together, and numbers (float32) that may be held for them.
_QUERIES = 4096
_NUMBERS = 1 << 26
_CLIPS = 128
_ENCODED_TOGETHER = 256


class System(Protocol):
    """What is needed of a trained system: `models.trained.Trained` is one."""

    @property
    def system(self) -> str:
        """Its name."""

    @property
    def model(self) -> Any:
        """The module."""

    @property
    def decoding(self) -> Decoding:
        """How spans become moments."""


class Ranker:
    """Answers queries from an encoded corpus: retrieve, localize, rank.

    Moments of the corpus (VCMR) are sought in the `decoding.top_videos` best videos and score
    `span + video_weight * video`, a logarithm; moments in a given video (SVMR) score `span`, videos (VR)
    their score. Order is total: score, then video, start, end. It does not depend on how queries and videos
    were put into blocks. Of videos as many are listed (VR) as the decoding of what chooses them says, or as
    the longest list of a `VideoRun` has.

    A video of which the system that chooses reads nothing (no words, for one that reads subtitles alone) is
    no answer: what it scores is the same whatever is in it. Only where it is given (SVMR) its moments are
    scored.

    In pools (MVMR) suppression looks at all spans of every video, so that as many moments survive as are
    asked for, and not only at the `spans_before_nms` best (`pools.py`).

    `retriever` chooses the videos in place of the system: another `Ranker` on the same videos, or a
    `VideoRun`, videos that any program ranked. `video_weight` is how often a video's score counts in that of
    its moments; None is the system's own.
    """

    def __init__(
        self,
        trained: System,
        corpus: CorpusEncoding,
        *,
        decoding: Decoding | None = None,
        retriever: Ranker | VideoRun | None = None,
        video_weight: float | None = None,
    ) -> None:
        if isinstance(retriever, Ranker) and retriever.corpus.video_ids != corpus.video_ids:
            raise UsageError(
                f"the retriever knows {len(retriever.corpus)} videos and the localizer {len(corpus)}, "
                "and they are not the same; encode the same videos for both"
            )
        self.trained: System = trained
        self.corpus: CorpusEncoding = corpus
        self.decoding: Decoding = decoding if decoding is not None else trained.decoding
        self.retriever = retriever
        self.video_weight = video_weight

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can be asked for, by what its systems can do."""
        retrieves = self._retrieves
        localizes = can_localize(self.trained.model)
        able: dict[Task, bool] = {"VCMR": retrieves and localizes, "SVMR": localizes, "VR": retrieves}
        return tuple(task for task, can in able.items() if can)

    @property
    def _retrieves(self) -> bool:
        if isinstance(self.retriever, VideoRun):
            return True
        return can_retrieve((self.retriever or self).trained.model)

    def rank(self, query_ids: Sequence[str], queries: Queries, **more: Any) -> Iterator[RunBlock]:
        """The best moments of the corpus for each query. `more` is as in `answers`."""
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
        pools: Mapping[str, Sequence[str]] | None = None,
        retrieval_queries: Queries | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Mapping[Task, RunBlock]]:
        """The lists of some tasks, for some queries at a time.

        `given` names for SVMR the video of each query; a query without one is left out of that list. `pools`
        restricts queries to some videos (MVMR); then a system that does not choose videos ranks all of them.
        `retrieval_queries` are what the retriever reads, where that differs. Raises UsageError for a task
        that the systems cannot do.
        """
        self._check(tasks, pools)
        for some in query_blocks(len(query_ids), self._together(pools)):
            numbers = np.arange(some.start, some.stop)
            names = [query_ids[at] for at in some]
            encoding = encoded_queries(self.trained, queries, numbers)
            lists: dict[Task, RunBlock] = {}
            if "VCMR" in tasks or "VR" in tasks:
                asked = None if self._takes_whole(names, tasks, pools) else (retrieval_queries or queries)
                most = max(self.decoding.top_videos, self._listed if "VR" in tasks else 0)
                candidates = self._candidates(encoding, asked, numbers, names, pools, most)
                if "VR" in tasks:
                    lists["VR"] = self._videos(names, candidates.first(self._listed))
                    candidates = candidates.first(self.decoding.top_videos)
                if "VCMR" in tasks:
                    lists["VCMR"] = self._moments(names, encoding, candidates, None, pooled=pools is not None)
            if "SVMR" in tasks:
                lists["SVMR"] = self._within(names, encoding, given or {}, pooled=pools is not None)
            yield lists
            if progress is not None:
                progress(some.stop, len(query_ids))

    def _check(self, tasks: Collection[Task], pools: Mapping[str, Sequence[str]] | None) -> None:
        for task in tasks:
            pooled = task == "VCMR" and pools is not None and can_localize(self.trained.model)
            if task not in self.tasks and not pooled:
                lacking = "; a retriever (--retriever RUN) chooses videos for it" if task != "SVMR" else ""
                if not can_localize(self.trained.model):
                    lacking = "; a localizer (--localizer RUN) finds moments in the videos that it chooses"
                raise UsageError(
                    f"{self.trained.system} cannot answer {task}; "
                    f"it answers {', '.join(self.tasks) or 'nothing'}{lacking}"
                )

    def _together(self, pools: Mapping[str, Sequence[str]] | None) -> int:
        count = _CLIPS if pools is not None and self.decoding.nms is not None else max(_CLIPS, self._count)
        a_query = min(self.decoding.top_videos, len(self.corpus)) * count
        return max(1, min(_QUERIES, _NUMBERS // a_query, 2 * _NUMBERS // len(self.corpus)))

    @property
    def _listed(self) -> int:
        """How many videos of a query are answered (VR)."""
        if isinstance(self.retriever, VideoRun):
            return self.retriever.longest
        return (self.retriever or self).decoding.top_videos

    @property
    def _count(self) -> int:
        """How many moments of a query are sought."""
        decoding = self.decoding
        return decoding.spans_per_query if decoding.nms is None else decoding.spans_before_nms

    def _candidates(
        self,
        encoding: QueryEncoding,
        queries: Queries | None,
        numbers: Indices,
        names: Sequence[str],
        pools: Mapping[str, Sequence[str]] | None,
        count: int,
    ) -> Candidates:
        """The `count` best videos of each query; without `queries` all of the pools, whatever they score."""
        if queries is None:
            scores = torch.zeros((len(names), len(self.corpus)), device=device_of(self.trained.model))
        else:
            scores = self._video_scores(encoding, queries, numbers, names)
        allowed = self._allowed(names, pools)
        most = None if pools is None else widest(names, pools)
        if most is not None:
            # A system that does not choose videos looks into all of a pool.
            count = min(count, most) if self._retrieves and queries is not None else most
        return best_videos(scores, count, None if allowed is None else allowed.to(scores.device))

    def _takes_whole(
        self, names: Sequence[str], tasks: Collection[Task], pools: Mapping[str, Sequence[str]] | None
    ) -> bool:
        """Whether what videos score changes nothing: whole pools are looked into, and it has no weight."""
        most = None if pools is None else widest(names, pools)
        if most is None or self.retriever is not None or "VR" in tasks:
            return False
        own = self.trained.model.video_weight if self.video_weight is None else self.video_weight
        return most <= self.decoding.top_videos and not float(own)

    def _video_scores(
        self, encoding: QueryEncoding, queries: Queries, numbers: Indices, names: Sequence[str]
    ) -> Tensor:
        """(Q, V): what the retriever says of each video; zeros where nothing chooses."""
        device = device_of(self.trained.model)
        if isinstance(self.retriever, VideoRun):
            return self.retriever.scores(names, self.corpus).to(device)
        chooser = self.retriever or self
        if not can_retrieve(chooser.trained.model):
            return torch.zeros((len(names), len(self.corpus)), device=device)
        asked = encoding if chooser is self else encoded_queries(chooser.trained, queries, numbers)
        return score_corpus(chooser.trained.model, asked, chooser.corpus)

    @property
    def unfound(self) -> int:
        """How many videos are never among the answers, because nothing of them is read by what chooses."""
        return int((~self._findable).sum())

    @property
    def _findable(self) -> NDArray[np.bool_]:
        """(V,) which videos may be answers: those that are not silent for what chooses them."""
        if isinstance(self.retriever, VideoRun):
            return np.ones(len(self.corpus), bool)
        return (self.retriever or self).corpus.audible

    def _allowed(self, names: Sequence[str], pools: Mapping[str, Sequence[str]] | None) -> Tensor | None:
        """(Q, V) the videos that may be answers; None where all may."""
        findable = torch.from_numpy(self._findable)
        if pools is None:
            return None if bool(findable.all()) else findable.expand(len(names), -1)
        allowed = torch.zeros((len(names), len(self.corpus)), dtype=torch.bool)
        for at, name in enumerate(names):
            allowed[
                at, torch.from_numpy(self.corpus.rows_of(pools[name])) if name in pools else slice(None)
            ] = True
        return allowed & findable

    def _videos(self, names: Sequence[str], candidates: Candidates) -> RunBlock:
        found = candidates.scores > -torch.inf
        video = candidates.rows[found].cpu().numpy()
        nothing = np.full(len(video), np.nan)
        return self._block(names, found, video, nothing, nothing, candidates.scores[found])

    def _within(
        self, names: Sequence[str], encoding: QueryEncoding, given: Mapping[str, str], *, pooled: bool
    ) -> RunBlock:
        known = [at for at, name in enumerate(names) if name in given]
        asked = [names[at] for at in known]
        device = device_of(self.trained.model)
        if not known:
            nothing = np.zeros(0)
            none = torch.zeros((0, 1), dtype=torch.bool)
            return self._block([], none, nothing.astype(np.int64), nothing, nothing, torch.zeros(0))
        candidates = Candidates.given(self.corpus, [given[name] for name in asked], device)
        own = encoding.take(torch.tensor(known, device=device))
        return self._moments(asked, own, candidates, 0.0, pooled=pooled)

    def _moments(
        self,
        names: Sequence[str],
        encoding: QueryEncoding,
        candidates: Candidates,
        weight: float | None,
        *,
        pooled: bool,
    ) -> RunBlock:
        weight = self.video_weight if weight is None else weight
        if pooled and self.decoding.nms is not None:
            return self._moments_of_pools(names, encoding, candidates, weight)
        best, rows = best_moments(
            self.trained.model, encoding, self.corpus, candidates, self.decoding, self._count, weight=weight
        )
        found = best.score > -torch.inf
        if self.decoding.nms is not None:
            found &= self._surviving(best, rows, found)
        video = rows[found].cpu().numpy()
        start, end = self._seconds(best, video, found)
        return self._block(names, found, video, start, end, best.score[found])

    def _moments_of_pools(
        self, names: Sequence[str], encoding: QueryEncoding, candidates: Candidates, weight: float | None
    ) -> RunBlock:
        assert self.decoding.nms is not None
        scorer = PoolScorer(self.trained.model, self.corpus, self.decoding, weight=weight)
        best = pool_moments(
            scorer, encoding, candidates, iou=self.decoding.nms, limit=self.decoding.spans_per_query
        )
        found = best.score > -np.inf
        return self._block(
            names,
            torch.from_numpy(found),
            best.rows[found],
            best.start[found],
            best.end[found],
            torch.from_numpy(best.score[found]),
        )

    def _seconds(
        self, best: BestSpans, video: Indices, found: Tensor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first, last = (one[found].cpu().numpy() for one in (best.first, best.last))
        corpus = self.corpus
        return seconds_of(first, last, corpus.clip_seconds[video], corpus.durations[video], self.decoding)

    def _surviving(self, best: BestSpans, rows: Tensor, found: Tensor) -> Tensor:
        """(Q, k) bool: those that no better moment of the same query and video suppresses, the first ones."""
        assert self.decoding.nms is not None
        video = rows[found].cpu().numpy()
        start, end = self._seconds(best, video, found)
        query, rank = (one.cpu().numpy() for one in found.nonzero(as_tuple=True))
        kept = suppress(
            query * len(self.corpus) + video, start, end, -rank.astype(np.float64), self.decoding.nms
        )
        alive = torch.zeros(found.shape, dtype=torch.bool)
        alive[query[kept], rank[kept]] = True
        alive &= alive.cumsum(1) <= self.decoding.spans_per_query
        return alive.to(found.device)

    def _block(
        self,
        names: Sequence[str],
        found: Tensor,
        video: Indices,
        start: NDArray[np.float64],
        end: NDArray[np.float64],
        score: Tensor,
    ) -> RunBlock:
        offsets = np.concatenate([[0], np.cumsum(found.sum(1).cpu().numpy())]).astype(np.int64)
        scores = score.double().cpu().numpy()
        return RunBlock(
            tuple(names), offsets, self.corpus.video_ids, video.astype(np.int32), start, end, scores
        )


def encoded_queries(trained: System, queries: Queries, numbers: Indices) -> QueryEncoding:
    """Some queries as a system has them, encoded some hundreds at a time."""
    model = trained.model
    device = device_of(model)
    with evaluating(model):
        parts: list[QueryEncoding] = [
            model.encode_queries(queries(numbers[low : low + _ENCODED_TOGETHER]).to(device))
            for low in range(0, len(numbers), _ENCODED_TOGETHER)
        ]
        return joined(parts)
