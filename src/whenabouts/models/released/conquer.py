"""Checkpoints of CONQUER's program.

The tensors say all sizes, the streams, and which measure the model was trained for as far as it has a video
score of its own ("exclusive") or not; "general" and "disjoint" have the same parameters, and where no option
tells them apart it is "general". A retriever's score then counts once (`alpha`): of a list such as HERO's
the logarithm of its scores is to be given.
"""

from __future__ import annotations

import re
from typing import Any

from whenabouts.formats.files import FormatError
from whenabouts.models.decoding import Decoding
from whenabouts.models.inputs import Inputs, StreamInput
from whenabouts.models.released.settings import Released, Settings
from whenabouts.types import UsageError

TITLE = "CONQUER, imported from a checkpoint of the authors' program"
UNUSED: frozenset[str] = frozenset()

_VIDEO, _QUERY = "encoder.videoEncoder.", "encoder.queryEncoder."
_PROJECTIONS = {"video": ("linear", "img_linear"), "sub": ("text_linear",)}
_CONVOLVED = "moment_localization_head.begin_score_modeling.clip_score_predictor.0.weight"
_LAYERS = re.compile(re.escape(_QUERY) + r"transformer\.encoder\.layer\.(\d+)\.intermediate\.dense\.weight")
_HEAD_WIDTH = 64


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options tell them."""
    config = _config(released)
    inputs = _inputs(released, config)
    nms = released.told("nms_thd", 0.7)
    decoding = Decoding(
        min_clips=released.told("min_pred_l", 0),
        max_clips=released.told("max_pred_l", 24),
        ends="as-released",
        top_videos=released.told("max_vcmr_video", 10),
        nms=nms if nms >= 0 else None,
        spans_before_nms=released.told("max_before_nms", 200),
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
        "heads": _heads(released, hidden),
        "feedforward": released.size(f"{_QUERY}transformer.encoder.layer.0.intermediate.dense.weight", 0),
        "layers": sum(_LAYERS.fullmatch(name) is not None for name in released.checkpoint.tensors),
        "clusters": released.size(clusters, 1) if weighs else 32,
        "weigh_streams": weighs,
        "span_hidden": released.size(_CONVOLVED, 0),
        "span_kernel": released.size(_CONVOLVED, 2),
        "max_clips": released.size(f"{_VIDEO}transformer.embeddings.position_embeddings.weight", 0),
        "max_tokens": released.size(f"{_QUERY}transformer.embeddings.position_embeddings.weight", 0),
        "measure": _measure(released),
        "lambda_tl": released.told("lw_st_ed", 0.01),
        "lambda_video": released.told("lw_video_ce", 0.05),
        "as_released": True,
    }


def _streams(released: Released) -> dict[str, int]:
    """What is seen and what is said, as far as there is a projection of it."""
    found = {
        stream: released.size(f"{_VIDEO}{name}.net.1.weight", 1)
        for stream, names in _PROJECTIONS.items()
        for name in names
        if released.has(f"{_VIDEO}{name}.net.1.weight")
    }
    if not found:
        released.size(f"{_VIDEO}img_linear.net.1.weight", 1)
    return found


def _measure(released: Released) -> str:
    """The measure; which of "general" and "disjoint" it is, is guessed where no option tells."""
    own = released.has("video_scoring_head.video_score_predictor.0.weight")
    told = released.told("measure", "exclusive" if own else "")
    if not told:
        released.guessed.append('the measure: general ("disjoint" has the same weights: see config.json)')
        told = "general"
    known = ("exclusive",) if own else ("general", "disjoint")
    if told not in known:
        raise FormatError(
            released.checkpoint.path,
            f"has {'a' if own else 'no'} video score of its own, the settings say",
            field="measure",
            value=told,
            accepted=" or ".join(known),
        )
    return told


def _heads(released: Released, hidden: int) -> int:
    heads = released.asked.heads
    if heads is None:
        heads = max(1, hidden // _HEAD_WIDTH)
        released.guessed.append(f"heads of attention: {heads}, 64 values each (--heads)")
    if heads < 1 or hidden % heads:
        raise UsageError(
            f"{released.checkpoint.path}: {heads} heads do not divide the width {hidden}; give --heads"
        )
    return heads


def _inputs(released: Released, config: dict[str, Any]) -> Inputs:
    """How features were made ready: pictures brought to unit length, words left as they are."""
    named, asked = config["streams"], released.asked
    released.refuse_encoders("query", *named)
    released.refuse_tef("CONQUER")
    return Inputs(
        StreamInput(config["query_width"], False, asked.encoders.get("query", "")),
        {
            name: StreamInput(width, name == "video", asked.encoders.get(name, ""))
            for name, width in named.items()
        },
        clip_seconds=asked.clip_seconds or released.told("clip_length", 1.5),
        max_clips=config["max_clips"],
        max_tokens=config["max_tokens"],
        long_videos="cut",
    )
