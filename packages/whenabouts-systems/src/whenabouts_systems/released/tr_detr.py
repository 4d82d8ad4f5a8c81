"""Checkpoints of TR-DETR as lighthouse trains it."""

from __future__ import annotations

from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "TR-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the checkpoint's options have them."""
    return _detr.settings(
        released,
        text_layers=_detr.text_layers(released),
        weight_clip_text=released.setting("CTC_loss_coef", 0.5),
        weight_video_text=released.setting("VTC_loss_coef", 0.3),
    )
