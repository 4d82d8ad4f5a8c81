"""Read settings from checkpoints of the DETR family, and reproduce the departures that its programs share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.parts.window_model import AnchoredModel, WindowSettings
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.released._detr_features import features_of
from whenabouts_systems.released.settings import QUERY, Released, Settings

_MOST_CLIPS = 100_000
_OPTIONS = {
    "dropout": "dropout",
    "input_dropout": "input_dropout",
    "weight_span": "span_loss_coef",
    "weight_giou": "giou_loss_coef",
    "weight_label": "label_loss_coef",
    "weight_background": "eos_coef",
    "weight_saliency": "lw_saliency",
    "cost_span": "set_cost_span",
    "cost_giou": "set_cost_giou",
    "cost_label": "set_cost_class",
    "each_layer": "aux_loss",
    "saliency_margin": "saliency_margin",
    "longest_clips": "max_v_l",
}
_PROJECTION = "input_vid_proj.{}.net.1.weight"
_UNUSED = ("txt_position_embed.", "txt_proj_linear.")


def settings(
    released: Released,
    windows: str = "query_embed.weight",
    encoder: str = "transformer.encoder",
    decoder: str = "transformer.decoder",
    **sizes: Any,
) -> Settings:
    """Settings from the checkpoint's tensors and options; `sizes` are further settings of one system.

    `windows` is the parameter with a row for each window; `encoder` and `decoder` are prefixes of parameters.
    Streams are normalised, as in training. Lighthouse's predictor computes normalised features too, but
    passes the unnormalised ones to the model.
    """
    released.refuse_others("span_loss_type", "l1")
    released.refuse_others("position_embedding", "sine", "v2")
    released.refuse_others("pre_norm", False)
    released.refuse_others("use_txt_pos", False)
    streams, tef = features_of(released, released.size(_PROJECTION.format(0), 1))
    released.refuse_encoders(QUERY, *streams)
    hidden = released.size(_PROJECTION.format(0), 0)
    config = {
        "streams": streams,
        "query_width": released.size("input_txt_proj.0.net.1.weight", 1),
        "hidden": hidden,
        "heads": released.heads(hidden, 8, "nheads"),
        "feedforward": released.size(f"{decoder}.layers.0.linear1.weight", 0),
        "projections": released.count(_PROJECTION.format("{}")),
        "encoder_layers": layers_of(released, encoder),
        "decoder_layers": layers_of(released, decoder),
        "windows": released.size(windows, 0),
        "tef": tef,
        **released.options(WindowSettings(), _OPTIONS),
        **sizes,
    }
    inputs = Inputs(
        released.stream(QUERY, config["query_width"], True),
        {name: released.stream(name, wide, True) for name, wide in streams.items()},
        clip_seconds=released.clip_seconds(2.0),
        max_clips=_MOST_CLIPS,
        max_tokens=released.setting("max_q_l", 32),
        long_videos="cut",
    )
    unused = frozenset(name for name in released.checkpoint.tensors if name.startswith(_UNUSED))
    return Settings(config, inputs, Decoding(nms=0.7), "inclusive", unused=unused)


def layers_of(released: Released, encoder: str) -> int:
    """The number of layers of an encoder or decoder. Raises FormatError if there is none."""
    released.size(f"{encoder}.layers.0.linear1.weight", 0)
    return released.count(f"{encoder}.layers.{{}}.linear1.weight")


class PairsInBatch(AnchoredModel):
    """Faults of QD-, CG-, TR-DETR and UVCOM by which a pair's results depend on its batch.

    - Each head masks the padding (of clips and of words) of another pair: the program orders masks by head
      and then by pair, PyTorch expects the reverse.
    - Other queries of the batch count as wrong for a video even if it is known to answer them.
    - Means over clips include padded clips.
    """

    def _unseen(self, mask: Tensor, word_mask: Tensor) -> Tensor | None:
        # (P * heads, T, L)
        return (~mask[:, :, None] & ~word_mask[:, None]).repeat(self.config.heads, 1, 1)

    def _answering(self, batch: Batch) -> Tensor:
        return torch.zeros_like(super()._answering(batch))

    def _mean_of_clips(self, values: Tensor, mask: Tensor) -> Tensor:
        return values.mean()
