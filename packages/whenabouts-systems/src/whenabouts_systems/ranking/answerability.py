"""What a trained system retrieves for queries with a known answer: with it in the pool, and taken out.

Each query is answered twice. Once its whole pool is searched: the first answer may be right. Once all videos
that are judged for it, or for a query of the same words, are taken out: then nothing can be right, and what
the system finds is what it finds where there is nothing. `confidence.py` says what raw numbers come of it.

The unrelated queries are some of the split's, drawn once; the videos judged for them do not count.

Shapes: Q queries, P places of the widest pool, U unrelated queries, V videos.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.overlap import temporal_iou
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunBlock, Task
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.ranking.candidates import Candidates, can_retrieve, device_of_queries, score_corpus
from whenabouts_systems.ranking.confidence import LEAST_UNRELATED, Background, Definition, TrainedConfidence
from whenabouts_systems.ranking.encoded_corpus import (
    Floats,
    Indices,
    Mask,
    MemoryCorpus,
    Progress,
    System,
    encode_queries,
)
from whenabouts_systems.ranking.localize import best_of_each, check_localizes
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import Split, SplitRun, encode_split, given_videos, plain_words

UNRELATED = 64
"""Queries whose best scores say what chance finds."""
# Queries that are answered together, and numbers that may be held for them.
_TOGETHER, _NUMBERS = 256, 1 << 24


@dataclass(frozen=True, eq=False)
class Answerability:
    """What was retrieved for Q queries; all (Q,). `right`: the first answer of the whole pool is right.

    `top` and `margin` map "in" and "out" (positives taken out) to raw numbers; NaN where nothing was left to
    search, or too little to tell chance by. `group` is the query's own video: queries of one video hang
    together.
    """

    query_ids: tuple[str, ...]
    right: Mask
    top: Mapping[str, Floats]
    margin: Mapping[str, Floats]
    group: tuple[str, ...]
    unrelated: tuple[str, ...]
    pool_sizes: Indices

    def raw(self, definition: Definition) -> Mapping[str, Floats]:
        """The raw numbers of a definition."""
        return self.top if definition == "top" else self.margin


@dataclass(frozen=True, eq=False)
class SplitSystem:
    """A system with the videos of a split encoded, which scores some of its queries in some of its videos.

    `retriever` is another system that says how well videos answer: its split has the same queries, in the
    same order, and its corpus the same videos. Raises UsageError where it has other videos, and for a system
    that finds no moments.
    """

    trained: System
    split: Split
    corpus: MemoryCorpus
    decoding: Decoding
    retriever: SplitSystem | None = None

    def __post_init__(self) -> None:
        if self.retriever is not None and self.retriever.corpus.ids != self.corpus.ids:
            raise UsageError(
                f"{self.split.name}: the retriever and the localizer do not have the same videos; encode the "
                "same split for both"
            )

    @classmethod
    def encoded(cls, trained: System, split: Split, retriever: SplitSystem | None = None) -> SplitSystem:
        """With the videos of the split encoded."""
        return cls(trained, split, encode_split(trained, split), trained.decoding, retriever)

    def best_of_videos(self, numbers: Indices, pools: Sequence[Collection[str]]) -> BestOfVideos:
        """The best moment of each video of their pools, for some queries; silent videos have none.

        Raises UsageError for a pool without videos and for a video that is not in the corpus.
        """
        empty = next((at for at, pool in enumerate(pools) if not len(pool)), None)
        if empty is not None:
            raise UsageError(f"the pool of query number {empty} has no videos; each pool needs one or more")
        model, corpus = self.trained.model, self.corpus
        check_localizes(model)
        encoding = encode_queries(self.trained, self.split.query_batch, numbers)
        rows = [np.unique(corpus.rows_of(list(pool))) for pool in pools]
        candidates = Candidates.ragged(rows)
        audible = torch.from_numpy(corpus.audible)[candidates.rows]
        candidates = Candidates(candidates.rows, candidates.scores.masked_fill(~audible, -torch.inf))
        device = device_of_queries(encoding)
        candidates = Candidates(candidates.rows.to(device), candidates.scores.to(device))
        best = best_of_each(model, encoding, corpus, candidates, self.decoding)
        score = best.score
        if weight := float(model.video_weight):
            of_videos = self._video_scores(numbers)
            if of_videos is not None:
                score = score + weight * of_videos.to(device).gather(1, candidates.rows)
        rows_of_best = candidates.rows.cpu().numpy()
        clips, ends = corpus.clip_seconds[rows_of_best], corpus.durations[rows_of_best]
        start, end = best.seconds(clips, ends, self.decoding)
        return BestOfVideos(rows_of_best, start, end, score.cpu().numpy())

    def _video_scores(self, numbers: Indices) -> Tensor | None:
        """(Q, V) what each video scores for some queries; None where nothing scores videos."""
        chooser = self.retriever or self
        if not can_retrieve(chooser.trained.model):
            return None
        encoding = encode_queries(chooser.trained, chooser.split.query_batch, numbers)
        return score_corpus(chooser.trained.model, encoding, chooser.corpus)


@dataclass(frozen=True, eq=False)
class BestOfVideos:
    """The best moment of each query in each video of its pool; (Q, P). Empty places score minus infinity."""

    rows: Indices
    start: Floats
    end: Floats
    score: NDArray[np.float32]


def measure_answerability(
    trained: System,
    split: Split,
    *,
    iou: float,
    seed: int = 0,
    retriever: SplitSystem | None = None,
    progress: Progress | None = None,
) -> Answerability:
    """Answer all queries of a split, whose annotations have a pool and a positive for each.

    `iou`: the first answer is right if it shares as much with a positive. What a `retriever` scores videos
    counts in place of the system's own scores; whole pools are looked into all the same. Raises UsageError
    for a system that finds no moments, for pools with unknown videos and for too few queries to tell chance
    by.
    """
    system = SplitSystem.encoded(trained, split, retriever)
    queries, annotations = split.queries, split.annotations
    judged = judged_videos(annotations)
    chance = Unrelated.drawn(system, judged, seed)
    tops: dict[str, list[Floats]] = {"in": [], "out": []}
    margins: dict[str, list[Floats]] = {"in": [], "out": []}
    right: list[Mask] = []
    most = max((len(annotations.pools[query.id]) for query in queries), default=1)
    size = max(1, min(_TOGETHER, _NUMBERS // (UNRELATED * most)))
    for low in range(0, len(queries), size):
        numbers = np.arange(low, min(low + size, len(queries)))
        names = [queries[at].id for at in numbers.tolist()]
        best = system.best_of_videos(numbers, [annotations.pools[name] for name in names])
        right.append(_right(best, system.corpus, annotations, names, iou))
        for side, left_out in (("in", None), ("out", [judged[name] for name in names])):
            score = best.score if left_out is None else _without(best, system.corpus, left_out)
            real = score > -np.inf
            top = score.max(1).astype(np.float64)
            tops[side].append(np.where(real.any(1), top, np.nan))
            margins[side].append(chance.margins(top, best.rows, real, names))
        if progress is not None:
            progress(int(numbers[-1]) + 1, len(queries))
    own = given_videos(annotations)
    return Answerability(
        tuple(query.id for query in queries),
        np.concatenate(right),
        {side: np.concatenate(parts) for side, parts in tops.items()},
        {side: np.concatenate(parts) for side, parts in margins.items()},
        tuple(own[query.id] for query in queries),
        chance.texts,
        np.array([len(annotations.pools[query.id]) for query in queries]),
    )


@dataclass(frozen=True, eq=False)
class Unrelated:
    """What U drawn queries score best in each video of the corpus: `best` (U, V).

    Videos judged for a query, or for a query of its words, score minus infinity. `words` are the words of
    every query of the split.
    """

    texts: tuple[str, ...]
    ids: tuple[str, ...]
    best: NDArray[np.float32]
    words: Mapping[str, str]

    @classmethod
    def drawn(cls, system: SplitSystem, judged: Mapping[str, frozenset[str]], seed: int) -> Unrelated:
        """Some queries of a system's split, no two of the same words."""
        split, corpus = system.split, system.corpus
        words = same_words(split.annotations)
        order = np.random.default_rng(seed).permutation(len(split.queries))
        first: dict[str, int] = {}
        for number in order.tolist():
            first.setdefault(words[split.queries[number].id], number)
        numbers = np.array(list(first.values())[:UNRELATED], np.int64)
        if len(numbers) < LEAST_UNRELATED:
            raise UsageError(
                f"{split.name}: has {len(numbers)} queries of different words; what chance scores is told by "
                f"{LEAST_UNRELATED} or more"
            )
        best = system.best_of_videos(numbers, [corpus.ids] * len(numbers)).score
        ids = tuple(split.queries[number].id for number in numbers.tolist())
        here = frozenset(corpus.ids)
        for row, name in enumerate(ids):
            best[row, corpus.rows_of(sorted(judged[name] & here))] = -np.inf
        return cls(tuple(split.queries[number].text for number in numbers.tolist()), ids, best, words)

    def margins(self, top: Floats, rows: Indices, real: Mask, names: Sequence[str]) -> Floats:
        """(Q,) how far each top score is above what unrelated queries score on the same videos.

        `rows` (Q, P) are the videos, `real` which of them count. Queries of the same words are not unrelated;
        NaN where fewer than `LEAST_UNRELATED` have a video among these that is not judged for them.
        """
        best = np.where(real[None], self.best[:, rows], -np.inf).max(2).astype(np.float64)  # (U, Q)
        return self._above(top, best, names, np.asarray(real.any(1)))

    def margins_in_all(self, top: Floats, names: Sequence[str]) -> Floats:
        """(Q,) the same where all videos of the corpus are searched."""
        best = np.repeat(self.best.max(1).astype(np.float64)[:, None], len(names), axis=1)
        return self._above(top, best, names, np.ones(len(names), bool))

    def _above(self, top: Floats, best: Floats, names: Sequence[str], answered: Mask) -> Floats:
        own = np.array([self.words[name] for name in names])
        theirs = np.array([self.words[name] for name in self.ids])
        best[(theirs[:, None] == own) | ~np.isfinite(best)] = np.nan
        margins = np.full(len(names), np.nan)
        for at in np.flatnonzero(answered).tolist():
            if np.isfinite(best[:, at]).sum() >= LEAST_UNRELATED:
                margins[at] = Background.of(best[:, at]).margin(float(top[at]))
        return margins


