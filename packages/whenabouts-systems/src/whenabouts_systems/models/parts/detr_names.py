"""Patterns that turn our names of the DETR family's parameters into those of the released programs.

See `renaming`: patterns are applied in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from whenabouts_systems.models.parts.renaming import Patterns, ReleasedNames, renamed_parameters


def detr_names(
    model: Callable[[Any], nn.Module], *patterns: tuple[str, str], of_clips: int | None = None
) -> ReleasedNames:
    """`released_names` for a system of the family.

    `of_clips` is the number of layers that project clips, if it is not `projections`.
    """

    def names(config: Any) -> dict[str, str]:
        clips = _projection("clip_projection", "input_vid_proj", of_clips or config.projections)
        words = _projection("word_projection", "input_txt_proj", config.projections)
        return renamed_parameters(lambda: model(config), (*clips, *words, *patterns))

    return names


def _projection(ours: str, theirs: str, layers: int) -> Iterator[tuple[str, str]]:
    for layer in range(layers):
        yield rf"^{ours}\.{4 * layer}\.", f"{theirs}.{layer}.LayerNorm."
        yield rf"^{ours}\.{4 * layer + 2}\.", f"{theirs}.{layer}.net.1."


def perceptron_names(ours: str, theirs: str, layers: int) -> Patterns:
    """Linear layers with ReLU between them -> the released `layers.0`, `layers.1`, ..."""
    return [(rf"^{ours}\.{2 * layer}\.", f"{theirs}.layers.{layer}.") for layer in range(layers)]


OF_SELF_LAYERS: Patterns = (
    (r"\.attention_norm\.", ".norm1."),
    (r"\.attention\.", ".self_attn."),
    (r"\.feedforward\.wide\.", ".linear1."),
    (r"\.feedforward\.narrow\.", ".linear2."),
    (r"\.feedforward\.activation\.", ".activation."),
    (r"\.feedforward_norm\.", ".norm2."),
)
"""Patterns for the parts of a layer of `detr_layers`; those of decoders must come before."""

OF_ANCHOR_DECODER: Patterns = (
    (r"^decoder\.anchors\.", "query_embed."),
    *perceptron_names(r"decoder\.anchor_places", "transformer.decoder.ref_point_head", 2),
    *perceptron_names(r"decoder\.scale", "transformer.decoder.query_scale", 2),
    *perceptron_names(r"decoder\.width_of", "transformer.decoder.ref_anchor_head", 2),
    *perceptron_names(r"decoder\.mend", "transformer.decoder.bbox_embed", 3),
    (r"^decoder\.", "transformer.decoder."),
    (r"^(transformer\.decoder\..*)\.feedforward_norm\.", r"\1.norm3."),
    (r"\.memory_norm\.", ".norm2."),
    (r"\.memory_attention\.content_query\.", ".ca_qcontent_proj."),
    (r"\.memory_attention\.place_query\.", ".ca_qpos_proj."),
    (r"\.memory_attention\.content_key\.", ".ca_kcontent_proj."),
    (r"\.memory_attention\.place_key\.", ".ca_kpos_proj."),
    (r"\.memory_attention\.value\.", ".ca_v_proj."),
    (r"\.memory_attention\.sine_query\.", ".ca_qpos_sine_proj."),
    (r"\.memory_attention\.output\.", ".cross_attn.out_proj."),
    (r"(decoder\..*)\.attention\.content_query\.", r"\1.sa_qcontent_proj."),
    (r"(decoder\..*)\.attention\.place_query\.", r"\1.sa_qpos_proj."),
    (r"(decoder\..*)\.attention\.content_key\.", r"\1.sa_kcontent_proj."),
    (r"(decoder\..*)\.attention\.place_key\.", r"\1.sa_kpos_proj."),
    (r"(decoder\..*)\.attention\.value\.", r"\1.sa_v_proj."),
    (r"(decoder\..*)\.attention\.output\.", r"\1.self_attn.out_proj."),
)
"""Patterns for the parts of `AnchorDecoder`; `OF_SELF_LAYERS` must come after."""

OF_CONTRASTED: Patterns = (
    *perceptron_names("span", "span_embed", 3),
    (r"^classes\.", "class_embed."),
    (r"^salient_clip\.", "saliency_proj1."),
    (r"^salient_whole\.", "saliency_proj2."),
    (r"^whole_place$", "global_rep_pos"),
    (r"^text_to_video\.", "transformer.t2v_encoder.layers."),
    (r"^encoder\.", "transformer.encoder.layers."),
    *OF_ANCHOR_DECODER,
    *OF_SELF_LAYERS,
)
"""Patterns for QD-DETR's parts, also in its successors."""

OF_SLOT_ATTENTION: Patterns = (
    (r"\.rows_norm\.", ".norm_inputs."),
    (r"\.slots_norm\.", ".norm_slots."),
    (r"\.perceptron_norm\.", ".norm_mlp."),
    (r"(slot_atten|processer_for_tgt)\.norm\.", r"\1.norm_out."),
    (r"(slot_atten|processer_for_tgt)\.(q|k|v)(?:uery|ey|alue)\.", r"\1.project_\2."),
    *((rf"\.perceptron\.{2 * layer}\.", f".mlp.layers.{layer}.") for layer in range(3)),
)
"""Patterns for the parts of `SlotAttention`."""
