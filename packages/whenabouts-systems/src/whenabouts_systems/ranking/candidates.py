"""Chooses the candidates of a query by a system or a run file: the units in which its moments are searched.

A unit is a video or a segment of one. A restriction of a query (a given video, a pool, a filter) is a mask of
allowed units.

Shapes: Q queries, N candidates of a query, U units of a corpus (V whole videos).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.intake.files import lmdb_file_in
from whenabouts.types import UsageError
from whenabouts_bench.formats.runs import RunBlock, RunSource, count_rising
from whenabouts_systems.models.decoding import ranked
from whenabouts_systems.models.protocol import QueryEncoding, Retriever, VideoEncoding
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, evaluating

_log = logging.getLogger("whenabouts")

# Queries and videos of a matrix product: so few that its result stays in the CPU's cache.
_QUERIES, _VIDEOS = 512, 64


@dataclass(frozen=True)
class Candidates:
    """The units in which moments of Q queries are searched.

    `rows` (Q, N) int64 are rows of the corpus, best first; `scores` (Q, N) are the retriever's. Empty places
    have the score minus infinity.
    """

    rows: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def exist(self) -> Tensor:
        """(Q, N) bool: which places are filled."""
        return self.scores > -torch.inf

    def in_order(self) -> Candidates:
        """The same candidates sorted by row; empty places may lie between them."""
        rows, order = self.rows.sort(dim=1)
        return Candidates(rows, self.scores.gather(1, order))

    def first(self, count: int) -> Candidates:
        """The first `count` candidates of each query: the best, unless `in_order` sorted them by row."""
        return Candidates(self.rows[:, :count], self.scores[:, :count])

    def take(self, queries: Tensor) -> Candidates:
        """The candidates of the queries with these numbers (P,)."""
        return Candidates(self.rows[queries], self.scores[queries])

    @classmethod
    def ragged(cls, rows: Sequence[NDArray[np.int64]], device: torch.device | str = "cpu") -> Candidates:
        """Candidates from a list of rows for each query, all with the score 0."""
        width = max(map(len, rows), default=0)
        filled = np.arange(width) < np.array([len(of_query) for of_query in rows], np.int64)[:, None]
        padded = np.zeros(filled.shape, np.int64)
        padded[filled] = np.concatenate(rows) if rows else 0
        scores = torch.zeros(filled.shape).masked_fill(~torch.from_numpy(filled), -torch.inf)
        return cls(torch.from_numpy(padded).to(device), scores.to(device))


def can_retrieve(model: Any) -> bool:
    """Whether a system scores videos, so that it can choose candidates."""
    return isinstance(model, Retriever)


def score_corpus(model: Any, queries: QueryEncoding, corpus: MemoryCorpus) -> Tensor:
    """(Q, U) scores of every unit of the corpus, on the queries' device.

    Raises UsageError for a system that does not score videos, and for a score that is NaN.
    """
    if not can_retrieve(model):
        raise UsageError("this system finds moments in videos but does not choose videos; name a retriever")
    scores: Tensor | None = None
    with evaluating(model):
        for rows, encoding in corpus.each_block():
            of_block = _score_block(model, queries, encoding)
            if scores is None:
                scores = of_block.new_empty((len(queries), len(corpus)))
            scores[:, torch.from_numpy(rows).to(scores.device)] = of_block
    assert scores is not None  # a corpus has videos
    if torch.isnan(scores).any():
        query, video = torch.isnan(scores).nonzero()[0].tolist()
        raise UsageError(
            f"video {corpus.ids[video]!r} scores NaN for query number {query}: the system's weights or the "
            "features hold NaN or infinity; train the system again, or extract the features again"
        )
    return scores


def best_units(scores: Tensor, count: int, allowed: Tensor | None = None) -> Candidates:
    """The `count` best units of each query from scores (Q, U); ties are ordered by row.

    `allowed` (Q, U) bool restricts each query's units.
    """
    if allowed is not None:
        scores = scores.masked_fill(~allowed.to(scores.device), -torch.inf)
    best, rows = ranked(scores, count)
    return Candidates(rows, best)


def allowed_videos(
    query_ids: Sequence[str],
    videos: Mapping[str, Collection[str]],
    row_of: Mapping[str, int],
) -> Tensor:
    """(Q, V) bool: the allowed videos of each query; all videos for a query that is not in `videos`.

    Raises UsageError for a video that is not in the corpus.
    """
    allowed = torch.zeros((len(query_ids), len(row_of)), dtype=torch.bool)
    for at, query_id in enumerate(query_ids):
        if query_id not in videos:
            allowed[at] = True
            continue
        unknown = next((name for name in videos[query_id] if name not in row_of), None)
        if unknown is not None:
            raise UsageError(
                f"query {query_id!r}: video {unknown!r} is not among the {len(row_of)} videos of the corpus"
            )
        allowed[at, [row_of[name] for name in videos[query_id]]] = True
    return allowed


def _score_block(model: Any, queries: QueryEncoding, encoding: VideoEncoding) -> Tensor:
    """(Q, U) scores of the U units of a block."""
    device = device_of_queries(queries)
    rows = []
    for block in query_blocks(len(queries), _QUERIES):
        part = queries.take(torch.arange(block.start, block.stop, device=device))
        scores = [
            model.score_videos(part, sliced(encoding, low, low + _VIDEOS).to(device))
            for low in range(0, len(encoding), _VIDEOS)
        ]
        rows.append(torch.cat(scores, dim=1))
    return torch.cat(rows)


def sliced(encoding: VideoEncoding, low: int, high: int) -> VideoEncoding:
    """Rows low:high of an encoding, as a view."""
    groups = (
        {name: tensor[low:high] for name, tensor in group.items()}
        for group in (encoding.keys, encoding.key_masks, encoding.parts)
    )
    return VideoEncoding(encoding.mask[low:high], *groups)


def query_blocks(count: int, size: int) -> Iterator[range]:
    """The numbers 0 to `count` - 1 in blocks of `size`."""
    for low in range(0, count, size):
        yield range(low, min(low + size, count))


def device_of_queries(queries: QueryEncoding) -> torch.device:
    """The device on which encoded queries are."""
    return next(iter((*queries.search.values(), *queries.parts.values()))).device


# Candidates of a run file -----------------------------------------------------------------------------


def is_run(place: str | Path) -> bool:
    """Whether the place of a retriever is a run file: any file, or a folder with LMDB."""
    path = Path(place).expanduser()
    return path.is_file() or lmdb_file_in(path) is not None


@dataclass(frozen=True, eq=False)
class RankedVideos:
    """A run as a retriever. `lists` is query id -> (video ids, scores), best first, each video once.

    As with any retriever, a localizer adds `video_weight` times these scores to those of its spans. It
    searches only listed videos, even if a list has too few. A query with an empty list has no answers.
    """

    name: str
    lists: Mapping[str, tuple[tuple[str, ...], NDArray[np.float64]]]

    @classmethod
    def of(cls, source: RunSource, *, logarithm: bool = False) -> RankedVideos:
        """A run's lists of videos, or else of moments, where a video has the score of its best moment.

        A video that occurs twice counts once, with its best score. If scores contradict the order of a list,
        the scores count. The log warns of both, with counts. `logarithm` takes the natural logarithms of
        the scores, for lists of probabilities or of HERO's exp(20 * cosine). Raises UsageError for a run that
        ranks only moments in given videos, and for a score without a logarithm.
        """
        task = next((task for task in ("VR", "VCMR") if task in source.tasks), None)
        if task is None:
            raise UsageError(
                f"{source.name}: ranks only moments in given videos; a retriever ranks videos (VR) or "
                "moments in all videos (VCMR)"
            )
        lists: dict[str, tuple[tuple[str, ...], NDArray[np.float64]]] = {}
        repeated = contradicting = 0
        for block in source.blocks("VR" if task == "VR" else "VCMR"):
            contradicting += count_rising(block)
            for query_id, names, scores, length in _lists(block):
                repeated += length - len(names) if task == "VR" else 0
                if logarithm:
                    scores = _logarithm(source.name, query_id, names, scores)
                lists[query_id] = (names, scores)
        for count, what in (
            (repeated, "times a video is repeated in a list; its best score counts"),
            (contradicting, "lists have scores that contradict their order; the scores count"),
        ):
            if count:
                _log.warning("%s: %d %s", source.name, count, what)
        return cls(source.name, lists)

    @property
    def longest(self) -> int:
        """The number of videos in the longest list, at least 1."""
        return max((len(names) for names, _ in self.lists.values()), default=1) or 1

    def scores(self, query_ids: Sequence[str], corpus: MemoryCorpus) -> Tensor:
        """(Q, V) the scores of the corpus's videos; minus infinity if a video is not listed.

        Raises UsageError for a query that is not in the run, or a listed video that is not in the corpus.
        """
        scores = torch.full((len(query_ids), len(corpus)), -torch.inf)
        for at, query_id in enumerate(query_ids):
            if query_id not in self.lists:
                raise UsageError(
                    f"{self.name}: has no videos for query {query_id!r}; a retriever's run must rank videos "
                    f"for every query (it has {len(self.lists)}, such as {next(iter(self.lists), '')!r}; "
                    "if these are the queries of a file of pools, give that file with --pools)"
                )
            names, listed = self.lists[query_id]
            try:
                rows = corpus.rows_of(names)
            except UsageError as error:
                raise UsageError(f"{self.name}: query {query_id!r}: {error}") from None
            scores[at, torch.from_numpy(rows)] = torch.from_numpy(listed).float()
        return scores


def _lists(block: RunBlock) -> Iterator[tuple[str, tuple[str, ...], NDArray[np.float64], int]]:
    """For each query of a block: id, distinct videos best first, their best scores, length of the list."""
    for number, query_id in enumerate(block.query_ids):
        rows = slice(int(block.offsets[number]), int(block.offsets[number + 1]))
        codes, score = block.video[rows], block.score[rows]
        best = np.argsort(-score, kind="stable")
        videos, first = np.unique(codes[best], return_index=True)
        order = np.argsort(first)
        names = tuple(block.video_ids[code] for code in videos[order].tolist())
        yield query_id, names, score[best][first[order]], len(codes)


def _logarithm(
    name: str, query_id: str, names: Sequence[str], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(N,) natural logarithms. Raises UsageError for a score that has none."""
    bad = np.flatnonzero(scores <= 0)
    if len(bad):
        raise UsageError(
            f"{name}: query {query_id!r}: video {names[bad[0]]!r} has the score {scores[bad[0]]:g}, which "
            "has no logarithm; use the scores without logarithms"
        )
    return np.log(scores)
