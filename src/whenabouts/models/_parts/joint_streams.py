"""The clips of all streams of a video through one encoder, so that each sees the others and the other stream.

The "multi-modal transformer" of CONQUER and of PREM. Shapes: V videos, T clips, S streams, D width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from whenabouts.models._parts.bert import TypedPositions
from whenabouts.models._parts.packing import Packing
from whenabouts.models._parts.projection import InputProjection
from whenabouts.models.protocol import ClipBatch


class JointStreams(nn.Module):
    """Each stream is projected to D; places and kinds of stream get learned vectors; then the `encoder`.

    `encoder` takes packed rows (N, D) with their packing. One stream, or two.
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

    def forward(self, videos: ClipBatch, *, everything: bool = False) -> Tensor:
        """(V, T, S, D): each clip as each stream has it, zeros behind the end.

        With `everything` padding is computed and seen, as the released programs do. Raises UsageError for
        videos of more clips than there are places.
        """
        packing = Packing.of(videos.mask, everything=everything)
        count = len(self.projections)
        rows = [one(packing.pack(videos.streams[name])) for name, one in self.projections.items()]
        together = torch.stack([packing.unpack(one) for one in rows], dim=2)
        # A clip's streams stand next to each other: what is real then comes before what is not.
        joint = Packing.of(videos.mask.repeat_interleave(count, dim=1), everything=everything)
        placed = self.positions(joint.pack(together.flatten(1, 2)), joint, 0, count)
        encoded: Tensor = joint.unpack(self.encoder(placed, joint))
        return encoded.view(together.shape)
