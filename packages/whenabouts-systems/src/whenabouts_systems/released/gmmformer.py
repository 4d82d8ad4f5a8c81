"""Import GMMFormer's checkpoints, and reproduce its program's departures from the paper.

The windows (0.5, 1, 5 and none) are constants in its code.
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
    return settings_of(released, "GMMFormer")


class _PaddedAttention(GaussianAttention):
    """Windows over padded rows: the window of row t has its centre at t / T, but row k is at k / (T - 1)."""

    def near(self, lengths: Tensor, steps: int) -> Tensor:
        """(B, T, T): the same window for every sequence."""
        reach = torch.full_like(lengths, steps)
        return windows(reach, steps, self.window, middles=reach)


class AsReleased(Model):
    """GMMFormer as its program computes it: padding takes part, and a query's other answers are negatives."""

    attention = _PaddedAttention
    borders = staticmethod(held_borders)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        compute_padding(self)

    def _positives(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.positives)
