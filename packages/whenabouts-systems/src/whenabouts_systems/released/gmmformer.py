"""Import GMMFormer's checkpoints, and reproduce its program's departures from the paper.

Checkpoints do not store the widths of the attention windows (0.5, 1, 5, and one attention without a window):
they are constants in the program.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.gmmformer import Config, GaussianAttention, Model, windows
from whenabouts_systems.models.parts.packing import compute_padding
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.released.ms_sl import held_borders, settings_of
from whenabouts_systems.released.settings import Released, Settings

TITLE = "GMMFormer, imported from a checkpoint of the authors' program"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    return settings_of(released, "GMMFormer", Config())


class _PaddedAttention(GaussianAttention):
    """Windows over the padded length T: row k lies at k / (T - 1), but its window's centre at k / T."""

    def near(self, lengths: Tensor, steps: int) -> Tensor:
        """(B, T, T): the same window for every sequence."""
        reach = torch.full_like(lengths, steps)
        return windows(reach, steps, self.window, middles=reach)


class AsReleased(Model):
    """GMMFormer as its program computes it, with four departures.

    - Layers compute padding as if it were real rows.
    - Windows are scaled to the padded length and off their centres (`_PaddedAttention`).
    - A video's last row is left out unless its segment has no other (`held_borders`).
    - Other videos that answer a query count as its negatives.
    """

    attention = _PaddedAttention
    borders = staticmethod(held_borders)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        compute_padding(self)

    def _positives(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.positives)
