"""The layers that XML is made of, and after it ReLoCLNet, HERO, MS-SL, GMMFormer, CONQUER and PREM.

From features to the model's width, places, attention within a sequence and from one sequence to another on
the same grid, dropout; and from the words of a query to one vector for each stream. What the papers of XML
and ReLoCLNet call a transformer is one attention with its output layer and a residual LayerNorm; there is no
feed-forward part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.packing import PackedBlock, Packing

RELEASED_PENALTY = -10000.0
"""What the released programs add to the scores of masked keys."""
_GRAINS = 1 << 16
"""Dropout draws 16 random bits a value."""


class Dropout(nn.Dropout):
    """`nn.Dropout` that is quicker on a CPU; elsewhere it is `nn.Dropout`.

    On a CPU PyTorch draws a number a value, which was a tenth of a step of XML. Here 64 random bits
    of NumPy's SFC64 serve four values: a dropout of 6,500 x 3,072 values with its gradient takes
    185 ms of one thread where `nn.Dropout` takes 283 (on a loaded machine). `p` is rounded to 1/65536.

    `inplace` overwrites the values: only for what no earlier layer needs again in the backward pass (the
    results of linear layers and of LayerNorm).
    """

    def forward(self, values: Tensor) -> Tensor:
        """The input with some of its values dropped while training, the rest scaled up."""
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
    """0 with probability `dropped` / 65536, else what keeps the mean."""
    if dropped >= _GRAINS:
        return torch.zeros_like(like)
    # PyTorch's generator seeds NumPy's anew each time: a seed of the training decides, processes stay apart.
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
    """A learned vector for each place is added; LayerNorm, dropout.

    `noun` is what the sequence is made of, for the message where one is longer than the table, and `setting`
    what makes the table (else `max_` and the noun).
    """

    def __init__(self, places: int, width: int, dropout: float, noun: str, setting: str = "") -> None:
        super().__init__()
        self.table = nn.Embedding(places, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout, inplace=True)
        self.noun, self.setting = noun, setting

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, width) to (N, width), for packed rows; UsageError where a sequence is too long."""
        check_length(packing.steps, self.table.num_embeddings, self.noun, self.setting)
        placed: Tensor = self.norm(rows + self.table(packing.positions()))
        dropped: Tensor = self.dropout(placed)
        return dropped


def check_length(steps: int, places: int, noun: str, setting: str = "") -> None:
    """Raise UsageError where a sequence has more `steps` than a table has places, which `setting` makes."""
    if steps > places:
        raise UsageError(
            f"a sequence of {steps} {noun}, but the model has places for {places}: "
            f"cut or pool it when it is read, or train with {setting or f'max_{noun}'} = {steps}"
        )


