"""Moment-DETR (Lei, Berg and Bansal, NeurIPS 2021): find windows of a video as DETR finds objects.

Clips and words go through one transformer encoder together. A decoder turns a few learned queries into
windows (centre and width as shares of the video), each with the probability that it answers. In training the
true windows are assigned to predictions at the least total cost; the other predictions are background. A
linear layer over the encoded clips says how salient each is.

As in the released program, words have no position embeddings (it makes a table of them but uses zeros), and
the cross-entropy of the classes is a plain mean, not divided by the weights. With `[decoding] ends =
"as-released"`, borders are rounded to whole clips, too. The program differs in two things: its evaluation
multiplies shares by the annotated duration, even if clips were cut off at the end; here shares are of the
clips that were seen. Its predictor gives the model raw CLIP features, although training normalised them; here
`inputs` of the checkpoint prepare features alike in training and in search.

Parameters' names are keys of stored trainings; `released_names` are patterns over them, applied in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from whenabouts_systems.models.parts.detr_layers import SelfLayers, WindowLayer
from whenabouts_systems.models.parts.detr_names import OF_SELF_LAYERS, detr_names, perceptron_names
from whenabouts_systems.models.parts.transformer import perceptron
from whenabouts_systems.models.parts.window_model import Detected, WindowModel, WindowSettings
from whenabouts_systems.models.parts.window_targets import Windows
from whenabouts_systems.models.protocol import QueryEncoding, VideoEncoding

__all__ = ["Config", "Model", "released_names"]


@dataclass(frozen=True)
class Config(WindowSettings):
    """The settings of Moment-DETR: those of the family."""


class Model(WindowModel):
    """Moment-DETR with fresh weights: a localizer (see `protocol`)."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        sizes = (config.hidden, config.heads, config.feedforward, config.dropout)
        self.encoder = SelfLayers(config.encoder_layers, *sizes)
        self.queries = nn.Embedding(config.windows, config.hidden)
        self.decoder = nn.ModuleList(WindowLayer(*sizes) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.hidden)
        self.span = perceptron(config.hidden, 2)
        self.salient = nn.Linear(config.hidden, 1)

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        clips, words = self.clips_of(videos), queries.parts
        memory, places, mask = self.encoder.with_words(clips, videos.mask, words["words"], words["mask"])
        slot_places = self.queries.weight.expand(len(memory), -1, -1)
        slots, layers = torch.zeros_like(slot_places), []
        decoder: list[WindowLayer] = list(self.decoder)  # type: ignore[arg-type]
        for layer in decoder:
            slots = layer.seek(slots, slot_places, memory, places, mask)
            outcome = self.norm(slots)
            layers.append(Windows(self.classes(outcome), self.span(outcome).sigmoid()))
        saliency = self.salient(memory[:, : clips.shape[1]])[..., 0]
        return Detected(tuple(layers), saliency)


released_names = detr_names(
    Model,
    *perceptron_names("span", "span_embed", 3),
    (r"^classes\.", "class_embed."),
    (r"^queries\.", "query_embed."),
    (r"^salient\.", "saliency_proj."),
    (r"^norm\.", "transformer.decoder.norm."),
    (r"^encoder\.", "transformer.encoder.layers."),
    (r"^decoder\.", "transformer.decoder.layers."),
    (r"^(transformer\.decoder\..*)\.feedforward_norm\.", r"\1.norm3."),
    (r"\.memory_attention\.", ".multihead_attn."),
    (r"\.memory_norm\.", ".norm2."),
    *OF_SELF_LAYERS,
)
