"""Import CG-DETR's checkpoints from lighthouse, and reproduce its program's departures from the paper."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.cg_detr import Model
from whenabouts_systems.models.parts.window_targets import rating_contrast
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "CG-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    prompts = released.size("global_rep_token", 0)
    distill = released.setting("lw_distill", 1.0)
    return _detr.settings(
        released,
        text_layers=_detr.layers_of(released, "transformer.t2v_encoder"),
        dummies=released.size("dummy_rep_token", 0),
        dummy_layers=_detr.layers_of(released, "txtproj_encoder"),
        sentence_layers=_detr.layers_of(released, "scls_encoder"),
        moment_layers=_detr.layers_of(released, "transformer.mcls_encoder"),
        prompts=prompts,
        prompts_taken=min(released.setting("num_prompts", 2), prompts),
        weight_attention=released.setting("lw_wattn", 1.0),
        weight_align=released.setting("lw_ms_align", 1.0),
        weight_distill=distill,
        weight_orthogonal=distill,
    )


class AsReleased(_detr.PairsInBatch, Model):
    """CG-DETR as its program computes it: `PairsInBatch`, and four more departures.

    - The contrast is averaged separately over queries with and without a wrong query, so a few without one
      count as much as all others. By a slip, a single query without one is left out. The contrast of
      attention leaves out all queries without one.
    - The class of dummy sentences is the first that is not the query's own: 0, but 1 for the first query.
    - The cross-entropy of membership is at most 100.
    - The distillation includes padded words.
    """

    def _contrast(
        self, scores: Tensor, others: Tensor | None, labels: Tensor, mask: Tensor, negative: Tensor
    ) -> Tensor:
        total, without = scores.new_zeros(()), ~negative
        if others is not None:
            total = self._contrast_of_attention(scores, others, labels, mask, negative)
        if others is None or without.sum() > 1:
            kept = scores[without], labels[without], mask[without]
            total = total + rating_contrast(*kept, self.config.temperature)
        return total

    def _contrast_of_attention(
        self, scores: Tensor, others: Tensor | None, labels: Tensor, mask: Tensor, negative: Tensor
    ) -> Tensor:
        if others is None:
            return rating_contrast(scores, labels, mask, self.config.temperature)
        every = torch.ones_like(negative[negative])
        return super()._contrast(scores[negative], others, labels[negative], mask[negative], every)

    def _misfit(self, logits: Tensor, own: Tensor) -> Tensor:
        return functional.cross_entropy(logits, (own == 0).long())

    def _membership(self, logits: Tensor, relevant: Tensor) -> Tensor:
        return functional.binary_cross_entropy(logits.sigmoid(), relevant.float(), reduction="none")

    def _distill(self, attention: Tensor, similar: Tensor, words: Tensor, relevant: Tensor) -> Tensor:
        return super()._distill(attention, similar, torch.ones_like(words), relevant)
