"""Checkpoints of CG-DETR as lighthouse trains it."""

from __future__ import annotations

from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "CG-DETR, imported from a checkpoint of lighthouse"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the checkpoint's options have them."""
    prompts = released.size("global_rep_token", 0)
    distill = released.setting("lw_distill", 1.0)
    return _detr.settings(
        released,
        text_layers=_detr.text_layers(released),
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
