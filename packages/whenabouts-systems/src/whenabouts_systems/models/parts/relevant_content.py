"""PREM's loss for retrievers: relevant content-enhanced contrastive learning (paper 003, equations 7 and 8).

It suits retrievers whose score of a video is the best cosine of a clip, averaged over streams (equation 6).
The strong positive is the best clip of each stream *inside* the moment, the weak positive the best one
*outside* it. The negatives of both are the best clips of the other videos of the batch (7). The loss is
L++ + `lambda_weak` * L+ (8), plus L^q: the strong positive against other queries of the batch.

Readings of what the paper leaves open:

- *The negatives of (7)* are all videos of the batch that are not in `positives` of the query, hard negatives
  included.
- *L^q* is not printed. It is (7) with exchanged roles: the strong positive of a query against the scores (6)
  of its video for other queries that the video is not known to answer.
- *Losses* are means over the queries of a batch; `weight` multiplies all terms of a query (paper 004).
- A query without a key inside its moment, or outside it, has loss 0 in that term.

Shapes as in `protocol`; S streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from whenabouts_systems.models.parts.contrast import clip_labels
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding, VideoEncoding

NOTHING = -1.0
"""The score of a video that is empty in all streams: the lowest cosine."""

VideoLoss = Literal["ranking", "relevant-content"]
"""The loss of videos: a system's own ranking loss, or this one."""


@dataclass(frozen=True)
class RelevantContent:
    """The settings of the objective; the defaults are the published ones.

    `temperature` is t of equation 7, `lambda_weak` lambda of equation 8. If `strong`, the positive is the
    best clip of the moment, else that of the whole video. `sides` are the weights of L++ and L+ (a query
    among videos), and of L^q (a video among queries).
    """

    temperature: float = 0.01
    lambda_weak: float = 0.5
    strong: bool = True
    sides: tuple[float, float] = (1.0, 1.0)

    def terms(self, batch: Batch, queries: QueryEncoding, videos: VideoEncoding) -> Losses:
        """Terms `negative_videos` (L++) and `weak` (L+) of equation 8, `negative_queries` (L^q), weighted.

        The keys of `videos` are a vector for each clip. A term with weight 0 is absent.
        """
        cosines, own = clip_cosines(queries, videos), batch.video_of
        scores = or_nothing(cosines.amax(2).mean(0)).T
        strong, weak = self._positives(batch, cosines)
        among_videos, among_queries = (
            (scores, ~batch.positives),
            (scores[:, own].T, ~batch.positives[:, own].T),
        )
        terms = {
            "negative_videos": (self.sides[0], strong, among_videos),
            "weak": (self.sides[0] * self.lambda_weak, weak, among_videos),
            "negative_queries": (self.sides[1], strong, among_queries),
        }
        return {
            name: factor * weighted_mean(self._lost(positive, *candidates), batch.weight)
            for name, (factor, positive, candidates) in terms.items()
            if factor
        }

    def _positives(self, batch: Batch, cosines: Tensor) -> tuple[Tensor, Tensor]:
        """(Q,) twice: the scores of each query's strong and weak positive; -inf without one."""
        every = torch.arange(len(batch), device=cosines.device)
        mine = cosines[:, batch.video_of, :, every].transpose(0, 1)
        inside = clip_labels(batch.spans, mine.shape[2])
        strong = mine.masked_fill(~inside, -torch.inf) if self.strong else mine
        weak = mine.masked_fill(inside, -torch.inf)
        return strong.amax(2).mean(0), weak.amax(2).mean(0)

    def _lost(self, positive: Tensor, scores: Tensor, allowed: Tensor) -> Tensor:
        """(Q,): equation 7 for the scores of positives (Q,) and of candidates (Q, C).

        `allowed` (Q, C) are the negatives. A query without a positive, whose score is -inf, loses 0.
        """
        exists = positive > -torch.inf
        negatives = scores.masked_fill(~allowed, -torch.inf)
        logits = torch.cat([torch.where(exists, positive, 0.0)[:, None], negatives], 1) / self.temperature
        return torch.where(exists, -logits.log_softmax(1)[:, 0], 0.0)


def clip_cosines(queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
    """(S, V, T, Q) cosines, -inf for clips without a key; in float32, because they are divided by t."""
    shape = (*videos.mask.shape, len(queries))
    with torch.autocast(videos.mask.device.type, enabled=False):
        products = [
            (keys.float().flatten(0, 1) @ queries.search[name].float().T).view(shape)
            for name, keys in videos.keys.items()
        ]
    masks = torch.stack([videos.key_masks[name] for name in videos.keys])
    return torch.stack(products).masked_fill(~masks[..., None], -torch.inf)


def or_nothing(scores: Tensor) -> Tensor:
    """Replace the score of a video without keys, -inf, by `NOTHING`."""
    return torch.where(scores > -torch.inf, scores, NOTHING)
