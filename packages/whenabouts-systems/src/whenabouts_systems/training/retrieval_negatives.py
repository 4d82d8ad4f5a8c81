"""Negatives from retrieval lists: what a retriever ranked for a query and does not answer it.

A list is cut to its first videos, those that are judged to answer are taken out, and each epoch draws some of
what is left, uniformly and without replacement. What is drawn depends on (seed, epoch, query) alone: not on
the batches, nor on where a training was broken off.

- PREM (section 4.1.3): 4 (TVR) or 2 (DiDeMo) of the first 100 of its own retriever.
- CONQUER (the released program): 3 of HERO's list up to the rank of the query's own video + 1,000; queries
  whose own video is not among the first 100 are no examples.
- SQuiDNet (the released program): 15 of the list of a biased retriever up to that rank + 500, or + 50 for
  queries that say what is usually said; the same are no examples. The ranked program (TVR-Ranking) draws for
  each own video of a query, by its own rank (100 where it is not listed), and leaves out that video alone.
  Two moments of a query in one video share what is drawn here; there they do not.

Rules for odd lists, each counted in what `train` prints: a video that comes twice counts once, where it is
best; scores that contradict the order of the rows decide (equal scores stay as they stand; JSON lines, TREC
and HERO's files are sorted as they are read, which their readers log); a query with fewer videos
than are to be drawn gets those that there are. A list with a video that is not of the training split, and a
query without a list, are errors.

Shapes: Q queries, V videos and N examples of a split; U units that are drawn for: its queries, or with draws
"example" its pairs of a query and an own video; K candidates of all units.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Floats
from whenabouts_bench.formats.runs import RunBlock, RunSource, Task
from whenabouts_systems.ranking.candidates import RankedVideos
from whenabouts_systems.training.examples import DrawnNegatives, Examples, Indices
from whenabouts_systems.training.experiment import RetrievedSettings
from whenabouts_systems.training.positives import is_in

_NOT_LISTED = 1 << 40
"""The rank of a video that a list does not have."""
_RANK_OF_UNLISTED = 99
"""What the ranked SQuiDNet takes it for: it draws from the first 100 + `beyond_own` then."""
_TWICE = "videos come twice in a list and count once, where they are best"
_UNSORTED = "lists were not in the order of their scores; the scores count"


class RetrievalNegatives:
    """Draws of negatives for a split, from the lists of a retriever; draws as `examples.Negatives`.

    `ranks` (N,) is the rank of each example's own video in its query's list, from 0, and some 10**12 where it
    is not listed. `counts` says how often each rule for odd lists applied. Four bytes are kept a candidate.
    """

    def __init__(
        self,
        source: RunSource,
        examples: Examples,
        settings: RetrievedSettings,
        seed: int,
        name: str | None = None,
        usual: NDArray[np.bool_] | None = None,
    ) -> None:
        """Read the lists of a run for a split, block by block; messages call it `name` (None: its own).

        `usual` (Q,) says which queries of the split have `settings.beyond_own_usual`.

        Raises UsageError, naming run, query and video, for a run without videos, a video that the split does
        not have, and a query of the split that has no list; and what the run's format raises.
        """
        self.settings, self.seed = settings, seed
        reader = _Reader(name or source.name, examples, settings, usual)
        for block in source.blocks(reader.takes(source)):
            reader.read(block)
        self._videos, self._starts, self._counts = reader.candidates()
        self.units = reader.units
        self.ranks = reader.ranks_of(examples.query, examples.video)
        short = int(
            (self._counts[np.unique(self.units(examples.query, examples.video))] < settings.videos).sum()
        )
        whose = "queries" if settings.draws == "query" else "pairs of a query and its video"
        fewer = f"{whose} have fewer than {settings.videos} videos to draw from"
        self.counts: Mapping[str, int] = {**reader.counts, fewer: short}

    @property
    def within(self) -> NDArray[np.bool_]:
        """(N,) whether an example's own video is listed as far up as `own_within` asks."""
        most = self.settings.own_within
        return np.asarray(self.ranks < (_NOT_LISTED + 1 if most is None else most))

    def candidates(self, unit: int) -> Indices:
        """(K,) the videos that may be drawn for a unit, best first."""
        start = int(self._starts[unit])
        return self._videos[start : start + int(self._counts[unit])].astype(np.int64)

    def drawn(self, query: Indices, own: Indices, videos: Indices, epoch: int) -> DrawnNegatives:
        """See `examples.Negatives`; no other queries."""
        nothing = np.full((len(videos), 0), -1, np.int64)
        return DrawnNegatives.of(videos, self.of_epoch(self.units(query, own), epoch), nothing)

    def of_epoch(self, units: Indices, epoch: int) -> Indices:
        """(U, `videos`) rows of videos that are drawn for units in an epoch, -1 where there are fewer."""
        drawn = np.full((len(units), self.settings.videos), -1, np.int64)
        counts = self._counts[units]
        width = int(counts.max(initial=0))
        count = min(self.settings.videos, width)
        if not count:
            return drawn
        # The candidates with the smallest of as many hashes are a uniform draw without replacement.
        keys = _keys(_base(self.seed, epoch), units, width)
        keys[np.arange(width) >= counts[:, None]] = np.iinfo(np.uint64).max
        smallest = np.argpartition(keys, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(keys, smallest, 1), axis=1, kind="stable")
        smallest = np.take_along_axis(smallest, order, 1)
        exists = smallest < counts[:, None]
        places = np.where(exists, self._starts[units][:, None] + smallest, 0)
        drawn[:, :count] = np.where(exists, self._videos[places], -1)
        return drawn


