"""Encode the clips of a video's streams in one transformer: every clip attends to the clips of every stream.

The "multi-modal transformer" of CONQUER, SQuiDNet and PREM. Shapes: V videos, T clips, S streams, D width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.bert import TypedPositions
from whenabouts_systems.models.parts.layers import InputProjection
from whenabouts_systems.models.protocol import ClipBatch


class JointStreams(nn.Module):
    """Projects each stream to D, adds learned embeddings of position and stream, and runs `encoder`.

    `encoder` takes padded rows (V, T * S, D) with their mask. There are at most two streams, because
    `TypedPositions` has two types.
    """

    def __init__(
        self, streams: Mapping[str, int], width: int, places: int, dropout: float, encoder: nn.Module
    ) -> None:
        super().__init__()
        self.projections = nn.ModuleDict(
            {name: InputProjection(features, width, dropout) for name, features in streams.items()}
        )
        self.positions = TypedPositions(places, width, dropout, "clips")
        self.encoder = encoder

    def forward(self, videos: ClipBatch) -> dict[str, Tensor]:
        """The encoded clips of each stream, (V, T, D), by name; zero in the padding unless it is computed.

        Raises UsageError if the batch's padded length exceeds `places`.
        """
        projected = [
            projection(videos.streams[name], videos.mask) for name, projection in self.projections.items()
        ]
        together = torch.stack(projected, dim=2)
        count = len(projected)
        # Interleaved clip by clip, so that all real rows come before the padding.
        mask = videos.mask.repeat_interleave(count, dim=1)
        placed = self.positions(together.flatten(1, 2), mask, each=count)
        encoded = self.encoder(placed, mask).view(together.shape)
        return dict(zip(self.projections, encoded.unbind(2), strict=True))
