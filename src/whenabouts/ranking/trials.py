"""What a trained system finds for queries whose answer is known: with it in the pool, and with it taken out.

Each query is asked twice. Once its whole pool is searched: the first answer may be right. Once all videos
that are judged for it, or for a query of the same words, are taken out: then nothing can be right, and what
the system finds is what it finds where there is nothing. The *raw number* of an answer is one of

- `top`: the score of the best moment;
- `margin`: how far that is above what unrelated queries score best on the same videos,
  (top - median) / (upper quartile - lower quartile). It means the same among 50 videos and among 20,000,
  where every query finds something that scores high.

The unrelated queries are some of the split's, drawn once; the videos judged for them do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.formats.annotations import Annotations
from whenabouts.models.protocol import QueryEncoding
from whenabouts.overlap import temporal_iou
from whenabouts.ranking.corpus import CorpusEncoding, Progress, device_of, evaluating
from whenabouts.ranking.pools import BestOfVideos, PoolScorer, best_of_videos, pool_candidates
from whenabouts.ranking.rank import System
from whenabouts.ranking.retrieve import can_retrieve, score_corpus
from whenabouts.ranking.split import Split, encode_split
from whenabouts.types import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Definition = Literal["top", "margin"]
DEFINITIONS: tuple[Definition, ...] = ("top", "margin")

UNRELATED = 64
"""Queries whose best scores say what chance finds."""
LEAST_UNRELATED = 8
"""With fewer, quartiles say nothing."""
# Queries that are asked together, and numbers that may be held for them.
_TOGETHER, _NUMBERS = 256, 1 << 24
# Below this share of the scores' size a spread is none: unrelated queries all score the same.
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True)
class Background:
    """What unrelated queries score best on some videos: the median, and the distance of the quartiles."""

    median: float
    spread: float

    @classmethod
    def of(cls, scores: Sequence[float] | Floats) -> Background:
        """From their best scores. Raises UsageError for fewer than `LEAST_UNRELATED`."""
        values = np.asarray(scores, np.float64)
        values = values[np.isfinite(values)]
        if len(values) < LEAST_UNRELATED:
            raise UsageError(
                f"{len(values)} unrelated queries found anything; what chance scores needs {LEAST_UNRELATED}"
            )
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        least = _LEAST_SPREAD * max(1.0, abs(float(median)))
        return cls(float(median), max(float(high - low), least))

    def margin(self, score: Floats | float) -> Floats:
        """How far a score is above chance, in spreads."""
        return np.asarray((np.asarray(score, np.float64) - self.median) / self.spread)


@dataclass(frozen=True, eq=False)
class Trials:
    """What was found for Q queries; all (Q,). `right`: the first answer of the whole pool is right.

    `top` and `margin` map "in" and "out" (positives taken out) to raw numbers; NaN where nothing was left to
    search, or too little to tell chance by. `group` is the query's own video: questions of one video hang
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
class Chooser:
    """Another system that says how well videos answer: its split has the same queries, in the same order."""

    model: Any
    corpus: CorpusEncoding
    split: Split

    @classmethod
    def of(cls, trained: System, split: Split) -> Chooser:
        """With the videos of the split encoded."""
        return cls(trained.model, encode_split(trained, split), split)

    def scores(self, numbers: Indices) -> Tensor:
        """(Q, V) what each video of the corpus scores for some queries."""
        return score_corpus(self.model, encoded(self.model, self.split, numbers), self.corpus)


