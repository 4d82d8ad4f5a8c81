"""Features of a sequence through projection, places and an encoder: queries, clips and frames of MS-SL."""

from __future__ import annotations

from torch import Tensor, nn

from whenabouts_systems.models.parts.layers import InputProjection, PositionEmbedding
from whenabouts_systems.models.parts.packing import PackedBlock, in_turn


class Branch(nn.Module):
    """Projection to `hidden` values, a learned vector for each of `places` places, and an encoder.

    `noun` is what the sequence is made of, for messages.
    """

    def __init__(
        self, widths: tuple[int, int], places: int, noun: str, dropout: float, encoder: PackedBlock
    ) -> None:
        super().__init__()
        width, hidden = widths
        self.projection = InputProjection(width, hidden, dropout)
        self.positions = PositionEmbedding(places, hidden, dropout, noun)
        self.encoder = encoder

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(B, T, hidden) of features (B, T, width) with their mask (B, T)."""
        return in_turn(features, mask, self.projection, self.positions, self.encoder)


OF_BRANCHES = ((r"^(\w+)\.projection\.", r"\1_input_proj."), (r"^(\w+)\.positions\.", r"\1_pos_embed."))
"""Our names of a branch's parts -> those that stand before `renaming.OF_LAYERS`."""
