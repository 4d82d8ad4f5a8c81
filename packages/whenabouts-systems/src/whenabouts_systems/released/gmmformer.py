"""Import GMMFormer's checkpoints, and reproduce its program's departures from the paper.

Checkpoints do not store the attention's windows (widths 0.5, 1 and 5, and one attention without a window):
they are constants in the program, so `Config`'s defaults are taken.
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
    """Windows over the padded length T: row k is at k / (T - 1), but the centre of its window at k / T."""

    def near(self, lengths: Tensor, steps: int) -> Tensor:
        """(B, T, T): the same windows for every sequence, whatever its length."""
        padded = torch.full_like(lengths, steps)
        return windows(padded, steps, self.window, middles=padded)


class AsReleased(Model):
    """GMMFormer as its program computes it, with four departures.

    - Layers compute padding as if it were real rows.
    - Windows are scaled to the padded length and off their centres (`_PaddedAttention`).
    - A video's last row is left out of its clip unless the clip has no other (`held_borders`).
    - A query and another video that answers it count as negatives of each other.
    """

    attention = _PaddedAttention
    borders = staticmethod(held_borders)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        compute_padding(self)

    def _positives(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.positives)
