"""Answer queries twice to calibrate a trained system: with the right videos in the pool, and without them.

The first time, the whole pool is searched, and the first answer may be right. The second time, all videos
judged for the query, or for a query with the same words, are removed; then every answer is wrong.
`confidence.py` defines the raw numbers that both give.

The scores of unrelated queries show what chance finds. They are drawn once from the split; videos judged for
them do not count.

Shapes: Q queries, P videos in the largest pool, U unrelated queries, V videos.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.overlap import temporal_iou
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunBlock, Task
from whenabouts_bench.relevance.units import comparable
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
from whenabouts_systems.ranking.split import Split, SplitRun, encode_split, given_videos

UNRELATED = 64
"""The number of unrelated queries that measure what chance finds."""
# The most queries that are answered together, and the most numbers in memory for them.
_TOGETHER, _NUMBERS = 256, 1 << 24


@dataclass(frozen=True, eq=False)
class Answerability:
    """The raw numbers of Q queries; all arrays (Q,). `right`: the first answer in the whole pool is right.

    `top` and `margin` map "in" (whole pool) and "out" (judged videos removed) to raw numbers. They are NaN if
    no video was left to search; `margin` also if too few unrelated queries measure chance. `group` is the
    query's own video, because queries about one video are not independent.
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
    """A system with the encoded videos of a split, which scores queries of the split in its videos.

    `retriever` is another system that scores videos; its split has the same queries in the same order, and
    its corpus the same videos. Raises UsageError if its videos differ.
    """

    trained: System
    split: Split
    corpus: MemoryCorpus
    decoding: Decoding
    retriever: SplitSystem | None = None

    def __post_init__(self) -> None:
        if self.retriever is not None and self.retriever.corpus.ids != self.corpus.ids:
            raise UsageError(
                f"{self.split.name}: the retriever and the localizer have different videos; encode the same "
                "split for both"
            )

    @classmethod
    def encoded(cls, trained: System, split: Split, retriever: SplitSystem | None = None) -> SplitSystem:
        """Encode the videos of the split."""
        return cls(trained, split, encode_split(trained, split), trained.decoding, retriever)

    def best_of_videos(self, numbers: Indices, pools: Sequence[Collection[str]]) -> BestOfVideos:
        """The best moment of each query in each video of its pool; silent videos have none.

        Raises UsageError for a system that finds no moments, a pool without videos, or an unknown video.
        """
        empty = next((at for at, pool in enumerate(pools) if not len(pool)), None)
        if empty is not None:
            raise UsageError(f"the pool of query number {empty} has no videos; each pool needs one or more")
        model, corpus = self.trained.model, self.corpus
        check_localizes(model)
        encoding = encode_queries(self.trained, self.split.query_batch, numbers)
        rows = [np.unique(corpus.rows_of(list(pool))) for pool in pools]
        device = device_of_queries(encoding)
        candidates = Candidates.ragged(rows, device)
        silent = ~torch.from_numpy(corpus.audible).to(device)[candidates.rows]
        candidates = replace(candidates, scores=candidates.scores.masked_fill(silent, -torch.inf))
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
        """(Q, V) scores of videos for the given queries; None if no system scores videos."""
        chooser = self.retriever or self
        if not can_retrieve(chooser.trained.model):
            return None
        encoding = encode_queries(chooser.trained, chooser.split.query_batch, numbers)
        return score_corpus(chooser.trained.model, encoding, chooser.corpus)