class _Reader:
    """Makes candidates of the lists of a split's queries, a block of them at a time."""

    def __init__(
        self,
        name: str,
        examples: Examples,
        settings: RetrievedSettings,
        usual: NDArray[np.bool_] | None,
    ) -> None:
        self.name, self.settings, self._usual = name, settings, usual
        self.counts: Counter[str] = Counter()
        self._split, self._videos = examples.name, len(examples.videos)
        self._queries = np.unique(examples.query)
        self._ids = [query.id for query in examples.queries]
        self._query_of = {self._ids[row]: row for row in self._queries.tolist()}
        self._video_of = {video.id: row for row, video in enumerate(examples.videos)}
        self._of_pairs = settings.draws == "example"
        # The examples' own pairs stand first: each is taken out of its own draws alone.
        first = len(examples.query) if self._of_pairs else 0
        positives = [column[first:] for column in examples.positive_pairs]
        self._positives = np.unique(positives[0] * self._videos + positives[1])
        self._own = np.unique(examples.query * self._videos + examples.video)
        self._ranks = np.full(len(self._own), _NOT_LISTED, np.int64)
        self._kept = bytearray()
        units = len(self._own) if self._of_pairs else len(self._ids)
        self._starts = np.full(units, -1, np.int64)
        self._sizes = np.zeros(units, np.int64)
        self._is_moments = False
        self._rows_of: tuple[tuple[str, ...], Indices] = ((), np.zeros(0, np.int64))

    def takes(self, source: RunSource) -> Task:
        """The list to read: of videos, else of moments, where a video's best stands for it."""
        if "VR" in source.tasks:
            return "VR"
        if "VCMR" not in source.tasks:
            raise UsageError(
                f"{self.name}: ranks moments in given videos alone; negatives are drawn from a list of "
                "videos (VR) or of moments of all of them (VCMR)"
            )
        self._is_moments = True
        return "VCMR"

    def read(self, block: RunBlock) -> None:
        """Take over the lists of a block that belong to queries of the split."""
        query_of = np.array([self._query_of.get(name, -1) for name in block.query_ids], np.int64)
        number = np.repeat(np.arange(len(block)), np.diff(block.offsets))
        of_split = query_of[number] >= 0
        number, score = number[of_split], block.score[of_split]
        video = self._rows(block, number, block.video[of_split])
        number, video = self._each_once(*self._in_order(number, video, score))
        rank = np.arange(len(number)) - np.searchsorted(number, number)
        keys = query_of[number] * self._videos + video
        first = self._note_own(number, keys, rank, len(block))
        candidate = ~is_in(self._positives, keys)
        if self._of_pairs:
            self._keep_of_pairs(query_of, number, np.where(candidate, video, -1))
            return
        candidate &= rank < self._reach(first, query_of)[number]
        self._keep(query_of, number[candidate], video[candidate])

    def units(self, query: Indices, video: Indices) -> Indices:
        """(N,) the units of pairs of a query and an own video."""
        if not self._of_pairs:
            return query
        return np.searchsorted(self._own, query * self._videos + video)

    def candidates(self) -> tuple[NDArray[np.int32], Indices, Indices]:
        """Videos (K,) of all queries, and of each query (Q,) where its own begin and how many they are.

        Raises UsageError for a query of the split whose list was not read.
        """
        of_query = (
            np.searchsorted(self._own, self._queries * self._videos) if self._of_pairs else self._queries
        )
        missing = self._queries[self._starts[of_query] < 0]
        if len(missing):
            raise UsageError(
                f"{self.name}: has no list for query {self._ids[missing[0]]!r} of {self._split} (and "
                f"{len(missing) - 1:,} others of its {len(self._queries):,}); rank videos for every query of "
                "that split, such as with `whenabouts run --split train --task vr`"
            )
        videos = np.frombuffer(self._kept, np.int32) if self._kept else np.zeros(0, np.int32)
        return videos, self._starts, self._sizes

    def ranks_of(self, query: Indices, video: Indices) -> Indices:
        """(N,) the rank of each example's own video."""
        return self._ranks[np.searchsorted(self._own, query * self._videos + video)]

    def _rows(self, block: RunBlock, number: Indices, video: NDArray[np.int32]) -> Indices:
        """(R,) rows of the videos of a block's rows. Raises UsageError for one that the split lacks."""
        if self._rows_of[0] is not block.video_ids:
            # All blocks of a run share their list of ids: it is looked up once.
            rows_of = [self._video_of.get(name, -1) for name in block.video_ids]
            self._rows_of = block.video_ids, np.array(rows_of, np.int64)
        rows = self._rows_of[1][video]
        if (rows < 0).any():
            at = int(np.argmax(rows < 0))
            query_id, video_id = block.query_ids[number[at]], block.video_ids[video[at]]
            raise UsageError(
                f"{self.name}: query {query_id!r} has video {video_id!r}, which is none of the "
                f"{self._videos:,} videos of {self._split}; rank the videos of that split alone, such as "
                "with `whenabouts run --split train --task vr`, or take the others out of the lists"
            )
        return rows

    def _in_order(self, number: Indices, video: Indices, score: Floats) -> tuple[Indices, Indices]:
        """Queries and videos of rows, best first within each query."""
        rising = (score[1:] > score[:-1]) & (number[1:] == number[:-1])
        if not rising.any():
            return number, video
        self.counts[_UNSORTED] += len(np.unique(number[1:][rising]))
        order = np.lexsort((-score, number))
        return number[order], video[order]

    def _each_once(self, number: Indices, video: Indices) -> tuple[Indices, Indices]:
        """The same without videos that came before in their list."""
        first = np.unique(number * self._videos + video, return_index=True)[1]
        if len(first) == len(number):
            return number, video
        if not self._is_moments:
            self.counts[_TWICE] += len(number) - len(first)
        kept = np.sort(first)
        return number[kept], video[kept]

    def _note_own(self, number: Indices, keys: Indices, rank: Indices, count: int) -> Indices:
        """(B,) the rank of the best own video of each query of a block; the ranks of all are noted."""
        own = is_in(self._own, keys)
        self._ranks[np.searchsorted(self._own, keys[own])] = rank[own]
        first = np.full(count, _NOT_LISTED, np.int64)
        np.minimum.at(first, number[own], rank[own])
        return first

    def _reach(self, first: Indices, query_of: Indices) -> Indices:
        """(B,) how many videos of each list may be drawn from, the own one among them."""
        settings = self.settings
        if settings.beyond_own is None:
            return np.full_like(first, settings.depth)
        if self._usual is None:
            return first + 1 + settings.beyond_own
        return first + 1 + np.where(self._usual[query_of], settings.beyond_own_usual, settings.beyond_own)

    def _keep(self, query_of: Indices, number: Indices, video: Indices) -> None:
        """Put the candidates of a block behind those that are there."""
        there = len(self._kept) // 4
        ends = np.searchsorted(number, np.arange(len(query_of) + 1))
        of_split = query_of >= 0
        self._starts[query_of[of_split]] = there + ends[:-1][of_split]
        self._sizes[query_of[of_split]] = np.diff(ends)[of_split]
        self._kept += video.astype(np.int32).tobytes()

    def _keep_of_pairs(self, query_of: Indices, number: Indices, video: Indices) -> None:
        """The same for each own video of the queries of a block; a video that is -1 is no candidate."""
        ends = np.searchsorted(number, np.arange(len(query_of) + 1))
        for at in np.flatnonzero(query_of >= 0).tolist():
            query, listed = query_of[at : at + 1], video[ends[at] : ends[at + 1]]
            pairs = range(
                *np.searchsorted(self._own, [query[0] * self._videos, (query[0] + 1) * self._videos])
            )
            for pair in pairs:
                rank = self._ranks[pair : pair + 1]
                reach = self._reach(np.where(rank == _NOT_LISTED, _RANK_OF_UNLISTED, rank), query)[0]
                near = listed[:reach]
                kept = near[(near >= 0) & (near != self._own[pair] % self._videos)]
                self._starts[pair], self._sizes[pair] = len(self._kept) // 4, len(kept)
                self._kept += kept.astype(np.int32).tobytes()


