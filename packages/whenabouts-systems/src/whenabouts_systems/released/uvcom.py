"""UVCOM as lighthouse trains it: checkpoints, and which queries its contrast takes as wrong."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.uvcom import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "UVCOM, imported from a checkpoint of lighthouse"
_UNUSED = "global_rep_token"
"""The program puts another in its place before it is read."""


def settings(released: Released) -> Settings:
    """Settings as the tensors and the checkpoint's options have them; the walk is lighthouse's."""
    released.refuse_others("cross_fusion", False)
    released.guessed.append(
        "the random walk is lighthouse's; for a checkpoint of the authors' program, set whole_walk to true "
        "in config.json"
    )
    own = _detr.settings(
        released,
        encoder="CIM.GKA_Module",
        decoder="CIM.decoder",
        projections=_detr.projections_of(released, "txt"),
        text_layers=_detr.layers_of(released, "CIM.t2v_encoder"),
        text_centres=released.size("CIM.txt_mu", 0),
        video_centres=released.size("CIM.vid_mu", 0),
        rounds=released.setting("em_iter", 5),
        inner=released.size("CIM.sim_vid.layers.0.weight", 0),
        weight_similarity=released.setting("sim_loss_coef", 1.0),
        whole_walk=False,
    )
    return replace(own, unused=own.unused | {_UNUSED} & released.checkpoint.tensors.keys())


class AsReleased(Model):
    """The words of other queries are taken as wrong ones even if those belong to the same video."""

    def _is_negative(self, batch: Batch, wrong: Tensor) -> Tensor:
        return torch.ones_like(wrong, dtype=torch.bool)
