"""Import the checkpoints of UVCOM that the library lighthouse publishes, and reproduce its departures.

An imported checkpoint is the paper's model with lighthouse's walk; `as_released` adds the other departures.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whenabouts_systems.models.parts.window_targets import borders_of, true_windows
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.uvcom import Model, walked
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "UVCOM, imported from a checkpoint of lighthouse"
_UNUSED = "global_rep_token"
"""The program replaces this parameter before it reads it."""


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options; the random walk is set to lighthouse's."""
    released.refuse_others("cross_fusion", False)
    released.guessed.append(
        "the random walk is lighthouse's; for a checkpoint of the authors' program, set whole_walk to true "
        "in config.json"
    )
    common = _detr.settings(
        released,
        encoder="CIM.GKA_Module",
        decoder="CIM.decoder",
        projections=released.count("input_txt_proj.{}.net.1.weight"),
        text_layers=_detr.layers_of(released, "CIM.t2v_encoder"),
        text_centres=released.size("CIM.txt_mu", 0),
        video_centres=released.size("CIM.vid_mu", 0),
        rounds=released.setting("em_iter", 5),
        inner=released.size("CIM.sim_vid.layers.0.weight", 0),
        weight_similarity=released.setting("sim_loss_coef", 1.0),
        whole_walk=False,
    )
    return replace(common, unused=common.unused | {_UNUSED} & released.checkpoint.tensors.keys())


class AsReleased(_detr.PairsInBatch, Model):
    """UVCOM as lighthouse computes it: `PairsInBatch`, and three more departures.

    - The random walk multiplies by a matrix instead of its inverse, whatever `whole_walk` says.
    - Padding takes part in the clusters, the means, the convolutions, the walk and the slots.
    - In the term `similarity`, a moment's clips are those of its first window, with borders rounded down to
      whole clips; its softmax and mean include padding.

    With `unlike_from_epoch`, a video's wrong sentence may be its own, because `PairsInBatch` excludes none.
    """

    counts_padding = True

    def _walked(self, clips: Tensor, text: Tensor, mask: Tensor | None) -> Tensor:
        return walked(clips, text, mask, whole=False)

    def _within_videos(self, batch: Batch, alike: Tensor, mask: Tensor) -> Tensor:
        clips = mask.sum(1)
        borders = (borders_of(true_windows(batch, clips)[:, 0]) * clips[:, None]).long()
        place = torch.arange(mask.shape[1], device=mask.device)
        inside = (place >= borders[:, :1]) & (place < borders[:, 1:]) & mask
        return (alike.log_softmax(1) * inside).mean()
