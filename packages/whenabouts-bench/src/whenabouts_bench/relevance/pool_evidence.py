"""Measures two reasons to check pools of videos: false negatives of random pools, and words in common.

- MVMR (paper 002, figure 2): "if a massive video set is constructed using random sampling, then over 40% of
  queries include at least one false-negative video" (TACoS).
- Its earlier version (paper 001, figure 4): the share of a set's other videos that have a sentence with a
  word ("word co-occurrence ratio"), among a query's positives and among its negatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whenabouts.drawing import BLUE, DASHED, ORANGE, new_figure, save_both
from whenabouts_bench.relevance.pools import Pools
from whenabouts_bench.relevance.similarity import Described, SentenceSimilarity, nearest_of
from whenabouts_bench.relevance.word_sets import word_set

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

THRESHOLDS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
_BINS = 20
_WORD = re.compile(r"[^\W\d_]+")
_FUNCTION_WORDS = word_set(
    "a an the this that these those his her its their he she it they him them who which of in on at to "
    "from by with into onto over under up down out off for and or but as while then is are was were be "
    "been being has have had does do did there some another other"
)


@dataclass(frozen=True)
class RandomPools:
    """Expected false negatives of random pools, from sentence similarities.

    Entry t belongs to `thresholds[t]`, the similarity from which a video answers a query. `spoiled` is the
    expected share of queries with a false negative among `size` - 1 random other videos (closed form, no
    sampling), `error` its standard error over queries, `any_near` the share of queries that any other video
    answers, `near` the mean number of other videos that do.
    """

    size: int
    videos: int
    queries: int
    thresholds: tuple[float, ...]
    spoiled: tuple[float, ...]
    error: tuple[float, ...]
    any_near: tuple[float, ...]
    near: tuple[float, ...]

    def lines(self) -> Iterator[str]:
        yield (
            "| a video answers from a similarity of | other videos that answer, mean "
            f"| queries with one among {self.size - 1} random others | among all {self.videos - 1} others |"
        )
        yield "| --- | --- | --- | --- |"
        for row in zip(self.thresholds, self.near, self.spoiled, self.error, self.any_near, strict=True):
            threshold, near, spoiled, error, any_near = row
            yield f"| {threshold:g} | {near:.2f} | {spoiled:.1%} ± {1.96 * error:.1%} | {any_near:.1%} |"


def random_pools_of(pools: Pools, similarity: SentenceSimilarity) -> RandomPools:
    """`random_pools` of the same queries, videos and size; videos judged relevant are a query's sources."""
    sources: list[list[int]] = [[] for _ in pools.source.queries]
    judged = zip(pools.source.query, pools.source.video, pools.source.relevance, strict=True)
    for query, video, relevance in judged:
        if relevance > 0:
            sources[query].append(int(video))
    return random_pools(similarity, pools.described, sources, pools.settings.size)


def random_pools(
    similarity: SentenceSimilarity,
    described: Described,
    sources: Sequence[Sequence[int]],
    size: int,
    thresholds: Sequence[float] = THRESHOLDS,
) -> RandomPools:
    """False negatives of pools of `size` drawn at random from all described videos.

    `sources` are each query's source videos; queries without one are skipped. If F of V other videos reach
    the threshold, n drawn ones contain none of them with probability C(V - F, n) / C(V, n).
    """
    counted = np.array([number for number, videos in enumerate(sources) if videos], np.int64)
    near = np.zeros((len(thresholds), len(counted)), np.int64)
    others = np.zeros(len(counted), np.int64)
    begin = 0
    for rows, nearest in nearest_of(similarity, described, counted):
        for place, query in enumerate(rows.tolist()):
            nearest[place, list(sources[query])] = np.nan
        part = slice(begin, begin + len(rows))
        others[part] = np.isfinite(nearest).sum(1)
        for number, threshold in enumerate(thresholds):
            near[number, part] = (nearest >= threshold - 1e-6).sum(1)
        begin += len(rows)
    spoiled = 1 - _chance_of_none(others[None], near, size - 1)
    error = spoiled.std(axis=1) / max(1, len(counted)) ** 0.5
    return RandomPools(
        size=size,
        videos=described.videos,
        queries=len(counted),
        thresholds=tuple(thresholds),
        spoiled=tuple(spoiled.mean(1).tolist()),
        error=tuple(error.tolist()),
        any_near=tuple((near > 0).mean(1).tolist()),
        near=tuple(near.mean(1).tolist()),
    )


def _chance_of_none(others: Indices, near: Indices, drawn: int) -> Floats:
    """The probability that none of `drawn` of the `others` is one of the `near`, by drawing in turn."""
    chance = np.ones(np.broadcast_shapes(others.shape, near.shape))
    for step in range(drawn):
        left = np.maximum(others - step, 1)
        chance *= np.clip((others - near - step) / left, 0, 1)
    return np.where(near > 0, chance, 1.0)


