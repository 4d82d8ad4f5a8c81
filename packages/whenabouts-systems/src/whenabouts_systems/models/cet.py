"""CET, the cross-encoder transformer of papers 001 (appendix C.2) and 002 (appendix B.2).

One transformer encodes the clips of a video together with the words of a query, like passage and question in
question answering. Two perceptrons map each clip to the logits that the moment starts and ends there. Each
pair of a query and a video is encoded separately. Only projected clips and words are stored, so there are no
search keys.

`parts/border_labels.py` has the labels (equation 10), the loss, and our readings of points that the papers
leave open. Clips and words also have learned position embeddings, which equation 8 does not show: a table for
each, so that the encoder can tell clips from words.

Shapes as in `protocol`; N packed rows (the clips and words of all pairs), C of them clips.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.parts.border_labels import BorderModel, BorderSettings
from whenabouts_systems.models.parts.layers import PositionEmbedding, initialise
from whenabouts_systems.models.parts.packing import Packing
from whenabouts_systems.models.parts.transformer import perceptron
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.models.settings import Size

__all__ = ["Config", "Model"]

_ROWS = 1 << 15
"""The most clips and words that are encoded at once when pairs are scored: some 300 MB."""


@dataclass(frozen=True)
class Config(BorderSettings):
    """Settings of CET: those shared with BET, with more words."""

    max_tokens: Size = 40


class Model(BorderModel):
    """CET with fresh weights: a localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        width, dropout = config.hidden, config.input_dropout
        self.token_positions = PositionEmbedding(config.max_tokens, width, dropout, "tokens")
        self.encoder = config.transformer()
        self.start = perceptron(width, 1)
        self.end = perceptron(width, 1)
        initialise(self, config.initializer_range)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `tokens` (Q, L, D): words projected to the transformer's width D; `mask` (Q, L)."""
        packing = Packing.of(queries.mask)
        rows = self.token_projection(packing.pack(self.words(queries)))
        tokens = packing.unpack(self.token_positions(rows, packing))
        return QueryEncoding({}, {"tokens": tokens, "mask": queries.mask})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Part `clips` (V, T, D): clips projected to the transformer's width D (equation 7)."""
        packing = Packing.of(videos.mask)
        return VideoEncoding(videos.mask, parts={"clips": packing.unpack(self.clips(videos, packing))})

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """log p_start and log p_end (equation 9) of P pairs: their sum is the logarithm of the product."""
        at_once = max(1, _ROWS // (videos.mask.shape[1] + queries.parts["mask"].shape[1]))
        pairs = torch.arange(len(queries), device=videos.mask.device)
        logits = [
            self.border_logits(queries.take(rows), videos.take(rows), torch.arange(len(rows)).to(rows))
            for rows in torch.split(pairs, at_once)
        ]
        start, end = functional.logsigmoid(torch.cat(logits, dim=1).float())
        return SpanScores(start, end, videos.mask)

    def border_logits(self, queries: QueryEncoding, videos: VideoEncoding, video_of: Tensor) -> Tensor:
        """(2, Q, T) logits of start and end of each query in its video, row `video_of` (Q,) of `videos`.

        Equations 8 and 9 before the sigmoid; 0 where there is no clip.
        """
        clips, tokens = videos.parts["clips"], queries.parts["tokens"]
        joint = _Joint.of(videos.mask[video_of], queries.parts["mask"])
        rows = torch.cat([clips.flatten(0, 1), tokens.flatten(0, 1)])
        sources = joint.source(video_of, len(clips))
        encoded = self.encoder(rows[sources], joint.packing)[joint.is_clip]
        logits = torch.stack([self.start(encoded), self.end(encoded)])[..., 0]
        padded = logits.new_zeros((2, len(video_of) * clips.shape[1]))
        return padded.index_copy(1, joint.clip_places, logits).view(2, len(video_of), -1)

    def loss(self, batch: Batch) -> Losses:
        """The terms `start` and `end` of equation 12."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        logits = self.border_logits(queries, videos, batch.video_of)
        return self.border_loss(logits, batch)


@dataclass(frozen=True)
class _Joint:
    """The clips and words of P pairs, one sequence a pair: its clips, then its words, then padding.

    `owner`, `step` (N,) int64: each packed row's pair, and its place in the pair's sequence. `lengths` (P,)
    int64: clips of each pair's video. `clips` is T, `tokens` is L.
    """

    packing: Packing
    owner: Tensor
    step: Tensor
    lengths: Tensor
    clips: int
    tokens: int

    @classmethod
    def of(cls, clip_mask: Tensor, token_mask: Tensor) -> _Joint:
        """The joint rows of pairs with the masks (P, T) of clips and (P, L) of words."""
        lengths = clip_mask.sum(1)
        both = lengths + token_mask.sum(1)
        longest = clip_mask.shape[1] + token_mask.shape[1]
        longest = longest if both.is_cuda else int(both.max())  # reading from a GPU waits for it
        packing = Packing.of(torch.arange(longest, device=both.device) < both[:, None])
        owner = torch.arange(len(both), device=both.device)[:, None].expand(-1, longest)
        return cls(
            packing,
            packing.pack(owner),
            packing.positions(),
            lengths,
            clip_mask.shape[1],
            token_mask.shape[1],
        )

    @property
    def is_clip(self) -> Tensor:
        """(N,) bool: which rows are clips."""
        return self.step < self.lengths[self.owner]

    @property
    def clip_places(self) -> Tensor:
        """(C,) int64: where the clips among the rows lie in (P, T) laid flat."""
        return (self.owner * self.clips + self.step)[self.is_clip]

    def source(self, video_of: Tensor, videos: int) -> Tensor:
        """(N,) int64: where each row lies in the clips (V, T) laid flat, with the words (P, L) after them.

        `video_of` (P,) int64: each pair's row among the V videos.
        """
        clip = video_of[self.owner] * self.clips + self.step
        word = videos * self.clips + self.owner * self.tokens + self.step - self.lengths[self.owner]
        return torch.where(self.is_clip, clip, word)
