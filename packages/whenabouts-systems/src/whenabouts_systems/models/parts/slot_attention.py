"""Slot attention (Locatello et al., NeurIPS 2020), without its recurrent unit: slots compete for the rows.

Shapes: P pairs, N slots, T rows, D width.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from whenabouts_systems.models.parts.transformer import perceptron


class SlotAttention(nn.Module):
    """Slots that look at the rows of a sequence again and again.

    Each row shares itself out among the slots; what a slot gets is averaged over the rows by these shares.
    `inner` are the widths inside of the perceptron that follows. Rows of the padding give nothing or, with
    `share_padding`, share themselves out evenly.
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
        """(P, N, D) slots, and rows (P, T, D) with their mask (P, T), to (P, N, D)."""
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
