"""Checkpoints of SQuiDNet's program, and of the ranked one (TVR-Ranking), which has the same parameters.

The tensors give all sizes. Which losses the model learned with, "moment_video" or "moment", stands in the
options; its own video score is there with either, and counts with "moment_video". A list of videos is needed
besides: the program's own (`…/bmr_prd_val_tvr`) is read as HERO's are.
"""

from __future__ import annotations

import re
from typing import Any

from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.squidnet import Model
from whenabouts_systems.released._pairs import PaddedPairs
from whenabouts_systems.released.settings import Released, Settings

TITLE = "SQuiDNet, imported from a checkpoint of the authors' program"

_VIDEOS, _QUERY = "MMAencoder.vsMMA.", "MMAencoder.text_enc."
_PROJECTIONS = {"video": "img_linear", "sub": "text_linear"}
_CONVOLVED = "CMP.start_moment_prediction.moment_predictor.0.weight"
_LAYERS = re.compile(re.escape(_QUERY) + r"transformer\.encoder\.layer\.(\d+)\.intermediate\.dense\.weight")
_VIDEO_SCORE = frozenset(f"CMP.video_predictor.{at}.weight" for at in (0, 2, 4))
_HEAD_WIDTH = 64


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options have them."""
    config = _config(released)
    nms = released.setting("nms_thd", -1.0)
    decoding = Decoding(
        min_clips=released.setting("min_pred_l", 0),
        max_clips=released.setting("max_pred_l", 24),
        ends="as-released",
        top_videos=released.setting("max_vcmr_video", 10),
        nms=nms if nms >= 0 else None,
        spans_before_nms=released.setting("max_before_nms", 200),
    )
    unused = _VIDEO_SCORE if config["measure"] == "moment" else frozenset()
    return Settings(
        config, released.inputs_of_pictures(config, "SQuiDNet"), decoding, "inclusive", unused=unused
    )


def _config(released: Released) -> dict[str, Any]:
    hidden = released.size(f"{_QUERY}linear.net.1.weight", 0)
    return {
        "streams": {
            stream: released.size(f"{_VIDEOS}{name}.net.1.weight", 1) for stream, name in _PROJECTIONS.items()
        },
        "query_width": released.size(f"{_QUERY}linear.net.1.weight", 1),
        "hidden": hidden,
        "heads": released.heads(hidden, max(1, hidden // _HEAD_WIDTH), f"{_HEAD_WIDTH} values each"),
        "feedforward": released.size(f"{_QUERY}transformer.encoder.layer.0.intermediate.dense.weight", 0),
        "layers": sum(_LAYERS.fullmatch(name) is not None for name in released.checkpoint.tensors),
        "clusters": released.size("nvld_query_weight.text_pooling.clusters", 1),
        "span_hidden": released.size(_CONVOLVED, 0),
        "span_kernel": released.size(_CONVOLVED, 2),
        "max_clips": released.size(f"{_VIDEOS}transformer.embeddings.position_embeddings.weight", 0),
        "max_tokens": released.size(f"{_QUERY}transformer.embeddings.position_embeddings.weight", 0),
        "measure": _measure(released),
        "lambda_tl": released.setting("lw_st_ed", 0.01),
        "lambda_video": released.setting("lw_vid", 0.005),
        "as_released": True,
    }


def _measure(released: Released) -> str:
    """What the model learned with; "moment_video", as the program's script has it, where nothing tells."""
    if not released.has_setting("loss_measure"):
        released.guessed.append("the losses: moment_video (loss_measure in opt.json)")
    released.refuse_others("loss_measure", "moment_video", "moment")
    return released.setting("loss_measure", "moment_video")


class AsReleased(PaddedPairs, Model):
    """SQuiDNet as its program computes it."""
