"""QD-DETR as lighthouse trains it: checkpoints, and what it computes otherwise."""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.parts.detr_layers import padding_of_others
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.qd_detr import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "QD-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the checkpoint's options have them."""
    return _detr.settings(released, text_layers=_detr.text_layers(released))


class AsReleased(Model):
    """QD-DETR as its program computes it.

    The words of the next query are taken as wrong ones even if that query belongs to the same video, or is
    the query itself in a batch of one. Each head leaves out the padding of *another* pair of the batch: the
    program lays heads beside pairs where PyTorch expects pairs beside heads. What a pair gets depends on its
    batch; alone it gets the same.
    """

    def _is_negative(self, batch: Batch, wrong: Tensor) -> Tensor:
        return torch.ones_like(wrong, dtype=torch.bool)

    def _unseen(self, mask: Tensor, word_mask: Tensor) -> Tensor | None:
        return padding_of_others(mask, word_mask, self.config.heads)
