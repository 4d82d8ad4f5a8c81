"""Checkpoints of GMMFormer's program; its windows (0.5, 1, 5 and none) stand in its code."""

from __future__ import annotations

from whenabouts_systems.released.ms_sl import settings_of
from whenabouts_systems.released.settings import Released, Settings

TITLE = "GMMFormer, imported from a checkpoint of the authors' program"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options have them."""
    return settings_of(released, "GMMFormer")
