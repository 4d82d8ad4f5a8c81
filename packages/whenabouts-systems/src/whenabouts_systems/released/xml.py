"""Import XML's checkpoints, and reproduce the departures of the TVR authors' program from the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.xml import Config, Model
from whenabouts_systems.released.settings import Released, Settings

TITLE = "XML, imported from a checkpoint of the TVR authors' program"
MODULAR = "modular_vector_mapping.weight"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    released.refuse_others("encoder_type", "transformer", "cnn")
    released.refuse_others("stack_conv_predictor_conv_kernel_sizes", -1, [-1], (-1,))
    released.refuse_others("conv_stride", 1)
    depthwise = "query_encoder.conv.depthwise_conv.weight"
    is_merged = any(released.has(f"merged_st_predictor.{name}") for name in ("weight", "0.weight"))
    group = "merged" if is_merged else next(iter(released.streams))
    convolved = f"{group}_st_predictor.weight"
    parts = {
        "encoder": "cnn" if released.has(depthwise) else "transformer",
        "encoder_kernel": released.size(depthwise, 2) if released.has(depthwise) else 5,
        "merge": is_merged,
        "cross_attention": released.has("video_cross_att.query.weight"),
        "modular": released.has(MODULAR) and not released.setting("no_modular", False),
        "span_predictor": "conv" if released.has(convolved) else "linear",
        "span_kernel": released.size(convolved, 2) if released.has(convolved) else 5,
    }
    preset = Config()
    return Settings(
        {**released.shared(preset), **parts, **released.options(preset, {"lambda_tl": "lw_st_ed"})},
        released.inputs("cut"),
        released.decoding("as-released"),
        unused=frozenset({MODULAR}),  # the program keeps it although its options leave it out
    )


class AsReleased(Model):
    """XML as its program computes it.

    - Padding is computed and convolved; the initial weights of the borders' convolutions are random.
    - Only the diagonal is positive: each query has a column, even if two have the same video.
    - In the ranked setting (paper 004) the similarity of query and caption multiplies only the span loss (in
      the paper the whole loss), and known positives are drawn as negatives (in the paper they are summed in
      the numerator of a contrast: `video_loss` = "contrast").
    """

    counts_padding = True

    def _ranking_weight(self, batch: Batch) -> Tensor | None:
        return None

    def _videos_against(self, batch: Batch, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns = torch.arange(len(batch), device=scores.device)
        return scores[:, batch.video_of], self._moments_allowed(batch), columns

    def _moments_allowed(self, batch: Batch) -> Tensor:
        return ~torch.eye(len(batch), dtype=torch.bool, device=batch.spans.device)
