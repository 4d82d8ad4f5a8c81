"""ReLoCLNet as one would write it down at first; see `plain_xml`, whose layers it uses.

Shapes: B pairs of a query and its video, T clips, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from benchmarks.plain_xml import (
    Borders,
    Cross,
    Encoder,
    Input,
    Pairs,
    Pooling,
    Positions,
    best_cosine,
    best_product,
    hinges,
    span_loss,
)
from torch import Tensor, nn


class Stream(nn.Module):
    """The layers of one stream of a video."""

    def __init__(self, features: int, width: int, heads: int, dropout: float, crossed: bool) -> None:
        super().__init__()
        self.input = Input(features, width, dropout)
        self.first = Encoder(width, heads, dropout)
        self.cross = Cross(width, heads, dropout) if crossed else None
        self.second = Encoder(width, heads, dropout)
        self.last = Encoder(width, heads, dropout)
        self.query = nn.Linear(width, width)


class PlainReLoCLNet(nn.Module):
    """ReLoCLNet with one stream or two."""

    def __init__(
        self,
        streams: Mapping[str, int],
        query_width: int,
        hidden: int,
        heads: int,
        places: tuple[int, int] = (128, 30),
        *,
        dropout: float = 0.1,
        margin: float = 0.1,
    ) -> None:
        super().__init__()
        clips, tokens = places
        self.query_input = Input(query_width, hidden, dropout)
        self.query_places = Positions(tokens, hidden, dropout)
        self.query_encoders = nn.ModuleList(Encoder(hidden, heads, dropout) for _ in range(2))
        self.pooling = Pooling(hidden, len(streams))
        self.clip_places = Positions(clips, hidden, dropout)
        crossed = len(streams) == 2
        self.names = list(streams)
        self.streams = nn.ModuleList(
            Stream(features, hidden, heads, dropout, crossed) for features in streams.values()
        )
        self.borders = Borders(5)
        self.margin = margin

    def encoded(self, pairs: Pairs) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """For each stream: the query's vector (B, D), the clips before and after the last encoder."""
        words = self.query_places(self.query_input(pairs.tokens))
        for encoder in self.query_encoders:
            words = encoder(words, pairs.token_mask)
        vectors = self.pooling(words, pairs.token_mask)
        mask, streams = pairs.clip_mask, list(self.streams)
        first = [
            one.first(self.clip_places(one.input(pairs.clips[name])), mask)  # type: ignore[operator]
            for name, one in zip(self.names, streams, strict=True)
        ]
        middle, final = [], []
        for at, one in enumerate(streams):
            clips = first[at]
            if one.cross is not None:
                clips = one.cross(clips, first[1 - at], mask)  # type: ignore[operator]
            middle.append(one.second(clips, mask))  # type: ignore[operator]
            final.append(one.last(middle[-1], mask))  # type: ignore[operator]
        return vectors, middle, final

    def scores(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """(B, B) cosines of every query with every row's video; (B, T) logits of start and of end."""
        vectors, _, final = self.encoded(pairs)
        return (self._cosines(vectors, final, pairs), *self._logits(vectors, final, pairs))

    def _cosines(self, vectors: list[Tensor], final: list[Tensor], pairs: Pairs) -> Tensor:
        every = [best_cosine(one, clips, pairs.clip_mask) for one, clips in zip(vectors, final, strict=True)]
        return torch.stack(every).mean(dim=0)

    def _logits(self, vectors: list[Tensor], final: list[Tensor], pairs: Pairs) -> tuple[Tensor, Tensor]:
        similarities = [
            (stream.query(vector).unsqueeze(1) * clips).sum(dim=2)  # type: ignore[operator]
            for stream, vector, clips in zip(self.streams, vectors, final, strict=True)
        ]
        start, end = self.borders(torch.stack(similarities).mean(dim=0), pairs.clip_mask)
        return start, end

    def loss(self, pairs: Pairs, pool: int | None = None) -> dict[str, Tensor]:
        """Frame and video contrast, the spans' negative likelihood, the two hinges; published weights."""
        vectors, middle, final = self.encoded(pairs)
        start, end = self._logits(vectors, final, pairs)
        cosines = self._cosines(vectors, final, pairs)
        against_video, against_query = hinges(cosines, pairs.same_video, self.margin, pool)
        of_frames = [
            frame_contrast((vector.unsqueeze(1) * clips).sum(dim=2), pairs)
            for vector, clips in zip(vectors, middle, strict=True)
        ]
        of_videos = [
            best_product(vector, clips, pairs.clip_mask)
            for vector, clips in zip(vectors, middle, strict=True)
        ]
        return {
            "frame_contrast": 0.03 * torch.stack(of_frames).mean(),
            "video_contrast": 0.03 * video_contrast(torch.stack(of_videos).mean(dim=0), pairs).mean(),
            "spans": 0.01 * span_loss(start, end, pairs.spans).mean(),
            "negative_videos": against_video.mean(),
            "negative_queries": against_query.mean(),
        }


def frame_contrast(scores: Tensor, pairs: Pairs) -> Tensor:
    """(B,): the other clips' mean of softplus(-s) + s - log 2 less the moment's of log 2 - softplus(-s)."""
    clip = torch.arange(scores.shape[1]).unsqueeze(0)
    inside = (clip >= pairs.spans[:, [0]]) & (clip <= pairs.spans[:, [1]])
    outside = pairs.clip_mask & ~inside
    high = math.log(2) - nn.functional.softplus(-scores)
    low = nn.functional.softplus(-scores) + scores - math.log(2)
    mean_high = (high * inside).sum(dim=1) / inside.sum(dim=1)
    mean_low = (low * outside).sum(dim=1) / outside.sum(dim=1).clamp(min=1)
    return mean_low - mean_high


def video_contrast(scores: Tensor, pairs: Pairs) -> Tensor:
    """(B,): log of the sum of exp over a row and a column, less that over their true pairs.

    A video that stands in several rows counts once in a row of scores, the own pair once altogether.
    """
    itself = torch.eye(len(scores), dtype=torch.bool)
    again = torch.tril(pairs.same_video, diagonal=-1).any(dim=1)
    rows = scores.masked_fill(again.unsqueeze(0), -torch.inf)
    columns = scores.T.masked_fill(itself, -torch.inf)
    both, known = torch.cat([rows, columns], dim=1), pairs.same_video.repeat(1, 2)
    return both.logsumexp(dim=1) - both.masked_fill(~known, -torch.inf).logsumexp(dim=1)
