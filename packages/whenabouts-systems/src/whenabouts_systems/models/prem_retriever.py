"""PREM's retriever (Hou et al., paper 003, section 3.3): find videos by their best clip in each stream.

The first of PREM's two stages; `prem_localizer` is the second. The words of a query pass one transformer
layer and are pooled once for each stream (equation 5): some words matter for pictures, others for subtitles.
The clips of all streams of a video pass one transformer layer together. The score of a video is the cosine of
the best clip, averaged over streams (6). Training (7, 8) draws a query to the clips that answer it, not to
its whole video; other retrievers can use it too (`parts/relevant_content.py`).

Readings:

- *Clips without words.* In the paper their feature is zero, and the maximum of (6) is over all clips. So a
  pause is a key of its stream like other clips: the transformer informs it by its neighbours and its picture.
  Then all positives and negatives are means over the same streams. (Excluding pauses was tried and failed.
  If nobody speaks in a moment, its strong positive has pictures only, its negatives pictures and words. The
  loss falls when the words of all videos move away from such queries, which separates no videos; see
  `benchmarks/results/simulated_studies.md`.)
- *Empty clips.* A clip that is zero in every stream is not a key: a system that reads only subtitles should
  not find pauses. A video without keys scores -1, the lowest cosine. (With temporal endpoint features no clip
  is zero.)
- *Equation 6* is a cosine: search vectors and keys are unit vectors, as a nearest-neighbour index needs.
- *Ablations.* `strong` off is the last row of table 2: the positive is the best clip of the whole video.
  "Mean" and "max" of table 3 make one vector, which is compared with every stream.

`parts/prem.py` has the architecture. No program was released. Shapes as in `protocol`.
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
    best_key,
)
from whenabouts_systems.models.settings import NotNegative

__all__ = ["Config", "Model"]

Pooling = Literal["modality-specific", "mean", "max"]


@dataclass(frozen=True)
class Config(PremSettings):
    """The settings of PREM's retriever.

    Table 2: one of the two `streams`; `lambda_weak` = 0 (no weak positives); this and `strong` off (neither).
    Table 3: `pooling`.
    """

    pooling: Pooling = "modality-specific"
    strong: bool = True
    """The positive is the best clip of the moment; else that of the whole video."""
    lambda_weak: NotNegative = 0.5
    """Lambda of equation 8: the weight of the best clip outside the moment."""
    weight_negative_videos: NotNegative = 1.0
    """Weight of L^v, equation 8: a query among videos."""
    weight_negative_queries: NotNegative = 1.0
    """Weight of L^q: a video among queries."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weight_negative_videos and not self.weight_negative_queries:
            raise UsageError(
                "prem_retriever: weight_negative_videos and weight_negative_queries are 0: nothing would be "
                "learned"
            )


class Model(PremModel):
    """PREM's retriever with fresh weights (see `protocol`)."""

    pooling: nn.Module
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        initialise(self, config.initializer_range)

    def _pooling(self) -> nn.Module:
        count = len(self.config.streams)
        if self.config.pooling == "modality-specific":
            return ModularPooling(self.config.hidden, count)
        return MeanPooling(count) if self.config.pooling == "mean" else MaxPooling(count)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """A unit vector for each stream (5); parts `words/<stream>` (Q, L): the weight of each word."""
        vectors, weights = self.pooling(self.words(queries), queries.mask)
        names = list(self.config.streams)
        return QueryEncoding(
            {name: unit(vectors[:, at]) for at, name in enumerate(names)},
            {f"words/{name}": weights[..., at] for at, name in enumerate(names)},
        )

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) by stream: the weight of each word in the query's vector (figure 5); 0 in the padding."""
        return {name: queries.parts[f"words/{name}"] for name in self.config.streams}

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys by stream: clips as unit vectors (V, T, H), without those that are zero in every stream."""
        encoded = self.video_encoder(videos)
        there = videos.mask & torch.stack([videos.streams[name].any(2) for name in encoded]).any(0)
        return VideoEncoding(
            videos.mask,
            keys={name: unit(clips) for name, clips in encoded.items()},
            key_masks=dict.fromkeys(encoded, there),
        )

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): equation 6."""
        best = [
            best_key(queries.search[name], keys, videos.key_masks[name]) for name, keys in videos.keys.items()
        ]
        return or_nothing(torch.stack(best).mean(0))

    def loss(self, batch: Batch) -> Losses:
        """Terms `negative_videos` (L++) and `weak` (L+) of equation 8, `negative_queries` (L^q), weighted.

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
