"""GMMFormer, a Gaussian-mixture transformer for partially relevant videos (Wang et al., AAAI 2024).

The successor of MS-SL: instead of 528 proposals a video has 32 clips, each of which has seen its
neighbourhood at several widths (Gaussian blocks), and one vector of all its frames.
A video scores 0.7 times the cosine of the best clip and 0.3 times that of the whole; the clips retrieve
candidates and `score_videos` orders them. There are no spans. Streams and frames are read as by MS-SL.

What differs from the released program by default:

- a window lies around its own row and is as wide as the video. The program puts its middle at t / L, but rows
  at k / (L - 1), and L is the padded length: other videos of a batch move the vectors of a short one;
- a video's last frame counts (see MS-SL);
- queries are no negatives of any video that answers them.

`released/gmmformer.py` has the program's way. As there, a hard negative of a video is its single hardest
query, that of a query one of the `pool` hardest videos; contrast is over dot products, triplets are of
cosines.

Shapes as in `protocol`; F frames, C clips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.branch import OF_BRANCHES, BranchModel, BranchSettings
from whenabouts_systems.models.parts.layers import (
    Attention,
    AttentionBlock,
    ModularPooling,
    Pooled,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import PackedBlock, Packing
from whenabouts_systems.models.parts.partial_relevance import Hardness, contrast, query_diversity, triplets
from whenabouts_systems.models.parts.renaming import OF_LAYERS, names_by
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryEncoding,
    VideoEncoding,
    best_key,
    by_rows,
)
from whenabouts_systems.models.settings import NotNegative, Positive, Share, Size

__all__ = ["Config", "Model", "released_names"]

KEYS = "clips"


@dataclass(frozen=True)
class Config(BranchSettings):
    """The settings of GMMFormer; defaults are the released ones for TVR."""

    blocks: Size = 2
    """Gaussian blocks of each branch."""
    windows: tuple[Positive, ...] = (0.5, 1.0, 5.0)
    """Their widths; besides these each block has one attention without a window."""
    input_dropout: Share = 0.2
    dropout: Share = 0.2
    weight_clip_contrast: NotNegative = 0.05
    weight_diversity: NotNegative = 0.001
    diversity_margin: NotNegative = 0.15
    diversity_scale: NotNegative = 32.0
    pool_from_epoch: int = 30

    def __post_init__(self) -> None:
        object.__setattr__(self, "windows", tuple(self.windows))
        super().__post_init__()


_PER_WIDTH = 1 / 9
"""The standard deviation of a window of width 1, as a share of the sequence."""


@dataclass(frozen=True)
class Videos:
    """V videos through both branches: `clips` (V, C, D), and `whole` (V, D) of all frames."""

    clips: Tensor
    whole: Tensor


def windows(lengths: Tensor, steps: int, width: float, middles: Tensor | None = None) -> Tensor:
    """(B, T, T): the weight of row k for row t of a sequence of `lengths` (B,) rows; 1 at most in each row.

    exp(-d^2 / (2 (width / 9)^2)), where d is the distance as a share of the sequence: 1 from its first row to
    its last. Row t's window has its middle at row t or, with `middles` (B,), at the share t / middles. Values
    behind the end of a sequence mean nothing.
    """
    place = torch.arange(steps, device=lengths.device)
    last = (lengths - 1).clamp(min=1)[:, None, None]
    middle = place[:, None] / (last if middles is None else middles[:, None, None])
    there = place < lengths[:, None, None]
    exponent = ((place / last - middle) / (width * _PER_WIDTH)) ** 2 / -2
    highest = exponent.masked_fill(~there, -torch.inf).amax(-1, keepdim=True)
    return (exponent - highest).clamp(max=0).exp()


class GaussianAttention(Attention):
    """Attention whose scores a window of that width multiplies, before the softmax."""

    def __init__(self, width: int, heads: int, dropout: float, window: float) -> None:
        super().__init__(width, heads, dropout)
        self.window = window

    def near(self, lengths: Tensor, steps: int) -> Tensor:
        """(B, T, T): the windows of sequences of `lengths` (B,), padded to `steps` rows."""
        return windows(lengths, steps, self.window)

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """As `Attention.mix`, for a mask of keys: softmax((queries keys^T / sqrt(d)) * window) values."""
        near = self.near(seen.sum((1, 2, 3)), seen.shape[3])
        scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1]) * near[:, None]
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        weights = functional.dropout(weights, self.dropout, self.training)
        return weights.to(values.dtype) @ values


class GaussianBlock(PackedBlock):
    """The mean of several attention blocks: one as it is, and one for each width of `widths`."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        widths: Sequence[float],
        attention: type[GaussianAttention] = GaussianAttention,
    ) -> None:
        super().__init__()
        blocks = [AttentionBlock(width, heads, dropout) for _ in range(1 + len(widths))]
        for block, window in zip(blocks[1:], widths, strict=True):
            block.attention = attention(width, heads, dropout, window)
        self.blocks = nn.ModuleList(blocks)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for packed rows."""
        blocks = (cast("AttentionBlock", block) for block in self.blocks)
        return torch.stack([block(rows, packing) for block in blocks]).mean(0)


class GaussianEncoder(PackedBlock):
    """Gaussian blocks one after the other."""

    def __init__(self, blocks: Sequence[GaussianBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for packed rows."""
        for block in self.blocks:
            rows = cast("GaussianBlock", block)(rows, packing)
        return rows


