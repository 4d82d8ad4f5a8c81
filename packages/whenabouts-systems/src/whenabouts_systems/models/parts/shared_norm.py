"""Losses of start and end over the clips of several videos (Shared-Norm, Clark and Gardner, ACL 2018).

The candidates of a query are its own video and its negatives. Start and end each have one softmax over the
clips of all candidates, so scores of different videos can be compared. PREM, equation 11; CONQUER.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from whenabouts_systems.models.parts.borders import MASKED, log_probabilities
from whenabouts_systems.models.protocol import Batch


class CandidateVideos(NamedTuple):
    """The candidates of each query: `rows` (Q, 1 + N) int64 of videos, the own first, and which `exists`."""

    rows: Tensor
    exists: Tensor

    def pairs(self) -> tuple[Tensor, Tensor]:
        """(P,) int64 twice: the query of each pair, and the place of its video among the candidates."""
        query, place = self.exists.nonzero().unbind(1)
        return query, place


def candidates_of(batch: Batch, *, positives_too: bool = False) -> CandidateVideos:
    """Each query's own video and its `Batch.negatives`, without known positives unless `positives_too`."""
    own_video = batch.video_of[:, None]
    is_real = torch.ones_like(own_video, dtype=torch.bool)
    if batch.negatives is None:
        return CandidateVideos(own_video, is_real)
    chosen = batch.negatives.clamp(min=0)
    exists = batch.negatives >= 0
    if not positives_too:
        exists = exists & ~batch.positives.gather(1, chosen)
    return CandidateVideos(torch.cat([own_video, chosen], 1), torch.cat([is_real, exists], 1))


def shared_entropies(
    logits: Tensor, candidates: CandidateVideos, spans: Tensor, *, own_only: bool = False
) -> Tensor:
    """(2, Q) cross-entropies of the true start and end, from the logits (2, P, T) of all pairs.

    `spans` (Q, 2) are clips of the own videos. With `own_only` the softmax is over the own video only.
    """
    query, place = candidates.pairs()
    # One row for each query: the clips of all candidates, the own video first.
    laid = logits.new_full((2, *candidates.rows.shape, logits.shape[2]), MASKED)
    laid[:, query, place] = logits
    together = laid[:, :, 0] if own_only else laid.flatten(2)
    return -log_probabilities(together).gather(2, spans.T[:, :, None])[:, :, 0]


def video_entropies(scores: Tensor, candidates: CandidateVideos) -> Tensor:
    """(Q,) cross-entropies of the own videos among the candidates, from the scores (P,) of all pairs."""
    query, place = candidates.pairs()
    laid = scores.float().new_full(candidates.rows.shape, MASKED)
    laid[query, place] = scores.float()
    return -laid.log_softmax(1)[:, 0]  # the own video is the first class
