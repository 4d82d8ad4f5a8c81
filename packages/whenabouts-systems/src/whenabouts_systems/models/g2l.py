"""G2L, geodesic and game localization (Li et al., ICCV 2023): MMN, with contrast guided by meaning.

The network, the search vectors and the score of a moment are MMN's; the losses differ. A moment that is near
the true one in meaning is hardly pushed away from the sentence, wherever in the video it lies
(geodesic-guided contrast). Among the moments most similar to the true one, the sentence has to gain most by
joining the true one (semantic Shapley interaction).

Written from the published description; the authors' program was not used. The description leaves these open,
which matters for comparing numbers of this G2L with the authors':

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

Shapes as in `parts/mutual_matching.py`; k neighbours, G games, M moments of a game, C = 2^M coalitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import factorial
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from whenabouts_systems.models import mmn
from whenabouts_systems.models.parts.layers import unit
from whenabouts_systems.models.parts.mutual_matching import (
    ABSENT,
    Keep,
    Positives,
    Rule,
    Truth,
    mutual_matching,
    negatives_inside,
    positive_cells,
)
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding
from whenabouts_systems.models.settings import NotNegative, Size

__all__ = ["Config", "Model"]

MOST_PLAYERS = 10
"""Moments of a game at most: its coalitions are counted out, and there are 2^10."""
_ROUNDS_BETWEEN_CHECKS = 4
"""Rounds between checks whether a distance still changes: a check makes a GPU wait."""


@dataclass(frozen=True)
class Config(mmn.Config):
    """The settings of MMN, and G2L's own."""

    neighbours: Size = 8
    """Of each moment, how many nearest ones the graph joins it with."""
    players: Annotated[int, Meta(ge=2, le=MOST_PLAYERS)] = 6
    """Moments of a game, the true one included."""
    lambda_interaction: NotNegative = 0.5
    """Weight of the interaction, beside the contrast."""

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        self.check("g2l")


class Model(mmn.Model):
    """G2L with fresh weights: retriever and localizer, as MMN is."""

    config: Config

    def terms(
        self, batch: Batch, queries: QueryEncoding, videos: mmn.Encoded, truth: Truth, keep: Keep
    ) -> Losses:
        """Four terms, weights applied: IoU, guided contrast both ways, and interaction."""
        config, rule = self.config, replace(mmn.rule_of(self.config), as_released=False)
        sentences, cells = queries.search[mmn.KEYS], videos.contrast
        positives = guided_positives(cells, truth, rule.positives, config.neighbours)
        of_moments, of_sentences = mutual_matching(sentences, cells, truth, rule, keep, positives)
        interaction = interaction_loss(sentences, cells, truth, positives, rule, config.players)
        weight = mmn.contrast_weight(config, batch.epoch)
        return {
            "iou": self.iou_loss(batch, queries, videos, truth),
            "moments": weight * of_moments,
            "sentences": weight * of_sentences,
            "interaction": weight * config.lambda_interaction * interaction,
        }


def guided_positives(cells: Tensor, truth: Truth, count: int, neighbours: int) -> Positives:
    """The positive cells, and the geodesic distance of the other cells of their video as their share.

    A negative that means nearly the same as the true moment is then hardly pushed away, a distant one wholly.
    `cells` (V, P, D) are unit vectors; no gradient goes through distances.
    """
    positives = positive_cells(truth, count)
    graph = nearest_neighbours(cells.detach(), truth.cells, neighbours)
    owners = truth.video_of.repeat_interleave(positives.chosen.shape[1])
    distances = geodesic_distances(graph, owners, positives.chosen.flatten())
    return replace(positives, share=relative(distances).view(*positives.chosen.shape, -1))


@dataclass(frozen=True)
class Neighbours:
    """A graph over the moments of V videos: `other` (V, P, k) int64 the nearest of each, `length` (V, P, k).

    Lengths are infinite where there is no edge. An edge goes both ways.
    """

    other: Tensor
    length: Tensor


@torch.no_grad()
def nearest_neighbours(features: Tensor, there: Tensor, k: int) -> Neighbours:
    """The graph of the k nearest moments of each, by the distance of their features (V, P, D).

    `there` (V, P) bool says which moments are real; others have no edge. Fewer than k real ones: fewer edges.
    """
    count = features.shape[1]
    apart = torch.cdist(features.float(), features.float())
    itself = torch.eye(count, dtype=torch.bool, device=features.device)
    apart = apart.masked_fill(itself | ~(there[:, :, None] & there[:, None, :]), torch.inf)
    length, other = apart.topk(min(k, max(count - 1, 1)), dim=2, largest=False)
    return Neighbours(other, length)


