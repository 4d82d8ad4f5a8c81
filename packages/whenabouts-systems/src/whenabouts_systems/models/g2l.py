"""G2L, geodesic and game localization (Li et al., ICCV 2023): MMN, with contrast guided by meaning.

Network, search vectors and scores are MMN's; the losses differ. Moments that mean nearly the same as the true
one are hardly pushed away from the sentence, wherever they are in the video (geodesic-guided contrast). Among
the moments most similar to the true one, the sentence must gain most from the true one (semantic Shapley
interaction).

Written from the paper; the authors' program was not used. The paper leaves open the following, so numbers may
differ from the authors':

- Geodesic distance: the length of the shortest path in a graph that joins each moment with the `neighbours`
  nearest ones of its video, by distance in the contrastive space, as in Isomap. The number of neighbours is
  ours. Distances have no gradient.
- Geodesic-guided contrast: MMN's two terms, in which a negative of the same video is weighted by its distance
  from the true moment, as a share of the largest distance. Negatives of other videos have weight 1. The
  authors may weight negatives, select them or both; weights need no threshold.
- Positive cells, and cells of the same video with an IoU of at least `negative_iou`, are no negatives, as in
  MMN.
- The game: players are the sentence, the true moment and the nearest moments that are not positive
  (`players` moments in all; the number is ours). The value of a coalition is the cosine of the sentence with
  the sum of its moments, 0 without the sentence. All coalitions are computed; nothing is sampled.
- The loss of the game: cross-entropy of the moments' interactions with the sentence, divided by the
  temperature of sentences; the true moment should have the largest.
- The total: MMN's cross-entropy of the IoU + `lambda_contrast` * (contrast + `lambda_interaction` *
  interaction), with MMN's schedule. The weight of the interaction is ours.

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
"""The most moments in a game, which has 2^10 coalitions then."""
_ROUNDS_BETWEEN_CHECKS = 4
"""Rounds between checks for changed distances: each check makes a GPU wait."""


@dataclass(frozen=True)
class Config(mmn.Config):
    """The settings of MMN and of G2L."""

    neighbours: Size = 8
    """The number of nearest moments that the graph joins with each moment."""
    players: Annotated[int, Meta(ge=2, le=MOST_PLAYERS)] = 6
    """Moments in a game, the true one included."""
    lambda_interaction: NotNegative = 0.5
    """Weight of the interaction relative to the contrast."""


class Model(mmn.Model):
    """G2L with fresh weights: retriever and localizer (see `protocol`)."""

    config: Config

    def terms(
        self, batch: Batch, queries: QueryEncoding, videos: mmn.Encoded, truth: Truth, keep: Keep
    ) -> Losses:
        """Four weighted terms: IoU, guided contrast both ways, and interaction."""
        config, rule = self.config, self.rule
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
    """The positive cells, with relative geodesic distances as the weights of negatives in their video.

    `cells` (V, P, D) are unit vectors; distances have no gradient.
    """
    positives = positive_cells(truth, count)
    graph = nearest_neighbours(cells.detach(), truth.cells, neighbours)
    owners = truth.video_of.repeat_interleave(positives.chosen.shape[1])
    distances = geodesic_distances(graph, owners, positives.chosen.flatten())
    return replace(positives, share=relative(distances).view(*positives.chosen.shape, -1))


@dataclass(frozen=True)
class Neighbours:
    """An undirected graph over the moments of V videos.

    `other` (V, P, k) int64 are the nearest moments of each; `length` (V, P, k) is infinite for missing edges.
    """

    other: Tensor
    length: Tensor


@torch.no_grad()
def nearest_neighbours(features: Tensor, there: Tensor, k: int) -> Neighbours:
    """The graph of each moment's k nearest ones, by the distance of their features (V, P, D).

    Moments that are not real (`there` (V, P) is false) have no edges.
    """
    count = features.shape[1]
    distances = torch.cdist(features.float(), features.float())
    itself = torch.eye(count, dtype=torch.bool, device=features.device)
    distances = distances.masked_fill(itself | ~(there[:, :, None] & there[:, None, :]), torch.inf)
    length, other = distances.topk(min(k, max(count - 1, 1)), dim=2, largest=False)
    return Neighbours(other, length)


@torch.no_grad()
def geodesic_distances(graph: Neighbours, video_of: Tensor, sources: Tensor) -> Tensor:
    """(S, P): the shortest path from moment `sources` (S,) of video `video_of` (S,) to all its moments.

    Infinite without a path. The algorithm is that of Bellman and Ford: all paths grow by one edge in each
    round until no distance changes.
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
    """(S, P) in [0, 1]: distances over the largest finite one; 1 for infinite distances."""
    reached = distances.isfinite()
    farthest = distances.masked_fill(~reached, 0.0).amax(1, keepdim=True)
    shares = distances / farthest.clamp(min=torch.finfo(distances.dtype).tiny)
    return torch.where(reached, shares, 1.0)


