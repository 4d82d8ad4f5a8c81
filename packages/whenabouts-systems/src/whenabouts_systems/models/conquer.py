"""CONQUER (Hou et al., ACM Multimedia 2021): find moments in a few videos that another system has chosen.

`parts/pairs.py` has the architecture, but for the attention between clips and words.

The three measures (`measure`) in our protocol:

- "general": r * P(start) * P(end), with the retriever's probability r of the video. A moment scores
  log P(start) + log P(end) + `alpha` * s, with the retriever's score s. `alpha` is 1 if s is already log r
  (the logarithm of the scores of a list such as HERO's), and 20 if s is HERO's or XML's cosine.
- "disjoint": logit of start + logit of end; the retriever only chooses videos. This is the baseline of
  TVR-Ranking (paper 004).
- "exclusive": as "general", but r is a softmax over the candidates' own video scores. The softmax subtracts
  the same number from all moments of a query, so the own score is added to `start` without it, and the
  retriever's score does not count.

A list of videos (VR) is the retriever's for every measure. The released program ranks the videos of
"disjoint" by their best span, which is the order of videos in our list of moments.

Training: `Batch.negatives` are some (released: 3) videos of a retriever's list for each query; videos known
to answer it are excluded here. Start and end are softmaxes over the clips of the own video and these
negatives ("shared normalisation"), or over the own video without negatives. The released list is HERO's for
the training queries, 2,000 videos deep. From its first (rank of the query's own video + 1,000), without the
own video, 3 are drawn uniformly and without replacement; queries whose own video is not among the first 100
are skipped. "exclusive" needs negatives, because it learns to distinguish them from the own video.

Departure from the released program by default: nothing depends on padding. The program's pooling of words
includes padded words. Its convolutions include values of padded clips, so that the last two clips of a video
depend on the padding. A video's own score is a maximum that includes padded clips. `released/conquer.py`
follows the program. Weights of examples (paper 004) multiply both losses of a query.

Written from the paper and from the program's outputs; its source has no licence and was not used.

Shapes as in `protocol`; S streams, H the width inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.pairs import (
    PairModel,
    PairSettings,
    attention_flow,
    pair_names,
    projected,
)
from whenabouts_systems.models.protocol import QueryEncoding


@dataclass(frozen=True)
class Config(PairSettings):
    """The settings of CONQUER; the defaults are the released ones for TVR."""

    measure: Literal["general", "disjoint", "exclusive"] = "general"
    weigh_streams: bool = True
    """Whether the query weighs the streams; otherwise their mean is used. No effect with one stream."""
    lambda_video: float = 0.05
    """Weight of the videos' cross-entropy, with "exclusive"."""


class ContextQueryAttention(nn.Module):
    """Attention between clips and words.

    It gives four vectors for each clip: the clip, its attended words, and its products with words and clips.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.similarity = nn.Linear(3 * width, 1, bias=False)

    def forward(self, clips: Tensor, words: Tensor, clip_mask: Tensor, attended: Tensor) -> Tensor:
        """(P, T, 4 H) from clips (P, T, H) and words (P, L, H).

        The similarity of clip v and word q is w . [v; q; v * q]; see `attention_flow`.
        """
        of_clip, of_word, of_both = self.similarity.weight[0].chunk(3)
        # Without concatenating clips and words.
        table = torch.bmm(clips * of_both, words.transpose(1, 2))
        table = table + (clips @ of_clip)[:, :, None] + (words @ of_word)[:, None]
        of_words, of_clips = attention_flow(table, clips, words, clip_mask, attended)
        return torch.cat([clips, of_words, clips * of_words, clips * of_clips], dim=2)


class VideoScore(nn.Module):
    """The score of a whole video, from the features of the borders ("exclusive")."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.features = projected(5 * config.hidden, config)
        self.wide = nn.Linear(config.hidden, config.span_hidden, bias=False)
        self.narrow = nn.Linear(config.span_hidden, 1, bias=False)

    def forward(self, clips: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """(P,) from clips (P, T, 5 H), by the maximum over `pooled` (P, T)."""
        features = self.features(clips, mask).masked_fill(~pooled[..., None], -torch.inf)
        logits: Tensor = self.narrow(self.wide(features.amax(1)).relu())
        return logits[:, 0]


class Model(PairModel):
    """CONQUER with fresh weights: a localizer (see `protocol`)."""

    clips_at_once = 1 << 12  # some 400 MB at the released size
    own_score, other_measures = "exclusive", "another measure"

    def __init__(self, config: Config) -> None:
        super().__init__(config, config.weigh_streams and len(config.streams) > 1)
        self.attention = ContextQueryAttention(config.hidden)
        self.add_heads(4, lambda: VideoScore(config))

    @property
    def video_weight(self) -> float:
        """Alpha with "general"; otherwise 0, because the retriever only chooses videos."""
        return self.config.alpha if self.config.measure == "general" else 0.0

    def compared(self, clips: Tensor, queries: QueryEncoding, mask: Tensor) -> Tensor:
        """Clips compared with the words; see `ContextQueryAttention`."""
        words, word_mask = queries.parts["tokens"], queries.parts["mask"]
        return cast("Tensor", self.attention(clips, words, mask, self._attended(mask, word_mask)))

    def of_borders(self, logits: Tensor) -> Tensor:
        """With "disjoint", the unchanged logits."""
        return logits if self.config.measure == "disjoint" else super().of_borders(logits)


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in the released program; the first stream is the pictures."""
    kinds = ("linear",) if len(config.streams) == 1 else ("img_linear", "text_linear")
    prefixes = ("encoder.videoEncoder.", "encoder.queryEncoder.", "query_weight.")
    return pair_names(lambda: Model(config), dict(zip(config.streams, kinds, strict=True)), prefixes, _PLACES)


_HEAD = "moment_localization_head."
_PLACES = (
    ("stream_weights.linear.", "query_weight.moe_fc_txt."),
    ("attention.similarity.", "query_aware_feature_learning_layer.similarity_weight."),
    ("context.", "contextual_QAL_feature_learning."),
    ("start_features.", f"{_HEAD}begin_feature_modeling."),
    ("end_features.", f"{_HEAD}end_feature_modeling."),
    ("start.wide.", f"{_HEAD}begin_score_modeling.clip_score_predictor.0."),
    ("start.narrow.", f"{_HEAD}begin_score_modeling.clip_score_predictor.2."),
    ("end.wide.", f"{_HEAD}end_score_modeling.clip_score_predictor.0."),
    ("end.narrow.", f"{_HEAD}end_score_modeling.clip_score_predictor.2."),
    ("video_score.features.", "video_scoring_head.video_feature_modeling."),
    ("video_score.wide.", "video_scoring_head.video_score_predictor.0."),
    ("video_score.narrow.", "video_scoring_head.video_score_predictor.2."),
)
