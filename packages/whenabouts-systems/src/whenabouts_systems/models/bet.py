"""BET, the bi-encoder transformer of papers 001 (appendix C.2) and 002 (appendix B.2).

A transformer encodes the clips of a video. A query becomes two vectors, for start and end; their cosines with
a clip say how likely the moment starts or ends there. Queries and videos are compared by dot products only,
so each video is encoded once. The unit vectors of its clips are the search keys, and spans are scored with
them.

Equations have the numbers of paper 001. `parts/border_labels.py` has the labels (equation 10), the loss, and
our readings of points that the papers leave open. Further readings:

- Clips have learned position embeddings, which equation 13 does not show. Words have none, because the text
  encoder has its own, and their mean is taken.
- Candidates are searched with the mean of a query's two vectors. This is not in the papers, and affects no
  score.

Shapes as in `protocol`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.parts.border_labels import BorderModel, BorderSettings
from whenabouts_systems.models.parts.layers import initialise, unit
from whenabouts_systems.models.parts.packing import Packing
from whenabouts_systems.models.parts.text_encoder import mean_of_words
from whenabouts_systems.models.parts.transformer import perceptron
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    pair_products,
)
from whenabouts_systems.models.settings import Positive

__all__ = ["Config", "Model"]


@dataclass(frozen=True)
class Config(BorderSettings):
    """Settings of BET: those shared with CET, and `scale`."""

    scale: Positive = 10.0
    """r of the paper, the factor of cosines."""


class Model(BorderModel):
    """BET with fresh weights: a localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        width = config.hidden
        self.encoder = config.transformer()
        self.start = perceptron(width, width)
        self.end = perceptron(width, width)
        initialise(self, config.initializer_range)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `start` and `end`: unit vectors (Q, D) of equation 14; their mean searches the clips."""
        pooled = mean_of_words(self.words(queries), queries.mask)
        pooled = self.token_projection(pooled)  # linear: the mean of projected words is the projected mean
        start, end = unit(self.start(pooled)), unit(self.end(pooled))
        return QueryEncoding({"clips": unit(start + end)}, {"start": start, "end": end})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys `clips` (V, T, D): unit vectors of encoded clips (equation 13)."""
        packing = Packing.of(videos.mask)
        clips = packing.unpack(unit(self.encoder(self.clips(videos, packing), packing)))
        return VideoEncoding(videos.mask, {"clips": clips}, {"clips": videos.mask})

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """log p_start and log p_end (equation 15) of P pairs: their sum is the logarithm of the product."""
        start, end = functional.logsigmoid(self._logits(queries, videos.keys["clips"]).float())
        return SpanScores(start, end, videos.mask)

    def loss(self, batch: Batch) -> Losses:
        """The terms `start` and `end` of equation 12."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        logits = self._logits(queries, videos.keys["clips"][batch.video_of])
        return self.border_loss(logits, batch)

    def _logits(self, queries: QueryEncoding, clips: Tensor) -> Tensor:
        """(2, P, T): equation 15 before the sigmoid, from the clips (P, T, D) of each query's video."""
        cosines = [pair_products(queries.parts[name], clips) for name in ("start", "end")]
        return self.config.scale * torch.stack(cosines)
