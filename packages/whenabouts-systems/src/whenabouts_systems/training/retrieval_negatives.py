"""Draw negatives from a retriever's ranked lists: videos that rank high for a query they do not answer.

Only the first videos of a list are candidates, and those judged relevant are removed. Each epoch draws some
candidates uniformly and without replacement. The draw depends only on (seed, epoch, query): not on the
batches, and not on whether the training was interrupted.

- PREM (section 4.1.3): 4 (TVR) or 2 (DiDeMo) of the first 100 of its own retriever.
- CONQUER (the released program): 3 of HERO's list up to the rank of the query's own video + 1,000. Queries
  whose own video is not among the first 100 are skipped.
- SQuiDNet (the released program): 15 of a biased retriever's list up to that rank + 500, or + 50 for queries
  with usual words; the same queries are skipped. The ranked program (TVR-Ranking) draws for each own video
  of a query by its own rank (100 if it is not listed), and excludes only this video. Here two moments of a
  query in one video share their draws; in that program they do not.

Odd lists follow rules, which `train` counts and prints:

- a video that occurs twice counts once, at its best place;
- scores that contradict the order of the rows win; equal scores keep their order (the readers of JSON lines,
  TREC and HERO's files sort and log it);
- a query with too few candidates gets all of them.

A video outside the training split, and a query without a list, are errors.

Shapes: Q queries, V videos and N examples of a split; U units to draw for: the queries, or with draws
"example" the pairs of a query and an own video; K candidates of all units.
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
from whenabouts_systems.training.labels import is_in

_NOT_LISTED = 1 << 40
"""The rank of a video that is not in a list."""
_RANK_OF_UNLISTED = 99
"""The rank that the ranked SQuiDNet assumes for such a video: it draws from the first 100 + `beyond_own`."""
_TWICE = "videos come twice in a list and count once, at their best place"
_UNSORTED = "lists were not in the order of their scores; the scores count"


class RetrievalNegatives:
    """Draws negatives for a split from a retriever's lists (`examples.Negatives`).

    `ranks` (N,) is the rank, from 0, of each example's own video in its query's list, or about 10**12 if it
    is not listed. `counts` says how often each rule for odd lists applied. A candidate takes four bytes.
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
        """Read a run's lists for a split, block by block. Messages call the run `name` (None: its own name).

        `usual` (Q,) says which queries of the split use `settings.beyond_own_usual`.

        Raises UsageError, naming run, query and video, for a run without videos, a video outside the split,
        and a query of the split without a list. The run's format may raise more.
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
        """(N,) whether the rank of each example's own video is below `own_within`."""
        limit = self.settings.own_within
        return np.asarray(self.ranks < (_NOT_LISTED + 1 if limit is None else limit))

    def candidates(self, unit: int) -> Indices:
        """(K,) the candidate videos of a unit, best first."""
        start = int(self._starts[unit])
        return self._videos[start : start + int(self._counts[unit])].astype(np.int64)

    def drawn(self, query: Indices, own: Indices, videos: Indices, epoch: int) -> DrawnNegatives:
        """See `examples.Negatives`; draws no negative queries."""
        no_queries = np.full((len(videos), 0), -1, np.int64)
        return DrawnNegatives.of(videos, self.of_epoch(self.units(query, own), epoch), no_queries)

    def of_epoch(self, units: Indices, epoch: int) -> Indices:
        """(U, `videos`) rows of the videos drawn for units in an epoch, filled up with -1."""
        drawn = np.full((len(units), self.settings.videos), -1, np.int64)
        counts = self._counts[units]
        width = int(counts.max(initial=0))
        count = min(self.settings.videos, width)
        if not count:
            return drawn
        # Hash every candidate: those with the smallest hashes are a uniform draw without replacement.
        digest = hashlib.blake2b(f"retrieved {self.seed} {epoch}".encode(), digest_size=8).digest()
        keys = _keys(np.uint64(int.from_bytes(digest)), units, width)
        keys[np.arange(width) >= counts[:, None]] = np.iinfo(np.uint64).max
        smallest = np.argpartition(keys, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(keys, smallest, 1), axis=1, kind="stable")
        smallest = np.take_along_axis(smallest, order, 1)
        exists = smallest < counts[:, None]
        places = np.where(exists, self._starts[units][:, None] + smallest, 0)
        drawn[:, :count] = np.where(exists, self._videos[places], -1)
        return drawn