def same_words(annotations: Annotations) -> dict[str, str]:
    """Query id -> its words without capitals and a last full stop; its id where it has none."""
    return {query.id: plain_words(query.text) or f"\0{query.id}" for query in annotations.queries}


def judged_videos(annotations: Annotations) -> dict[str, frozenset[str]]:
    """Query id -> the videos judged for it or for a query of the same words."""
    words = same_words(annotations)
    of_words: dict[str, set[str]] = {text: set() for text in words.values()}
    for query, video in zip(annotations.query.tolist(), annotations.video.tolist(), strict=True):
        of_words[words[annotations.queries[query].id]].add(annotations.videos[video].id)
    frozen = {text: frozenset(videos) for text, videos in of_words.items()}
    return {name: frozen[text] for name, text in words.items()}


def with_drawn_pools(annotations: Annotations, size: int, seed: int = 0) -> Annotations:
    """The same judgements, with a pool for each query that has a positive: its judged videos and others.

    The others are drawn at random from the videos of the split; nobody has looked whether they fit too.
    Raises UsageError for a size below 2, or where no query has a positive.
    """
    if size < 2:
        raise UsageError(f"a pool of {size} videos: a pool needs 2 or more")
    videos = [video.id for video in annotations.videos]
    own, judged = given_videos(annotations), judged_videos(annotations)
    if not own:
        raise UsageError(f"{annotations.name}: no query has a positive; there is nothing to calibrate by")
    rng = np.random.default_rng(seed)
    pools = {}
    for name in own:
        first = sorted(judged[name])[: size - 1]
        first = [own[name], *(video for video in first if video != own[name])]
        others = [
            videos[at] for at in rng.permutation(len(videos)).tolist() if videos[at] not in judged[name]
        ]
        pools[name] = (*first, *others[: max(1, size - len(first))])
    return replace(annotations, pools=pools)


