"""Candidates: the units in which a query's moments are sought, chosen by a system, a run file, or words.

What a query is restricted to (a given video, a pool, a filter) is one mask of what is allowed.

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

# What one product of matrices makes: small enough to stay in a processor's cache until its maximum is taken.
_QUERIES, _VIDEOS = 512, 64


@dataclass(frozen=True)
class Candidates:
    """The units in which moments of Q queries are sought.

    `rows` (Q, N) int64 are rows of the corpus, best first; `scores` (Q, N) what the retriever gives each. A
    place that is not filled has the score minus infinity.
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
        """The same, each query's units by their row (those not filled stay somewhere among them)."""
        rows, order = self.rows.sort(dim=1)
        return Candidates(rows, self.scores.gather(1, order))

    def first(self, count: int) -> Candidates:
        """The `count` best of each query."""
        return Candidates(self.rows[:, :count], self.scores[:, :count])

    def take(self, queries: Tensor) -> Candidates:
        """Those of some queries."""
        return Candidates(self.rows[queries], self.scores[queries])

    @classmethod
    def ragged(cls, rows: Sequence[NDArray[np.int64]], device: torch.device | str = "cpu") -> Candidates:
        """As many rows as each query has, all with the score 0."""
        width = max(map(len, rows), default=0)
        filled = np.arange(width) < np.array([len(own) for own in rows], np.int64)[:, None]
        padded = np.zeros(filled.shape, np.int64)
        padded[filled] = np.concatenate(rows) if rows else 0
        scores = torch.zeros(filled.shape).masked_fill(~torch.from_numpy(filled), -torch.inf)
        return cls(torch.from_numpy(padded).to(device), scores.to(device))


def can_retrieve(model: Any) -> bool:
    """Whether a system chooses videos."""
    return isinstance(model, Retriever)


def score_corpus(model: Any, queries: QueryEncoding, corpus: MemoryCorpus) -> Tensor:
    """(Q, U) scores of every unit of the corpus, on the queries' device.

    Raises UsageError for a system that does not choose videos, and for a score that is NaN.
    """
    if not can_retrieve(model):
        raise UsageError("this system finds moments in a video and does not choose videos; name a retriever")
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
            f"video {corpus.ids[video]!r} scores NaN for query number {query}; "
            "the system's weights or the features are broken"
        )
    return scores