class _Reader:
    """Reads the lists of a split's queries, block by block, and turns them into candidates."""

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
        # The examples' own pairs come first; with draws "example" each is excluded only from its own draws.
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
        """The list to read: of videos, or else of moments, where a video ranks as its best moment."""
        if "VR" in source.tasks:
            return "VR"
        if "VCMR" not in source.tasks:
            raise UsageError(
                f"{self.name}: ranks only moments in given videos; negatives need a list of videos (VR) or "
                "of moments in all videos (VCMR)"
            )
        self._is_moments = True
        return "VCMR"

    def read(self, block: RunBlock) -> None:
        """Add the lists of a block whose queries are in the split."""
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
        """The candidate videos (K,) of all units, and each unit's start (U,) and count (U,) among them.

        Raises UsageError for a query of the split without a list.
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
        """(R,) the split's rows of the videos in a block. Raises UsageError for a video outside the split."""
        if self._rows_of[0] is not block.video_ids:
            # All blocks of a run share their list of ids, so look it up once.
            rows_of = [self._video_of.get(name, -1) for name in block.video_ids]
            self._rows_of = block.video_ids, np.array(rows_of, np.int64)
        rows = self._rows_of[1][video]
        if (rows < 0).any():
            at = int(np.argmax(rows < 0))
            query_id, video_id = block.query_ids[number[at]], block.video_ids[video[at]]
            raise UsageError(
                f"{self.name}: query {query_id!r} has video {video_id!r}, which is not among the "
                f"{self._videos:,} videos of {self._split}; rank only the videos of that split, such as "
                "with `whenabouts run --split train --task vr`, or remove the others from the lists"
            )
        return rows

    def _in_order(self, number: Indices, video: Indices, score: Floats) -> tuple[Indices, Indices]:
        """The rows' queries and videos, sorted by score within each query."""
        rising = (score[1:] > score[:-1]) & (number[1:] == number[:-1])
        if not rising.any():
            return number, video
        self.counts[_UNSORTED] += len(np.unique(number[1:][rising]))
        order = np.lexsort((-score, number))
        return number[order], video[order]

    def _each_once(self, number: Indices, video: Indices) -> tuple[Indices, Indices]:
        """The rows' queries and videos without repeated videos of a list."""
        first = np.unique(number * self._videos + video, return_index=True)[1]
        if len(first) == len(number):
            return number, video
        if not self._is_moments:
            self.counts[_TWICE] += len(number) - len(first)
        kept = np.sort(first)
        return number[kept], video[kept]

    def _note_own(self, number: Indices, keys: Indices, rank: Indices, count: int) -> Indices:
        """Store the ranks of all own videos; return (B,) the best one of each query of a block."""
        is_own = is_in(self._own, keys)
        self._ranks[np.searchsorted(self._own, keys[is_own])] = rank[is_own]
        first = np.full(count, _NOT_LISTED, np.int64)
        np.minimum.at(first, number[is_own], rank[is_own])
        return first

    def _reach(self, first: Indices, query_of: Indices) -> Indices:
        """(B,) the number of videos at the top of each list that are candidates, including the own video."""
        settings = self.settings
        if settings.beyond_own is None:
            return np.full_like(first, settings.depth)
        if self._usual is None:
            return first + 1 + settings.beyond_own
        return first + 1 + np.where(self._usual[query_of], settings.beyond_own_usual, settings.beyond_own)

    def _keep(self, query_of: Indices, number: Indices, video: Indices) -> None:
        """Append the candidates of a block."""
        start = len(self._kept) // 4
        ends = np.searchsorted(number, np.arange(len(query_of) + 1))
        of_split = query_of >= 0
        self._starts[query_of[of_split]] = start + ends[:-1][of_split]
        self._sizes[query_of[of_split]] = np.diff(ends)[of_split]
        self._kept += video.astype(np.int32).tobytes()

    def _keep_of_pairs(self, query_of: Indices, number: Indices, video: Indices) -> None:
        """Append the candidates of a block for each pair of a query and an own video; -1 is no candidate."""
        ends = np.searchsorted(number, np.arange(len(query_of) + 1))
        for at in np.flatnonzero(query_of >= 0).tolist():
            query, listed = query_of[at : at + 1], video[ends[at] : ends[at + 1]]
            pairs = range(
                *np.searchsorted(self._own, [query[0] * self._videos, (query[0] + 1) * self._videos])
            )
            for pair in pairs:
                rank = self._ranks[pair : pair + 1]
                reach = self._reach(np.where(rank == _NOT_LISTED, _RANK_OF_UNLISTED, rank), query)[0]
                in_reach = listed[:reach]
                kept = in_reach[(in_reach >= 0) & (in_reach != self._own[pair] % self._videos)]
                self._starts[pair], self._sizes[pair] = len(self._kept) // 4, len(kept)
                self._kept += kept.astype(np.int32).tobytes()


def drawn_candidates(
    source: RunSource,
    examples: Examples,
    settings: RetrievedSettings,
    seed: int,
    usual: NDArray[np.bool_] | None = None,
) -> RankedVideos:
    """`settings.validation_draws` videos for each query of a split, drawn for its last example.

    The ranked program of SQuiDNet draws the candidates of its evaluation like this, as if for training.
    Parameters and errors are those of `RetrievalNegatives`. All videos score 0. A query without an example
    has no videos.
    """
    drawing = replace(settings, videos=settings.validation_draws, draws="example")
    negatives = RetrievalNegatives(source, examples, drawing, seed, usual=usual)
    queries, from_end = np.unique(examples.query[::-1], return_index=True)
    last = len(examples.query) - 1 - from_end
    rows = negatives.of_epoch(negatives.units(queries, examples.video[last]), 0)
    names = [video.id for video in examples.videos]
    lists: dict[str, tuple[str, ...]] = {query.id: () for query in examples.queries}
    lists |= {
        examples.queries[query].id: tuple(names[video] for video in row if video >= 0)
        for query, row in zip(queries.tolist(), rows.tolist(), strict=True)
    }
    ranked = {query_id: (videos, np.zeros(len(videos))) for query_id, videos in lists.items()}
    return RankedVideos(source.name, ranked)


def _keys(base: np.uint64, query: Indices, width: int) -> NDArray[np.uint64]:
    """(Q, W) hashes, each of (base, query, place)."""
    rows = _mixed(query.astype(np.uint64) ^ base)
    places = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mixed(rows[:, None] + places)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash numbers by the last steps of SplitMix64 (Steele et al., 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