@torch.no_grad()
def geodesic_distances(graph: Neighbours, video_of: Tensor, sources: Tensor) -> Tensor:
    """(S, P): the shortest way from moment `sources` (S,) of video `video_of` (S,) to each moment of it.

    Infinite where there is no way. All sources go one edge further in each round (Bellman and Ford), until
    nothing changes: as many rounds as the longest shortest way has edges.
    """
    other, length = graph.other[video_of], graph.length[video_of]
    distances = length.new_full(other.shape[:2], torch.inf)
    distances.scatter_(1, sources[:, None], 0.0)
    flat = other.flatten(1)
    for number in range(1, other.shape[1]):
        before = distances
        through = distances.gather(1, flat).view_as(other) + length
        distances = torch.minimum(distances, through.amin(2))  # along the edges of each moment ...
        onward = (distances[..., None] + length).flatten(1)
        distances = distances.scatter_reduce(1, flat, onward, "amin")  # ... and against them
        if number % _ROUNDS_BETWEEN_CHECKS == 0 and torch.equal(before, distances):
            break
    return distances


def relative(distances: Tensor) -> Tensor:
    """(S, P) in [0, 1]: shares of the farthest moment that can be reached; 1 for those that cannot."""
    reached = distances.isfinite()
    farthest = distances.masked_fill(~reached, 0.0).amax(1, keepdim=True)
    shares = distances / farthest.clamp(min=torch.finfo(distances.dtype).tiny)
    return torch.where(reached, shares, 1.0)


def interaction_loss(
    sentences: Tensor, cells: Tensor, truth: Truth, positives: Positives, rule: Rule, players: int
) -> Tensor:
    """How little the true moment gains with its sentence, beside the moments most similar to it.

    The players of a game are a positive cell and the cells of its video geodesically nearest to it that
    overlap the truth too little to be positive. The loss is the cross-entropy of the Shapley interactions
    with the sentence, divided by the sentence's temperature: the true moment's has to be the largest.
    """
    chosen, there = game_players(truth, positives, rule, players)
    moments = cells[truth.video_of[:, None, None], chosen].float()
    queries = sentences[: len(moments)].float()[:, None].expand(-1, moments.shape[1], -1)
    with torch.autocast(moments.device.type, enabled=False):
        interactions = shapley_interactions(queries.flatten(0, 1), moments.flatten(0, 1), there.flatten(0, 1))
    logits = (interactions / rule.sentence_temperature).masked_fill(~there.flatten(0, 1), ABSENT)
    losses = logits.logsumexp(1) - logits[:, 0]
    return positives.mean(losses.view(positives.real.shape))


def game_players(truth: Truth, positives: Positives, rule: Rule, players: int) -> tuple[Tensor, Tensor]:
    """(S, K, M) int64 cells, the positive one first, then the nearest negatives; and which are there."""
    assert positives.share is not None
    negative = negatives_inside(truth, rule, positives)
    share = positives.share.masked_fill(~negative[:, None], torch.inf)
    count = min(players - 1, share.shape[2])
    distances, nearest = share.topk(count, dim=2, largest=False)
    chosen = torch.cat([positives.chosen[..., None], nearest], 2)
    return chosen, torch.cat([positives.real[..., None], distances.isfinite()], 2)


def shapley_interactions(queries: Tensor, moments: Tensor, there: Tensor) -> Tensor:
    """(G, M): the Shapley interaction of each moment with the query, exactly; 0 where there is no moment.

    The interaction of two players is what they bring together beyond what each brings alone, averaged over
    the coalitions of the others with Shapley's weights (Grabisch and Roubens, 1999):

        I(m, q) = sum over C of c! (n - c)! / (n + 1)! (v(C + m + q) - v(C + m) - v(C + q) + v(C))

    C runs over the subsets of the n other moments and has c of them. The value v of a coalition is the cosine
    of the query with the sum of the coalition's moments. Coalitions without the query are worth 0, so
    v(C + m + q) - v(C + q) is left: what the moment adds to each coalition that has the query. A moment that
    is not there adds nothing (a null player), so the others' interactions are those of the game without it.

    `queries` (G, D) and `moments` (G, M, D) are unit vectors, `there` (G, M) bool.
    """
    values = coalition_values(queries, moments, there)
    joined, alone, weights = (tensor.to(moments.device) for tensor in _marginals(moments.shape[1]))
    return ((values[:, joined] - values[:, alone]) * weights).sum(2)


def coalition_values(queries: Tensor, moments: Tensor, there: Tensor) -> Tensor:
    """(G, C): the value of each coalition of moments with the query; bit i of C's number is moment i."""
    members = _members(moments.shape[1]).to(moments.device)
    present = torch.where(there[..., None], moments, 0.0)
    together = torch.einsum("cm,smd->scd", members.to(moments.dtype), present)
    return torch.einsum("scd,sd->sc", unit(together), queries)


@lru_cache
def _members(count: int) -> Tensor:
    """(2^M, M) bool: which moments each coalition has."""
    numbers = torch.arange(2**count)
    return (numbers[:, None] >> torch.arange(count)) & 1 == 1


@lru_cache
def _marginals(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(M, 2^(M-1)) each: coalitions with a moment, the same ones without it, and Shapley's weights."""
    members = _members(count)
    numbers = torch.arange(2**count)
    without = torch.stack([numbers[~members[:, moment]] for moment in range(count)])
    sizes = members.sum(1)[without].tolist()
    whole = factorial(count)
    weights = [[factorial(size) * factorial(count - 1 - size) / whole for size in row] for row in sizes]
    bits = 2 ** torch.arange(count)
    return without + bits[:, None], without, torch.tensor(weights)
