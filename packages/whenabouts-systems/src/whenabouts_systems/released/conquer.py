"""Checkpoints of CONQUER's program.

The tensors give all sizes, the streams, and whether the model has a video score of its own (measure
"exclusive"). The measures "general" and "disjoint" have the same parameters; without an option it is
"general". A retriever's score then counts once (`alpha`): of a list such as HERO's give the logarithm of its
scores.
"""

from __future__ import annotations

import re
from typing import Any

from whenabouts.intake.files import FormatError
from whenabouts_systems.models.conquer import Model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.released._pairs import PaddedPairs
from whenabouts_systems.released.settings import Released, Settings

TITLE = "CONQUER, imported from a checkpoint of the authors' program"

_VIDEO, _QUERY = "encoder.videoEncoder.", "encoder.queryEncoder."
_PROJECTIONS = {"video": ("linear", "img_linear"), "sub": ("text_linear",)}
_CONVOLVED = "moment_localization_head.begin_score_modeling.clip_score_predictor.0.weight"
_LAYERS = re.compile(re.escape(_QUERY) + r"transformer\.encoder\.layer\.(\d+)\.intermediate\.dense\.weight")
_HEAD_WIDTH = 64


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options have them."""
    config = _config(released)
    inputs = released.inputs_of_pictures(config, "CONQUER")
    nms = released.setting("nms_thd", 0.7)
    decoding = Decoding(
        min_clips=released.setting("min_pred_l", 0),
        max_clips=released.setting("max_pred_l", 24),
        ends="as-released",
        top_videos=released.setting("max_vcmr_video", 10),
        nms=nms if nms >= 0 else None,
        spans_before_nms=released.setting("max_before_nms", 200),
    )
    return Settings(config, inputs, decoding, "inclusive")


def _config(released: Released) -> dict[str, Any]:
    hidden = released.size(f"{_QUERY}linear.net.1.weight", 0)
    clusters = "query_weight.text_pooling.clusters"
    weighs = released.has(clusters)
    return {
        "streams": _streams(released),
        "query_width": released.size(f"{_QUERY}linear.net.1.weight", 1),
        "hidden": hidden,
        "heads": released.heads(hidden, max(1, hidden // _HEAD_WIDTH), f"{_HEAD_WIDTH} values each"),
        "feedforward": released.size(f"{_QUERY}transformer.encoder.layer.0.intermediate.dense.weight", 0),
        "layers": sum(_LAYERS.fullmatch(name) is not None for name in released.checkpoint.tensors),
        "clusters": released.size(clusters, 1) if weighs else 32,
        "weigh_streams": weighs,
        "span_hidden": released.size(_CONVOLVED, 0),
        "span_kernel": released.size(_CONVOLVED, 2),
        "max_clips": released.size(f"{_VIDEO}transformer.embeddings.position_embeddings.weight", 0),
        "max_tokens": released.size(f"{_QUERY}transformer.embeddings.position_embeddings.weight", 0),
        "measure": _measure(released),
        "lambda_tl": released.setting("lw_st_ed", 0.01),
        "lambda_video": released.setting("lw_video_ce", 0.05),
        "as_released": True,
    }


def _streams(released: Released) -> dict[str, int]:
    """The streams that have a projection, and their widths."""
    widths = {
        stream: released.size(f"{_VIDEO}{name}.net.1.weight", 1)
        for stream, names in _PROJECTIONS.items()
        for name in names
        if released.has(f"{_VIDEO}{name}.net.1.weight")
    }
    if not widths:  # name the parameter that another program's checkpoint lacks
        released.size(f"{_VIDEO}img_linear.net.1.weight", 1)
    return widths


def _measure(released: Released) -> str:
    """The measure; "general" where the tensors and the options leave it open."""
    has_video_score = released.has("video_scoring_head.video_score_predictor.0.weight")
    measure = released.setting("measure", "exclusive" if has_video_score else "")
    if not measure:
        released.guessed.append('the measure: general ("disjoint" has the same weights: see config.json)')
        measure = "general"
    fitting = ("exclusive",) if has_video_score else ("general", "disjoint")
    if measure not in fitting:
        raise FormatError(
            released.checkpoint.path,
            f"has {'a' if has_video_score else 'no'} video score of its own, the settings say",
            field="measure",
            value=measure,
            accepted=" or ".join(fitting),
        )
    return measure


class AsReleased(PaddedPairs, Model):
    """CONQUER as its program computes it."""
