"""The layers of XML, which ReLoCLNet, HERO, MS-SL, GMMFormer, CONQUER and PREM also use.

They project features, add positions, attend within a sequence or to another one on the same grid, and pool
the words of a query to one vector for each stream. The "transformer" in the papers of XML and ReLoCLNet is
attention with an output layer and a residual LayerNorm; it has no feed-forward part.

Shapes: B sequences, T steps, N packed rows (see `packing`), Q queries, L words, M streams, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.packing import PackedBlock, Packing

RELEASED_PENALTY = -10000.0
"""The released programs add this to the scores of masked keys."""
_GRAINS = 1 << 16
"""The steps of dropout's probability: it draws 16 random bits for each value."""


class Dropout(nn.Dropout):
    """`nn.Dropout`, but faster on a CPU.

    On a CPU PyTorch draws one number for each value, which took a tenth of a step of XML. Here 64 random bits
    of NumPy's SFC64 serve four values: dropout of 6,500 x 3,072 values with its gradient takes 185 ms on one
    thread, and `nn.Dropout` 283 ms (on a busy machine). `p` is rounded to 1/65536.

    `inplace` overwrites the values. Use it only after linear layers and LayerNorm, whose results no earlier
    layer needs in the backward pass.
    """

    def forward(self, values: Tensor) -> Tensor:
        """The values; in training some are set to zero and the others scaled up."""
        return drop(values, self.p, training=self.training, inplace=self.inplace)


def drop(values: Tensor, p: float, *, training: bool = True, inplace: bool = False) -> Tensor:
    """As `functional.dropout`; on a CPU the probability `p` is rounded to 1/65536."""
    if not training or not p:
        return values
    if values.device.type != "cpu":
        return functional.dropout(values, p, inplace=inplace)
    noise = _noise(values, round(p * _GRAINS))
    return values.mul_(noise) if inplace else values * noise


def _noise(like: Tensor, dropped: int) -> Tensor:
    """Factors: 0 with probability `dropped` / 65536, else the factor that preserves the mean."""
    if dropped >= _GRAINS:
        return torch.zeros_like(like)
    # PyTorch's generator seeds NumPy's each time, so the training's seed decides, and processes differ.
    seed = int(torch.randint(2**62, (), dtype=torch.int64))
    bits = torch.from_numpy(np.random.SFC64(seed).random_raw((like.numel() + 3) // 4).view(np.int16))
    kept = bits[: like.numel()] >= dropped - _GRAINS // 2
    return kept.view(like.shape).to(like.dtype).mul_(_GRAINS / (_GRAINS - dropped))


class InputProjection(PackedBlock):
    """LayerNorm of the raw features, dropout, linear layer, ReLU."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.dropout = Dropout(dropout, inplace=True)
        self.linear = nn.Linear(features, width)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, features) to (N, width), for packed rows."""
        projected: Tensor = self.linear(self.dropout(self.norm(rows)))
        return projected.relu()


class PositionEmbedding(PackedBlock):
    """Adds a learned vector for each position, then LayerNorm and dropout.

    For the error about too long sequences, `noun` names the steps of the sequence, and `setting` the setting
    that sizes the table (default: `max_` and the noun).
    """

    def __init__(self, places: int, width: int, dropout: float, noun: str, setting: str = "") -> None:
        super().__init__()
        self.table = nn.Embedding(places, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout, inplace=True)
        self.noun, self.setting = noun, setting

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, width) to (N, width), for packed rows. Raises UsageError for a too long sequence."""
        check_length(packing.steps, self.table.num_embeddings, self.noun, self.setting)
        placed = self.norm(rows + self.table(packing.positions()))
        return cast("Tensor", self.dropout(placed))


def check_length(steps: int, places: int, noun: str, setting: str = "") -> None:
    """Raise UsageError if a sequence has more `steps` than a table has `places`, which `setting` sets."""
    if steps > places:
        raise UsageError(
            f"a sequence of {steps} {noun}, but the model has places for {places}: "
            f"cut or pool it when it is read, or train with {setting or f'max_{noun}'} = {steps}"
        )


def initialise(model: nn.Module, spread: float) -> None:
    """Draw new weights as in the released XML.

    Linear layers and tables: normal with standard deviation `spread`, biases zero. LayerNorm starts as the
    identity; convolutions keep PyTorch's initialisation.
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=spread)
        elif isinstance(module, nn.Conv1d):
            module.reset_parameters()
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def unit(rows: Tensor) -> Tensor:
    """Rows scaled to unit length (rows of zeros stay zero)."""
    return torch.nn.functional.normalize(rows, dim=-1)


