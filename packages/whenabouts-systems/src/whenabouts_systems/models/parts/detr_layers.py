"""The layers of the DETR family: places by sines, transformer layers to which places are added, heads.

Places are added to what seeks and to what is sought, never to what is passed on; LayerNorm stands behind each
part. Shapes: P pairs, T clips, L words, N predicted windows, D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.layers import Dropout, attend, in_heads
from whenabouts_systems.models.parts.transformer import perceptron

_TEMPERATURE = 10_000.0


def sines(angles: Tensor, width: int) -> Tensor:
    """(..., width) of (...,): sines at even and cosines at odd places, of ever slower turns.

    Place k turns as angle / 10000^(2 floor(k / 2) / width).
    """
    turns = torch.arange(width, device=angles.device, dtype=torch.float32) // 2 * 2 / width
    turned = angles.to(torch.float32)[..., None] / _TEMPERATURE**turns
    return torch.stack([turned[..., 0::2].sin(), turned[..., 1::2].cos()], -1).flatten(-2)


def places_of(mask: Tensor, width: int) -> Tensor:
    """(V, T, width): the sines of each clip's place among the clips of its video, from 0 to a full turn."""
    count = mask.cumsum(1, dtype=torch.float32)
    return sines(count / (count[:, -1:] + 1e-6) * (2 * math.pi), width)


