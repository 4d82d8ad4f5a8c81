"""Checkpoints of MS-SL's program."""

from __future__ import annotations

from whenabouts.models.released.partial_relevance import settings_of
from whenabouts.models.released.settings import Released, Settings

TITLE = "MS-SL, imported from a checkpoint of the authors' program"
UNUSED: frozenset[str] = frozenset()


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options tell them."""
    return settings_of(released, "MS-SL")
