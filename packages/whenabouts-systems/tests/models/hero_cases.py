"""The golden cases of the whole HERO: settings, weights and batches, as our system reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.golden_folder import Settings, arrays_of, cases, only_gelu, told_inside
from torch import Tensor

from whenabouts_systems.models.hero import Config, Model, released_names
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch

CASES = cases("hero_full", "*.npz")
RELEASED: dict[str, Any] = {
    "conv_kernel_size": 5,
    "ranking_loss_type": "hinge",
    "margin": 0.1,
    "lw_neg_ctx": 8.0,
    "lw_neg_q": 8.0,
    "lw_st_ed": 0.01,
    "hard_pool_size": 20,
    "hard_neg_weight": 10,
    "max_clip_len": 100,
    "vfeat_interval": 1.5,
    "frame_interval": 1.5,
    "q2c_alpha": 20,
    "min_pred_l": 2,
    "max_pred_l": 16,
    "sub_ctx_len": 0,
}
"""The program's settings for TVR."""
OF_INFERENCE = {
    "q2c_alpha": 20,
    "min_pred_l": 2,
    "max_pred_l": 16,
    "max_vcmr_video": 100,
    "max_after_nms": 100,
    "nms_thd": 0.5,
    "video_batch": 50,
}


def sizes(told: dict[str, Any], arrays: dict[str, Tensor], place: str) -> dict[str, Any]:
    """The settings that a case's configuration and tensors have, of a batch at that place of the arrays."""
    read = Settings(told["config"])
    parts = {name: read[f"{name}_config"] for name in "fcq"}
    read.refuse_unread()
    only_gelu(*parts.values(), epsilon=1e-12)
    alike = {
        name: {
            "layers": part["num_hidden_layers"],
            "heads": part["num_attention_heads"],
            "feedforward": part["intermediate_size"],
        }
        for name, part in parts.items()
    }
    frames = "sd.v_encoder.f_encoder.img_embeddings"
    return {
        "streams": {"frames": arrays[f"{frames}.img_linear.weight"].shape[1]},
        "text_encoder": "numbers",
        "hidden": parts["f"]["hidden_size"],
        "heads": parts["q"]["num_attention_heads"],
        "cross_modal": {
            **alike["f"],
            "vocabulary": parts["f"]["vocab_size"],
            "word_places": parts["f"]["max_position_embeddings"],
            "clip_places": len(arrays[f"{frames}.position_embeddings.weight"]),
        },
        "temporal": {**alike["c"], "places": parts["c"]["max_position_embeddings"]},
        "query_places": parts["q"]["max_position_embeddings"],
        "query_token": int(arrays[f"{place}.query_input_ids"][0, 0]),
        "sentence_token": int(arrays[f"{place}.f_sub_input_ids"][0, 0]),
        "span_kernel": told["conv_kernel_size"],
    }


def sequences_alone(arrays: dict[str, Tensor], place: str, padding: int) -> tuple[ClipBatch, Tensor, Tensor]:
    """Each sentence that has clips as a video of its own; its row, and the mask (R, M) of its sequence."""
    masks = arrays[f"{place}.f_attn_masks"].bool()
    ids = arrays[f"{place}.f_sub_input_ids"]
    counts = masks.sum(1) - (ids != padding).sum(1)
    # Where a sentence has no clip the program has an unseen one in front of the words.
    rows = masks[:, 0].nonzero()[:, 0]
    seen = torch.arange(int(counts.max())) < counts[rows, None]
    words = ids[rows, None, 1:]
    sentences = SentenceBatch(words, words != padding, torch.where(seen, 0, -1))
    features = arrays[f"{place}.f_v_feats"][rows, : seen.shape[1]]
    return ClipBatch({"frames": features}, seen, sentences=sentences), rows, masks[rows]


@dataclass(frozen=True)
class Golden:
    """One case: what is told of it, arrays by name, the model with the case's weights."""

    told: dict[str, Any]
    arrays: dict[str, Tensor]
    model: Model

    def near(self, name: str, value: Tensor, *, atol: float = 1e-4, rtol: float = 1e-5) -> None:
        torch.testing.assert_close(value.detach(), self.arrays[name], atol=atol, rtol=rtol)

    def model_with(self, **settings: Any) -> Model:
        """The same weights under other settings."""
        model = Model(replace(self.model.config, **settings)).eval()
        model.load_state_dict(self.model.state_dict())
        return model

    def batch(self, task: str) -> Batch:
        """A batch of the authors' classes; sentences stand as they were made, with their context."""
        arrays = self.arrays
        videos = self.videos(task)
        own = arrays[f"{task}.in.q_vidx"]
        if len(own) == len(videos):
            # Query i belongs to video i, of which another row may be a copy: q_vidx names the last one.
            own = torch.arange(len(own))
        return Batch(
            self.queries(f"{task}.in"),
            videos,
            own,
            arrays[f"{task}.in.targets"],
            own[:, None] == torch.arange(len(videos)),
        )

    def queries(self, place: str) -> QueryBatch:
        """Queries without the token that begins them."""
        ids, mask = self.arrays[f"{place}.query_input_ids"], self.arrays[f"{place}.query_attn_masks"]
        return QueryBatch(ids[:, 1:], mask[:, 1:].bool())

    def videos(self, task: str) -> ClipBatch:
        arrays, told = self.arrays, self.told["told"]["batches"][task]
        features, mask = arrays[f"{task}.in.c_v_feats"], arrays[f"{task}.in.c_attn_masks"].bool()
        words = arrays[f"{task}.in.f_sub_input_ids"][:, 1:]
        sentences = list(torch.split(words, told["num_subs"]))
        return ClipBatch(
            {"frames": features},
            mask,
            sentences=sentence_batch(sentences, told["sub_idx2frame_idx"], mask, self.told["tokens"]["pad"]),
        )


def sentence_batch(
    words: list[Tensor], frames: list[list[tuple[int, list[int]]]], mask: Tensor, padding: int
) -> SentenceBatch:
    """Words (S, L) of each video, and the frames of each sentence."""
    count, length = max(len(rows) for rows in words), max(rows.shape[1] for rows in words)
    ids = torch.full((len(words), count, length), padding)
    of_clips = torch.full(mask.shape, -1)
    for video, rows in enumerate(words):
        ids[video, : len(rows), : rows.shape[1]] = rows
        for sentence, own in frames[video]:
            of_clips[video, own] = sentence
    return SentenceBatch(ids, ids != padding, of_clips)


@cache
def opened(path: Path) -> Golden:
    told, arrays = {**RELEASED, **told_inside(path)}, arrays_of(path)
    told["infer"] = Settings(told["infer"], OF_INFERENCE)
    told["infer"].refuse_unread("max_before_nms", "query_batch")
    config = Config(
        **sizes(told, arrays, "tvr.in"),
        ranking=told["ranking_loss_type"],
        margin=told["margin"],
        weight_negative_videos=told["lw_neg_ctx"],
        weight_negative_queries=told["lw_neg_q"],
        lambda_tl=told["lw_st_ed"],
        alpha=told["infer"]["q2c_alpha"],
        as_released=True,
    )
    model = Model(config).eval()
    model.load_state_dict({ours: arrays[f"sd.{name}"] for ours, name in released_names(config).items()})
    return Golden(told, arrays, model)