def best_units(scores: Tensor, count: int, allowed: Tensor | None = None) -> Candidates:
    """The `count` best units of each row of scores (Q, U); equal scores by row.

    `allowed` (Q, U) bool restricts each query to some units.
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
    """(Q, V) bool: the videos that each query is restricted to; all where `videos` does not name it.

    Raises UsageError for a video that is not in the corpus.
    """
    allowed = torch.zeros((len(query_ids), len(row_of)), dtype=torch.bool)
    for at, query_id in enumerate(query_ids):
        if query_id not in videos:
            allowed[at] = True
            continue
        lacking = next((name for name in videos[query_id] if name not in row_of), None)
        if lacking is not None:
            raise UsageError(
                f"query {query_id!r}: video {lacking!r} is not among the {len(row_of)} videos of the corpus"
            )
        allowed[at, [row_of[name] for name in videos[query_id]]] = True
    return allowed


def _score_block(model: Any, queries: QueryEncoding, encoding: VideoEncoding) -> Tensor:
    """(Q, N) scores of the units of a block."""
    device = device_of_queries(queries)
    rows = []
    for some in query_blocks(len(queries), _QUERIES):
        part = queries.take(torch.arange(some.start, some.stop, device=device))
        scores = [
            model.score_videos(part, sliced(encoding, low, low + _VIDEOS).to(device))
            for low in range(0, len(encoding), _VIDEOS)
        ]
        rows.append(torch.cat(scores, dim=1))
    return torch.cat(rows)


def sliced(encoding: VideoEncoding, low: int, high: int) -> VideoEncoding:
    """Rows low..high of an encoding, without a copy."""
    groups = (
        {name: tensor[low:high] for name, tensor in group.items()}
        for group in (encoding.keys, encoding.key_masks, encoding.parts)
    )
    return VideoEncoding(encoding.mask[low:high], *groups)


def query_blocks(count: int, size: int) -> Iterator[range]:
    """Numbers of queries, some at a time."""
    for low in range(0, count, size):
        yield range(low, min(low + size, count))


def device_of_queries(queries: QueryEncoding) -> torch.device:
    """Where encoded queries are."""
    return next(iter((*queries.search.values(), *queries.parts.values()))).device


# Candidates of a run file -----------------------------------------------------------------------------


def is_run(place: str | Path) -> bool:
    """Whether a place that is named as a retriever is a file of lists: any file, or a folder with LMDB."""
    path = Path(place).expanduser()
    return path.is_file() or lmdb_file_in(path) is not None


@dataclass(frozen=True, eq=False)
class RankedVideos:
    """Videos that any program ranked for queries: id -> (video ids, scores), best first, each video once.

    A localizer that is paired with it adds `video_weight` times these scores to those of its spans, as with
    any retriever; what is not listed is not looked into, also where a list has fewer videos than are asked
    for. A query with an empty list has no answers.
    """

    name: str
    lists: Mapping[str, tuple[tuple[str, ...], NDArray[np.float64]]]

    @classmethod
    def of(cls, source: RunSource, *, logarithm: bool = False) -> RankedVideos:
        """A run as a retriever: its list of videos, else of moments, where a video's best stands for it.

        A video that comes twice in a list counts once, with its best score, and where scores contradict the
        order of a list, the scores count; the log says how often. `logarithm` takes the scores' natural
        logarithms: for a list of probabilities, or of exp(20 * cosine) as HERO writes them. Raises UsageError
        for a run that ranks moments of given videos alone, and for a score that has no logarithm.
        """
        task = next((task for task in ("VR", "VCMR") if task in source.tasks), None)
        if task is None:
            raise UsageError(
                f"{source.name}: ranks moments in given videos alone; a retriever ranks videos (VR) or "
                "moments of all of them (VCMR)"
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
            (repeated, "times a video comes again in a list; its best score counts"),
            (contradicting, "lists have scores that contradict their order; the scores count"),
        ):
            if count:
                _log.warning("%s: %d %s", source.name, count, what)
        return cls(source.name, lists)

    @property
    def longest(self) -> int:
        """How many videos the longest of its lists has, at least 1."""
        return max((len(names) for names, _ in self.lists.values()), default=1) or 1

    def scores(self, query_ids: Sequence[str], corpus: MemoryCorpus) -> Tensor:
        """(Q, V) what each video of the corpus scores; minus infinity where it is not listed.

        Raises UsageError for a query that the run does not have, and for a video that the corpus does not.
        """
        scores = torch.full((len(query_ids), len(corpus)), -torch.inf)
        for at, query_id in enumerate(query_ids):
            if query_id not in self.lists:
                raise UsageError(
                    f"{self.name}: has no videos for query {query_id!r}; a retriever's run must rank videos "
                    f"for every query (it has {len(self.lists)}, such as {next(iter(self.lists), '')!r}; "
                    "where these are the queries of a file of pools, name that file with --pools)"
                )
            names, listed = self.lists[query_id]
            try:
                rows = corpus.rows_of(names)
            except UsageError as error:
                raise UsageError(f"{self.name}: query {query_id!r}: {error}") from None
            scores[at, torch.from_numpy(rows)] = torch.from_numpy(listed).float()
        return scores


def _lists(block: RunBlock) -> Iterator[tuple[str, tuple[str, ...], NDArray[np.float64], int]]:
    """(query, its videos, best first and each once, their best scores, rows of the list) of a block."""
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
            "has no logarithm; take the scores as they are stored"
        )
    return np.log(scores)
