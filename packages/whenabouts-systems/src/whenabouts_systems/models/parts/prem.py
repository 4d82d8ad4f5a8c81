"""The settings and the encoders of words and clips of both stages of PREM (Hou et al., paper 003).

`prem_retriever` and `prem_localizer` share this code, but no weights. The paper's "vanilla" transformer has
LayerNorm after each part, and ReLU. Before it the paper names only a fully connected layer; we use LayerNorm,
dropout, a linear layer and ReLU, as XML, HERO and CONQUER do, with their dropout. H is `hidden`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from whenabouts_systems.models.parts.joint_streams import JointStreams
from whenabouts_systems.models.parts.layers import InputProjection, PositionEmbedding
from whenabouts_systems.models.parts.packing import in_turn
from whenabouts_systems.models.parts.transformer import TransformerEncoder
from whenabouts_systems.models.protocol import QueryBatch
from whenabouts_systems.models.settings import (
    NotNegative,
    Positive,
    Share,
    Size,
    SystemSettings,
    UpToTwoStreams,
)


@dataclass(frozen=True)
class PremSettings(SystemSettings):
    """Settings of both stages; defaults are those published for TVR, as far as the paper names them."""

    streams: UpToTwoStreams = field(default_factory=lambda: {"video": 4352, "sub": 768})
    """Name -> feature width, of pictures and of subtitles, or of one of them."""
    query_width: Size = 768
    hidden: Size = 384
    heads: Size = 4
    feedforward: Size = 1536
    layers: Size = 1
    """The number of layers in each of the two transformers, of words and of clips."""
    max_clips: Size = 100
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    temperature: Positive = 0.01
    """t of the paper's equations 7 and 13, by which cosines are divided."""

    def transformer(self, layers: int) -> TransformerEncoder:
        """A transformer of this width with `layers` layers and fresh weights."""
        return TransformerEncoder(layers, self.hidden, self.heads, self.feedforward, self.dropout, "after")


class PremModel(nn.Module):
    """The encoders of words and clips. Subclasses use `pooling`, if any, on a query's encoded words."""

    def __init__(self, config: Any, pooling: nn.Module | None) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.query_projection = InputProjection(config.query_width, hidden, dropout)
        self.query_positions = PositionEmbedding(config.max_tokens, hidden, dropout, "tokens")
        self.query_encoder = config.transformer(config.layers)
        self.pooling = pooling
        encoder = config.transformer(config.layers)
        self.video_encoder = JointStreams(config.streams, hidden, config.max_clips, dropout, encoder)

    def words(self, queries: QueryBatch) -> Tensor:
        """(Q, L, H) the encoded words of Q queries of at most L words."""
        layers = (self.query_projection, self.query_positions, self.query_encoder)
        return in_turn(queries.tokens, queries.mask, *layers)
