"""GMMFormer, a Gaussian-mixture transformer for partially relevant videos (Wang et al., AAAI 2024).

The successor of MS-SL. Instead of 528 proposals, a video has 32 clips, each of which sees its neighbourhood
at several widths (Gaussian blocks), and one vector of all its frames. A video scores 0.7 times the cosine of
the best clip plus 0.3 times that of all frames. The clips retrieve candidates, and `score_videos` ranks them.
There are no spans. Streams and frames are read as by MS-SL.

Departures from the released program by default:

- A window is centred on its row and scaled to the video's length. The program centres it at t / L but places
  rows at k / (L - 1), with the padded length L, so other videos of a batch change the vectors of a short one.
- A video's last frame counts (see MS-SL).
- Queries are never negatives of a video that answers them.

`released/gmmformer.py` follows the program. As there, a video's hard negative is its single hardest query,
and a query's is one of the `pool` hardest videos; contrast uses dot products, triplets use cosines.

Shapes as in `protocol`; F frames, C clips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from whenabouts_systems.models.parts.partial_relevance import contrast, query_diversity, triplets
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
        given: object = self.windows
        if isinstance(given, list):  # as read from a file
            object.__setattr__(self, "windows", tuple(given))
        super().__post_init__()


_PER_WIDTH = 1 / 9
"""The standard deviation of a window of width 1, as a share of the sequence."""


@dataclass(frozen=True)
class Videos:
    """The outputs of both branches for V videos: `clips` (V, C, D), and `whole` (V, D) of all frames."""

    clips: Tensor
    whole: Tensor


def windows(lengths: Tensor, steps: int, width: float, middles: Tensor | None = None) -> Tensor:
    """(B, T, T): the weight of row k for row t in sequences of `lengths` (B,) rows, at most 1.

    It is exp(-d^2 / (2 (width / 9)^2)), with the distance d as a share of the sequence: 1 from the first row
    to the last. Row t's window is centred at row t or, with `middles` (B,), at the share t / middles. Values
    in padding have no meaning.
    """
    place = torch.arange(steps, device=lengths.device)
    last = (lengths - 1).clamp(min=1)[:, None, None]
    middle = place[:, None] / (last if middles is None else middles[:, None, None])
    is_inside = place < lengths[:, None, None]
    exponent = ((place / last - middle) / (width * _PER_WIDTH)) ** 2 / -2
    highest = exponent.masked_fill(~is_inside, -torch.inf).amax(-1, keepdim=True)
    return (exponent - highest).clamp(max=0).exp()


class GaussianAttention(Attention):
    """Attention whose scores are multiplied by a Gaussian window before the softmax."""

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
    """The mean of several attention blocks: one without a window, and one for each of `widths`."""

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
        return torch.stack([block(rows, packing) for block in self.blocks]).mean(0)


class GaussianEncoder(PackedBlock):
    """A stack of Gaussian blocks."""

    def __init__(self, blocks: Sequence[GaussianBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for packed rows."""
        for block in self.blocks:
            rows = block(rows, packing)
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
        """Keys: clips (V, C, D), unit vectors, with the mask (V, C); part `whole` (V, D), unit vectors."""
        seen = self._videos(videos)
        mask = torch.ones(seen.clips.shape[:2], dtype=torch.bool, device=seen.clips.device)
        return VideoEncoding(mask, {KEYS: unit(seen.clips)}, {KEYS: mask}, {"whole": unit(seen.whole)})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(Q, V): the weighted sum of the best clip's cosine and that of all frames."""
        vectors = queries.search[KEYS]
        best = best_key(vectors, videos.keys[KEYS], videos.key_masks[KEYS])
        return self.config.clip_share * best + self.config.frame_share * (vectors @ videos.parts["whole"].T)

    def loss(self, batch: Batch) -> Losses:
        """Weighted contrast and triplets of both branches, and the diversity of a video's queries."""
        sentences = self._sentences(batch.queries).vectors[:, 0]
        return self._terms(batch, sentences.float(), self._videos(batch.videos))

    def _terms(self, batch: Batch, sentences: Tensor, videos: Videos) -> Losses:
        """The losses of sentences (Q, D) and V videos."""
        config, own, positives = self.config, batch.video_of, self._positives(batch)
        hard = batch.epoch >= config.pool_from_epoch
        pools = (config.pool, 1) if hard else (None, None)
        terms = {}
        for name, rows in (("clip", videos.clips), ("frame", videos.whole[:, None])):
            products, cosines = _scores(sentences, rows)
            weight = getattr(config, f"weight_{name}_contrast")
            terms[f"{name}_contrast"] = weight * contrast(products, own, positives)
            terms[f"{name}_triplets"] = triplets(cosines, own, positives, config.margin, pools)
        diversity = query_diversity(sentences, own, config.diversity_margin, config.diversity_scale)
        return {**terms, "diversity": config.weight_diversity * diversity}

    def _positives(self, batch: Batch) -> Tensor:
        """(Q, V) bool: pairs that are not negatives, besides each query with its own video."""
        return batch.positives

    @by_rows
    def _videos(self, videos: ClipBatch) -> Videos:
        """The outputs of both branches for V videos."""
        return self._seen(*self._averaged(videos))

    def _seen(self, clips: Tensor, frames: Tensor, mask: Tensor) -> Videos:
        """The outputs of both branches for clips (V, C, W) and frames (V, F, W) with `mask` (V, F)."""
        every = torch.ones(clips.shape[:2], dtype=torch.bool, device=mask.device)
        whole: Pooled = self.frame_pooling(self.frame(frames, mask), mask)
        return Videos(self.clip(clips, every), whole.vectors[:, 0])

    def _encoder(self) -> GaussianEncoder:
        """An encoder of Gaussian blocks."""
        config = self.config
        blocks = [
            GaussianBlock(config.hidden, config.heads, config.dropout, config.windows, self.attention)
            for _ in range(config.blocks)
        ]
        return GaussianEncoder(blocks)


def _scores(sentences: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(Q, V) dot product, and cosine, of sentences (Q, D) with the best row of each video (V, N, D)."""
    mask = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
    return best_key(sentences, rows, mask), best_key(unit(sentences.float()), unit(rows.float()), mask)


_RELEASED = (
    (r"^query\.encoder\.", "query_encoder."),
    (r"^clip\.encoder\.blocks\.0\.blocks\.", "clip_encoder.attn"),
    (r"^clip\.encoder\.blocks\.1\.blocks\.", "clip_encoder_2.attn"),
    (r"^frame\.encoder\.blocks\.0\.blocks\.", "frame_encoder_1.attn"),
    (r"^frame\.encoder\.blocks\.1\.blocks\.", "frame_encoder_2.attn"),
    (r"^frame_pooling\.linear\.", "modular_vector_mapping_2."),
)

released_names = names_by(Model, *_RELEASED, *OF_BRANCHES, *OF_LAYERS)
"""Shapes are equal, except that the program's position table of clips is as long as that of frames."""
