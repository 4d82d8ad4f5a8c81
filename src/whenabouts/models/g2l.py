"""G2L, geodesic and game localization (Li et al., ICCV 2023): MMN, with contrast that heeds meaning.

The network, the search vectors and the score of a moment are MMN's. What differs is what it learns by: a
moment that is near the true one in meaning is hardly pushed away from the sentence, wherever in the video it
lies (geodesic-guided contrast), and among the moments most similar to the true one the sentence is to work
together best with the true one (semantic Shapley interaction).

Written from the published description; the authors' program was not used. What the description leaves open,
and how it is read here, so that a reader can judge what a number of this G2L says about the authors':

- geodesic distance: the length of the shortest way over a graph of each moment's `neighbours` nearest ones in
  the same video, by the distance of their vectors in the contrastive space, as in Isomap. The number of
  neighbours is ours. No gradient goes through a distance;
- geodesic-guided contrast: MMN's two contrastive terms, in which a negative of the same video counts by its
  distance from the true moment, as a share of the farthest one's; negatives of other videos count wholly.
  Whether the authors weigh, choose or both is open; weighing needs no threshold;
- what is no negative stays as in MMN: the positive cells, and cells of the same video with an IoU of
  `negative_iou` or more;
- the game: its players are the sentence, the true moment and the moments geodesically nearest to it that are
  no positives (`players` moments in all; the number is ours). A coalition is worth the cosine of the sentence
  with the sum of its moments, and nothing without the sentence. With so few players all coalitions are
  counted and nothing is estimated;
- the loss of the game: cross-entropy of the moments' interactions with the sentence, divided by the
  temperature of sentences; the true moment is to have the largest;
- the whole: MMN's cross-entropy of the IoU + `lambda_contrast` * (contrast + `lambda_interaction` *
  interaction), with MMN's schedule of the contrastive terms. The weight of the interaction is ours.

`as_released` is MMN's, in what the two share: the statistics of batch normalisation. Nothing of G2L's own
depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from whenabouts.models import mmn
from whenabouts.models._parts.geodesic_contrast import Guide, Near, guided_contrast, interaction_loss
from whenabouts.models._parts.mutual_matching import Keep, Truth, scaled_bce
from whenabouts.models._parts.shapley import MOST
from whenabouts.models.protocol import Batch, Losses, QueryEncoding
from whenabouts.types import UsageError

__all__ = ["Config", "Model"]

_SHARPNESS = 10.0
"""What a cosine of the IoU space is multiplied by before the sigmoid, as in MMN."""


@dataclass(frozen=True)
class Config(mmn.Config):
    """The settings of MMN, and G2L's own."""

    neighbours: int = 8
    """Of each moment, how many nearest ones the graph joins it with."""
    players: int = 6
    """Moments of a game, the true one included."""
    lambda_interaction: float = 0.5
    """How often the interaction counts, beside the contrast."""

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        object.__setattr__(self, "pooling_counts", tuple(self.pooling_counts))
        for fault in self._faults():
            raise UsageError(f"g2l: {fault}")

    def _faults(self) -> Iterator[str]:
        yield from mmn.config_faults(self)
        if type(self.neighbours) is not int or self.neighbours < 1:
            yield f"neighbours = {self.neighbours!r}: a whole number, at least 1, is expected"
        if type(self.players) is not int or not 2 <= self.players <= MOST:
            yield f"players = {self.players!r}: a whole number from 2 to {MOST} is expected"
        if not 0 <= self.lambda_interaction < float("inf"):
            yield f"lambda_interaction = {self.lambda_interaction!r}: a number, 0 or more, is expected"


class Model(mmn.Model):
    """G2L with fresh weights: retriever and localizer, as MMN is."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)

    def terms(
        self, batch: Batch, queries: QueryEncoding, videos: mmn.Encoded, truth: Truth, keep: Keep
    ) -> Losses:
        """Four terms, weights applied: IoU, guided contrast both ways, and interaction."""
        config, rule = self.config, mmn.rule_of(self.config)
        guide = Guide(config.neighbours, config.players)
        sentences, cells = queries.search[mmn.KEYS], videos.contrast
        near = Near.of(cells, truth, rule, guide)
        of_moments, of_sentences = guided_contrast(sentences, cells, truth, near, rule, keep)
        interaction = interaction_loss(sentences, cells, truth, near, rule, guide)
        logits = _SHARPNESS * torch.einsum("sd,spd->sp", queries.parts["iou"], videos.iou[batch.video_of])
        there = truth.cells[batch.video_of]
        weight = mmn.contrast_weight(config, batch.epoch)
        return {
            "iou": scaled_bce(logits, truth.iou, there, config.lowest_iou, config.highest_iou),
            "moments": weight * of_moments,
            "sentences": weight * of_sentences,
            "interaction": weight * config.lambda_interaction * interaction,
        }
