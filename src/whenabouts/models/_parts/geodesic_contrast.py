"""The losses of G2L: contrast guided by geodesic distance, and Shapley interaction of similar moments.

Both work on the moments nearest to the truth ("positive cells", see `mutual_matching`) and on how far every
other moment of the same video lies from them along the moments between (`geodesic`).

Shapes: S sentences with a truth, A >= S sentences in all (the first S are those), V videos, P cells, K
positive cells of a sentence, M players, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts.models._parts.geodesic import geodesic_distances, nearest_neighbours, relative
from whenabouts.models._parts.mutual_matching import (
    Keep,
    Rule,
    Truth,
    allowed_sentences,
    negatives_inside,
    positive_cells,
)
from whenabouts.models._parts.shapley import shapley_interactions

_NOT_THERE = -1e4
"""A logit that adds nothing to a sum of exponentials, and of which a gradient can be taken."""
_LEAST = 1e-4
"""A weight below this counts as this."""


@dataclass(frozen=True)
class Guide:
    """`neighbours` of each moment in the graph; `players`: moments of a game, the truth's included."""

    neighbours: int
    players: int


@dataclass(frozen=True)
class Near:
    """Each sentence's positive cells, and how far the cells of its video lie from them.

    `real` (S, K) bool, `chosen` (S, K) int64: the positive cells. `share` (S, K, P) in [0, 1]: geodesic
    distance, 1 for the farthest cell and for those that no way leads to.
    """

    real: Tensor
    chosen: Tensor
    share: Tensor

    @classmethod
    def of(cls, cells: Tensor, truth: Truth, rule: Rule, guide: Guide) -> Near:
        """From the cells' unit vectors (V, P, D); no gradient goes through distances."""
        real, chosen = positive_cells(truth, rule.positives)
        graph = nearest_neighbours(cells.detach(), truth.cells, guide.neighbours)
        owners = truth.video_of.repeat_interleave(chosen.shape[1])
        distances = geodesic_distances(graph, owners, chosen.flatten())
        return cls(real, chosen, relative(distances).view(*chosen.shape, -1))

    def mean(self, losses: Tensor) -> Tensor:
        """The mean of (S, K) over the positive cells that are real."""
        return (losses * self.real).sum() / self.real.sum().clamp(min=1)


def guided_contrast(
    sentences: Tensor, cells: Tensor, truth: Truth, near: Near, rule: Rule, keep: Keep
) -> tuple[Tensor, Tensor]:
    """The two contrastive terms: moments that look for their sentence, and the reverse; not weighted.

    Those of mutual matching, but a negative of the same video counts by its geodesic distance from the
    positive moment: one that means nearly the same is hardly pushed away, a distant one wholly. Negatives of
    other videos count wholly. `sentences` (A, D) and `cells` (V, P, D) are unit vectors.
    """
    moments = cells[truth.video_of[:, None], near.chosen]
    matched = (moments @ sentences.T).float()
    of_moments = _moment_losses(matched, truth, near, rule, keep)
    at = torch.arange(len(truth.video_of), device=cells.device)
    of_sentences = _sentence_losses(sentences, cells, matched[at, :, at], truth, near, rule, keep)
    return near.mean(of_moments), near.mean(of_sentences)


def interaction_loss(
    sentences: Tensor, cells: Tensor, truth: Truth, near: Near, rule: Rule, guide: Guide
) -> Tensor:
    """How little the true moment gains with its sentence, beside the moments most similar to it.

    The players of a game are a positive cell and the cells of its video geodesically nearest to it that
    overlap the truth too little to be positive. The loss is the cross-entropy of the Shapley interactions
    with the sentence, divided by the sentence's temperature: the true moment's is to be the largest.
    """
    players, there = game_players(truth, near, rule, guide)
    own = cells[truth.video_of[:, None, None], players].float()
    queries = sentences[: len(own)].float()[:, None].expand(-1, own.shape[1], -1)
    with torch.autocast(own.device.type, enabled=False):
        found = shapley_interactions(queries.flatten(0, 1), own.flatten(0, 1), there.flatten(0, 1))
    logits = (found / rule.sentence_temperature).masked_fill(~there.flatten(0, 1), _NOT_THERE)
    losses = logits.logsumexp(1) - logits[:, 0]
    return near.mean(losses.view(near.real.shape))


def game_players(truth: Truth, near: Near, rule: Rule, guide: Guide) -> tuple[Tensor, Tensor]:
    """(S, K, M) int64 cells, the positive one first, then the nearest negatives; and which are there."""
    negative = negatives_inside(truth, rule, near.real, near.chosen)
    share = near.share.masked_fill(~negative[:, None], torch.inf)
    count = min(guide.players - 1, share.shape[2])
    found, nearest = share.topk(count, dim=2, largest=False)
    players = torch.cat([near.chosen[..., None], nearest], 2)
    there = torch.cat([near.real[..., None], found.isfinite()], 2)
    return players, there


def _moment_losses(matched: Tensor, truth: Truth, near: Near, rule: Rule, keep: Keep) -> Tensor:
    """(S, K); `matched` (S, K, A) are the cosines of positive moments with all sentences."""
    count, size = len(matched), matched.shape[2]
    same = truth.video_of[:, None] == truth.video_of
    apart = near.share[:, :, near.chosen[:, 0]]  # of each moment from the other sentences' moments
    weight = torch.where(same[:, None], apart, 1.0).clamp(min=_LEAST)
    own = torch.eye(count, size, dtype=matched.dtype, device=matched.device)
    logits = (matched - rule.margin * own[:, None]) / rule.moment_temperature
    itself = own[:, None, :count] > 0
    logits = logits + functional.pad(weight.log().masked_fill(itself, 0.0), (0, size - count))
    there = allowed_sentences(truth, rule, keep, size)
    total = logits.masked_fill(~there[:, None], _NOT_THERE).logsumexp(2)
    at = torch.arange(count, device=matched.device)
    return total - logits[at, :, at]


def _sentence_losses(
    sentences: Tensor, cells: Tensor, positive: Tensor, truth: Truth, near: Near, rule: Rule, keep: Keep
) -> Tensor:
    """(S, K); `positive` (S, K) are the cosines of sentences with their positive moments."""
    count = len(truth.video_of)
    at = torch.arange(count, device=cells.device)
    cosines = torch.einsum("sd,vpd->svp", sentences[:count], cells).float() / rule.sentence_temperature
    there = truth.cells.expand(count, -1, -1).clone()
    if keep.cells is not None:
        there &= keep.cells if keep.cells.dim() == 3 else keep.cells[..., None]
    there[at, truth.video_of] = False
    others = cosines.masked_fill(~there, _NOT_THERE).flatten(1).logsumexp(1)
    negative = negatives_inside(truth, rule, near.real, near.chosen)
    mine = cosines[at, truth.video_of][:, None] + near.share.clamp(min=_LEAST).log()
    mine = mine.masked_fill(~negative[:, None], _NOT_THERE).logsumexp(2)
    own = (positive - rule.margin) / rule.sentence_temperature
    return torch.logaddexp(own, torch.logaddexp(mine, others[:, None])) - own
