"""PREM's retriever (Hou et al., paper 003, section 3.3): videos of which a part answers, in some stream.

The first of PREM's two stages; `prem_localizer` is the second. The words of a query go through one
transformer layer and are pooled once for each stream (equation 5), so that words on what is seen count for
the pictures and words on what is said for the subtitles. The clips of all streams of a video go through one
transformer layer together. A video scores the mean over its streams of the best clip's cosine (6).

Training draws a query to what answers it, and not to the whole of its video: equations 7 and 8, which any
retriever can learn by (`parts/relevant_content.py`).

What the paper leaves open, and how it is read here:

- *Clips without words.* The paper gives them a vector of zeros as feature, and takes the maximum of (6)
  over all clips of a video. So here: a pause is a key of its stream like every other clip, by what the
  transformer makes of its neighbours and its picture. Every positive and every negative is then a mean over
  the same streams. (To leave pauses out was tried and was a fault: where nothing is said in a moment, its
  strong positive is what is seen, its negatives what is seen and said; the loss falls by pushing the words of
  all videos away from such queries, which tells no videos apart. The cost is in
  `benchmarks/results/simulated_studies.md`.)
- *Nothing at all.* A clip that is zero in every stream is no key: a system that reads subtitles alone is not
  to find pauses. A video without keys scores -1, the lowest cosine there is.
  (With temporal endpoint features no clip is zero; then all are keys.)
- *Equation 6* is a cosine: search vectors and keys are unit vectors, and a nearest-neighbour index serves
  them.
- *Ablations.* `strong` off is the last row of table 2: the positive is the best clip of the whole video.
  "Mean" and "max" of table 3 make one vector, which is compared with every stream.
- *Architecture.* "Vanilla transformer": LayerNorm after each part, ReLU inside. Before it features go
  through LayerNorm, linear layer and ReLU, as in XML, HERO and CONQUER; the paper names a fully connected
  layer. The paper names no dropout; it is theirs.

There is no released program, and so no `as_released`.

Shapes as in `protocol`; S streams.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.joint_streams import JointStreams
from whenabouts_systems.models.parts.layers import (
    InputProjection,
    MaxPooling,
    MeanPooling,
    ModularPooling,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import in_turn
from whenabouts_systems.models.parts.relevant_content import RelevantContent, or_nothing
from whenabouts_systems.models.parts.transformer import TransformerEncoder
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    Named,
    QueryBatch,
    QueryEncoding,
    VideoEncoding,
    best_key,
)
from whenabouts_systems.models.settings import (
    NotNegative,
    Positive,
    Share,
    Size,
    UpToTwoStreams,
    check_settings,
)

__all__ = ["Config", "Model"]

Pooling = Literal["modality-specific", "mean", "max"]


@dataclass(frozen=True)
class Config:
    """The settings of PREM's retriever; the defaults are the published ones for TVR.

    Table 2: one of the two `streams`; `lambda_weak` = 0 (no weak positives); this and `strong` off (neither).
    Table 3: `pooling`.
    """

    streams: UpToTwoStreams = field(default_factory=lambda: {"video": 4352, "sub": 768})
    """Name and width of one stream or of two: what is seen, then what is said."""
    query_width: Size = 768
    hidden: Size = 384
    heads: Size = 4
    feedforward: Size = 1536
    layers: Size = 1
    """Layers of each of the two transformers."""
    max_clips: Size = 100
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    pooling: Pooling = "modality-specific"
    temperature: Positive = 0.01
    """t of equation 7."""
    strong: bool = True
    """The positive is the best of the moment; else the best of the whole video."""
    lambda_weak: NotNegative = 0.5
    """Lambda of equation 8: how much the best outside the moment counts."""
    weight_negative_videos: NotNegative = 1.0
    """How much L^v counts, of equation 8: a query among videos."""
    weight_negative_queries: NotNegative = 1.0
    """How much L^q counts: a video among queries. 0: one direction alone is learned."""

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        check_settings(self, "prem_retriever")
        if not self.weight_negative_videos and not self.weight_negative_queries:
            raise UsageError(
                "prem_retriever: weight_negative_videos and weight_negative_queries are 0: nothing would be "
                "learned"
            )


class Model(nn.Module):
    """PREM's retriever with fresh weights (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.query_projection = InputProjection(config.query_width, hidden, dropout)
        self.query_positions = PositionEmbedding(config.max_tokens, hidden, dropout, "tokens")
        self.query_encoder = _transformer(config)
        self.pooling = _pooling(config)
        self.video_encoder = JointStreams(
            config.streams, hidden, config.max_clips, dropout, _transformer(config)
        )
        initialise(self, config.initializer_range)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """A unit vector for each stream (5); parts `words/<stream>` (Q, L): what each word counts."""
        words = in_turn(
            queries.tokens, queries.mask, self.query_projection, self.query_positions, self.query_encoder
        )
        vectors, weights = self.pooling(words, queries.mask)
        names = list(self.config.streams)
        return QueryEncoding(
            {name: unit(vectors[:, at]) for at, name in enumerate(names)},
            {f"words/{name}": weights[..., at] for at, name in enumerate(names)},
        )

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) by stream: how much each word counts in the query's vector (figure 5); 0 behind the end."""
        return {name: queries.parts[f"words/{name}"] for name in self.config.streams}

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys by stream: clips as unit vectors (V, T, D). What is zero in every stream is no key."""
        encoded = self.video_encoder(videos)
        there = videos.mask & torch.stack([videos.streams[name].any(2) for name in encoded]).any(0)
        return VideoEncoding(
            videos.mask,
            keys={name: unit(clips) for name, clips in encoded.items()},
            key_masks=dict.fromkeys(encoded, there),
        )

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): equation 6, the mean over the streams of the best cosines."""
        best = [
            best_key(queries.search[name], keys, videos.key_masks[name]) for name, keys in videos.keys.items()
        ]
        return or_nothing(torch.stack(best).mean(0))

    def loss(self, batch: Batch) -> Losses:
        """Terms `negative_videos` (L++) and `weak` (L+) of equation 8, and `negative_queries` (L^q).

        Weights are applied; a term whose weight is 0 is left out.
        """
        config = self.config
        rule = RelevantContent(
            config.temperature,
            config.lambda_weak,
            config.strong,
            (config.weight_negative_videos, config.weight_negative_queries),
        )
        return rule.terms(batch, self.encode_queries(batch.queries), self.encode_videos(batch.videos))


def _transformer(config: Config) -> TransformerEncoder:
    return TransformerEncoder(
        config.layers, config.hidden, config.heads, config.feedforward, config.dropout, "after"
    )


def _pooling(config: Config) -> nn.Module:
    count = len(config.streams)
    if config.pooling == "modality-specific":
        return ModularPooling(config.hidden, count)
    return MeanPooling(count) if config.pooling == "mean" else MaxPooling(count)
