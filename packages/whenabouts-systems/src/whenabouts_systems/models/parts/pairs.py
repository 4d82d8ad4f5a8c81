"""What CONQUER and SQuiDNet share: clips and words encoded apart, then every pair for itself.

Shapes as in `protocol`; S streams, H the width inside.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.bert import BertEncoder, ProjectedEncoder, TypedPositions
from whenabouts_systems.models.parts.joint_streams import JointStreams
from whenabouts_systems.models.parts.layers import InputProjection
from whenabouts_systems.models.parts.paper_model import PaperModel
from whenabouts_systems.models.parts.ranking_loss import weighted_mean
from whenabouts_systems.models.parts.shared_norm import (
    CandidateVideos,
    candidates_of,
    shared_entropies,
    video_entropies,
)
from whenabouts_systems.models.parts.stream_weights import StreamWeights
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Losses,
    QueryBatch,
    QueryEncoding,
    VideoEncoding,
)

_WORDS_TYPE = 1


class PairLogits(NamedTuple):
    """What P pairs get: `borders` (2, P, T) logits, -1e10 in the padding; `video` (P,) or None."""

    borders: Tensor
    video: Tensor | None


class PairModel(PaperModel):
    """Encoders of words and clips, and the loss over candidates; a system adds `pair_logits`."""

    clips_at_once: ClassVar[int] = 1 << 10
    """Clips that are scored at once."""
    system: ClassVar[str]
    own_score: ClassVar[str]
    """The measure with which a video has a score of its own, and so needs negatives to learn from."""
    other_measures: ClassVar[str]

    def __init__(self, config: Any, weighs: bool) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden, config.input_dropout
        self.query_projection = InputProjection(config.query_width, hidden, dropout)
        self.query_positions = TypedPositions(config.max_tokens, hidden, dropout, "tokens")
        self.query_encoder = _encoder(config)
        self.video_encoder = JointStreams(config.streams, hidden, config.max_clips, dropout, _encoder(config))
        self.stream_weights = (
            StreamWeights(hidden, config.clusters, len(config.streams), config.dropout) if weighs else None
        )

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """Parts `tokens` (Q, L, H), `mask` (Q, L) and, with two streams, `stream_weights` (Q, S)."""
        tokens, mask = queries.tokens, queries.mask
        words = self.query_positions(self.query_projection(tokens, mask), mask, _WORDS_TYPE)
        words = self.query_encoder(words, mask)
        parts = {"tokens": words, "mask": mask}
        if self.stream_weights is not None:
            parts["stream_weights"] = self.stream_weights(words, self._pooled(mask))
        return QueryEncoding({}, parts)

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """Parts `clips/<stream>` (V, T, H)."""
        encoded = self.video_encoder(videos)
        return VideoEncoding(videos.mask, parts={f"clips/{name}": clips for name, clips in encoded.items()})

    def pair_logits(self, queries: QueryEncoding, videos: VideoEncoding) -> PairLogits:
        """The logits of P pairs: row p of `queries` with row p of `videos`."""
        raise NotImplementedError

    def loss(self, batch: Batch) -> Losses:
        """Terms `spans` and, where videos have a score of their own, `videos`.

        Raises UsageError for such a measure without negatives.
        """
        config = self.config
        if config.measure == self.own_score and batch.negatives is None:
            raise UsageError(
                f'{self.system}: measure = "{self.own_score}" learns to tell a video from negatives, '
                f"and this training chooses none; take {self.other_measures}, or have negatives chosen"
            )
        queries, videos = self.encode_queries(batch.queries), self.encode_videos(batch.videos)
        candidates = self._candidates(batch)
        query, place = candidates.pairs()
        logits = self.pair_logits(queries.take(query), videos.take(candidates.rows[query, place]))
        # Shared normalisation: one softmax over the clips of the own video and of the negatives.
        spans = shared_entropies(logits.borders, candidates, batch.spans).sum(0)
        terms = {"spans": config.lambda_tl * weighted_mean(spans, batch.weight)}
        if logits.video is not None:
            of_videos = video_entropies(logits.video, candidates)
            terms["videos"] = config.lambda_video * weighted_mean(of_videos, batch.weight)
        return terms

    def _parts_of(self, queries: QueryEncoding, videos: VideoEncoding) -> list[PairLogits]:
        """The logits of P pairs, a few pairs at a time."""
        every = torch.arange(len(queries), device=videos.mask.device)
        size = max(1, self.clips_at_once // videos.mask.shape[1])
        return [self.pair_logits(queries.take(some), videos.take(some)) for some in torch.split(every, size)]

    def _pooled(self, mask: Tensor) -> Tensor:
        """The steps of a mask that pooling counts."""
        return mask

    def _attended(self, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        """(P, T or 1, L): the words that each clip attends to."""
        return word_mask[:, None]

    def _candidates(self, batch: Batch) -> CandidateVideos:
        """The videos over which the loss takes its softmax."""
        return candidates_of(batch)


def _encoder(config: Any) -> BertEncoder:
    return BertEncoder(config.layers, config.hidden, config.heads, config.inner, config.dropout)


def projected(features: int, config: Any) -> ProjectedEncoder:
    """Rows of `features` values brought to the width inside, then encoded."""
    return ProjectedEncoder(
        features, config.layers, config.hidden, config.heads, config.inner, config.dropout
    )