class Model(BranchModel):
    """GMMFormer with fresh weights: a retriever (see `protocol`)."""

    attention = GaussianAttention
    keys = KEYS
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.frame_pooling = ModularPooling(config.hidden, 1)
        initialise(self, config.initializer_range)

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Keys: clips as unit vectors (V, C, D), which the mask (V, C) is of; part `whole` (V, D), unit."""
        seen = self._videos(videos)
        there = torch.ones(seen.clips.shape[:2], dtype=torch.bool, device=seen.clips.device)
        return VideoEncoding(there, {KEYS: unit(seen.clips)}, {KEYS: there}, {"whole": unit(seen.whole)})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the best clip's cosine and that of all frames, each with its share."""
        vectors = queries.search[KEYS]
        best = best_key(vectors, videos.keys[KEYS], videos.key_masks[KEYS])
        return self.config.clip_share * best + self.config.frame_share * (vectors @ videos.parts["whole"].T)

    def loss(self, batch: Batch) -> Losses:
        """Contrast (weighted) and triplets of both branches, and what keeps queries of a video apart."""
        sentences = self._sentences(batch.queries).vectors[:, 0]
        return self._terms(batch, sentences.float(), self._videos(batch.videos))

    def _terms(self, batch: Batch, sentences: Tensor, videos: Videos) -> Losses:
        """The losses of sentences (Q, D) and V videos."""
        config, own, positives = self.config, batch.video_of, self._positives(batch)
        hard = batch.epoch >= config.pool_from_epoch
        hardness = Hardness(config.pool, 1) if hard else Hardness()
        terms = {}
        for name, rows in (("clip", videos.clips), ("frame", videos.whole[:, None])):
            products, cosines = _scores(sentences, rows)
            weight = getattr(config, f"weight_{name}_contrast")
            terms[f"{name}_contrast"] = weight * contrast(products, own, positives)
            terms[f"{name}_triplets"] = triplets(cosines, own, positives, config.margin, hardness)
        diversity = query_diversity(sentences, own, config.diversity_margin, config.diversity_scale)
        return {**terms, "diversity": config.weight_diversity * diversity}

    def _positives(self, batch: Batch) -> Tensor:
        """(Q, V) bool: pairs that are not negatives, besides each query with its own video."""
        return batch.positives

    @by_rows
    def _videos(self, videos: ClipBatch) -> Videos:
        """Both branches, of V videos."""
        return self._seen(*self._averaged(videos))

    def _seen(self, clips: Tensor, frames: Tensor, mask: Tensor) -> Videos:
        """Both branches, of clips (V, C, W) and frames (V, F, W) of which there are `mask` (V, F)."""
        every = torch.ones(clips.shape[:2], dtype=torch.bool, device=mask.device)
        whole: Pooled = self.frame_pooling(self.frame(frames, mask), mask)
        return Videos(self.clip(clips, every), whole.vectors[:, 0])

    def _encoder(self) -> GaussianEncoder:
        """Gaussian blocks."""
        config = self.config
        blocks = [
            GaussianBlock(config.hidden, config.heads, config.dropout, config.windows, self.attention)
            for _ in range(config.blocks)
        ]
        return GaussianEncoder(blocks)


def _scores(sentences: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(Q, V) dot product, and cosine, of sentences (Q, D) with the best row of each video (V, N, D)."""
    there = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
    return best_key(sentences, rows, there), best_key(unit(sentences.float()), unit(rows.float()), there)


_RELEASED = (
    (r"^query\.encoder\.", "query_encoder."),
    (r"^clip\.encoder\.blocks\.0\.blocks\.", "clip_encoder.attn"),
    (r"^clip\.encoder\.blocks\.1\.blocks\.", "clip_encoder_2.attn"),
    (r"^frame\.encoder\.blocks\.0\.blocks\.", "frame_encoder_1.attn"),
    (r"^frame\.encoder\.blocks\.1\.blocks\.", "frame_encoder_2.attn"),
    (r"^frame_pooling\.linear\.", "modular_vector_mapping_2."),
)

released_names = names_by(Model, *_RELEASED, *OF_BRANCHES, *OF_LAYERS)
"""Shapes are the same, but the program's table of the clips' places is as long as that of the frames."""
