"""What CONQUER's and SQuiDNet's programs compute otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whenabouts_systems.models.parts.packing import compute_padding, padded_queries, padded_videos
from whenabouts_systems.models.parts.pairs import PairModel
from whenabouts_systems.models.parts.shared_norm import CandidateVideos, candidates_of
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, QueryEncoding, VideoEncoding


class PaddedPairs(PairModel):
    """Videos are padded to `max_clips` and queries to `max_tokens`; pooling counts the padding.

    Padded clips attend to all words alike, and a negative that is known to answer the query counts as one.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]  # the system's own, which follows in the order
        compute_padding(self)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        """As the system does, of padded queries."""
        return super().encode_queries(padded_queries(queries, self.config.max_tokens))

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        """As the system does, of padded videos."""
        return super().encode_videos(padded_videos(videos, self.config.max_clips))

    def _pooled(self, mask: Tensor) -> Tensor:
        return torch.ones_like(mask)

    def _attended(self, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        return clip_mask[:, :, None] & word_mask[:, None]

    def _candidates(self, batch: Batch) -> CandidateVideos:
        return candidates_of(batch, positives_too=True)
