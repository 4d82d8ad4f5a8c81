"""Import TR-DETR's checkpoints from lighthouse, and reproduce its program's departures from the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.tr_detr import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "TR-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    return _detr.settings(
        released,
        text_layers=_detr.layers_of(released, "transformer.t2v_encoder"),
        weight_clip_text=released.setting("CTC_loss_coef", 0.5),
        weight_video_text=released.setting("VTC_loss_coef", 0.3),
    )


class AsReleased(_detr.PairsInBatch, Model):
    """TR-DETR as its program computes it: `PairsInBatch`, and two more departures.

    - Padding takes part in the first saliency and in means over words. Windows are fractions of the batch's
      longest video, and the recurrent network reads all videos to that length.
    - A window that begins before its video has a negative start, which Python counts from the end; usually
      the slice is empty.
    """

    def _counted(self, mask: Tensor) -> Tensor:
        return torch.ones_like(mask)

    def _within(self, place: Tensor, length: Tensor) -> Tensor:
        return super()._within(place + length * (place < 0), length)
