"""Checkpoints of QD-DETR as lighthouse trains it."""

from __future__ import annotations

from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "QD-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the checkpoint's options have them."""
    return _detr.settings(released, text_layers=_detr.text_layers(released))
