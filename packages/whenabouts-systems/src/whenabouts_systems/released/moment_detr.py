"""Import Moment-DETR's checkpoints from lighthouse."""

from __future__ import annotations

from whenabouts_systems.models.moment_detr import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "Moment-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    return _detr.settings(released)


class AsReleased(Model):
    """The same system: the program departs from the paper only outside the model."""