def _without(
    best: BestOfVideos, corpus: MemoryCorpus, left_out: Sequence[frozenset[str]]
) -> NDArray[np.float32]:
    """(Q, P) the scores, minus infinity where a video is among those left out."""
    names = np.array(corpus.ids, dtype=object)
    gone = np.array(
        [[name in out for name in names[rows]] for rows, out in zip(best.rows, left_out, strict=True)]
    )
    return np.where(gone, np.float32(-np.inf), best.score)


def _right(
    best: BestOfVideos, corpus: MemoryCorpus, annotations: Annotations, names: Sequence[str], iou: float
) -> Mask:
    """(Q,) whether the best moment of each pool shares enough with a positive of its query."""
    place = best.score.argmax(1)[:, None]
    row, start, end = (
        np.take_along_axis(column, place, 1)[:, 0] for column in (best.rows, best.start, best.end)
    )
    numbers = {query.id: number for number, query in enumerate(annotations.queries)}
    at_of = np.full(len(annotations.queries), -1)
    at_of[[numbers[name] for name in names]] = np.arange(len(names))
    at = at_of[annotations.query]
    code_of = {name: code for code, name in enumerate(corpus.ids)}
    codes = np.array([code_of.get(video.id, -1) for video in annotations.videos], np.int64)
    video = codes[annotations.video]
    mine = np.flatnonzero((at >= 0) & (annotations.relevance > 0))
    mine = mine[video[mine] == row[at[mine]]]
    shared = temporal_iou(start[at[mine]], end[at[mine]], annotations.start[mine], annotations.end[mine])
    right = np.zeros(len(names), bool)
    right[at[mine[shared >= iou - 1e-9]]] = True
    return right & np.isfinite(best.score).any(1)


