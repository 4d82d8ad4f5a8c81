"""Losses for retrieval of partially relevant videos: contrast and triplets of queries and videos.

From Dong et al., "Partially Relevant Video Retrieval" (MS-SL, ACM Multimedia 2022); GMMFormer (AAAI 2024)
uses the same losses. Scores are (Q, V), of each query with each video of the batch, or (Q, Q), of each query
with the own video of each query. `positives` (same shape) marks pairs that are never negatives; `own` (Q,)
int64 is each query's own column.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.parts.contrast import positive_pair_contrast
from whenabouts_systems.models.parts.layers import unit
from whenabouts_systems.models.parts.ranking_loss import against_negatives, draw_negatives


def contrast(scores: Tensor, own: Tensor, positives: Tensor) -> Tensor:
    """The contrastive loss: its mean over queries plus its mean over videos with a query.

    For a query: log of the sum of exp over its own video and the negatives, minus its own score. For a video:
    log of the sum of exp over all queries, minus log of the sum of exp over its positives.
    """
    own_scores = _own_pairs(scores, own)
    of_own = scores.gather(1, own[:, None])[:, 0]
    of_queries = scores.masked_fill(positives & ~own_scores, -torch.inf).logsumexp(1) - of_own
    has_query = own_scores.any(0)
    of_videos = positive_pair_contrast(scores[:, has_query].T, (positives | own_scores)[:, has_query].T)
    return of_queries.mean() + of_videos.mean()


def triplets(
    scores: Tensor, own: Tensor, positives: Tensor, margin: float, pools: tuple[int | None, int | None]
) -> Tensor:
    """Hinge loss of own pairs against a drawn negative, `margin` added: mean over videos + mean over queries.

    `pools` are the numbers of highest negatives from which one is drawn, for a query and for a video; None:
    all. The positive score of a video is the mean over its queries in the batch; videos without one do not
    count.
    """
    own_scores = _own_pairs(scores, own)
    has_query = own_scores.any(0)
    allowed = ~(positives | own_scores)
    of_video = own_scores[:, has_query].to(scores.dtype)
    higher = (scores[:, has_query] * of_video).sum(0) / of_video.sum(0)
    drawn = draw_negatives(scores[:, has_query].T, allowed[:, has_query].T, pools[1])
    of_videos = against_negatives(higher, drawn, margin=margin)
    drawn = draw_negatives(scores, allowed, pools[0])
    of_queries = against_negatives(scores.gather(1, own[:, None])[:, 0], drawn, margin=margin)
    return of_videos.mean() + of_queries.mean()


def square_contrast(scores: Tensor, positives: Tensor, *, count_own_twice: bool = False) -> Tensor:
    """The mean over i of log of the sum of exp over row and column i of scores (Q, Q), minus score (i, i).

    Other positives are excluded. The own pair counts once, or twice with `count_own_twice`.
    """
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    rows = scores.masked_fill(positives & ~itself, -torch.inf)
    columns = scores.masked_fill(positives & ~itself if count_own_twice else positives | itself, -torch.inf)
    return (torch.cat([rows, columns.T], 1).logsumexp(1) - scores.diagonal()).mean()


def square_triplets(scores: Tensor, positives: Tensor, margin: float, pool: int | None) -> Tensor:
    """Hinge loss of the diagonal of scores (Q, Q) against a drawn negative + `margin`, by row and column."""
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    allowed = ~(positives | itself)
    by_row, by_column = (
        against_negatives(scores.diagonal(), draw_negatives(side, mask, pool), margin=margin).mean()
        for side, mask in ((scores, allowed), (scores.T, allowed.T))
    )
    return by_row + by_column


def query_diversity(vectors: Tensor, own: Tensor, margin: float, scale: float) -> Tensor:
    """GMMFormer's "query diverse loss": it pushes queries (Q, D) of the same video away from each other.

    The mean over queries of log(1 + sum of exp(scale * (cosine + margin)) over the video's other queries).
    """
    vectors = unit(vectors)
    others = (own[:, None] == own) & ~torch.eye(len(own), dtype=torch.bool, device=own.device)
    alike = (scale * (vectors @ vectors.T + margin)).masked_fill(~others, -torch.inf)
    return functional.pad(alike, (0, 1)).logsumexp(1).mean()


def _own_pairs(scores: Tensor, own: Tensor) -> Tensor:
    """(Q, V) bool: each query with its own video."""
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, own[:, None], True)
