"""Encode the clips of all streams of a video together: each attends to the others, of either stream.

The "multi-modal transformer" of CONQUER and of PREM. Shapes: V videos, T clips, S streams, D width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.bert import TypedPositions
from whenabouts_systems.models.parts.layers import InputProjection
from whenabouts_systems.models.protocol import ClipBatch


class JointStreams(nn.Module):
    """Projects each stream to D, adds learned vectors for place and kind of stream, and runs `encoder`.

    `encoder` takes padded rows (V, T * S, D) with their mask. There are one or two streams.
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
        """The encoded clips of each stream, (V, T, D), by the stream's name; zeros after a video's end.

        Raises UsageError for videos of more clips than there are places.
        """
        projected = [
            projection(videos.streams[name], videos.mask) for name, projection in self.projections.items()
        ]
        together = torch.stack(projected, dim=2)
        count = len(projected)
        # A clip's streams stand next to each other: what is real then comes before what is not.
        mask = videos.mask.repeat_interleave(count, dim=1)
        placed = self.positions(together.flatten(1, 2), mask, each=count)
        encoded = self.encoder(placed, mask).view(together.shape)
        return dict(zip(self.projections, encoded.unbind(2), strict=True))
