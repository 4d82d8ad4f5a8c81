"""The layers of the DETR family: sine positions, transformer layers with positions, and decoders.

Positions are added to the queries and keys of attention, never to the values. LayerNorm follows each part.

Shapes: P pairs, T clips, L words, N predicted windows, S steps of a sequence, K keys, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.layers import Dropout, attend, in_heads
from whenabouts_systems.models.parts.transformer import perceptron

_TEMPERATURE = 10_000.0


def sines(angles: Tensor, width: int) -> Tensor:
    """(..., width) of angles (...): sines at even and cosines at odd columns, with falling frequencies.

    Column k has the angle / 10000^(2 floor(k / 2) / width).
    """
    turns = torch.arange(0, width, 2, device=angles.device, dtype=torch.float32) / width
    turned = angles.to(torch.float32)[..., None] / _TEMPERATURE**turns
    return torch.stack([turned.sin(), turned.cos()], -1).flatten(-2)[..., :width]


def places_of(mask: Tensor, width: int) -> Tensor:
    """(V, T, width): sine positions of clips; the angle rises to a full turn at the video's last clip."""
    count = mask.cumsum(1, dtype=torch.float32)
    return sines(count / (count[:, -1:] + 1e-6) * (2 * math.pi), width)


class Projection(nn.Sequential):
    """`layers` times LayerNorm, dropout, linear layer and ReLU, without the last ReLU.

    `bare` is the number (from 0) of the layer without ReLU instead; there may be no such layer.
    """

    def __init__(
        self, features: int, width: int, layers: int, dropout: float, bare: int | None = None
    ) -> None:
        steps: list[nn.Module] = []
        for layer in range(layers):
            wide = features if layer == 0 else width
            last = layer == (layers - 1 if bare is None else bare)
            active = nn.Identity() if last else nn.ReLU()
            steps += [nn.LayerNorm(wide), Dropout(dropout), nn.Linear(wide, width), active]
        super().__init__(*steps)


class FeedForward(nn.Module):
    """Two linear layers with ReLU between them, or PReLU if `learned`."""

    def __init__(self, width: int, inner: int, dropout: float, *, learned: bool = False) -> None:
        super().__init__()
        self.wide = nn.Linear(width, inner)
        self.activation = LearnedReLU() if learned else nn.ReLU()
        self.dropout = Dropout(dropout)
        self.narrow = nn.Linear(inner, width)

    def forward(self, rows: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        widened: Tensor = self.narrow(self.dropout(self.activation(self.wide(rows))))
        return widened


class LearnedReLU(nn.PReLU):
    """`nn.PReLU` with one weight; its backward pass takes a quarter of the time on a CPU."""

    def forward(self, values: Tensor) -> Tensor:
        """The same shape."""
        if values.device.type != "cpu":
            return super().forward(values)
        activated: Tensor = _LearnedReLU.apply(values, self.weight)  # type: ignore[no-untyped-call]
        return activated


class _LearnedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(values, weight)
        return functional.leaky_relu(values, float(weight))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        values, weight = ctx.saved_tensors
        negative = values.clamp(max=0)
        if values.dtype == torch.float32:
            below = torch.dot(gradient.flatten(), negative.flatten())
        else:  # sum millions of values in full precision
            below = (gradient * negative).sum(dtype=weight.dtype)
        onward = torch.ops.aten.leaky_relu_backward(gradient, values, float(weight), False)
        return onward, below.expand_as(weight)


class Attention(nn.MultiheadAttention):
    """PyTorch's attention with the same names of weights, faster in training on a CPU (`layers.attend`)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__(width, heads, dropout, batch_first=True)

    def mixed(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        unseen: Tensor | None = None,
    ) -> Tensor:
        """(P, S, D) from queries (P, S, D), and keys and values (P, K, D) with their mask (P, K).

        `unseen` (P * heads, S, K) bool are keys to mask in addition to the padding.
        """
        weights = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        queries, keys, values = (
            in_heads(functional.linear(rows, weight, bias), self.num_heads)
            for rows, (weight, bias) in zip((queries, keys, values), weights, strict=True)
        )
        seen = _everything(keys) if mask is None else mask[:, None, None]
        if unseen is not None:
            seen = seen & ~unseen.view(len(queries), self.num_heads, *unseen.shape[1:])
        attended = attend(queries, keys, values, seen, self.dropout if self.training else 0.0)
        joined: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return joined


def _everything(keys: Tensor) -> Tensor:
    """(1, 1, 1, K): a mask of all keys (P, heads, K, d)."""
    return keys.new_ones((1, 1, 1, keys.shape[2]), dtype=torch.bool)


class DropPath(nn.Module):
    """Drops the output of a residual branch for whole sequences of a batch (stochastic depth)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, added: Tensor) -> Tensor:
        """(P, S, D); in training, the kept sequences are scaled up."""
        if not self.training or not self.p:
            return added
        kept = torch.rand((len(added), 1, 1), device=added.device) >= self.p
        return added * kept / (1 - self.p)