def drawn_candidates(
    source: RunSource,
    examples: Examples,
    settings: RetrievedSettings,
    seed: int,
    name: str | None = None,
    usual: NDArray[np.bool_] | None = None,
) -> RankedVideos:
    """`settings.validation_draws` videos for each query of a split, drawn for its last example.

    So the ranked program of SQuiDNet makes the candidates of its evaluation: as if for training. Parameters
    and errors are those of `RetrievalNegatives`; all videos score 0. A query without an example has none.
    """
    drawing = replace(settings, videos=settings.validation_draws, draws="example")
    negatives = RetrievalNegatives(source, examples, drawing, seed, name, usual)
    queries, behind = np.unique(examples.query[::-1], return_index=True)
    last = len(examples.query) - 1 - behind
    rows = negatives.of_epoch(negatives.units(queries, examples.video[last]), 0)
    names = [video.id for video in examples.videos]
    lists: dict[str, tuple[str, ...]] = {query.id: () for query in examples.queries}
    lists |= {
        examples.queries[query].id: tuple(names[video] for video in row if video >= 0)
        for query, row in zip(queries.tolist(), rows.tolist(), strict=True)
    }
    return RankedVideos(name or source.name, {key: (own, np.zeros(len(own))) for key, own in lists.items()})


def _base(seed: int, epoch: int) -> np.uint64:
    digest = hashlib.blake2b(f"retrieved {seed} {epoch}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest))


def _keys(base: np.uint64, query: Indices, width: int) -> NDArray[np.uint64]:
    """(Q, W) numbers that are as good as random, each of base, query and place alone."""
    rows = _mixed(query.astype(np.uint64) ^ base)
    places = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mixed(rows[:, None] + places)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers, every bit stirred into all others: the last steps of SplitMix64 (Steele et al., 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