class Attention(nn.Module):
    """Scaled dot-product attention with several heads and no output layer, on packed rows."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.heads = heads
        self.dropout = dropout

    def forward(
        self, rows: Tensor, others: Tensor, packing: Packing, *, product_mask: bool = False
    ) -> Tensor:
        """(N, D): attention of `rows` (N, D) to the `others` (N, D) of the same sequence, packed equally.

        Padded keys are masked. With `product_mask`, the released programs' penalty is added where either side
        is padding instead, so that a padded row attends to everything, also to padding.
        """
        projected = (self.query(rows), self.key(others), self.value(others))
        pieces = zip(packing.pieces, *map(packing.split, projected), strict=True)
        return torch.cat([self._mixed(piece, split, product_mask) for piece, *split in pieces])

    def _mixed(self, piece: Packing, projected: Sequence[Tensor], product_mask: bool) -> Tensor:
        """(n, D) from the packed queries, keys and values (n, D) of one piece of the batch."""
        queries, keys, values = (in_heads(piece.unpack(rows), self.heads) for rows in projected)
        seen = piece.mask[:, None, None]
        if product_mask:
            seen = (~(piece.mask[:, None, :, None] & seen)).to(queries.dtype) * RELEASED_PENALTY
        return piece.pack(self.mix(queries, keys, values, seen).transpose(1, 2).flatten(2))

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """(B, heads, T, d): softmax(queries keys^T / sqrt(d)) values; all arguments are (B, heads, T, d).

        `seen` (B, 1, 1 or T, T) is true for visible keys (bool), or added to the scores (float).
        """
        return attend(queries, keys, values, seen, self.dropout if self.training else 0.0)


def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, dropout: float) -> Tensor:
    """(B, heads, T, d): scaled dot-product attention, with dropout on a CPU faster than PyTorch's.

    Queries are (B, heads, T, d), keys and values (B, heads, K, d). `seen` (B, 1, 1 or T, K) is true for
    visible keys (bool), or added to the scores (float). Without a visible key the result has no meaning, but
    is finite.

    PyTorch has no fused kernel with dropout for CPUs; the code below, with `drop`, takes 2/3 of its time.
    """
    if not dropout or queries.device.type != "cpu":
        return scaled_dot_product_attention(queries, keys, values, seen, dropout)
    if seen.dtype == torch.bool:
        # Half of the lowest number: added to a score it stays finite; softmax of infinities would be NaN.
        unseen = torch.finfo(queries.dtype).min / 2
        seen = torch.zeros_like(seen, dtype=queries.dtype).masked_fill_(~seen, unseen)
    penalty = seen.expand(*queries.shape[:2], -1, -1).flatten(0, 1)
    scale = 1 / math.sqrt(queries.shape[-1])
    # One product scales the scores and adds the penalty.
    scores = torch.baddbmm(penalty, queries.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2), alpha=scale)
    mixed = torch.bmm(drop(scores.softmax(-1), dropout), values.flatten(0, 1))
    return mixed.view(*queries.shape[:2], *mixed.shape[1:])


def in_heads(padded: Tensor, heads: int) -> Tensor:
    """(B, T, D) to (B, heads, T, D / heads)."""
    return padded.view(*padded.shape[:2], heads, padded.shape[2] // heads).transpose(1, 2)


class AttentionBlock(PackedBlock):
    """Self-attention, output layer, dropout, residual LayerNorm."""

    def __init__(self, width: int, heads: int, dropout: float, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(dropout, inplace=True)
        self.norm = nn.LayerNorm(width, epsilon)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for packed rows."""
        mixed = self.dropout(self.output(self.attention(rows, rows, packing)))
        return cast("Tensor", self.norm(mixed + rows))


class CrossAttentionBlock(nn.Module):
    """Attention to another stream of the same video, then residual LayerNorm; no output layer."""

    def __init__(self, width: int, heads: int, dropout: float, *, product_mask: bool = False) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.norm = nn.LayerNorm(width)
        self.product_mask = product_mask

    def forward(self, rows: Tensor, others: Tensor, packing: Packing) -> Tensor:
        """(N, D): packed clips of one stream after attention to those of the other, packed equally."""
        mixed = self.attention(rows, others, packing, product_mask=self.product_mask)
        return cast("Tensor", self.norm(mixed + rows))


class Pooled(NamedTuple):
    """`vectors` (Q, M, D), one for each stream; `weights` (Q, L, M) of the words, 0 in padding."""

    vectors: Tensor
    weights: Tensor


class ModularPooling(nn.Module):
    """Each stream has its own attention over the words of the query (XML, "modular" queries)."""

    def __init__(self, width: int, streams: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, streams, bias=False)

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """A vector for each stream from words (Q, L, D) with their mask (Q, L), and the words' weights."""
        weights = self.linear(words).masked_fill(~mask[..., None], -1e10).softmax(1)
        return Pooled(torch.bmm(weights.transpose(1, 2), words), weights)


class _SamePooling(nn.Module):
    """One vector for all streams."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def _for_all(self, vectors: Tensor, weights: Tensor) -> Pooled:
        """Repeat a vector (Q, D) and the weights (Q, L) of the words for all streams."""
        return Pooled(
            vectors[:, None].expand(-1, self.streams, -1), weights[:, :, None].expand(-1, -1, self.streams)
        )


class MaxPooling(_SamePooling):
    """The largest value of each dimension over the words, the same for every stream."""

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """The vectors of words (Q, L, D); a word's weight is its share of the largest values."""
        values, places = words.masked_fill(~mask[..., None], -torch.inf).max(1)
        counts = torch.zeros_like(mask, dtype=words.dtype)
        counts.scatter_add_(1, places, torch.ones_like(values).detach())
        return self._for_all(values, counts / counts.sum(1, keepdim=True))


class MeanPooling(_SamePooling):
    """The mean of the words, the same for every stream."""

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """The vectors of words (Q, L, D), all with equal weight."""
        weights = mask / mask.sum(1, keepdim=True).clamp(min=1)
        return self._for_all(torch.einsum("ql,qld->qd", weights.to(words.dtype), words), weights)