@dataclass(frozen=True)
class Cohesiveness:
    """Word co-occurrence ratios, one per word and video of a set, of positives and of negatives."""

    positives: Floats
    negatives: Floats

    def lines(self) -> Iterator[str]:
        for name, ratios in (("positives", self.positives), ("negatives", self.negatives)):
            if len(ratios):
                yield (
                    f"{name}: a word of a video's sentence occurs in {ratios.mean():.1%} of the set's other "
                    f"videos ({(ratios >= 0.5).mean():.1%} of the words in half of them or more)"
                )


def cohesiveness(pools: Pools, similarity: SentenceSimilarity) -> Cohesiveness:
    """The word co-occurrence ratios of full pools (figure 4 of paper 001).

    Of each video of a query's positives (source video included) or negatives, take the sentence most similar
    to the query. Each of its words, except function words, counts once: its ratio is the share of the set's
    other videos with a sentence that has the word. Sets of one video are skipped.
    """
    vocabulary, words_of = _words(pools)
    contains = _contains(pools, words_of, len(vocabulary))
    ratios: dict[bool, list[Floats]] = {True: [np.zeros(0)], False: [np.zeros(0)]}
    for pool in pools.full:
        judged = {int(pools.source.video[row]) for row in pool.rows}
        for positive in (True, False):
            videos = np.array([video for video in pool.videos if (video in judged) == positive], np.int64)
            if len(videos) > 1:
                places = nearest_sentences(pools.described, similarity, pool.query, videos)
                words = [words_of[sentence] for sentence in pools.described.sentence[places].tolist()]
                ratios[positive].append(_ratios(words, contains[videos]))
    return Cohesiveness(np.concatenate(ratios[True]), np.concatenate(ratios[False]))


def _ratios(words: Sequence[Indices], contains: NDArray[np.bool_]) -> Floats:
    """For each word of each of n videos, the share of the n - 1 others that contain it; `contains` (n, W)."""
    video = np.repeat(np.arange(len(words)), list(map(len, words)))
    word = np.concatenate(words)
    holding = contains[:, word].sum(0) - contains[video, word]
    return np.asarray(holding / (len(words) - 1), np.float64)


def _words(pools: Pools) -> tuple[dict[str, int], list[Indices]]:
    vocabulary: dict[str, int] = {}
    words_of = []
    for query in pools.source.queries:
        words = dict.fromkeys(_WORD.findall(query.text.lower()))
        numbers = [
            vocabulary.setdefault(word, len(vocabulary)) for word in words if word not in _FUNCTION_WORDS
        ]
        words_of.append(np.array(numbers, np.int64))
    return vocabulary, words_of


def _contains(pools: Pools, words_of: Sequence[Indices], size: int) -> NDArray[np.bool_]:
    """(V, W): the words in each video's sentences."""
    contains = np.zeros((pools.described.videos, max(1, size)), np.bool_)
    for sentence, video in zip(
        pools.described.sentence.tolist(), pools.described.video.tolist(), strict=True
    ):
        contains[video, words_of[sentence]] = True
    return contains


def nearest_sentences(
    described: Described, similarity: SentenceSimilarity, query: int, videos: Indices
) -> Indices:
    """(n,) index in `described` of each video's sentence most similar to a query; the first of ties."""
    first = np.searchsorted(described.video, videos)
    count = np.searchsorted(described.video, videos, side="right") - first
    begins = np.cumsum(count) - count
    places = np.repeat(first - begins, count) + np.arange(count.sum())
    values = similarity.between(np.array([query]), described.sentence[places])[0]
    highest = np.repeat(np.maximum.reduceat(values, begins), count)
    return np.minimum.reduceat(np.where(values >= highest, places, len(described.video)), begins)


def draw_evidence(random: RandomPools, words: Cohesiveness, marked: float, stem: Path) -> list[Path]:
    """Draw both measurements to `stem` with .svg and .png; a line marks the pools' threshold `marked`."""
    with new_figure(8.2, 3.2) as figure:
        left, right = figure.subplots(1, 2)
        for values, colour, label in (
            (random.spoiled, BLUE, f"pools of {random.size}"),
            (random.any_near, ORANGE, f"all {random.videos} videos"),
        ):
            left.plot(random.thresholds, values, "o-", color=colour, label=label, markersize=3)
        left.axvline(marked, color=BLUE, linewidth=0.8, linestyle=DASHED)
        left.set(xlabel="similarity from which a video answers", ylim=(0, 1))
        left.set_ylabel("queries with a false negative")
        left.set_title("random pools", fontsize=10)
        left.legend(frameon=False, fontsize=8)
        edges = np.linspace(0, 1, _BINS + 1)
        kinds = ((words.negatives, BLUE, "negatives"), (words.positives, ORANGE, "positives"))
        for ratios, colour, label in kinds:
            if len(ratios):
                share = np.histogram(ratios, edges)[0] / len(ratios)
                look = {"align": "edge", "color": colour, "alpha": 0.6}
                right.bar(edges[:-1], share, np.diff(edges), label=label, **look)
        right.set(xlabel="word co-occurrence ratio", ylabel="share of the words")
        right.set_title("words shared with the set's other videos", fontsize=10)
        if len(words.negatives) or len(words.positives):
            right.legend(frameon=False, fontsize=8)
        return save_both(figure, stem)
