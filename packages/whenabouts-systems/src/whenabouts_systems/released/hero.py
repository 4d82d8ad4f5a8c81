"""Checkpoints of HERO's program: fine-tuned on TVR or DiDeMo, or pre-trained.

The tensors give all sizes; what only pre-training uses is left out. The features are those of ResNet and
SlowFast side by side, one stream. Words are ids of RoBERTa's tokenizer (`--encoder query=NAME` names another
place of it).
"""

from __future__ import annotations

import re
from typing import Any

from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.released.settings import QUERY, Released, Settings

TITLE = "HERO, imported from a checkpoint of the authors' program"

_WORDS, _VIDEO = "v_encoder.f_encoder.", "v_encoder.c_encoder."
_QUERY_PLACES = "q_feat_attn.query_pos_embed.position_embeddings.weight"
_UNUSED = re.compile(
    r"v_encoder\.(f_encoder\.)?pad|.*\.pooler\..*|v_encoder\.f_encoder\.(lm_head\..*|img_embeddings\.mask_.*)"
    r"|v_encoder\.(feat_regress|mask_embedding|fom_output)\..*"
)
_HEAD_WIDTH = 64
_TOKENIZER = "roberta-base"


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options have them."""
    config = _config(released)
    nms = released.setting("nms_thd", -1.0)
    decoding = Decoding(
        min_clips=released.setting("min_pred_l", 2),
        max_clips=released.setting("max_pred_l", 16),
        ends="as-released",
        top_videos=released.setting("max_vcmr_video", 100),
        nms=nms if nms >= 0 else None,
        spans_before_nms=released.setting("max_before_nms", 200),
    )
    # A target's end is the last frame of the moment.
    unused = frozenset(name for name in released.checkpoint.tensors if _UNUSED.fullmatch(name))
    return Settings(config, _inputs(released, config), decoding, "inclusive", unused=unused)


def _config(released: Released) -> dict[str, Any]:
    hidden = released.size(f"{_WORDS}embeddings.word_embeddings.weight", 1)
    heads = released.heads(hidden, max(1, hidden // _HEAD_WIDTH), f"{_HEAD_WIDTH} values each")
    frames = f"{_WORDS}img_embeddings."
    return {
        "streams": {"video": released.size(f"{frames}img_linear.weight", 1)},
        "text_encoder": released.overrides.encoders.get(QUERY, _TOKENIZER),
        "hidden": hidden,
        "heads": heads,
        "cross_modal": {
            **_layers(released, _WORDS, heads),
            "vocabulary": released.size(f"{_WORDS}embeddings.word_embeddings.weight", 0),
            "word_places": released.size(f"{_WORDS}embeddings.position_embeddings.weight", 0),
            "clip_places": released.size(f"{frames}position_embeddings.weight", 0),
        },
        "temporal": {
            **_layers(released, _VIDEO, heads),
            "places": released.size(f"{_VIDEO}embeddings.position_embeddings.weight", 0),
        },
        "max_tokens": released.setting("max_txt_len", 60),
        "query_places": released.size(_QUERY_PLACES, 0),
        "context_sentences": released.setting("sub_ctx_len", 0),
        "span_kernel": released.size("video_st_predictor.weight", 2),
        "ranking": released.setting("ranking_loss_type", "hinge"),
        "margin": released.setting("margin", 0.1),
        "weight_negative_videos": released.setting("lw_neg_ctx", 8.0),
        "weight_negative_queries": released.setting("lw_neg_q", 8.0),
        "lambda_tl": released.setting("lw_st_ed", 0.01),
        "drop_spans": released.setting("drop_svmr_prob", 0.8),
        "hard_weight": released.setting("hard_neg_weight", 10.0),
        "alpha": released.setting("q2c_alpha", 20.0),
        "as_released": True,
    }


def _layers(released: Released, place: str, heads: int) -> dict[str, int]:
    """Layers, heads and inner width of the transformer there."""
    layer = re.compile(re.escape(place) + r"encoder\.layer\.(\d+)\.intermediate\.dense\.weight")
    return {
        "layers": sum(layer.fullmatch(name) is not None for name in released.checkpoint.tensors),
        "heads": heads,
        "feedforward": released.size(f"{place}encoder.layer.0.intermediate.dense.weight", 0),
    }


def _inputs(released: Released, config: dict[str, Any]) -> Inputs:
    """How features are prepared: left as they are."""
    released.refuse_encoders(QUERY, "video")
    released.refuse_tef("HERO")
    clip = released.overrides.clip_seconds or released.setting("vfeat_interval", 1.5)
    return Inputs(
        StreamInput(1, False),
        {"video": released.stream("video", config["streams"]["video"], False)},
        clip_seconds=clip,
        max_clips=released.setting("max_clip_len", 100),
        max_tokens=config["max_tokens"],
        long_videos="cut",
        tokenizer=config["text_encoder"],
        reads_sentences=True,
    )
