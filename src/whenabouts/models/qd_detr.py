"""QD-DETR (Moon et al., CVPR 2023): query-dependent clips, a saliency token, and windows with anchors.

Clips first look at the words, so that every clip's representation depends on the query; then clips and one
token of the whole video look at each other. The decoder is DAB-DETR's on spans: each window has an anchor
(centre, width) which every layer mends. A clip's saliency is a product of the clip with the token. In
training a second pass asks each video with another query's words, whose saliency must be low.

Readings: the contrast of saliency is over the thresholds 1 to 11 of the summed ratings (0 to 12), and its sum
is divided by 12, as in the released program. `as_released` restores two things. The words of the next query
are taken as wrong ones even where that query belongs to the same video (or is the query itself, in a batch of
one); by default such a query is no negative. And each head leaves out what is padding, both as a clip and as
a word, of *another* pair of the batch: the program lays heads beside pairs where PyTorch expects pairs beside
heads. What a pair gets then depends on its batch; alone it gets the same. See `moment_detr` for what the
family shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.models._parts.detr_layers import (
    AnchorDecoder,
    SelfLayer,
    TextToVideoLayer,
    inverse_sigmoid,
    places_of,
    span_head,
)
from whenabouts.models._parts.renaming import renamed_parameters
from whenabouts.models._parts.window_model import (
    OF_SELF_LAYERS,
    Detected,
    WindowModel,
    WindowSettings,
    perceptron_names,
    projection_names,
)
from whenabouts.models._parts.window_targets import Windows, saliency_labels
from whenabouts.models.protocol import Batch, QueryEncoding, VideoEncoding
from whenabouts.models.settings import Positive, Size

__all__ = ["Config", "Model", "released_names"]

_THRESHOLDS = 11
_UNSEEN = -1e3


@dataclass(frozen=True)
class Config(WindowSettings):
    """Settings of QD-DETR: those of the family, and its own."""

    text_layers: Size = 2
    """Layers in which clips look at words."""
    temperature: Positive = 0.5

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        self.check("qd_detr")


class Model(WindowModel):
    """QD-DETR with fresh weights: a localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        hidden = config.hidden
        sizes = (hidden, config.heads, config.feedforward, config.dropout)
        self.text_to_video = nn.ModuleList(
            TextToVideoLayer(*sizes, learned=True) for _ in range(config.text_layers)
        )
        self.encoder = nn.ModuleList(SelfLayer(*sizes, learned=True) for _ in range(config.encoder_layers))
        self.decoder = AnchorDecoder(config.decoder_layers, config.windows, *sizes)
        self.span = span_head(hidden)
        self.whole = nn.Parameter(torch.randn(hidden))
        self.whole_place = nn.Parameter(torch.randn(hidden))
        self.salient_clip = nn.Linear(hidden, hidden)
        self.salient_whole = nn.Linear(hidden, hidden)

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        """See `WindowModel`."""
        clips, whole, places = self.encoded(queries, videos)
        windows, anchors = self.decoder(clips, places, videos.mask)
        spans = (self.span(windows) + inverse_sigmoid(anchors)).sigmoid()
        layers = tuple(Windows(*layer) for layer in zip(self.classes(windows), spans, strict=True))
        return Detected(layers, self.salience(clips, whole))

    def encoded(self, queries: QueryEncoding, videos: VideoEncoding) -> tuple[Tensor, Tensor, Tensor]:
        """Clips (P, T, D) that know the query, the token (P, D) of the whole, and the clips' places."""
        clips, words = self.clips_of(videos), queries.parts["words"]
        places = places_of(videos.mask, self.config.hidden)
        word_mask = queries.parts["mask"]
        unseen = self._padding_of_others(videos.mask, word_mask) if self.config.as_released else None
        text_layers: list[TextToVideoLayer] = list(self.text_to_video)  # type: ignore[arg-type]
        for text_layer in text_layers:
            clips = text_layer.inform(clips, places, words, word_mask, unseen)
        pairs = len(clips)
        rows = torch.cat([self.whole.expand(pairs, 1, -1), clips], 1)
        where = torch.cat([self.whole_place.expand(pairs, 1, -1), places], 1)
        mask = functional.pad(videos.mask, (1, 0), value=True)
        for layer in self.encoder:
            rows = layer(rows, where, mask)
        return rows[:, 1:], rows[:, 0], places

    def _padding_of_others(self, clips: Tensor, words: Tensor) -> Tensor:
        """(P * heads, T, L) bool: padding of the pair that the program takes for that of a head."""
        both = ~clips[:, :, None] & ~words[:, None]
        return both.repeat(self.config.heads, 1, 1)

    def salience(self, clips: Tensor, whole: Tensor) -> Tensor:
        """(P, T): the product of each clip with the token, over the square root of the width."""
        products: Tensor = (self.salient_clip(clips) * self.salient_whole(whole)[:, None]).sum(-1)
        return products / math.sqrt(self.config.hidden)

    def saliency_loss(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Tensor:
        """The hinge of Moment-DETR, the contrast of ratings and what wrong words' saliency lacks."""
        hinge = super().saliency_loss(batch, detected, queries, videos)
        wrong = torch.arange(len(batch), device=videos.mask.device).roll(-1)
        clips, whole, _ = self.encoded(queries.take(wrong), videos)
        scores, others = detected.saliency.float(), self.salience(clips, whole).float()
        negative = self._is_negative(batch, wrong)[:, None] & videos.mask
        low = (functional.softplus(others) * negative).sum(1).mean()
        labels = saliency_labels(batch, videos.mask)
        contrast = rating_contrast(
            torch.cat([scores, others], 1),
            functional.pad(labels, (0, labels.shape[1])),
            torch.cat([videos.mask, negative], 1),
            self.config.temperature,
        )
        return hinge + contrast + low

    def _is_negative(self, batch: Batch, wrong: Tensor) -> Tensor:
        """(Q,) bool: whether the other query's words are wrong for the query's video."""
        if self.config.as_released:
            return torch.ones_like(wrong, dtype=torch.bool)
        return ~batch.positives[wrong, batch.video_of]


def rating_contrast(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """QD-DETR, equation 6: at each rating, clips rated that high or higher against all others.

    All (Q, C), over the clips of a query's pass and of the one with wrong words. The mean over queries of
    minus the mean log-probability of the positive ones (0 where there is none), summed over ratings 1 to 11,
    divided by 12.
    """
    logits = torch.where(mask, scores, _UNSEEN) / temperature
    shifted = logits - logits.amax(1, keepdim=True)
    log_probability = shifted - (shifted.exp().sum(1, keepdim=True) + 1e-6).log()
    ratings = torch.arange(1, _THRESHOLDS + 1, device=labels.device, dtype=labels.dtype)
    positive = (labels[None] >= ratings[:, None, None]).to(scores.dtype)
    mean = (positive * (log_probability * mask)[None]).sum(-1) / (positive.sum(-1) + 1e-6)
    return -mean.mean(1).sum() / (_THRESHOLDS + 1)


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in the authors' program."""
    return renamed_parameters(lambda: Model(config), (*projection_names(config.projections), *_RELEASED))


_RELEASED = (
    *perceptron_names("span", "span_embed", 3),
    (r"^classes\.", "class_embed."),
    (r"^whole$", "global_rep_token"),
    (r"^whole_place$", "global_rep_pos"),
    (r"^salient_clip\.", "saliency_proj1."),
    (r"^salient_whole\.", "saliency_proj2."),
    (r"^text_to_video\.", "transformer.t2v_encoder.layers."),
    (r"^encoder\.", "transformer.encoder.layers."),
    (r"^decoder\.anchors\.", "query_embed."),
    *perceptron_names(r"decoder\.anchor_places", "transformer.decoder.ref_point_head", 2),
    *perceptron_names(r"decoder\.scale", "transformer.decoder.query_scale", 2),
    *perceptron_names(r"decoder\.width_of", "transformer.decoder.ref_anchor_head", 2),
    *perceptron_names(r"decoder\.mend", "transformer.decoder.bbox_embed", 3),
    (r"^decoder\.", "transformer.decoder."),
    (r"^(transformer\.decoder\..*)\.feedforward_norm\.", r"\1.norm3."),
    (r"^(transformer\..*)\.feedforward_norm\.", r"\1.norm2."),
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
    *OF_SELF_LAYERS,
)
