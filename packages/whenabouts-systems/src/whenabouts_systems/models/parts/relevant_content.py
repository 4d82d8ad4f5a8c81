"""Relevant content-enhanced contrastive learning (paper 003, equations 7 and 8), for any retriever.

PREM's objective (Hou et al.). A retriever whose videos score the best cosine of a clip, the mean over its
streams (equation 6), is drawn to what answers a query and not to the whole of its video: the best clip of
each stream *inside* the moment is the strong positive, the best one *outside* it the weak positive, and the
best ones of the other videos of the batch are the negatives of both (7). The loss is L++ + `lambda_weak` * L+
(8) and, for the query among the other queries of the batch, L^q with the strong positive.

What the paper leaves open:

- *The negatives of (7)* are all videos of the batch that are not known to answer the query (`positives`),
  those chosen as hard negatives (`negatives`) among them: they are rows of the batch like all others.
- *L^q* is not printed. It is (7) with the roles exchanged: the strong positive of a query and its video
  against the scores (6) of that video for the other queries of the batch that it is not known to answer.
- *Losses* are means over the queries of a batch; `weight` multiplies all terms of a query (paper 004).
- A query without a key inside its moment, or outside it (a moment as long as its video), has no such positive
  and loses nothing by that term.

Shapes as in `protocol`; S streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whenabouts_systems.models.parts.contrast import clip_labels
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding, VideoEncoding

NOTHING = -1.0
"""What a video scores that has nothing in any stream: the lowest cosine."""


VideoLoss = Literal["ranking", "relevant-content"]
"""What the videos of a system learn: its own ranking loss, or this one."""


@dataclass(frozen=True)
class RelevantContent:
    """The settings of the objective; the defaults are the published ones.

    `temperature` is t of equation 7. `strong`: the positive is the best of the moment, else the best of the
    whole video. `lambda_weak` is lambda of equation 8. `sides`: how much L^v counts (a query among videos),
    and L^q (a video among queries).
    """

    temperature: float = 0.01
    lambda_weak: float = 0.5
    strong: bool = True
    sides: tuple[float, float] = (1.0, 1.0)

    def terms(self, batch: Batch, queries: QueryEncoding, videos: VideoEncoding) -> Losses:
        """Terms `negative_videos` (L++) and `weak` (L+) of equation 8, and `negative_queries` (L^q).

        The keys of `videos` are a vector for each clip. Weights are applied; a term whose weight is 0 is left
        out.
        """
        cosines, own = clip_cosines(queries, videos), batch.video_of
        scores = or_nothing(cosines.amax(2).mean(0)).T
        strong, weak = self._positives(batch, cosines)
        terms: dict[str, Tensor] = {}
        if side := self.sides[0]:
            against = _Against(scores, ~batch.positives, self.temperature)
            terms["negative_videos"] = side * weighted_mean(against.lost(strong), batch.weight)
            if self.lambda_weak:
                terms["weak"] = side * self.lambda_weak * weighted_mean(against.lost(weak), batch.weight)
        if side := self.sides[1]:
            against = _Against(scores[:, own].T, ~batch.positives[:, own].T, self.temperature)
            terms["negative_queries"] = side * weighted_mean(against.lost(strong), batch.weight)
        return terms

    def _positives(self, batch: Batch, cosines: Tensor) -> tuple[_Positive, _Positive]:
        """The strong and the weak positive of each query: the best of its moment, and of what is outside."""
        every = torch.arange(len(batch), device=cosines.device)
        mine = cosines[:, batch.video_of, :, every].transpose(0, 1)
        inside = clip_labels(batch.spans, mine.shape[2])
        strong = mine.masked_fill(~inside, -torch.inf) if self.strong else mine
        sides = strong, mine.masked_fill(inside, -torch.inf)
        best, outside = (_Positive.of(side.amax(2).mean(0)) for side in sides)
        return best, outside


def clip_cosines(queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
    """(S, V, T, Q) in full precision, -inf where a clip is no key: divided by t, a third digit counts."""
    shape = (*videos.mask.shape, len(queries))
    with torch.autocast(videos.mask.device.type, enabled=False):
        products = [
            (keys.float().flatten(0, 1) @ queries.search[name].float().T).view(shape)
            for name, keys in videos.keys.items()
        ]
    masks = torch.stack([videos.key_masks[name] for name in videos.keys])
    return torch.stack(products).masked_fill(~masks[..., None], -torch.inf)


def or_nothing(scores: Tensor) -> Tensor:
    """What videos score, that of a video without keys (-inf) included."""
    return torch.where(scores > -torch.inf, scores, NOTHING)


class _Positive(NamedTuple):
    """What is to score high for each query: its `score` (Q,), and whether there `exists` one (Q,)."""

    score: Tensor
    exists: Tensor

    @classmethod
    def of(cls, best: Tensor) -> _Positive:
        """From the best of each query, -inf where it has none."""
        exists = best > -torch.inf
        return cls(torch.where(exists, best, 0.0), exists)


class _Against(NamedTuple):
    """Negatives of each query: their `scores` (Q, C), which of them are `allowed`, and t of equation 7."""

    scores: Tensor
    allowed: Tensor
    temperature: float

    def lost(self, positive: _Positive) -> Tensor:
        """(Q,): equation 7; 0 where there is no positive."""
        negatives = self.scores.masked_fill(~self.allowed, -torch.inf)
        logits = torch.cat([positive.score[:, None], negatives], 1) / self.temperature
        return torch.where(positive.exists, -logits.log_softmax(1)[:, 0], 0.0)
