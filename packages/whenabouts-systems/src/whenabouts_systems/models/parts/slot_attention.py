"""Slot attention (Locatello et al., NeurIPS 2020), without its recurrent unit: slots compete for the rows.

Shapes: P pairs, N slots, T rows, D width.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from whenabouts_systems.models.parts.transformer import perceptron


class SlotAttention(nn.Module):
    """Slots that attend to the rows of a sequence in `steps` rounds.

    In a round, each row divides a weight of 1 among the slots (a softmax over slots); a slot adds the mean of
    the rows with these weights, then a perceptron with `inner` widths. Rows of the padding have weight 0 or,
    with `share_padding`, the same weight for each slot.
    """

    def __init__(
        self, width: int, steps: int, inner: tuple[int, ...], *, share_padding: bool = False
    ) -> None:
        super().__init__()
        self.steps, self.share_padding = steps, share_padding
        self.rows_norm, self.slots_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.perceptron_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.perceptron = perceptron(width, width, inner)

    def forward(self, slots: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """The new slots (P, N, D), from slots (P, N, D) and rows (P, T, D) with their mask (P, T)."""
        rows = self.rows_norm(rows)
        key, value = self.key(rows).transpose(1, 2), self.value(rows)
        padding = 1 / slots.shape[1] if self.share_padding else 0.0
        for _ in range(self.steps):
            products = self.query(self.slots_norm(slots)) @ key / math.sqrt(rows.shape[-1])
            shares = products.softmax(1).masked_fill(~mask[:, None], padding)
            slots = slots + shares / (shares.sum(-1, keepdim=True) + 1e-8) @ value
            slots = slots + self.perceptron(self.perceptron_norm(slots))
        outcome: Tensor = self.norm(slots)
        return outcome
