"""PREM's retriever (Hou et al., paper 003, section 3.3): find videos by their best clip in each stream.

It is the first of PREM's two stages; `prem_localizer` is the second.

- A query's words pass one transformer layer and are pooled once for each stream (equation 5): some words
  matter for pictures, others for subtitles.
- The clips of all streams of a video pass one transformer layer together.
- A video's score is the cosine of its best clip in each stream, averaged over streams (equation 6).
- The loss (7, 8) pulls a query towards the clips that answer it, not towards the whole video. Other
  retrievers can use the same loss (`parts/relevant_content.py`).

Readings of the paper:

- *Clips without words.* In the paper their feature is zero, and the maximum of (6) runs over all clips. So a
  pause is a key of its stream like any clip; the transformer fills it from its neighbours and its picture.
  Then all positives and negatives are means over the same streams. We tried to exclude pauses, and it failed:
  if nobody speaks in a moment, its strong positive has only pictures, but its negatives have pictures and
  words. The loss then falls by moving the words of all videos away from such queries, which separates no
  videos (`benchmarks/results/simulated_studies.md`).
- *Empty clips.* A clip that is zero in every stream is not a key, so a system that reads only subtitles does
  not find pauses. A video without keys scores -1, the lowest cosine. With temporal endpoint features no clip
  is zero.
- *Equation 6* is a cosine, so search vectors and keys are unit vectors, as a nearest-neighbour index needs.
- *Ablations.* `strong` = false is the last row of table 2: the positive is the best clip of the whole video.
  "Mean" and "max" of table 3 make one vector, which is compared with every stream.

`parts/prem.py` has the architecture. The authors released no program. Shapes are as in `protocol`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.layers import MaxPooling, MeanPooling, ModularPooling, initialise, unit
from whenabouts_systems.models.parts.prem import PremModel, PremSettings
from whenabouts_systems.models.parts.relevant_content import RelevantContent, or_nothing
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    Named,
    QueryBatch,
    QueryEncoding,
    VideoEncoding,
    max_over_keys,
)
from whenabouts_systems.models.settings import NotNegative


@dataclass(frozen=True)
class Config(PremSettings):
    """The settings of PREM's retriever.

    The rows of table 2: one of the two `streams`; `lambda_weak` = 0 (no weak positives); `lambda_weak` = 0
    and `strong` = false (no weak and no strong positives). The rows of table 3: `pooling`.
    """

    pooling: Literal["modality-specific", "mean", "max"] = "modality-specific"
    strong: bool = True
    """Whether the positive is the best clip of the moment; otherwise it is the best of the whole video."""
    lambda_weak: NotNegative = 0.5
    """Lambda of equation 8: the weight of the best clip outside the moment."""
    weight_negative_videos: NotNegative = 1.0
    """Weight of L^v (equation 8), which ranks videos for a query."""
    weight_negative_queries: NotNegative = 1.0
    """Weight of L^q (equation 8), which ranks queries for a video."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_negative_videos and not self.weight_negative_queries:
            raise UsageError(
                "prem_retriever: weight_negative_videos and weight_negative_queries are both 0, so nothing "
                "would be learned; set one of them above 0"
            )


class Model(PremModel):
    """PREM's retriever with fresh weights (see `protocol`)."""

    pooling: nn.Module
    config: Config

    def __init__(self, config: Config) -> None:
        count = len(config.streams)
        pooling: nn.Module = MeanPooling(count) if config.pooling == "mean" else MaxPooling(count)
        if config.pooling == "modality-specific":
            pooling = ModularPooling(config.hidden, count)
        super().__init__(config, pooling)
        initialise(self, config.initializer_range)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """One unit vector for each stream (5); parts `words/<stream>` (Q, L) are the weights of the words."""
        vectors, weights = self.pooling(self.words(queries), queries.mask)
        names = list(self.config.streams)
        return QueryEncoding(
            {name: unit(vectors[:, at]) for at, name in enumerate(names)},
            {f"words/{name}": weights[..., at] for at, name in enumerate(names)},
        )

    def word_weights(self, queries: QueryEncoding) -> Named:
        """Stream -> (Q, L): each word's weight in the query's vector (figure 5); 0 in the padding."""
        return {name: queries.parts[f"words/{name}"] for name in self.config.streams}

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys by stream: the clips as unit vectors (V, T, H); clips zero in all streams are masked."""
        encoded = self.video_encoder(videos)
        not_empty = videos.mask & torch.stack([videos.streams[name].any(2) for name in encoded]).any(0)
        return VideoEncoding(
            videos.mask,
            keys={name: unit(clips) for name, clips in encoded.items()},
            key_masks=dict.fromkeys(encoded, not_empty),
        )

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V) scores by equation 6: the cosine of the best clip, averaged over streams."""
        return or_nothing(max_over_keys(queries, videos))

    def loss(self, batch: Batch) -> Losses:
        """The weighted terms of equation 8: `negative_videos` (L++), `weak` (L+), `negative_queries` (L^q).

        A term with weight 0 is absent.
        """
        config = self.config
        rule = RelevantContent(
            config.temperature,
            config.lambda_weak,
            config.strong,
            (config.weight_negative_videos, config.weight_negative_queries),
        )
        return rule.terms(batch, self.encode_queries(batch.queries), self.encode_videos(batch.videos))
