"""SQuiDNet as one would write it down at first, and as its program computes: the yardstick of its speed.

Written from what is known of the program alone. It shares nothing with the package but the names of the
parameters, which it is given. What makes it plain: every query has its own video and negatives to itself, all
is padded to one length, the two streams stand one behind the other, clips and words are laid side by side for
every pair, attention is spelled out, and dropout is PyTorch's.

Shapes: Q queries, N videos of each, P = Q * N pairs, T clips, L tokens, H width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from benchmarks.plain_layers import PlainLayers
from torch import Tensor
from torch.nn import functional

FAR_BELOW = -1e10
Weights = Mapping[str, Tensor]


class PlainSQuiDNet(PlainLayers):
    """The losses of some queries, each with its own video first, from weights by their names."""

    def __init__(self, weights: Weights, heads: int, dropout: float) -> None:
        super().__init__(weights, dropout)
        self.heads = heads

    def losses(
        self,
        words: tuple[Tensor, Tensor],
        streams: Mapping[str, Tensor],
        clip_mask: Tensor,
        spans: Tensor,
        factors: tuple[float, float],
    ) -> tuple[Tensor, Tensor]:
        """Of moments and of videos: tokens (Q, L, E) with their mask, (Q, N, T, F) by stream, (Q, N, T)."""
        borders, video = self.logits(words, streams, clip_mask)
        target = torch.zeros(len(spans), dtype=torch.int64)
        moments = [functional.cross_entropy(one.flatten(1), spans[:, at]) for at, one in enumerate(borders)]
        return factors[0] * (moments[0] + moments[1]), factors[1] * functional.cross_entropy(video, target)

    def logits(
        self, words: tuple[Tensor, Tensor], streams: Mapping[str, Tensor], clip_mask: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Start and end (Q, N, T), and the videos' own scores (Q, N)."""
        shape = clip_mask.shape
        mask, said = clip_mask.flatten(0, 1), words[1].repeat_interleave(shape[1], 0)
        queries = self._query(*words).repeat_interleave(shape[1], 0)
        clips = self._videos({name: rows.flatten(0, 1) for name, rows in streams.items()}, mask)
        shares = self._shares(queries)
        fused = torch.stack([one * shares[:, at, None, None] for at, one in enumerate(clips)]).sum(0)
        aware = self._aware(fused, queries, mask, said)
        context = self._encoded("context", aware, mask)
        both = torch.cat([aware, context], 2)
        start = self._encoded("start_features", both, mask)
        end = self._encoded("end_features", torch.cat([context, start], 2), mask)
        found = (self._border("start", start, mask), self._border("end", end, mask))
        own = both.amax(1)
        for name in ("wide", "middle"):
            own = functional.linear(own, self.weights[f"video_score.{name}.weight"]).relu()
        video = functional.linear(own, self.weights["video_score.narrow.weight"])[:, 0]
        return (found[0].view(shape), found[1].view(shape)), video.view(shape[:2])

    def _query(self, tokens: Tensor, mask: Tensor) -> Tensor:
        rows = self._projected("query_projection", tokens)
        return self._layer("query_encoder.layers.0", self._placed("query_positions", rows, 1), mask)

    def _videos(self, streams: Mapping[str, Tensor], mask: Tensor) -> tuple[Tensor, ...]:
        placed = [
            self._placed(
                "video_encoder.positions", self._projected(f"video_encoder.projections.{name}", rows), at
            )
            for at, (name, rows) in enumerate(streams.items())
        ]
        joint = self._layer(
            "video_encoder.encoder.layers.0", torch.cat(placed, 1), torch.cat([mask] * len(placed), 1)
        )
        return joint.chunk(len(placed), 1)

    def _shares(self, words: Tensor) -> Tensor:
        """(P, 2) how much each stream counts."""
        name = "stream_weights.clusters"
        assigned = words @ self.weights[f"{name}.assignment"]
        assigned = self._norm(f"{name}.norm", assigned).softmax(-1)
        away = torch.matmul(assigned.transpose(1, 2), words).transpose(1, 2)
        away = away - assigned.sum(1, keepdim=True) * self.weights[f"{name}.centres"]
        pooled = functional.normalize(functional.normalize(away, dim=1).flatten(1), dim=1)
        return functional.linear(self._dropped(pooled), self.weights["stream_weights.linear.weight"]).softmax(
            1
        )

    def _aware(self, clips: Tensor, words: Tensor, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        shape = (len(clips), clips.shape[1], words.shape[1], clips.shape[2])
        seen, heard = clips[:, :, None].expand(shape), words[:, None].expand(shape)
        table = functional.linear(
            torch.cat([seen, heard, seen * heard], 3), self.weights["comparison.wide.weight"]
        ).relu()
        table = functional.linear(table, self.weights["comparison.narrow.weight"])[..., 0]
        table = table.masked_fill(~(clip_mask[:, :, None] & word_mask[:, None]), FAR_BELOW)
        of_words = torch.bmm(table.softmax(2), words)
        of_clips = torch.bmm(table.amax(2).softmax(1)[:, None], clips)
        return torch.cat([clips, of_words, clips * of_clips], 2)

    def _border(self, name: str, rows: Tensor, mask: Tensor) -> Tensor:
        wide, narrow = (self.weights[f"{name}.{layer}.weight"] for layer in ("wide", "narrow"))
        inner = functional.conv1d(rows.transpose(1, 2), wide, padding=wide.shape[2] // 2).relu()
        return functional.conv1d(inner, narrow)[:, 0].masked_fill(~mask, -1e4)

    def _encoded(self, name: str, rows: Tensor, mask: Tensor) -> Tensor:
        return self._layer(f"{name}.encoder.layers.0", self._projected(f"{name}.projection", rows), mask)

    def _projected(self, name: str, rows: Tensor) -> Tensor:
        return self._linear(f"{name}.linear", self._dropped(self._norm(f"{name}.norm", rows))).relu()

    def _placed(self, name: str, rows: Tensor, kind: int) -> Tensor:
        places = self.weights[f"{name}.places.weight"][: rows.shape[1]]
        return self._dropped(
            self._norm(f"{name}.norm", rows + places + self.weights[f"{name}.types.weight"][kind])
        )

    def _layer(self, name: str, rows: Tensor, mask: Tensor) -> Tensor:
        """A layer of BERT."""
        queries, keys, values = (
            self._linear(f"{name}.attention.attention.{part}", rows)
            .unflatten(2, (self.heads, -1))  # type: ignore[no-untyped-call]
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5
        scores = scores + (~mask).to(rows.dtype)[:, None, None] * -1e4
        mixed = (self._dropped(scores.softmax(3)) @ values).transpose(1, 2).flatten(2)
        mixed = self._dropped(self._linear(f"{name}.attention.output", mixed))
        rows = self._norm(f"{name}.attention.norm", rows + mixed)
        inner = functional.gelu(self._linear(f"{name}.wide", rows))
        return self._norm(f"{name}.norm", rows + self._dropped(self._linear(f"{name}.narrow", inner)))
