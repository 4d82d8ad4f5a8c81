"""BET, the bi-encoder transformer of papers 001 (appendix C.2) and 002 (appendix B.2).

Clips of a video go through a transformer, a query becomes two vectors, for start and end, and cosines of
these with the clips say where a moment starts and ends. Query and video meet in a dot product only, so videos
are encoded once; clips are unit vectors, kept as keys and as what spans are scored with.

What the papers leave open, and how it is read here:

- equation 10 (interpolated labels): see `_parts/border_labels.py`;
- clips have a learned table of places (equation 13 shows none); words have none, for the text encoder gave
  them theirs and their mean is taken;
- heads (8), the inner width of the feed-forward parts (2,048) and dropout (0.1) are those of the
  transformer's own paper; LayerNorm stands before the parts (`norm`), as in CET;
- DistilBERT gives features ("extracted using Distil-BERT") and is not trained in the experiments; it can be,
  see `frozen` and `rates` of an experiment's [training];
- several streams lie side by side before equation 7;
- the cross-entropy is a mean over the clips of a query's own video, then over queries: other videos have no
  part in it;
- a span scores the logarithm of p_start * p_end; the video itself has no score. To look for candidates
  (`search`), the two vectors of a query are averaged: not in the papers, and no part of any score.

Shapes as in `protocol`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.models._parts.border_labels import border_terms, interpolated_labels
from whenabouts.models._parts.layers import PositionEmbedding, initialise, unit
from whenabouts.models._parts.packing import Packing
from whenabouts.models._parts.text_encoder import Words, check_sizes, mean_of_words
from whenabouts.models._parts.transformer import Norm, TransformerEncoder, perceptron
from whenabouts.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    pair_products,
)
from whenabouts.models.settings import NotNegative, Positive, Share, Size, Streams, check_settings

__all__ = ["Config", "Model"]


@dataclass(frozen=True)
class Config:
    """Settings of BET; the defaults are the published ones where there are any."""

    streams: Streams = field(default_factory=lambda: {"video": 4096})
    """Stream -> width of its features."""
    query_width: Size = 768
    """Width of words' features; not used where there is a `text_encoder`."""
    text_encoder: str = ""
    """A DistilBERT by the name of a folder or of a hub's repository, from which a training begins ("": the
    words come as features)."""
    text: Mapping[str, Size] = field(default_factory=dict)
    """Its sizes where they are not those of distilbert-base; see `_parts/text_encoder.py`."""
    hidden: Size = 512
    """d of the paper."""
    layers: Size = 6
    heads: Size = 8
    feedforward: Size = 2048
    norm: Norm = "before"
    max_clips: Size = 128
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    scale: Positive = 10.0
    """r of the paper: what cosines are multiplied by."""
    label_power: Positive = 10.0
    """k of the paper: how fast labels fall off beside the borders."""
    as_released: bool = False
    """No program was released; this takes equation 10 to the letter. See `_parts/border_labels.py`."""

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        check_settings(self, "bet")
        check_sizes(self.text, "bet")


class Model(nn.Module):
    """BET with fresh weights: a localizer (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.hidden
        self.clip_projection = nn.Linear(sum(config.streams.values()), width, bias=False)
        self.words = Words(config.query_width, config.text if config.text_encoder else None)
        self.token_projection = nn.Linear(self.words.width, width, bias=False)
        self.clip_positions = PositionEmbedding(config.max_clips, width, config.input_dropout, "clips")
        self.encoder = TransformerEncoder(
            config.layers, width, config.heads, config.feedforward, config.dropout, config.norm
        )
        self.start = perceptron(width, width)
        self.end = perceptron(width, width)
        initialise(self, config.initializer_range)

    def begin(self) -> None:
        """Read the pretrained text encoder, where there is one, before a training's first step."""
        self.words.begin(self.config.text_encoder)

    @property
    def video_weight(self) -> float:
        """0: a video has no score of its own."""
        return 0.0

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `start` and `end`: unit vectors (Q, D) of equation 14; their mean searches the clips."""
        pooled = mean_of_words(self.words(queries), queries.mask)
        pooled = self.token_projection(pooled)  # linear: the mean of projected words is the projected mean
        start, end = unit(self.start(pooled)), unit(self.end(pooled))
        return QueryEncoding({"clips": unit(start + end)}, {"start": start, "end": end})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys `clips` (V, T, D): unit vectors of encoded clips (equation 13)."""
        packing = Packing.of(videos.mask)
        features = torch.cat([packing.pack(videos.streams[name]) for name in self.config.streams], dim=1)
        rows = self.clip_positions(self.clip_projection(features), packing)
        clips = packing.unpack(unit(self.encoder(rows, packing)))
        return VideoEncoding(videos.mask, {"clips": clips}, {"clips": videos.mask})

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """log p_start and log p_end (equation 15) of P pairs: their sum is the logarithm of the product."""
        start, end = functional.logsigmoid(self._logits(queries, videos.keys["clips"]).float())
        return SpanScores(start, end, videos.mask)

    def loss(self, batch: Batch) -> Losses:
        """The terms `start` and `end` of equation 12."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        logits = self._logits(queries, videos.keys["clips"][batch.video_of])
        config = self.config
        labels = interpolated_labels(
            batch.spans, logits.shape[2], config.label_power, to_the_letter=config.as_released
        )
        return border_terms(logits, labels, videos.mask[batch.video_of], batch.weight)

    def _logits(self, queries: QueryEncoding, clips: Tensor) -> Tensor:
        """(2, P, T): equation 15 before the sigmoid, from the clips (P, T, D) of each query's video."""
        cosines = [pair_products(queries.parts[name], clips) for name in ("start", "end")]
        return self.config.scale * torch.stack(cosines)
