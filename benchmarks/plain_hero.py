"""HERO's fine-tuning as one would write it down at first, and as its program computes: the yardstick.

Written from what is known of the program alone. It shares nothing with the package but the names of the
parameters, which it is given. What makes it plain: every sentence is padded to the longest of the batch, what
it reads is picked from padded clips and words by an index over all of their width, what became of the clips
is collected by loops over videos and sentences, attention is spelled out, and dropout is PyTorch's.

Shapes: V videos of T clips, S sentences of the batch, F clips and L words of one, M places, Q queries, one a
video; H width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from benchmarks.plain_layers import PlainLayers
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]
FAR_BELOW = -1e4
NO_WORD = 1


@dataclass(frozen=True)
class Collated:
    """A batch as the program's data classes make it.

    `words` (S, L) with their first token, `clips` (S, F, D) of each sentence, padded; `index` (S, M) picks
    from clips and words side by side, `mask` (S, M) says how far. `rows` (V, T, D) with their mask are all
    clips; `frames` of each video, sentence by sentence. Queries (Q, L) begin with a token; `spans` (Q, 2).
    """

    words: Tensor
    clips: Tensor
    index: Tensor
    mask: Tensor
    rows: Tensor
    row_mask: Tensor
    frames: Sequence[Sequence[Sequence[int]]]
    queries: Tensor
    query_mask: Tensor
    spans: Tensor


@dataclass(frozen=True)
class Losses:
    """Margin and weights of the terms."""

    margin: float = 0.1
    negatives: float = 8.0
    spans: float = 0.01


class PlainHero(PlainLayers):
    """The losses of a batch with a query a video, from weights by their names."""

    def __init__(self, weights: Weights, heads: tuple[int, int, int], dropout: float) -> None:
        super().__init__(weights, dropout)
        self.cross_heads, self.temporal_heads, self.query_heads = heads

    def losses(self, batch: Collated, terms: Losses) -> tuple[Tensor, Tensor, Tensor]:
        """Of spans, of negative videos and of negative queries, weights applied."""
        frames = self._frames(batch)
        query = self._query(batch.queries, batch.query_mask)
        similar = torch.einsum(
            "qh,vth->qvt", functional.normalize(query), functional.normalize(frames, dim=2)
        )
        seen = batch.row_mask.to(frames.dtype)
        videos = (similar * seen + (1 - seen) * FAR_BELOW).amax(2)
        asked = self._linear("span_query", query)
        products = torch.einsum("qh,qth->qt", asked, frames)
        borders = []
        for at, name in enumerate(("start", "end")):
            kernel = self.weights[f"borders.{name}.weight"]
            logits = functional.conv1d(products[:, None], kernel, padding=kernel.shape[2] // 2)[:, 0]
            logits = logits * seen + (1 - seen) * FAR_BELOW
            borders.append(functional.cross_entropy(logits, batch.spans[:, at]))
        return (
            terms.spans * (borders[0] + borders[1]),
            terms.negatives * _against_others(videos, terms.margin),
            terms.negatives * _against_others(videos.T, terms.margin),
        )

    def _frames(self, batch: Collated) -> Tensor:
        """(V, T, H)."""
        name = "encoder.cross_modal"
        clips = self._linear(f"{name}.clip_projection", self._norm(f"{name}.clip_features_norm", batch.clips))
        clips = clips + self.weights[f"{name}.clip_places.weight"][: clips.shape[1]]
        clips = self._dropped(
            self._norm(f"{name}.clip_norm", clips + self.weights[f"{name}.types.weight"][1])
        )
        both = torch.cat([clips, self._words(batch.words)], 1)
        picked = torch.gather(both, 1, batch.index[..., None].expand(-1, -1, both.shape[2]))
        encoded = self._layers(f"{name}.encoder", picked, batch.mask, self.cross_heads)
        matched = torch.zeros(*batch.row_mask.shape, encoded.shape[2])
        sentence = 0
        for video, sentences in enumerate(batch.frames):
            for frames in sentences:
                own = torch.tensor(frames)
                matched[video, own] = matched[video, own] + encoded[sentence, : len(frames)]
                sentence += 1
        name = "encoder.temporal"
        rows = self._projected(f"{name}.projection", batch.rows) + matched
        placed = self._placed(f"{name}.positions", rows)
        return self._layers(f"{name}.encoder", placed, batch.row_mask, self.temporal_heads)

    def _query(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, H)."""
        rows = self._layers("encoder.cross_modal.encoder", self._words(words), mask, self.cross_heads)
        rows = self._placed("query_positions", self._projected("query_projection", rows))
        mixed = self._attended("query_encoder", rows, mask, self.query_heads)
        rows = self._norm("query_encoder.norm", rows + mixed)
        said = mask.to(rows.dtype)[..., None]
        shares = functional.linear(rows, self.weights["pooling.linear.weight"])
        shares = (shares * said + (1 - said) * FAR_BELOW).softmax(1)
        return torch.einsum("qlm,qlh->qmh", shares, rows)[:, 0]

    def _words(self, words: Tensor) -> Tensor:
        name = "encoder.cross_modal"
        rows = functional.embedding(words, self.weights[f"{name}.words.weight"])
        rows = rows + self.weights[f"{name}.word_places.weight"][: words.shape[1]]
        rows = rows + self.weights[f"{name}.types.weight"][1]
        return self._dropped(self._norm(f"{name}.word_norm", rows))

    def _layers(self, name: str, rows: Tensor, mask: Tensor, heads: int) -> Tensor:
        at = 0
        while f"{name}.layers.{at}.wide.weight" in self.weights:
            layer = f"{name}.layers.{at}"
            mixed = self._attended(f"{layer}.attention", rows, mask, heads)
            rows = self._norm(f"{layer}.attention.norm", rows + mixed, 1e-12)
            inner = functional.gelu(self._linear(f"{layer}.wide", rows))
            widened = self._dropped(self._linear(f"{layer}.narrow", inner))
            rows, at = self._norm(f"{layer}.norm", rows + widened, 1e-12), at + 1
        return rows

    def _attended(self, name: str, rows: Tensor, mask: Tensor, heads: int) -> Tensor:
        queries, keys, values = (
            self._linear(f"{name}.attention.{part}", rows)
            .unflatten(2, (heads, -1))  # type: ignore[no-untyped-call]
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5
        scores = scores + (1 - mask.to(rows.dtype))[:, None, None] * FAR_BELOW
        mixed = (self._dropped(scores.softmax(3)) @ values).transpose(1, 2).flatten(2)
        return self._dropped(self._linear(f"{name}.output", mixed))

    def _projected(self, name: str, rows: Tensor) -> Tensor:
        return self._linear(f"{name}.linear", self._dropped(self._norm(f"{name}.norm", rows))).relu()

    def _placed(self, name: str, rows: Tensor) -> Tensor:
        places = self.weights[f"{name}.table.weight"][: rows.shape[1]]
        return self._dropped(self._norm(f"{name}.norm", rows + places))


def collated(
    words: Sequence[Sequence[Sequence[int]]],
    frames: Sequence[Sequence[Sequence[int]]],
    rows: tuple[Tensor, Tensor],
    queries: tuple[Tensor, Tensor],
    spans: Tensor,
) -> Collated:
    """From words (with their first token) and frames of each video's sentences, its clips, and queries."""
    said = [torch.tensor(one) for video in words for one in video]
    owned = [torch.tensor(one) for video in frames for one in video]
    seen = [rows[0][at, torch.tensor(one)] for at, video in enumerate(frames) for one in video]
    clips = torch.nn.utils.rnn.pad_sequence(seen, batch_first=True)
    longest = max(len(one) + len(own) for one, own in zip(said, owned, strict=True))
    index = torch.arange(longest).repeat(len(said), 1)
    mask = torch.zeros_like(index, dtype=torch.bool)
    for at, (one, own) in enumerate(zip(said, owned, strict=True)):
        index[at, len(own) : len(own) + len(one)] = clips.shape[1] + torch.arange(len(one))
        mask[at, : len(own) + len(one)] = True
    padded = torch.nn.utils.rnn.pad_sequence(said, batch_first=True, padding_value=NO_WORD)
    # Behind the end the index picks what is masked, but never what is not there.
    index = index.clamp(max=clips.shape[1] + padded.shape[1] - 1)
    return Collated(padded, clips, index, mask, *rows, frames, *queries, spans)


def _against_others(scores: Tensor, margin: float) -> Tensor:
    """The mean shortfall of each row's own entry (the diagonal) against all others, highest first."""
    own = scores.diagonal()
    others = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool), 999.0)
    others = others.sort(1, descending=True).values[:, 1:]
    return (margin + others - own[:, None]).clamp(min=0).mean(1).mean()
