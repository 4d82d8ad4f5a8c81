"""Imports checkpoints of ReLoCLNet's program, and reproduces the program's departures from the paper.

TVR-Ranking's program extends ReLoCLNet's; its checkpoints are imported alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.reloclnet import Config, Model
from whenabouts_systems.released.settings import Released, Settings

TITLE = "ReLoCLNet, imported from a checkpoint of the authors' program"
_OPTIONS = {
    "pool_from_epoch": "hard_negative_start_epoch",
    "weight_spans": "lw_st_ed",
    "weight_frame_contrast": "lw_fcl",
    "weight_video_contrast": "lw_vcl",
}


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    released.refuse_others("conv_stride", 1)
    preset, span_kernel = Config(), released.size("merged_st_predictor.weight", 2)
    return Settings(
        {**released.shared(preset), **released.options(preset, _OPTIONS), "span_kernel": span_kernel},
        released.inputs("pool-as-released"),
        released.decoding("exclusive"),
    )


class AsReleased(Model):
    """ReLoCLNet as its program computes it.

    Padded clips and words are computed, and affect the results of real ones. The initial weights of the
    borders' convolutions are random. In the losses each query has a column for its video, and only this one
    is positive, even if two queries have the same video. The ranking loss ignores `Batch.weight`.
    """

    counts_padding = True
    known_in_contrast = False

    def _ranking_weight(self, batch: Batch) -> Tensor | None:
        return None

    def _compared(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        itself = torch.eye(len(batch), dtype=torch.bool, device=scores.device)
        return scores[:, batch.video_of], torch.arange(len(batch), device=scores.device), itself