def interaction_loss(
    sentences: Tensor, cells: Tensor, truth: Truth, positives: Positives, rule: Rule, players: int
) -> Tensor:
    """The cross-entropy of Shapley interactions with the sentence, over its temperature.

    The players of a game are a positive cell, whose interaction should be the largest, and its geodesically
    nearest negatives.
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
    """(S, K, M) int64 cells, the positive one first, then the nearest negatives; and (S, K, M) bool: real."""
    assert positives.share is not None
    negative = negatives_inside(truth, rule, positives)
    share = positives.share.masked_fill(~negative[:, None], torch.inf)
    count = min(players - 1, share.shape[2])
    distances, nearest = share.topk(count, dim=2, largest=False)
    chosen = torch.cat([positives.chosen[..., None], nearest], 2)
    return chosen, torch.cat([positives.real[..., None], distances.isfinite()], 2)


def shapley_interactions(queries: Tensor, moments: Tensor, there: Tensor) -> Tensor:
    """(G, M): the exact Shapley interaction of each moment with the query; 0 for missing moments.

    The interaction of two players is the value of both beyond that of each alone, averaged over the
    coalitions of the others with Shapley's weights (Grabisch and Roubens, 1999):

        I(m, q) = sum over C of c! (n - c)! / (n + 1)! (v(C + m + q) - v(C + m) - v(C + q) + v(C))

    C runs over the subsets of the n other moments and has c members. The value v of a coalition is the cosine
    of the query with the sum of its moments. Coalitions without the query have value 0, which leaves
    v(C + m + q) - v(C + q). A missing moment adds nothing (a null player), so the others' interactions are
    those of the game without it.

    `queries` (G, D) and `moments` (G, M, D) are unit vectors, `there` (G, M) bool.
    """
    values = coalition_values(queries, moments, there)
    joined, alone, weights = (tensor.to(moments.device) for tensor in _marginals(moments.shape[1]))
    return ((values[:, joined] - values[:, alone]) * weights).sum(2)


def coalition_values(queries: Tensor, moments: Tensor, there: Tensor) -> Tensor:
    """(G, C): the value of each coalition with the query; bit i of its number is moment i."""
    members = _members(moments.shape[1]).to(moments.device)
    present = torch.where(there[..., None], moments, 0.0)
    together = torch.einsum("cm,smd->scd", members.to(moments.dtype), present)
    return torch.einsum("scd,sd->sc", unit(together), queries)


@lru_cache
def _members(count: int) -> Tensor:
    """(2^M, M) bool: the moments of each coalition."""
    numbers = torch.arange(2**count)
    return (numbers[:, None] >> torch.arange(count)) & 1 == 1


@lru_cache
def _marginals(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """(M, 2^(M-1)) each: coalitions with a moment, the same without it, and Shapley's weights."""
    members = _members(count)
    numbers = torch.arange(2**count)
    without = torch.stack([numbers[~members[:, moment]] for moment in range(count)])
    sizes = members.sum(1)[without].tolist()
    whole = factorial(count)
    weights = [[factorial(size) * factorial(count - 1 - size) / whole for size in row] for row in sizes]
    bits = 2 ** torch.arange(count)
    return without + bits[:, None], without, torch.tensor(weights)