def initialise(model: nn.Module, spread: float) -> None:
    """Draw fresh weights: normal with deviation `spread` for linear layers and tables, biases zero.

    LayerNorm starts as the identity; convolutions keep PyTorch's own start. As in the released XML.
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=spread)
        elif isinstance(module, nn.Conv1d):
            module.reset_parameters()
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def unit(rows: Tensor) -> Tensor:
    """Rows brought to length 1 (a row of zeros stays one)."""
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
        """What each of `rows` (N, D) takes from the `others` (N, D) of its own sequence; (N, D).

        Both are packed the same way. With `product_mask` the penalty of the released programs is added
        where either side is padding, so that a padded row attends to everything, padding too; else the
        keys alone are masked.
        """
        projected = (self.query(rows), self.key(others), self.value(others))
        pieces = zip(packing.pieces, *map(packing.split, projected), strict=True)
        return torch.cat([self._mixed(piece, split, product_mask) for piece, *split in pieces])

    def _mixed(self, piece: Packing, projected: Sequence[Tensor], product_mask: bool) -> Tensor:
        """(n, D) of the packed queries, keys and values (n, D) of one piece of the batch."""
        queries, keys, values = (in_heads(piece.unpack(rows), self.heads) for rows in projected)
        seen = _product_penalty(piece.mask, queries) if product_mask else piece.mask[:, None, None]
        return piece.pack(self.mix(queries, keys, values, seen).transpose(1, 2).flatten(2))

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """(B, heads, T, d): softmax(queries keys^T / sqrt(d)) values, all of them (B, heads, T, d).

        `seen` (B, 1, 1 or T, T) is true where a key is seen, or is added to the scores.
        """
        return attend(queries, keys, values, seen, self.dropout if self.training else 0.0)


def attend(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, dropout: float) -> Tensor:
    """(B, heads, T, d): scaled dot-product attention, quicker than PyTorch's with dropout on a CPU.

    Queries are (B, heads, T, d), keys and values (B, heads, K, d). `seen` (B, 1, 1 or T, K) is true where a
    key is seen, or is added to the scores. Where no key is seen the result means nothing, but is a number.

    With dropout PyTorch has no fused kernel for a CPU; written out, with `drop`, it takes 2/3 of the time.
    """
    if not dropout or queries.device.type != "cpu":
        return scaled_dot_product_attention(queries, keys, values, seen, dropout)
    if seen.dtype == torch.bool:
        # Half of the lowest number: added to a score it is no infinity, of which softmax would make NaN.
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
    return padded.view(*padded.shape[:2], heads, -1).transpose(1, 2)


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
        normed: Tensor = self.norm(mixed + rows)
        return normed


class CrossAttentionBlock(nn.Module):
    """Attention to another stream of the same video, residual LayerNorm; no output layer."""

    def __init__(self, width: int, heads: int, dropout: float, *, product_mask: bool = False) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.norm = nn.LayerNorm(width)
        self.product_mask = product_mask

    def forward(self, rows: Tensor, others: Tensor, packing: Packing) -> Tensor:
        """(N, D) packed clips of one stream, informed by those of the other, packed the same way."""
        mixed = self.attention(rows, others, packing, product_mask=self.product_mask)
        normed: Tensor = self.norm(mixed + rows)
        return normed


def _product_penalty(mask: Tensor, like: Tensor) -> Tensor:
    """(B, 1, T, T): the penalty where either of the two positions is padding."""
    both = mask[:, None, :, None] & mask[:, None, None, :]
    return (~both).to(like.dtype) * RELEASED_PENALTY


class Pooled(NamedTuple):
    """`vectors` (Q, M, D), one for each of M streams; `weights` (Q, L, M) of the words, 0 behind the end."""

    vectors: Tensor
    weights: Tensor


class ModularPooling(nn.Module):
    """Each stream has its own attention over the words of the query (XML, "modular" queries)."""

    def __init__(self, width: int, streams: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, streams, bias=False)

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """From the words (Q, L, D) of Q queries with their mask (Q, L)."""
        weights = self.linear(words).masked_fill(~mask[..., None], -1e10).softmax(1)
        return Pooled(torch.bmm(weights.transpose(1, 2), words), weights)


class _SamePooling(nn.Module):
    """One vector for all streams."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def _for_all(self, vectors: Tensor, weights: Tensor) -> Pooled:
        """From a vector (Q, D) and the weights (Q, L) of the words."""
        return Pooled(
            vectors[:, None].expand(-1, self.streams, -1), weights[:, :, None].expand(-1, -1, self.streams)
        )


class MaxPooling(_SamePooling):
    """The largest value of each dimension over the words, the same for every stream."""

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """From the words (Q, L, D) of Q queries; the weights count how often a word is the largest."""
        values, places = words.masked_fill(~mask[..., None], -torch.inf).max(1)
        counts = torch.zeros_like(mask, dtype=words.dtype)
        counts.scatter_add_(1, places, torch.ones_like(values).detach())
        return self._for_all(values, counts / counts.sum(1, keepdim=True))


class MeanPooling(_SamePooling):
    """The mean of the words, the same for every stream."""

    def forward(self, words: Tensor, mask: Tensor) -> Pooled:
        """From the words (Q, L, D) of Q queries; every word counts the same."""
        weights = mask / mask.sum(1, keepdim=True).clamp(min=1)
        return self._for_all(torch.einsum("ql,qld->qd", weights.to(words.dtype), words), weights)
