"""CET, the cross-encoder transformer of papers 001 (appendix C.2) and 002 (appendix B.2).

One transformer encodes the clips of a video together with the words of a query, like passage and question in
question answering. Two perceptrons map each clip to the logits that the moment starts and ends there. Each
pair of a query and a video is encoded separately. Only projected clips and words are stored, so there are no
search keys.

Equations have the numbers of paper 001. `parts/border_labels.py` has the labels (equation 10), the loss, and
our readings of points that the papers leave open. Clips and words also have learned position embeddings,
which equation 8 does not show: a table for each, so that the encoder can tell clips from words.

Shapes as in `protocol`.
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
        clips, tokens, count = videos.parts["clips"], queries.parts["tokens"], len(video_of)
        lengths = videos.mask[video_of].sum(1, keepdim=True)
        both = lengths + queries.parts["mask"].sum(1, keepdim=True)
        longest = clips.shape[1] + tokens.shape[1]
        longest = longest if both.is_cuda else int(both.max())  # reading from a GPU waits for it
        # A sequence is the clips of a pair, then its words, then padding.
        step = torch.arange(longest, device=both.device)
        pair = torch.arange(count, device=both.device)[:, None]
        packing, is_clip = Packing.of(step < both), step < lengths
        of_clip = video_of[:, None] * clips.shape[1] + step
        of_word = clips.shape[0] * clips.shape[1] + pair * tokens.shape[1] + step - lengths
        sources = packing.pack(torch.where(is_clip, of_clip, of_word))
        rows = torch.cat([clips.flatten(0, 1), tokens.flatten(0, 1)])[sources]
        chosen = packing.pack(is_clip)
        encoded = self.encoder(rows, packing)[chosen]
        logits = torch.stack([self.start(encoded), self.end(encoded)])[..., 0]
        places = packing.pack(pair * clips.shape[1] + step)[chosen]
        padded = logits.new_zeros((2, count * clips.shape[1]))
        return padded.index_copy(1, places, logits).view(2, count, -1)

    def loss(self, batch: Batch) -> Losses:
        """The terms `start` and `end` of equation 12."""
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        logits = self.border_logits(queries, videos, batch.video_of)
        return self.border_loss(logits, batch)
