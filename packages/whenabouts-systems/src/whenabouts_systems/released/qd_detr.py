"""Import QD-DETR's checkpoints from lighthouse, and reproduce its program's departures from the paper."""

from __future__ import annotations

from whenabouts_systems.models.qd_detr import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "QD-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """The model's settings, read from the checkpoint's tensors and options."""
    return _detr.settings(released, text_layers=_detr.layers_of(released, "transformer.t2v_encoder"))


class AsReleased(_detr.PairsInBatch, Model):
    """QD-DETR as its program computes it (`PairsInBatch`).

    In a batch of one, the query is also its own negative query.
    """