@dataclass(frozen=True, eq=False)
class BestOfVideos:
    """The best moment of each query in each video (`rows`) of its pool, (Q, P); -inf if there is none."""

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
    """The raw numbers of all queries of a split, answered with and without the videos judged for them.

    Each query has a pool and a positive. The first answer is right if its IoU with a positive is at least
    `iou`. The video scores of a `retriever` replace the system's own, but choose no videos. Raises
    UsageError for a system that finds no moments, unknown videos, or too few queries to measure chance.
    """
    system = SplitSystem.encoded(trained, split, retriever)
    queries, annotations = split.queries, split.annotations
    judged = judged_videos(annotations)
    chance = Unrelated.drawn(system, judged, seed)
    tops: dict[str, list[Floats]] = {"in": [], "out": []}
    margins: dict[str, list[Floats]] = {"in": [], "out": []}
    right: list[Mask] = []
    largest = max((len(annotations.pools[query.id]) for query in queries), default=1)
    size = max(1, min(_TOGETHER, _NUMBERS // (UNRELATED * largest)))
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
    own_videos = given_videos(annotations)
    return Answerability(
        tuple(query.id for query in queries),
        np.concatenate(right),
        {side: np.concatenate(parts) for side, parts in tops.items()},
        {side: np.concatenate(parts) for side, parts in margins.items()},
        tuple(own_videos[query.id] for query in queries),
        chance.texts,
        np.array([len(annotations.pools[query.id]) for query in queries]),
    )


@dataclass(frozen=True, eq=False)
class Unrelated:
    """The best scores of U unrelated queries in each video of the corpus: `best` (U, V).

    Videos judged for a query, or for a query with the same words, score minus infinity. `words` maps every
    query id of the split to its words.
    """

    texts: tuple[str, ...]
    ids: tuple[str, ...]
    best: NDArray[np.float32]
    words: Mapping[str, str]

    @classmethod
    def drawn(cls, system: SplitSystem, judged: Mapping[str, frozenset[str]], seed: int) -> Unrelated:
        """Draw queries with different words from a system's split. Raises UsageError if there are too few."""
        split, corpus = system.split, system.corpus
        words = same_words(split.annotations)
        order = np.random.default_rng(seed).permutation(len(split.queries))
        first: dict[str, int] = {}
        for number in order.tolist():
            first.setdefault(words[split.queries[number].id], number)
        numbers = np.array(list(first.values())[:UNRELATED], np.int64)
        if len(numbers) < LEAST_UNRELATED:
            raise UsageError(
                f"{split.name}: has {len(numbers)} queries with different words; measuring what chance "
                f"scores takes {LEAST_UNRELATED} or more"
            )
        best = system.best_of_videos(numbers, [corpus.ids] * len(numbers)).score
        ids = tuple(split.queries[number].id for number in numbers.tolist())
        in_corpus = frozenset(corpus.ids)
        for row, name in enumerate(ids):
            best[row, corpus.rows_of(sorted(judged[name] & in_corpus))] = -np.inf
        return cls(tuple(split.queries[number].text for number in numbers.tolist()), ids, best, words)

    def margins(self, top: Floats, rows: Indices, real: Mask, names: Sequence[str]) -> Floats:
        """(Q,) how far each top score lies above the scores of unrelated queries on the same videos.

        `rows` (Q, P) are the videos, `real` marks those that count. Queries with the same words do not count
        as unrelated. NaN if fewer than `LEAST_UNRELATED` queries have a video here that is not judged for
        them.
        """
        best = np.where(real[None], self.best[:, rows], -np.inf).max(2).astype(np.float64)  # (U, Q)
        return self._above(top, best, names, np.asarray(real.any(1)))

    def margins_in_all(self, top: Floats, names: Sequence[str]) -> Floats:
        """The same as `margins`, for searches of the whole corpus."""
        best = np.repeat(self.best.max(1).astype(np.float64)[:, None], len(names), axis=1)
        return self._above(top, best, names, np.ones(len(names), bool))

    def _above(self, top: Floats, best: Floats, names: Sequence[str], answered: Mask) -> Floats:
        words = np.array([self.words[name] for name in names])
        unrelated = np.array([self.words[name] for name in self.ids])
        best[(unrelated[:, None] == words) | ~np.isfinite(best)] = np.nan
        margins = np.full(len(names), np.nan)
        for at in np.flatnonzero(answered).tolist():
            if np.isfinite(best[:, at]).sum() >= LEAST_UNRELATED:
                margins[at] = Background.of(best[:, at]).margin(float(top[at]))
        return margins


def same_words(annotations: Annotations) -> dict[str, str]:
    """Query id -> its words without capitals and a last full stop; a unique text if it has no words."""
    return {query.id: comparable(query.text) or f"\0{query.id}" for query in annotations.queries}


def judged_videos(annotations: Annotations) -> dict[str, frozenset[str]]:
    """Query id -> the videos judged for it or for a query with the same words."""
    words = same_words(annotations)
    of_words: dict[str, set[str]] = {text: set() for text in words.values()}
    for query, video in zip(annotations.query.tolist(), annotations.video.tolist(), strict=True):
        of_words[words[annotations.queries[query].id]].add(annotations.videos[video].id)
    frozen = {text: frozenset(videos) for text, videos in of_words.items()}
    return {name: frozen[text] for name, text in words.items()}


def with_drawn_pools(annotations: Annotations, size: int, seed: int = 0) -> Annotations:
    """The same judgements, with a pool for each query that has a positive: its judged videos and others.

    The others, at least one, are drawn at random from the videos of the split; they were not checked for
    right moments. Raises UsageError for a size below 2, and if no query has a positive.
    """
    if size < 2:
        raise UsageError(f"a pool of {size} videos: a pool needs 2 or more")
    videos = [video.id for video in annotations.videos]
    own_videos, judged = given_videos(annotations), judged_videos(annotations)
    if not own_videos:
        raise UsageError(
            f"{annotations.name}: no query has a positive, so nothing can be calibrated; give a file with "
            "judgements of relevance above 0"
        )
    rng = np.random.default_rng(seed)
    pools = {}
    for name, own_video in own_videos.items():
        first = [own_video, *sorted(judged[name] - {own_video})][: size - 1]
        others = (videos[at] for at in rng.permutation(len(videos)) if videos[at] not in judged[name])
        pools[name] = (*first, *islice(others, size - len(first)))
    return replace(annotations, pools=pools)


def _without(
    best: BestOfVideos, corpus: MemoryCorpus, left_out: Sequence[frozenset[str]]
) -> NDArray[np.float32]:
    """(Q, P) the scores, with minus infinity for the videos to leave out."""
    names = np.array(corpus.ids, dtype=object)
    removed = np.array(
        [[name in out for name in names[rows]] for rows, out in zip(best.rows, left_out, strict=True)]
    )
    return np.where(removed, np.float32(-np.inf), best.score)


def _right(
    best: BestOfVideos, corpus: MemoryCorpus, annotations: Annotations, names: Sequence[str], iou: float
) -> Mask:
    """(Q,) whether the best moment in each pool has an IoU of at least `iou` with a positive of its query."""
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
    judged = np.flatnonzero((at >= 0) & (annotations.relevance > 0))
    judged = judged[video[judged] == row[at[judged]]]
    shared = temporal_iou(
        start[at[judged]], end[at[judged]], annotations.start[judged], annotations.end[judged]
    )
    right = np.zeros(len(names), bool)
    right[at[judged[shared >= iou - 1e-9]]] = True
    return right & np.isfinite(best.score).any(1)


@dataclass(frozen=True)
class ConfidentRun:
    """A run of moments with the confidence of each query's first answer.

    `chance` is measured with queries of the split on the same videos (`Unrelated`); None if the calibration
    does not need it.
    """

    run: SplitRun
    confidence: TrainedConfidence
    chance: Unrelated | None

    @classmethod
    def of(
        cls, run: SplitRun, confidence: TrainedConfidence, seed: int = 0, *, of_pair: bool = False
    ) -> ConfidentRun:
        """A run with confidences; `of_pair`: the calibration was made with the ranker's retriever.

        Raises UsageError if the calibration does not hold: another retriever chooses the videos, another
        `video_weight` or other lengths of spans are set, or the run has other tasks than VCMR.
        """
        ranker = run.ranker
        current, measured = ranker.decoding, ranker.trained.decoding
        lengths = ("ends", "min_clips", "max_clips")
        changed = next((name for name in lengths if getattr(current, name) != getattr(measured, name)), None)
        if ranker.video_weight is not None:
            changed = changed or "weight of the video's score"
        if (ranker.retriever is not None and not of_pair) or changed is not None:
            what = "a retriever" if changed is None else f"another {changed}"
            raise UsageError(
                f"confidence was measured for the unchanged checkpoint, not with {what}; leave out either"
            )
        if run.tasks != ("VCMR",):
            raise UsageError(
                f"there is confidence only for moments in many videos (VCMR), not for {', '.join(run.tasks)}"
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
        """The run's name."""
        return self.run.name

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks with a list."""
        return self.run.tasks

    @property
    def answered(self) -> Mapping[Task, Task]:
        """Task -> the task whose list answers it."""
        return self.run.answered

    def blocks(self, task: Task = "VCMR") -> Iterator[RunBlock]:
        """The list of a task with confidences, block by block."""
        for block in self.run.blocks(task):
            yield replace(block, confidence=self._confidence(block))

    def _confidence(self, block: RunBlock) -> Floats:
        answered = np.diff(block.offsets) > 0
        top = np.full(len(block), np.nan)
        top[answered] = block.score[block.offsets[:-1][answered]]
        raw = top if self.chance is None else self._margins(block, top, self.chance)
        return np.where(np.isfinite(raw), self.confidence.calibrator(np.nan_to_num(raw)), np.nan)

    def _margins(self, block: RunBlock, top: Floats, chance: Unrelated) -> Floats:
        pools = self.run.split.annotations.search_pools
        if not pools:
            return chance.margins_in_all(top, block.query_ids)
        rows_of = self.run.ranker.corpus.rows_of
        candidates = Candidates.ragged([rows_of(pools[name]) for name in block.query_ids])
        rows, real = candidates.rows.numpy(), candidates.exist.numpy()
        size = max(1, _NUMBERS // (UNRELATED * rows.shape[1]))
        parts = [slice(low, low + size) for low in range(0, len(rows), size)]
        names = block.query_ids
        return np.concatenate([chance.margins(top[p], rows[p], real[p], names[p]) for p in parts])
