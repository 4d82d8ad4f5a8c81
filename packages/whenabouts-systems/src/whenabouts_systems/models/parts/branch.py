"""Base class and settings of the retrievers MS-SL and GMMFormer: two branches encode a video, one a query.

Of a video's branches one reads its clips, the other its frames; the third reads the words of queries.
Features of several streams are concatenated. Shapes as in `protocol`; F frames, C clips.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from whenabouts_systems.models.parts.averaging import clips_of, even_borders, frames_of
from whenabouts_systems.models.parts.layers import (
    AttentionBlock,
    InputProjection,
    ModularPooling,
    Pooled,
    PositionEmbedding,
    unit,
)
from whenabouts_systems.models.parts.packing import PackedBlock, in_turn
from whenabouts_systems.models.protocol import ClipBatch, Named, PaperModel, QueryBatch, QueryEncoding
from whenabouts_systems.models.settings import NotNegative, ProgramSetting, Share, Size, Streams


@dataclass(frozen=True)
class BranchSettings(ProgramSetting):
    """Settings of both systems; the defaults are the released ones of MS-SL for TVR."""

    ignores_weights = True
    streams: Streams = field(default_factory=lambda: {"video": 3072})
    """Stream -> width of its features."""
    query_width: Size = 768
    hidden: Size = 384
    heads: Size = 4
    frames: Size = 128
    """The most frames of a video, which are its rows of features; more rows are averaged to this many."""
    clips: Size = 32
    """The number of clips of every video, to which its rows of features are averaged."""
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    clip_share: NotNegative = 0.7
    """Weight of the best clip's cosine in a video's score (MS-SL on Charades-STA: 0.5)."""
    frame_share: NotNegative = 0.3
    """Weight of the frames' cosine in a video's score (MS-SL on Charades-STA: 0.5)."""
    margin: NotNegative = 0.1
    """The margin of the triplet loss (on other data sets than TVR: 0.2)."""
    weight_clip_contrast: NotNegative = 0.02
    weight_frame_contrast: NotNegative = 0.04
    pool: Size | None = 20
    """From epoch `pool_from_epoch` on, a query's negative is drawn from this many hardest ones. Before that
    epoch, and with None, it is drawn from all."""
    pool_from_epoch: int = 20


class Branch(nn.Module):
    """Projects rows to `hidden` values, adds a learned vector for each of `places` positions, and encodes.

    `width` is that of a row. `noun` names the rows ("clips") in messages.
    """

    def __init__(self, config: Any, width: int, places: int, noun: str, encoder: PackedBlock) -> None:
        super().__init__()
        self.projection = InputProjection(width, config.hidden, config.input_dropout)
        self.positions = PositionEmbedding(places, config.hidden, config.input_dropout, noun)
        self.encoder = encoder

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(B, T, hidden): the encoded rows of features (B, T, width) with their mask (B, T)."""
        return in_turn(features, mask, self.projection, self.positions, self.encoder)


class BranchModel(PaperModel):
    """A retriever (see `protocol`). A subclass adds its layers, then draws fresh weights for all."""

    borders = staticmethod(even_borders)
    keys: ClassVar[str]
    """The name of the search keys, in place of a stream's name: all streams share them."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        width = sum(config.streams.values())
        self.query = Branch(config, config.query_width, config.max_tokens, "tokens", self._block())
        self.clip = Branch(config, width, config.clips, "clips", self._encoder())
        self.frame = Branch(config, width, config.frames, "frames", self._encoder())
        self.pooling = ModularPooling(config.hidden, 1)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Unit vectors (Q, D) to search with; part `words` (Q, L): the weight of each word in the vector."""
        pooled = self._sentences(queries)
        return QueryEncoding({self.keys: unit(pooled.vectors[:, 0])}, {"words": pooled.weights[..., 0]})

    def word_weights(self, queries: QueryEncoding) -> Named:
        """(Q, L), the same for every stream: the weight of each word in the query's vector."""
        return dict.fromkeys(self.config.streams, queries.parts["words"])

    def _sentences(self, queries: QueryBatch) -> Pooled:
        """A vector (Q, 1, D) for each query, and the weights (Q, L, 1) of its words."""
        return cast("Pooled", self.pooling(self.query(queries.tokens, queries.mask), queries.mask))

    def _averaged(self, videos: ClipBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Clips (V, C, W) and frames (V, F, W) of V videos, and the mask (V, F) of the frames."""
        config = self.config
        frames, mask = frames_of(videos, config.streams, config.frames, self.borders)
        return clips_of(videos, config.streams, config.clips, self.borders), frames, mask

    def _block(self) -> AttentionBlock:
        return AttentionBlock(self.config.hidden, self.config.heads, self.config.dropout)

    def _encoder(self) -> PackedBlock:
        """The encoder of a branch of videos; a subclass may give another than that of queries."""
        return self._block()


OF_BRANCHES = ((r"^(\w+)\.projection\.", r"\1_input_proj."), (r"^(\w+)\.positions\.", r"\1_pos_embed."))
"""Patterns of a branch's parameters: our names -> names that `renaming.OF_LAYERS` renames further."""
