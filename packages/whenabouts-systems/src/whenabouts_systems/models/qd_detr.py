"""QD-DETR (Moon et al., CVPR 2023): query-dependent clips, a saliency token, and windows with anchors.

Clips first attend to the words, so that every clip's representation depends on the query; then clips and one
token of the whole video attend to each other. The decoder is DAB-DETR's on spans: each window has an anchor
(centre, width), which every layer refines. A clip's saliency is a product of the clip with the token. In
training a second pass pairs each video with another query's words; the saliency must then be low.

Readings: the contrast of saliency is over the thresholds 1 to 11 of the summed ratings (0 to 12), and its sum
is divided by 12, as in the released program. `released/qd_detr.py` has the program's other departures. See
`moment_detr` for what the family shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.contrasted_model import ContrastedModel, ContrastedSettings
from whenabouts_systems.models.parts.detr_layers import SelfLayers, TextToVideo, places_of
from whenabouts_systems.models.parts.detr_names import OF_CONTRASTED, detr_names
from whenabouts_systems.models.parts.window_model import Detected
from whenabouts_systems.models.protocol import QueryEncoding, VideoEncoding

__all__ = ["Config", "Model", "released_names"]


@dataclass(frozen=True)
class Config(ContrastedSettings):
    """Settings of QD-DETR."""


class Model(ContrastedModel):
    """QD-DETR with fresh weights: a localizer (see `protocol`)."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        hidden = config.hidden
        sizes = (hidden, config.heads, config.feedforward, config.dropout)
        self.text_to_video = TextToVideo(config.text_layers, *sizes)
        self.encoder = SelfLayers(config.encoder_layers, *sizes, learned=True)
        self.whole = nn.Parameter(torch.randn(hidden))
        self.whole_place = nn.Parameter(torch.randn(hidden))

    def detect(self, queries: QueryEncoding, videos: VideoEncoding) -> Detected:
        clips, whole, places = self.encoded(queries, videos)
        return Detected(self.windows_in(clips, places, videos.mask), self.salience(clips, whole))

    def encoded(self, queries: QueryEncoding, videos: VideoEncoding) -> tuple[Tensor, Tensor, Tensor]:
        """Clips (P, T, D) informed by the query, the token (P, D) of the whole, and the clips' places."""
        clips, words = self.clips_of(videos), queries.parts["words"]
        places = places_of(videos.mask, self.config.hidden)
        word_mask = queries.parts["mask"]
        unseen = self._unseen(videos.mask, word_mask)
        clips = self.text_to_video.inform(clips, places, words, word_mask, unseen)
        whole, clips = self.encoder.with_token(self.whole, self.whole_place, clips, places, videos.mask)
        return clips, whole, places

    def saliency_for(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        clips, whole, _ = self.encoded(queries, videos)
        return self.salience(clips, whole)


released_names = detr_names(Model, (r"^whole$", "global_rep_token"), *OF_CONTRASTED)
