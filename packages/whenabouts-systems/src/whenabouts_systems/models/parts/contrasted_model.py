"""Base class of localizers that rate clips against the whole video and against wrong queries (QD-DETR).

Shapes as in `protocol`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.window_model import AnchoredModel, Detected, WindowSettings
from whenabouts_systems.models.parts.window_targets import rating_contrast, saliency_labels
from whenabouts_systems.models.protocol import Batch, QueryEncoding, VideoEncoding
from whenabouts_systems.models.settings import Positive, Size


@dataclass(frozen=True)
class ContrastedSettings(WindowSettings):
    """Settings of the family, and the number of `text_layers` in which clips attend to words."""

    text_layers: Size = 2
    temperature: Positive = 0.5
    """Temperature of the contrast of ratings."""


class ContrastedModel(AnchoredModel):
    """A localizer with anchors; the saliency of a clip is its product with a token of the whole video.

    In training a second pass pairs each video with another query, for which saliency must be low.
    """

    config: ContrastedSettings

    def __init__(self, config: ContrastedSettings) -> None:
        super().__init__(config)
        self.salient_clip = nn.Linear(config.hidden, config.hidden)
        self.salient_whole = nn.Linear(config.hidden, config.hidden)

    @abstractmethod
    def saliency_for(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        """(P, T) saliency of P pairs, without their windows."""

    def salience(self, clips: Tensor, whole: Tensor) -> Tensor:
        """(P, T): the product of each clip (P, T, D) with the token (P, D), over the square root of D."""
        products: Tensor = (self.salient_clip(clips) * self.salient_whole(whole)[:, None]).sum(-1)
        return products / math.sqrt(self.config.hidden)

    def saliency_loss(
        self, batch: Batch, detected: Detected, queries: QueryEncoding, videos: VideoEncoding
    ) -> Tensor:
        """The hinge of Moment-DETR, the contrast of ratings, and the loss of saliency for wrong queries."""
        hinge = super().saliency_loss(batch, detected, queries, videos)
        wrong = self.wrong_queries(batch, detected, videos.mask)
        scores, others = detected.saliency.float(), self.saliency_for(queries.take(wrong), videos).float()
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

    def wrong_queries(self, batch: Batch, detected: Detected, mask: Tensor) -> Tensor:
        """(Q,) the query of each pair in the second pass: the next one. `mask` (Q, T)."""
        return torch.arange(len(batch), device=mask.device).roll(-1)

    def _is_negative(self, batch: Batch, wrong: Tensor) -> Tensor:
        """(Q,) bool: whether query `wrong` (Q,) is wrong for the video of each query."""
        return ~self._answering(batch)[wrong, torch.arange(len(batch), device=wrong.device)]