class Summing(nn.Module):
    """The part of a layer after its attention: LayerNorm, a feed-forward part, LayerNorm.

    `learned` uses PReLU instead of ReLU. `path` drops residual branches as wholes (`DropPath`).
    """

    def __init__(self, width: int, inner: int, dropout: float, *, learned: bool, path: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, inner, dropout, learned=learned)
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = DropPath(dropout) if path else Dropout(dropout)

    def summed(self, rows: Tensor, mixed: Tensor, norm: nn.LayerNorm | None = None) -> Tensor:
        """(P, S, D) from rows (P, S, D) and the output for them of the attention with LayerNorm `norm`."""
        rows = (norm or self.attention_norm)(rows + self.dropout(mixed))
        encoded: Tensor = self.feedforward_norm(rows + self.dropout(self.feedforward(rows)))
        return encoded

    def informed(self, rows: Tensor, mixed: Tensor) -> Tensor:
        """As `summed`, but the feed-forward part is added to rows before LayerNorm (QD-DETR)."""
        rows = rows + self.dropout(mixed)
        widened = self.dropout(self.feedforward(self.attention_norm(rows)))
        encoded: Tensor = self.feedforward_norm(rows + widened)
        return encoded


class SelfLayer(Summing):
    """Attention within a sequence, then a feed-forward part; see `Summing`."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        *,
        learned: bool = False,
        path: bool = False,
    ) -> None:
        super().__init__(width, inner, dropout, learned=learned, path=path)
        self.attention = Attention(width, heads, dropout)

    def forward(self, rows: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """(P, S, D) rows with their places and mask to (P, S, D)."""
        seeking = rows + places
        return self.summed(rows, self.attention.mixed(seeking, seeking, rows, mask))


class SelfLayers(nn.ModuleList):
    """A stack of `SelfLayer`; `sizes` and `options` are passed to each."""

    def __init__(self, layers: int, *sizes: Any, **options: bool) -> None:
        super().__init__(SelfLayer(*sizes, **options) for _ in range(layers))

    def forward(self, rows: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """(P, S, D) rows with their places and mask to (P, S, D)."""
        for layer in self:
            rows = layer(rows, places, mask)
        return rows

    def with_token(
        self, token: Tensor, place: Tensor, rows: Tensor, places: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode a token (P, 1, D) or (D,) together with rows (P, S, D); returns (P, D) and (P, S, D)."""
        single = (len(rows), 1, -1)
        joined = torch.cat([token.expand(*single), rows], 1)
        joined_places = torch.cat([place.expand(*single), places], 1)
        encoded = self(joined, joined_places, functional.pad(mask, (1, 0), value=True))
        return encoded[:, 0], encoded[:, 1:]

    def with_words(
        self, clips: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Encode clips (P, T, D) and words (P, L, D) as one sequence; returns rows, places and mask.

        Words have place 0.
        """
        both = torch.cat([mask, word_mask], 1)
        places = torch.cat([places_of(mask, clips.shape[-1]), torch.zeros_like(words)], 1)
        return self(torch.cat([clips, words], 1), places, both), places, both


class TextToVideo(nn.ModuleList):
    """Layers in which clips attend to the words of a query (QD-DETR)."""

    def __init__(self, layers: int, *sizes: Any) -> None:
        super().__init__(SelfLayer(*sizes, learned=True) for _ in range(layers))

    def inform(
        self,
        clips: Tensor,
        places: Tensor,
        words: Tensor,
        mask: Tensor,
        unseen: Tensor | None,
        word_places: Tensor | None = None,
    ) -> Tensor:
        """(P, T, D) from clips (P, T, D) with their places, and words (P, L, D) with their mask.

        `unseen` (P * heads, T, L) bool are words to mask in addition to the padding.
        """
        for layer in cast("Iterable[SelfLayer]", self):
            sought = words if word_places is None else words + word_places
            mixed = layer.attention.mixed(clips + places, sought, words, mask, unseen)
            clips = layer.informed(clips, mixed)
        return clips


def mean_of_rows(rows: Tensor, mask: Tensor | None) -> Tensor:
    """(P, D): the mean of rows (P, S, D) over a mask (P, S), or over all rows (None)."""
    if mask is None:
        return rows.mean(1)
    return (rows * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class WindowLayer(SelfLayer):
    """Windows attend to each other, then to the clips and words (Moment-DETR)."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__(width, heads, inner, dropout)
        self.memory_attention = Attention(width, heads, dropout)
        self.memory_norm = nn.LayerNorm(width)

    def seek(self, windows: Tensor, queries: Tensor, memory: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """(P, N, D) from windows (P, N, D) with positions `queries`, and memory (P, S, D) with its places."""
        seeking = windows + queries
        mixed = self.attention.mixed(seeking, seeking, windows)
        windows = self.attention_norm(windows + self.dropout(mixed))
        mixed = self.memory_attention.mixed(windows + queries, memory + places, memory, mask)
        return self.summed(windows, mixed, self.memory_norm)


class _Mixing(nn.Module):
    """Attention with separate linear layers for contents and positions, which its scores combine."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.content_query = nn.Linear(width, width)
        self.content_key = nn.Linear(width, width)
        self.place_key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """(P, N, D) from queries and keys split into heads, and values (P, K, D)."""
        dropout = self.dropout if self.training else 0.0
        mixed = attend(queries, keys, in_heads(values, self.heads), seen, dropout)
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return joined


class AnchorSelfAttention(_Mixing):
    """Windows attend to each other (DAB-DETR)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__(width, heads, dropout)
        self.place_query = nn.Linear(width, width)

    def forward(self, windows: Tensor, places: Tensor) -> Tensor:
        """(P, N, D) windows with the positions of their anchors to (P, N, D)."""
        queries = in_heads(self.content_query(windows) + self.place_query(places), self.heads)
        keys = in_heads(self.content_key(windows) + self.place_key(places), self.heads)
        return self.mix(queries, keys, self.value(windows), _everything(keys))


class AnchorMemoryAttention(_Mixing):
    """Windows attend to clips; the sines of anchors and the positions of clips are compared as extra columns.

    The `first` layer, whose windows are still empty, also adds positions to contents.
    """

    def __init__(self, width: int, heads: int, dropout: float, *, first: bool) -> None:
        super().__init__(width, heads, dropout)
        self.place_query = nn.Linear(width, width) if first else None
        self.sine_query = nn.Linear(width, width)

    def forward(
        self, windows: Tensor, anchors: Tensor, turned: Tensor, memory: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        """(P, N, D); `anchors` and `turned` (P, N, D): positions and sines of anchors; `memory` (P, T, D)."""
        queries, keys = self.content_query(windows), self.content_key(memory)
        where = self.place_key(places)
        if self.place_query is not None:
            queries, keys = queries + self.place_query(anchors), keys + where
        queries, keys = (
            torch.cat([in_heads(rows, self.heads) for rows in both], -1)
            for both in ((queries, self.sine_query(turned)), (keys, where))
        )
        return self.mix(queries, keys, self.value(memory), mask[:, None, None])


class AnchorLayer(Summing):
    """A layer of DAB-DETR's decoder for spans; `path` and `learned` as in `Summing`."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        *,
        first: bool,
        learned: bool = True,
        path: bool = False,
    ) -> None:
        super().__init__(width, inner, dropout, learned=learned, path=path)
        self.attention = AnchorSelfAttention(width, heads, dropout)
        self.memory_attention = AnchorMemoryAttention(width, heads, dropout, first=first)
        self.memory_norm = nn.LayerNorm(width)

    def forward(
        self,
        windows: Tensor,
        anchors: Tensor,
        turned: Tensor,
        memory: tuple[Tensor, Tensor, Tensor],
        gate: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(P, N, D) to (P, N, D); see `AnchorMemoryAttention`. `memory` comes with its places and mask.

        `gate` changes the windows after they have attended to each other.
        """
        windows = self.attention_norm(windows + self.dropout(self.attention(windows, anchors)))
        windows = windows if gate is None else gate(windows)
        mixed = self.memory_attention(windows, anchors, turned, *memory)
        return self.summed(windows, mixed, self.memory_norm)


class AnchorDecoder(nn.Module):
    """DAB-DETR's decoder for spans: each window has an anchor (centre, width), which every layer refines.

    All layers share one final LayerNorm. The first layer does not scale the sines of anchors by the contents
    of windows.
    """

    def __init__(
        self,
        layers: int,
        anchors: int,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        *,
        path: bool = False,
    ) -> None:
        super().__init__()
        self.width = width
        self.anchors = nn.Embedding(anchors, 2)
        self.layers = nn.ModuleList(
            AnchorLayer(width, heads, inner, dropout, first=layer == 0, path=path) for layer in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.anchor_places = perceptron(width, width, (width,))
        self.scale = perceptron(width, width, (width,))
        self.width_of = perceptron(width, 1, (width,))
        self.mend = perceptron(width, 2)

    def forward(
        self, memory: Tensor, places: Tensor, mask: Tensor, windows: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Windows (layers, P, N, D), and anchors (1 + layers, P, N, 2) before and after each layer.

        `windows` (P, N, D) are the contents before the first layer (None: zeros). An anchor's gradient
        reaches only the layer that refined it.
        """
        anchors = self.anchors.weight.sigmoid().expand(len(memory), -1, -1)
        if windows is None:
            windows = memory.new_zeros((*anchors.shape[:2], self.width))
        begun, outcomes = [anchors], []
        for number, layer in enumerate(self.layers):
            # Sines of the centre in the first half, of the width in the second.
            turned = sines(anchors * (2 * math.pi), self.width // 2).flatten(-2)
            where = self.anchor_places(turned)
            if number:
                turned = turned * self.scale(windows)
            turned = turned * (self.width_of(windows).sigmoid() / anchors[..., 1:])
            windows = layer(windows, where, turned, (memory, places, mask))
            mended = (self.mend(windows) + inverse_sigmoid(anchors)).sigmoid()
            begun.append(mended)
            anchors = mended.detach()
            outcomes.append(self.norm(windows))
        return torch.stack(outcomes), torch.stack(begun)


def inverse_sigmoid(shares: Tensor) -> Tensor:
    """The logit of shares in [0, 1], kept 0.001 away from both ends."""
    shares = shares.clamp(0, 1)
    return (shares.clamp(min=1e-3) / (1 - shares).clamp(min=1e-3)).log()
