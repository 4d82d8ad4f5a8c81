"""Features of a sequence through projection, places and an encoder: queries, clips and frames of MS-SL."""

from __future__ import annotations

from torch import Tensor, nn

from whenabouts.models._parts.projection import InputProjection, PositionEmbedding


class Branch(nn.Module):
    """Projection to `hidden` values, a learned vector for each of `places` places, and an encoder.

    `encoder` takes padded rows and their mask; `noun` is what the sequence is made of, for messages.
    """

    def __init__(
        self, widths: tuple[int, int], places: int, noun: str, dropout: float, encoder: nn.Module
    ) -> None:
        super().__init__()
        width, hidden = widths
        self.projection = InputProjection(width, hidden, dropout)
        self.positions = PositionEmbedding(places, hidden, dropout, noun)
        self.encoder = encoder

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(B, T, hidden) of features (B, T, width) with their mask (B, T)."""
        encoded: Tensor = self.encoder(self.positions(self.projection(features, mask), mask), mask)
        return encoded


def released_entry(name: str) -> dict[str, str]:
    """Our names of projection and places -> those of the released programs, for a branch they call `name`."""
    return {
        **_both("projection.norm", f"{name}_input_proj.LayerNorm"),
        **_both("projection.linear", f"{name}_input_proj.net.1"),
        "positions.table.weight": f"{name}_pos_embed.position_embeddings.weight",
        **_both("positions.norm", f"{name}_pos_embed.LayerNorm"),
    }


def released_block(ours: str, theirs: str) -> dict[str, str]:
    """The same for an attention block."""
    layers = {
        "attention.query": "self.query",
        "attention.key": "self.key",
        "attention.value": "self.value",
        "output": "output.dense",
        "norm": "output.LayerNorm",
    }
    return {
        name: other
        for layer, their in layers.items()
        for name, other in _both(f"{ours}.{layer}", f"{theirs}.{their}").items()
    }


def _both(ours: str, theirs: str) -> dict[str, str]:
    """Weight and bias of a layer."""
    return {f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias")}