@dataclass(frozen=True)
class ConfidentRun:
    """A run of moments whose lines say how sure the first answer is.

    What chance scores is measured with queries of the split itself on the same videos (`Unrelated`); None
    where the calibration does not need it.
    """

    run: SplitRun
    confidence: TrainedConfidence
    chance: Unrelated | None

    @classmethod
    def of(
        cls, run: SplitRun, confidence: TrainedConfidence, seed: int = 0, *, of_pair: bool = False
    ) -> ConfidentRun:
        """A run with confidences. Raises UsageError where they would mean nothing.

        That is where another system chooses videos than when it was measured (`of_pair`: the ranker's
        retriever chose them then too), or spans may have other lengths.
        """
        ranker = run.ranker
        own, measured = ranker.decoding, ranker.trained.decoding
        lengths = ("ends", "min_clips", "max_clips")
        changed = next((name for name in lengths if getattr(own, name) != getattr(measured, name)), None)
        if ranker.video_weight is not None:
            changed = changed or "weight of the video's score"
        if (ranker.retriever is not None and not of_pair) or changed is not None:
            what = "a retriever" if changed is None else f"another {changed}"
            raise UsageError(
                f"confidence was measured for the checkpoint as it is, not with {what}; leave out either"
            )
        if run.tasks != ("VCMR",):
            raise UsageError(
                f"confidence is told of moments of many videos (VCMR), not of {', '.join(run.tasks)}"
            )
        if confidence.definition != "margin":
            return cls(run, confidence, None)
        retriever = None
        if isinstance(ranker.retriever, Ranker):
            chooser, split = ranker.retriever, run.retrieval_split or run.split
            retriever = SplitSystem(chooser.trained, split, chooser.corpus, chooser.decoding)
        system = SplitSystem(ranker.trained, run.split, ranker.corpus, ranker.decoding, retriever)
        chance = Unrelated.drawn(system, judged_videos(run.split.annotations), seed)
        return cls(run, confidence, chance)

    @property
    def name(self) -> str:
        """What to call it."""
        return self.run.name

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The lists it holds."""
        return self.run.tasks

    @property
    def answered(self) -> Mapping[Task, Task]:
        """Task -> the list that answers it."""
        return self.run.answered

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The answers of one list."""
        for block in self.run.blocks(task):
            yield replace(block, confidence=self._confidence(block))

    def _confidence(self, block: RunBlock) -> Floats:
        answered = np.diff(block.offsets) > 0
        top = np.full(len(block), np.nan)
        top[answered] = block.score[block.offsets[:-1][answered]]
        raw = top if self.chance is None else self._margins(block, top, self.chance)
        return np.where(np.isfinite(raw), self.confidence.calibrator(np.nan_to_num(raw)), np.nan)

    def _margins(self, block: RunBlock, top: Floats, chance: Unrelated) -> Floats:
        pools = self.run.split.annotations.pools
        if not pools:
            return chance.margins_in_all(top, block.query_ids)
        rows_of = self.run.ranker.corpus.rows_of
        candidates = Candidates.ragged([rows_of(pools[name]) for name in block.query_ids])
        rows, real = candidates.rows.numpy(), candidates.exist.numpy()
        size = max(1, _NUMBERS // (UNRELATED * rows.shape[1]))
        parts = [slice(low, low + size) for low in range(0, len(rows), size)]
        names = block.query_ids
        return np.concatenate([chance.margins(top[p], rows[p], real[p], names[p]) for p in parts])