def run_trials(
    trained: System,
    split: Split,
    *,
    iou: float,
    seed: int = 0,
    chooser: Chooser | None = None,
    progress: Progress | None = None,
) -> Trials:
    """Ask all queries of a split, whose annotations have a pool and a positive for each.

    `iou`: the first answer is right if it shares as much with a positive. What a `chooser` says of videos
    counts in place of the system's own scores; whole pools are looked into all the same. Raises UsageError
    for a system that finds no moments, for pools with unknown videos and for too few queries to tell chance
    by.
    """
    corpus = encode_split(trained, split)
    if chooser is not None and chooser.corpus.video_ids != corpus.video_ids:
        raise UsageError(f"{split.name}: the retriever and the localizer do not know the same videos")
    scorer = PoolScorer(trained.model, corpus, trained.decoding)
    queries, annotations = split.queries, split.annotations
    judged = judged_videos(annotations)
    chance = Unrelated.drawn(scorer, split, judged, seed, chooser)
    tops: dict[str, list[Floats]] = {"in": [], "out": []}
    margins: dict[str, list[Floats]] = {"in": [], "out": []}
    right: list[Mask] = []
    most = max((len(annotations.pools[query.id]) for query in queries), default=1)
    size = max(1, min(_TOGETHER, _NUMBERS // (UNRELATED * most)))
    for low in range(0, len(queries), size):
        numbers = np.arange(low, min(low + size, len(queries)))
        names = [queries[at].id for at in numbers.tolist()]
        best = asked(scorer, split, numbers, [annotations.pools[name] for name in names], chooser)
        right.append(_right(best, corpus, annotations, names, iou))
        for side, left_out in (("in", None), ("out", [judged[name] for name in names])):
            score = best.score if left_out is None else _without(best, corpus, left_out)
            real = score > -np.inf
            top = score.max(1).astype(np.float64)
            tops[side].append(np.where(real.any(1), top, np.nan))
            margins[side].append(chance.margins(top, best.rows, real, names))
        if progress is not None:
            progress(int(numbers[-1]) + 1, len(queries))
    return Trials(
        tuple(query.id for query in queries),
        np.concatenate(right),
        {side: np.concatenate(parts) for side, parts in tops.items()},
        {side: np.concatenate(parts) for side, parts in margins.items()},
        tuple(own_videos(annotations)[query.id] for query in queries),
        chance.texts,
        np.array([len(annotations.pools[query.id]) for query in queries]),
    )


def asked(
    scorer: PoolScorer,
    split: Split,
    numbers: Indices,
    pools: Sequence[Sequence[str]],
    chooser: Chooser | None = None,
) -> BestOfVideos:
    """The best moment of each video of their pools, for some queries."""
    model = scorer.model
    encoding = encoded(model, split, numbers)
    if scorer.weight and chooser is not None:
        said = chooser.scores(numbers)
    elif scorer.weight and can_retrieve(model):
        said = score_corpus(model, encoding, scorer.corpus)
    else:
        said = torch.zeros((len(numbers), len(scorer.corpus)), device=device_of(model))
    return best_of_videos(scorer, encoding, pool_candidates(scorer.corpus, pools, said))


def encoded(model: Any, split: Split, numbers: Indices) -> QueryEncoding:
    """Some queries of a split, encoded."""
    with evaluating(model):
        found: QueryEncoding = model.encode_queries(split.query_batch(numbers).to(device_of(model)))
    return found


@dataclass(frozen=True, eq=False)
class Unrelated:
    """What U drawn queries score best in each video of the corpus: `best` (U, V).

    Videos judged for a query, or for one of its words, score minus infinity. `same_words` are the words of
    every query of the split.
    """

    texts: tuple[str, ...]
    ids: tuple[str, ...]
    best: NDArray[np.float32]
    same_words: Mapping[str, str]

    @classmethod
    def drawn(
        cls,
        scorer: PoolScorer,
        split: Split,
        judged: Mapping[str, frozenset[str]],
        seed: int,
        chooser: Chooser | None = None,
    ) -> Unrelated:
        """Some of a split's queries, no two of the same words."""
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
        corpus = scorer.corpus
        best = asked(scorer, split, numbers, [corpus.video_ids] * len(numbers), chooser).score
        ids = tuple(split.queries[number].id for number in numbers.tolist())
        here = frozenset(corpus.video_ids)
        for row, name in enumerate(ids):
            known = sorted(judged[name] & here)
            best[row, corpus.rows_of(known)] = -np.inf
        return cls(tuple(split.queries[n].text for n in numbers.tolist()), ids, best, words)

    def margins(self, top: Floats, rows: Indices, real: Mask, names: Sequence[str]) -> Floats:
        """(Q,) how far each top score is above what unrelated queries score on the same videos.

        `rows` (Q, P) are the videos, `real` which of them count. Queries of the same words are not unrelated;
        NaN where fewer than `LEAST_UNRELATED` have a video among these that is not judged for them.
        """
        found = np.where(real[None], self.best[:, rows], -np.inf).max(2).astype(np.float64)  # (U, Q)
        return self._above(top, found, names, np.asarray(real.any(1)))

    def margins_in_all(self, top: Floats, names: Sequence[str]) -> Floats:
        """(Q,) the same where all videos of the corpus are searched."""
        found = np.repeat(self.best.max(1).astype(np.float64)[:, None], len(names), axis=1)
        return self._above(top, found, names, np.ones(len(names), bool))

    def _above(self, top: Floats, found: Floats, names: Sequence[str], asked: Mask) -> Floats:
        own = np.array([self.same_words[name] for name in names])
        theirs = np.array([self.same_words[name] for name in self.ids])
        found[(theirs[:, None] == own) | ~np.isfinite(found)] = np.nan
        margins = np.full(len(names), np.nan)
        for at in np.flatnonzero(asked).tolist():
            if np.isfinite(found[:, at]).sum() >= LEAST_UNRELATED:
                margins[at] = Background.of(found[:, at]).margin(float(top[at]))
        return margins


def own_videos(annotations: Annotations) -> dict[str, str]:
    """Query id -> the video of its first positive."""
    good = annotations.relevance > 0
    own: dict[str, str] = {}
    for query, video in zip(annotations.query[good].tolist(), annotations.video[good].tolist(), strict=True):
        own.setdefault(annotations.queries[query].id, annotations.videos[video].id)
    return own


def same_words(annotations: Annotations) -> dict[str, str]:
    """Query id -> its words without capitals and a last full stop; its id where it has none."""
    plain = ((query.id, " ".join(query.text.lower().split()).rstrip(" .")) for query in annotations.queries)
    return {name: words or f"\0{name}" for name, words in plain}


def judged_videos(annotations: Annotations) -> dict[str, frozenset[str]]:
    """Query id -> the videos judged for it or for a query of the same words."""
    words = same_words(annotations)
    of_words: dict[str, set[str]] = {one: set() for one in words.values()}
    for query, video in zip(annotations.query.tolist(), annotations.video.tolist(), strict=True):
        of_words[words[annotations.queries[query].id]].add(annotations.videos[video].id)
    frozen = {one: frozenset(videos) for one, videos in of_words.items()}
    return {name: frozen[one] for name, one in words.items()}


def with_drawn_pools(annotations: Annotations, size: int, seed: int = 0) -> Annotations:
    """The same judgements, with a pool for each query that has a positive: its judged videos and others.

    The others are drawn at random from the videos of the split; nobody has looked whether they fit too.
    Raises UsageError for a size below 2, or where no query has a positive.
    """
    if size < 2:
        raise UsageError(f"a pool of {size} videos: a pool needs 2 or more")
    videos = [video.id for video in annotations.videos]
    own, judged = own_videos(annotations), judged_videos(annotations)
    if not own:
        raise UsageError(f"{annotations.name}: no query has a positive; there is nothing to calibrate by")
    rng = np.random.default_rng(seed)
    pools = {}
    for name in own:
        known = sorted(judged[name])[: size - 1]
        known = [own[name], *(video for video in known if video != own[name])]
        others = [
            videos[at] for at in rng.permutation(len(videos)).tolist() if videos[at] not in judged[name]
        ]
        pools[name] = (*known, *others[: max(1, size - len(known))])
    return replace(annotations, pools=pools)


def _without(
    best: BestOfVideos, corpus: CorpusEncoding, left_out: Sequence[frozenset[str]]
) -> NDArray[np.float32]:
    """(Q, P) the scores, minus infinity where a video is among those left out."""
    names = np.array(corpus.video_ids, dtype=object)
    gone = np.array(
        [[name in out for name in names[rows]] for rows, out in zip(best.rows, left_out, strict=True)]
    )
    return np.where(gone, np.float32(-np.inf), best.score)


def _right(
    best: BestOfVideos, corpus: CorpusEncoding, annotations: Annotations, names: Sequence[str], iou: float
) -> Mask:
    """(Q,) whether the best moment of each pool shares enough with a positive of its query."""
    place = best.score.argmax(1)[:, None]
    row, start, end = (np.take_along_axis(one, place, 1)[:, 0] for one in (best.rows, best.start, best.end))
    numbers = {query.id: number for number, query in enumerate(annotations.queries)}
    at_of = np.full(len(annotations.queries), -1)
    at_of[[numbers[name] for name in names]] = np.arange(len(names))
    at = at_of[annotations.query]
    code_of = {name: code for code, name in enumerate(corpus.video_ids)}
    video = np.array([code_of.get(one.id, -1) for one in annotations.videos], np.int64)[annotations.video]
    mine = np.flatnonzero((at >= 0) & (annotations.relevance > 0))
    mine = mine[video[mine] == row[at[mine]]]
    shared = temporal_iou(start[at[mine]], end[at[mine]], annotations.start[mine], annotations.end[mine])
    right = np.zeros(len(names), bool)
    right[at[mine[shared >= iou - 1e-9]]] = True
    return right & np.isfinite(best.score).any(1)
