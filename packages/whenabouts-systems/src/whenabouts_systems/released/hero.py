"""Import HERO's checkpoints, and reproduce its program's departures from the paper.

Checkpoints may be fine-tuned on TVR or DiDeMo, or pre-trained. All sizes follow from the tensors; parameters
that only pre-training uses are left out. The features of ResNet and SlowFast, joined, are one stream. Words
are ids of RoBERTa's tokenizer (`--encoder query=NAME` names its folder or repository).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.parts.packing import compute_padding
from whenabouts_systems.models.parts.pretraining import Pretraining
from whenabouts_systems.models.protocol import Batch, ClipBatch
from whenabouts_systems.released.settings import OF_RANKING, QUERY, Released, Settings

TITLE = "HERO, imported from a checkpoint of the authors' program"

_WORDS, _VIDEO = "v_encoder.f_encoder.", "v_encoder.c_encoder."
_QUERY_PLACES = "q_feat_attn.query_pos_embed.position_embeddings.weight"
_UNUSED = re.compile(
    r"v_encoder\.(f_encoder\.)?pad|.*\.pooler\..*|v_encoder\.f_encoder\.(lm_head\..*|img_embeddings\.mask_.*)"
    r"|v_encoder\.(feat_regress|mask_embedding|fom_output)\..*"
)
_TOKENIZER = "roberta-base"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    config = _config(released)
    released.refuse_encoders(QUERY, "video")
    released.refuse_tef("HERO")
    inputs = Inputs(
        StreamInput(1, False),
        {"video": released.stream("video", config["streams"]["video"], False)},
        clip_seconds=released.clip_seconds(name="vfeat_interval"),
        max_clips=released.setting("max_clip_len", 100),
        max_tokens=config["max_tokens"],
        long_videos="cut",
        tokenizer=config["text_encoder"],
        reads_sentences=True,
    )
    unused = frozenset(name for name in released.checkpoint.tensors if _UNUSED.fullmatch(name))
    return Settings(config, inputs, released.decoding("as-released"), "inclusive", unused=unused)


def _config(released: Released) -> dict[str, Any]:
    hidden = released.size(f"{_WORDS}embeddings.word_embeddings.weight", 1)
    heads = released.heads(hidden)
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
        **released.options(Config(), {**OF_RANKING, "lambda_tl": "lw_st_ed"}),
        "drop_spans": released.setting("drop_svmr_prob", 0.8),
        "as_released": True,
    }


def _layers(released: Released, place: str, heads: int) -> dict[str, int]:
    """Number of layers, heads and inner width of the transformer with the prefix `place`."""
    return {
        "layers": released.count(f"{place}encoder.layer.{{}}.intermediate.dense.weight"),
        "heads": heads,
        "feedforward": released.size(f"{place}encoder.layer.0.intermediate.dense.weight", 0),
    }


class ReleasedPretraining(Pretraining):
    """The program's losses of pre-training.

    Padded clips are negatives of hidden clips. The error of regression is the distance, not its square. An
    untrained vector is added to clips that are not hidden.
    """

    def others(self, mask: Tensor, hidden: Tensor) -> Tensor:
        return ~hidden

    def error(self, difference: Tensor) -> Tensor:
        distances: Tensor = difference.norm(dim=1)
        return distances

    def marks(self, hidden: Tensor, table: nn.Embedding) -> Tensor:
        rows: Tensor = table(hidden.long())
        return rows


class AsReleased(Model):
    """HERO as its program computes it.

    Padding is computed and convolved, so the last frames' logits depend on it. The initial weights of the
    borders' convolutions are random. Only a query's own video is excluded from its negatives; other known
    positives are not. Places use RoBERTa's table from its first row, although rows for padding come first.
    Sentences of one clip are learned as two clips. Not reproduced: so are the moments of queries.
    """

    counts_padding = True
    first_place = 0
    losses_of_tasks = ReleasedPretraining

    def _begin(self) -> None:
        if self.config.is_whole:
            compute_padding(self)

    def _answers(self, batch: Batch) -> Tensor:
        return batch.video_of[:, None] == torch.arange(len(batch.videos), device=batch.video_of.device)

    def _matched(self, videos: ClipBatch) -> Batch | None:
        spoken = super()._matched(videos)
        return None if spoken is None else two_clips_long(spoken)


def two_clips_long(batch: Batch) -> Batch:
    """Let moments of one clip end at the next clip, if their video has one."""
    first, last = batch.spans.unbind(1)
    ends = batch.videos.mask.sum(1)[batch.video_of] - 1
    last = torch.minimum(torch.maximum(first + 1, last), ends)
    return replace(batch, spans=torch.stack([first, last], 1))
