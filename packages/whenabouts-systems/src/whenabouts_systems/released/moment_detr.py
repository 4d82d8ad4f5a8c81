"""Checkpoints of Moment-DETR as lighthouse trains it."""

from __future__ import annotations

from whenabouts_systems.models.moment_detr import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "Moment-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the checkpoint's options have them."""
    return _detr.settings(released)


class AsReleased(Model):
    """The same system: the program's departures lie outside the model."""
