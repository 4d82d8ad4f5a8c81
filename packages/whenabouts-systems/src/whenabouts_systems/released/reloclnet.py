"""The programs of ReLoCLNet and of TVR-Ranking, which extends it: checkpoints and departures."""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.parts.packing import compute_padding
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.reloclnet import Model
from whenabouts_systems.released.settings import Released, Settings

TITLE = "ReLoCLNet, imported from a checkpoint of the authors' program"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options have them."""
    released.refuse_others("conv_stride", 1)
    own = {
        "span_kernel": released.size("merged_st_predictor.weight", 2),
        "alpha": released.setting("q2c_alpha", 30.0),
        "pool_from_epoch": released.setting("hard_negative_start_epoch", 20),
        "weight_spans": released.setting("lw_st_ed", 0.01),
        "weight_frame_contrast": released.setting("lw_fcl", 0.03),
        "weight_video_contrast": released.setting("lw_vcl", 0.03),
    }
    return Settings(
        {**released.shared(heads=8), **own},
        released.inputs("pool-as-released"),
        released.decoding("exclusive"),
    )


class AsReleased(Model):
    """ReLoCLNet as its program computes it: padding counts, and only the diagonal is positive.

    The convolutions of borders begin at random. Each query has a column, even if two have the same video.
    """

    counts_padding = True
    known_in_contrast = False

    def _begin(self) -> None:
        compute_padding(self)

    def _ranking_weight(self, batch: Batch) -> Tensor | None:
        return None

    def _compared(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        itself = torch.eye(len(batch), dtype=torch.bool, device=scores.device)
        return scores[:, batch.video_of], torch.arange(len(batch), device=scores.device), itself
