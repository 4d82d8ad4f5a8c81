"""Base class of XML and ReLoCLNet: each query has a vector for each stream ("late fusion").

A video's score uses only dot products of query and clips. Shapes as in `protocol`; S streams.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from whenabouts_systems.models.parts.borders import begin_at_edges
from whenabouts_systems.models.parts.layers import Pooled, unit
from whenabouts_systems.models.parts.packing import compute_padding
from whenabouts_systems.models.parts.ranking_loss import Kind
from whenabouts_systems.models.protocol import (
    Batch,
    Named,
    PaperModel,
    QueryBatch,
    QueryEncoding,
    VideoEncoding,
    max_over_keys,
)
from whenabouts_systems.models.settings import (
    NotNegative,
    Positive,
    ProgramSetting,
    Share,
    Size,
    UpToTwoStreams,
)


@dataclass(frozen=True)
class FusionSettings(ProgramSetting):
    """Settings of both systems; defaults are XML's released ones, but for `span_start` and PREM's loss."""

    streams: UpToTwoStreams = field(default_factory=lambda: {"video": 3072, "sub": 768})
    """Name and width of one or two streams, temporal endpoint features included: pictures, then subtitles."""
    query_width: Size = 768
    hidden: Size = 256
    heads: Size = 4
    max_clips: Size = 100
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    span_kernel: Size = 5
    span_start: Literal["edges", "random"] = "edges"
    """Initial weights of the borders' convolutions (released: "random"); see `parts/borders.py`."""
    initializer_range: NotNegative = 0.02
    temperature: Positive = 0.01
    """t of equation 7 of PREM (paper 003); used only with `video_loss` "relevant-content"."""
    lambda_weak: NotNegative = 0.5
    """Lambda of equation 8 of PREM; used only with `video_loss` "relevant-content"."""
    ranking: Kind = "hinge"
    margin: float = 0.1
    first_pool: Size | None = None
    """The number of highest-scored negatives to draw from at first (None: all). Maeoki et al. take 1."""
    pool: Size | None = 20
    """The same from epoch `pool_from_epoch` on, counted from 0 ("hard negatives")."""
    pool_from_epoch: int = 20
    weight_negative_videos: float = 1.0
    weight_negative_queries: float = 1.0
    alpha: float = 20.0
    """Weight of the video's cosine in the logarithm of a moment's score."""

    def pool_in(self, epoch: int) -> int | None:
        """The pool of an epoch: random negatives at first, hard ones later, when scores are meaningful."""
        return self.pool if epoch >= self.pool_from_epoch else self.first_pool


class FusionModel(PaperModel):
    """A retriever and localizer (see `protocol`) whose queries have a vector for each stream."""

    counts_padding = False
    """True in subclasses that follow the released programs: padding counts, and borders start random."""

    config: Any
    streams: Any
    """One child module per stream, in order; its linear map `query` makes the vector for the borders."""

    @property
    def video_weight(self) -> float:
        """The setting alpha (equation 3 of Maeoki et al., paper 000)."""
        return float(self.config.alpha)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """`search` has a unit vector for each stream.

        `parts` has `span/<stream>` (Q, D), the vector for borders, and `words/<stream>` (Q, L), the weight of
        each word in the stream's vector.
        """
        pooled = self._pooled(queries)
        spans, search, parts = self._for_spans(pooled), {}, {}
        for number, name in enumerate(self.config.streams):
            search[name] = unit(pooled.vectors[:, number])
            parts[f"span/{name}"] = spans[number]
            parts[f"words/{name}"] = pooled.weights[:, :, number]
        return QueryEncoding(search, parts)

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L) by stream: the weight of each word in the query's vector; 0 in the padding."""
        return {name: queries.parts[f"words/{name}"] for name in self.config.streams}

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the best clip's cosine, averaged over streams (equation 1 of Maeoki et al., paper 000)."""
        return max_over_keys(queries, videos)

    def _pooled(self, queries: QueryBatch) -> Pooled:
        """For each query a vector for each stream (Q, S, D), and the weight of each word in it (Q, L, S)."""
        raise NotImplementedError

    def _for_spans(self, pooled: Pooled) -> list[Tensor]:
        """(Q, D) for each stream: the vector whose product with clips gives start and end of a moment."""
        vectors = pooled.vectors.unbind(1)
        return [stream.query(vector) for stream, vector in zip(self.streams.children(), vectors, strict=True)]

    def _begin(self) -> None:
        """Call after the weights are drawn: computes padding, or sets the borders' convolutions to edges."""
        if self.counts_padding:
            compute_padding(self)
        elif self.config.span_start == "edges":
            begin_at_edges(self)

    def _ranking_weight(self, batch: Batch) -> Tensor | None:
        """The weight of each query in the ranking loss; the released programs ignore it."""
        return batch.weight
