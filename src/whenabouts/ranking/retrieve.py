"""Retrieve: the score of every video for every query, in blocks, and the best videos of each query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whenabouts.models.decoding import ranked
from whenabouts.models.protocol import QueryEncoding, Retriever, VideoEncoding
from whenabouts.ranking.corpus import CorpusEncoding, evaluating
from whenabouts.types import UsageError

# What one product of matrices makes: small enough to stay in a processor's cache until its maximum is taken.
_QUERIES, _VIDEOS = 512, 64


@dataclass(frozen=True)
class Candidates:
    """The videos in which moments of Q queries are sought.

    `rows` (Q, N) int64 are rows of the corpus, best first; `scores` (Q, N) what the retriever says. A place
    that is not filled has the score minus infinity.
    """

    rows: Tensor
    scores: Tensor

    def in_order(self) -> Candidates:
        """The same, each query's videos by their row (those not filled stay somewhere among them)."""
        rows, order = self.rows.sort(dim=1)
        return Candidates(rows, self.scores.gather(1, order))

    def first(self, count: int) -> Candidates:
        """The `count` best of each query."""
        return Candidates(self.rows[:, :count], self.scores[:, :count])

    @classmethod
    def given(cls, corpus: CorpusEncoding, video_ids: Sequence[str], device: torch.device) -> Candidates:
        """One named video for each query."""
        rows = torch.from_numpy(corpus.rows_of(video_ids))[:, None].to(device)
        return cls(rows, torch.zeros(rows.shape, device=device))


def can_retrieve(model: Any) -> bool:
    """Whether a system chooses videos."""
    return isinstance(model, Retriever)


def score_corpus(model: Any, queries: QueryEncoding, corpus: CorpusEncoding) -> Tensor:
    """(Q, V) scores of every video of the corpus, on the queries' device.

    Raises UsageError for a system that does not choose videos, and for a score that is NaN.
    """
    if not can_retrieve(model):
        raise UsageError("this system finds moments in a video and does not choose videos; name a retriever")
    scores: Tensor | None = None
    with evaluating(model):
        for rows, encoding in corpus.each_block():
            found = _score_block(model, queries, encoding)
            if scores is None:
                scores = found.new_empty((len(queries), len(corpus)))
            scores[:, torch.from_numpy(rows).to(scores.device)] = found
    assert scores is not None  # a corpus has videos
    if torch.isnan(scores).any():
        query, video = torch.isnan(scores).nonzero()[0].tolist()
        raise UsageError(
            f"video {corpus.video_ids[video]!r} scores NaN for query number {query}; "
            "the system's weights or the features are broken"
        )
    return scores


def best_videos(scores: Tensor, count: int, allowed: Tensor | None = None) -> Candidates:
    """The `count` best videos of each row of scores (Q, V); equal scores by row.

    `allowed` (Q, V) bool restricts each query to some videos.
    """
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best, rows = ranked(scores, count)
    return Candidates(rows, best)


def _score_block(model: Any, queries: QueryEncoding, encoding: VideoEncoding) -> Tensor:
    """(Q, N) scores of the videos of a block."""
    device = next(iter((*queries.search.values(), *queries.parts.values()))).device
    rows = []
    for some in query_blocks(len(queries), _QUERIES):
        asked = queries.take(torch.arange(some.start, some.stop, device=device))
        found = [
            model.score_videos(asked, sliced(encoding, low, low + _VIDEOS).to(device))
            for low in range(0, len(encoding), _VIDEOS)
        ]
        rows.append(torch.cat(found, dim=1))
    return torch.cat(rows)


def sliced(encoding: VideoEncoding, low: int, high: int) -> VideoEncoding:
    """Rows low..high of an encoding, without a copy."""
    groups = (
        {name: one[low:high] for name, one in group.items()}
        for group in (encoding.keys, encoding.key_masks, encoding.parts)
    )
    return VideoEncoding(encoding.mask[low:high], *groups)


def query_blocks(count: int, size: int) -> Iterator[range]:
    """Numbers of queries, some at a time."""
    for low in range(0, count, size):
        yield range(low, min(low + size, count))