class Projection(nn.Sequential):
    """Several times LayerNorm, dropout, linear layer and ReLU; behind the last linear layer is no ReLU.

    `bare`: behind which one there is none instead, counted from 0 (there may be no such layer).
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
    """Two linear layers; `learned`: PReLU between them instead of ReLU."""

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
    """`nn.PReLU` of one weight, whose backward pass takes a quarter of the time on a CPU."""

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
        else:  # the sum of millions, not in half precision
            below = (gradient * negative).sum(dtype=weight.dtype)
        onward = torch.ops.aten.leaky_relu_backward(gradient, values, float(weight), False)
        return onward, below.expand_as(weight)


class Attention(nn.MultiheadAttention):
    """PyTorch's attention with its weights by their names, quicker in training on a CPU (`layers.attend`)."""

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
        """(P, S, D) of queries (P, S, D), keys and values (P, K, D) with their mask (P, K).

        `unseen` (P * heads, S, K): keys that are not seen beside those of the padding.
        """
        weights = zip(self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        queries, keys, values = (
            in_heads(functional.linear(rows, weight, bias), self.num_heads)
            for rows, (weight, bias) in zip((queries, keys, values), weights, strict=True)
        )
        everything = (len(keys), keys.shape[2])
        seen = queries.new_ones(everything, dtype=torch.bool) if mask is None else mask
        seen = seen[:, None, None]
        if unseen is not None:
            seen = seen & ~unseen.view(len(queries), self.num_heads, *unseen.shape[1:])
        attended = attend(queries, keys, values, seen, self.dropout if self.training else 0.0)
        joined: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return joined


class DropPath(nn.Module):
    """Drops what a layer adds, for some sequences of a batch as a whole (stochastic depth)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, added: Tensor) -> Tensor:
        """(P, S, D); those that are kept in training are scaled up."""
        if not self.training or not self.p:
            return added
        kept = torch.rand((len(added), 1, 1), device=added.device) >= self.p
        return added * kept / (1 - self.p)


class Summing(nn.Module):
    """What stands behind the attention of a layer: LayerNorm, a feed-forward part, LayerNorm.

    `learned`: PReLU instead of ReLU. `path`: what the parts add is dropped as a whole (`DropPath`).
    """

    def __init__(self, width: int, inner: int, dropout: float, *, learned: bool, path: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, inner, dropout, learned=learned)
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = DropPath(dropout) if path else Dropout(dropout)

    def summed(self, rows: Tensor, mixed: Tensor) -> Tensor:
        """(P, S, D) rows and what attention mixed for them, to (P, S, D)."""
        rows = self.attention_norm(rows + self.dropout(mixed))
        encoded: Tensor = self.feedforward_norm(rows + self.dropout(self.feedforward(rows)))
        return encoded

    def informed(self, rows: Tensor, mixed: Tensor) -> Tensor:
        """As `summed`, but what the feed-forward part adds to is not normalised (QD-DETR)."""
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
        """(P, S, D) with their places and mask to (P, S, D)."""
        seeking = rows + places
        return self.summed(rows, self.attention.mixed(seeking, seeking, rows, mask))


class SelfLayers(nn.ModuleList):
    """Several of them, one after the other; `sizes` and `options` are those of each."""

    def __init__(self, layers: int, *sizes: Any, **options: bool) -> None:
        super().__init__(SelfLayer(*sizes, **options) for _ in range(layers))

    def forward(self, rows: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """(P, S, D) with their places and mask to (P, S, D)."""
        for layer in self:
            rows = layer(rows, places, mask)
        return rows

    def with_token(
        self, token: Tensor, place: Tensor, rows: Tensor, places: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(P, D) a token (P, 1, D) or (D,) with its `place`, and (P, S, D) rows, encoded together."""
        single = (len(rows), 1, -1)
        joined = torch.cat([token.expand(*single), rows], 1)
        joined_places = torch.cat([place.expand(*single), places], 1)
        encoded = self(joined, joined_places, functional.pad(mask, (1, 0), value=True))
        return encoded[:, 0], encoded[:, 1:]

    def with_words(
        self, clips: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of clips (P, T, D), then words (P, L, D), encoded together; their places (words: 0), mask."""
        both = torch.cat([mask, word_mask], 1)
        places = torch.cat([places_of(mask, clips.shape[-1]), torch.zeros_like(words)], 1)
        return self(torch.cat([clips, words], 1), places, both), places, both


class TextToVideoLayer(SelfLayer):
    """Clips look at the words of a query (QD-DETR)."""

    def inform(
        self,
        clips: Tensor,
        places: Tensor,
        words: Tensor,
        mask: Tensor,
        unseen: Tensor | None = None,
        word_places: Tensor | None = None,
    ) -> Tensor:
        """(P, T, D) clips with their places, and words (P, L, D) with their mask, to (P, T, D).

        `unseen` (P * heads, T, L): words that a clip does not see beside those of the padding.
        """
        seeking = clips + places
        sought = words if word_places is None else words + word_places
        mixed = self.attention.mixed(seeking, sought, words, mask, unseen)
        return self.informed(clips, mixed)


class TextToVideo(nn.ModuleList):
    """Several of them, one after the other."""

    def __init__(self, layers: int, *sizes: Any) -> None:
        super().__init__(TextToVideoLayer(*sizes, learned=True) for _ in range(layers))

    def inform(self, clips: Tensor, *words: Any) -> Tensor:
        """(P, T, D) to (P, T, D); the arguments are those of `TextToVideoLayer.inform`."""
        for layer in cast("Iterable[TextToVideoLayer]", self):
            clips = layer.inform(clips, *words)
        return clips


def mean_of_rows(rows: Tensor, mask: Tensor | None) -> Tensor:
    """(P, D) the mean of rows (P, S, D) with a mask (P, S); None: of all."""
    if mask is None:
        return rows.mean(1)
    return (rows * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def padding_of_others(clips: Tensor, words: Tensor, heads: int) -> Tensor:
    """(P * heads, T, L) bool, of the masks of clips and words: what the heads of released programs leave out.

    The programs lay heads beside pairs where PyTorch expects pairs beside heads, so that a head takes the
    padding of another pair (both as a clip and as a word) for that of its own.
    """
    return (~clips[:, :, None] & ~words[:, None]).repeat(heads, 1, 1)


class WindowLayer(SelfLayer):
    """Windows look at each other, then at the clips and words (Moment-DETR)."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__(width, heads, inner, dropout)
        self.memory_attention = Attention(width, heads, dropout)
        self.memory_norm = nn.LayerNorm(width)

    def seek(self, windows: Tensor, queries: Tensor, memory: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """(P, N, D) windows with the places `queries`, and a memory (P, S, D) with its own, to (P, N, D)."""
        seeking = windows + queries
        mixed = self.attention.mixed(seeking, seeking, windows)
        windows = self.attention_norm(windows + self.dropout(mixed))
        mixed = self.memory_attention.mixed(windows + queries, memory + places, memory, mask)
        windows = self.memory_norm(windows + self.dropout(mixed))
        outcome: Tensor = self.feedforward_norm(windows + self.dropout(self.feedforward(windows)))
        return outcome


class _Mixing(nn.Module):
    """Attention whose scores add what is there and where it is; both have linear layers of their own."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.content_query = nn.Linear(width, width)
        self.content_key = nn.Linear(width, width)
        self.place_key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor) -> Tensor:
        """(P, N, D) of queries and keys in heads, and values (P, K, D)."""
        dropout = self.dropout if self.training else 0.0
        mixed = attend(queries, keys, in_heads(values, self.heads), seen, dropout)
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return joined


class AnchorSelfAttention(_Mixing):
    """Windows look at each other (DAB-DETR)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__(width, heads, dropout)
        self.place_query = nn.Linear(width, width)

    def forward(self, windows: Tensor, places: Tensor) -> Tensor:
        """(P, N, D) with the places of their anchors to (P, N, D)."""
        queries = self.content_query(windows) + self.place_query(places)
        keys = self.content_key(windows) + self.place_key(places)
        everything = torch.ones(
            (len(windows), 1, 1, windows.shape[1]), dtype=torch.bool, device=windows.device
        )
        return self.mix(
            in_heads(queries, self.heads), in_heads(keys, self.heads), self.value(windows), everything
        )


class AnchorMemoryAttention(_Mixing):
    """Windows look at clips; the sines of their anchors are compared with the places of clips beside.

    The `first` layer, whose windows hold nothing yet, also adds places to what is there.
    """

    def __init__(self, width: int, heads: int, dropout: float, *, first: bool) -> None:
        super().__init__(width, heads, dropout)
        self.place_query = nn.Linear(width, width) if first else None
        self.sine_query = nn.Linear(width, width)

    def forward(
        self, windows: Tensor, anchors: Tensor, turned: Tensor, memory: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        """(P, N, D); `anchors`, `turned` (P, N, D) the anchors' places and sines, `memory` (P, T, D)."""
        queries, keys = self.content_query(windows), self.content_key(memory)
        where = self.place_key(places)
        if self.place_query is not None:
            queries, keys = queries + self.place_query(anchors), keys + where
        queries = torch.cat(
            [in_heads(queries, self.heads), in_heads(self.sine_query(turned), self.heads)], -1
        )
        keys = torch.cat([in_heads(keys, self.heads), in_heads(where, self.heads)], -1)
        return self.mix(queries, keys, self.value(memory), mask[:, None, None])


class AnchorLayer(Summing):
    """A layer of DAB-DETR's decoder on spans; `path` and `learned` as in `Summing`."""

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
        self, windows: Tensor, anchors: Tensor, turned: Tensor, memory: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        """(P, N, D) to (P, N, D); see `AnchorMemoryAttention`."""
        return self.seek(self.compare(windows, anchors), anchors, turned, memory, places, mask)

    def compare(self, windows: Tensor, anchors: Tensor) -> Tensor:
        """(P, N, D) windows that have looked at each other."""
        compared: Tensor = self.attention_norm(windows + self.dropout(self.attention(windows, anchors)))
        return compared

    def seek(
        self, windows: Tensor, anchors: Tensor, turned: Tensor, memory: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        """(P, N, D) windows that have looked at the memory too."""
        mixed = self.memory_attention(windows, anchors, turned, memory, places, mask)
        windows = self.memory_norm(windows + self.dropout(mixed))
        outcome: Tensor = self.feedforward_norm(windows + self.dropout(self.feedforward(windows)))
        return outcome


class AnchorDecoder(nn.Module):
    """DAB-DETR's decoder on spans: each window has an anchor (centre, width) that every layer mends.

    One LayerNorm stands behind all layers. The first does not scale the sines of anchors by what the windows
    hold.
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
        """Windows (layers, P, N, D), and anchors (1 + layers, P, N, 2) before and behind each layer.

        `windows` (P, N, D) is what they hold before the first layer (None: nothing).
        An anchor's gradient reaches the layer that mended it, and no layer before.
        """
        pairs = len(memory)
        anchors = self.anchors.weight.sigmoid().expand(pairs, -1, -1)
        if windows is None:
            windows = memory.new_zeros((pairs, anchors.shape[1], self.width))
        begun, outcomes = [anchors], []
        for number, layer in enumerate(self.layers):
            turned = anchor_sines(anchors, self.width)
            where = self.anchor_places(turned)
            if number:
                turned = turned * self.scale(windows)
            turned = turned * (self.width_of(windows).sigmoid() / anchors[..., 1:])
            windows = layer(windows, where, turned, memory, places, mask)
            mended = (self.mend(windows) + inverse_sigmoid(anchors)).sigmoid()
            begun.append(mended)
            anchors = mended.detach()
            outcomes.append(self.norm(windows))
        return torch.stack(outcomes), torch.stack(begun)


def anchor_sines(anchors: Tensor, width: int) -> Tensor:
    """(..., width) of anchors (..., 2): the sines of the centre, then those of the width, half each."""
    half = sines(anchors * (2 * math.pi), width // 2)
    return half.flatten(-2)


def inverse_sigmoid(shares: Tensor) -> Tensor:
    """The logit of shares in [0, 1], kept off both ends by a thousandth."""
    shares = shares.clamp(0, 1)
    return (shares.clamp(min=1e-3) / (1 - shares).clamp(min=1e-3)).log()
