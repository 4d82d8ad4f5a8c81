"""Compute CroCs' losses as its program does, including its faults.

- A filtered pair is not excluded from the sum: its cosine becomes 0, so it adds exp(0) = 1. On the moments'
  side this also happens to a sentence's own pair, because its own video counts as similar; the denominator
  then has only the margin in place of the pair's logit.
- All logits of a denominator, including the positive's, are multiplied by (number of all pairs) / (number of
  kept pairs); the numerator is not.
- In the loss of drawn queries, the matrices of one positive sentence and of all sentences are broadcast: the
  mean is over each sentence as the positive; in the paper only the first is.
- The first stage has no cross-entropy of negatives. In the second stage its mean is divided once more by the
  number of pairs.
- The program shares MMN's departures (`released/mmn.py`).

The program also defines a cross-entropy with a weight of 50 that it never calls. It has no sampler, and none
of its files calls the loss of either stage, so this follows their definitions. Its checkpoints are imported
as MMN's.

Shapes as in `parts/mutual_matching.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models import crocs
from whenabouts_systems.models.crocs import drawn_queries, with_own
from whenabouts_systems.models.mmn import KEYS, Encoded
from whenabouts_systems.models.parts.mutual_matching import (
    Keep,
    Rule,
    Truth,
    allowed_sentences,
    own_sentence,
    positive_cells,
)
from whenabouts_systems.models.protocol import Batch, QueryEncoding
from whenabouts_systems.released.mmn import ReleasedRule

_ABSENT = -1e30
"""A logit that adds nothing, even beside logits that were multiplied."""


def negative_cross_entropy(logits: Tensor, pairs: Tensor, cells: Tensor) -> Tensor:
    """The same as in `models/crocs.py`, divided once more by the number of pairs."""
    return crocs.negative_cross_entropy(logits, pairs, cells) / pairs.sum().clamp(min=1)


class AsReleased(crocs.Model):
    """CroCs as its program computes it; see the module."""

    rule_class = ReleasedRule
    whole_square = True
    cross_entropy = staticmethod(negative_cross_entropy)

    def contrast(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth, keep: Keep
    ) -> tuple[Tensor, Tensor]:
        sentences = queries.search[KEYS]
        if self.config.stage == "first":
            return filtered_matching(sentences, videos.contrast, truth, self.rule, with_own(batch))
        _, of_sentences = super().contrast(batch, queries, videos, truth, keep)
        return self._drawn_sentences(batch, sentences, videos, truth), of_sentences

    def negative_terms(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, pairs: Tensor
    ) -> dict[str, Tensor]:
        return {} if self.config.stage == "first" else super().negative_terms(batch, queries, videos, pairs)

    def _drawn_sentences(self, batch: Batch, sentences: Tensor, videos: Encoded, truth: Truth) -> Tensor:
        """The moments' term of the second stage for all sentences; the program takes them one by one."""
        rule, count = self.rule, len(batch)
        moments = videos.contrast[batch.video_of[:, None], positive_cells(truth, rule.positives).chosen]
        drawn = drawn_queries(batch, len(sentences))
        own_cosines = torch.einsum("skd,sd->sk", moments, sentences[:count])[..., None]
        matched = torch.cat([own_cosines, moments @ sentences[count:].T], 2)
        allowed = torch.cat([drawn.new_ones((count, 1)), drawn], 1)
        return drawn_sentences(matched.float(), allowed, rule).mean()


def filtered_matching(
    sentences: Tensor, cells: Tensor, truth: Truth, rule: Rule, filtered: Tensor
) -> tuple[Tensor, Tensor]:
    """The two contrastive terms of the first stage, means over positive pairs.

    `sentences` (S, D) and `cells` (V, P, D) are unit vectors, `filtered` (S, V) bool: a sentence's own video,
    and others that may answer it.
    """
    positives = positive_cells(truth, rule.positives)
    matched = (cells[truth.video_of[:, None], positives.chosen] @ sentences.T).float()
    own_cosines = own_sentence(matched)
    numerator = (own_cosines - rule.margin) / rule.moment_temperature
    of_moments = _filtered_moments(matched, own_cosines, truth, rule, filtered) - numerator
    numerator = (own_cosines - rule.margin) / rule.sentence_temperature
    of_sentences = _filtered_sentences(sentences, cells, own_cosines, truth, rule, filtered) - numerator
    return positives.mean(of_moments), positives.mean(of_sentences)


def _filtered_moments(matched: Tensor, own: Tensor, truth: Truth, rule: Rule, filtered: Tensor) -> Tensor:
    """(S, K) logarithms of the moments' denominators; `matched` (S, K, S), `own` (S, K)."""
    zeroed = filtered[:, truth.video_of].T
    weight = zeroed.numel() / (~zeroed).sum().clamp(min=1) / rule.moment_temperature
    allowed = allowed_sentences(truth, rule, Keep(), len(matched))
    allowed = allowed & ~torch.eye(len(allowed), dtype=torch.bool, device=allowed.device)
    others = (matched.masked_fill(zeroed[:, None], 0.0) * weight).masked_fill(~allowed[:, None], _ABSENT)
    # A filtered own pair keeps only its margin.
    itself = (own.masked_fill(zeroed.diagonal()[:, None], 0.0) - rule.margin) * weight
    return torch.logaddexp(itself, others.logsumexp(2))


def _filtered_sentences(
    sentences: Tensor, cells: Tensor, own: Tensor, truth: Truth, rule: Rule, filtered: Tensor
) -> Tensor:
    """(S, K) logarithms of the sentences' denominators."""
    at = torch.arange(len(sentences), device=cells.device)
    own_video = torch.zeros_like(filtered).index_put((at, truth.video_of), filtered.new_ones(()))
    pairs = (~own_video).float() @ truth.cells.sum(1, dtype=torch.float32)
    kept = (~own_video & ~filtered).float() @ truth.cells.sum(1, dtype=torch.float32)
    weight = pairs.sum() / kept.sum().clamp(min=1) / rule.sentence_temperature
    weight = torch.where(pairs.sum() > 0, weight, 1 / rule.sentence_temperature)
    cosines = torch.einsum("sd,vpd->svp", sentences, cells).float()
    overlapping = torch.zeros_like(cosines, dtype=torch.bool).index_put(
        (at, truth.video_of), truth.iou >= rule.negative_iou
    )
    zeroed = overlapping | (filtered & ~own_video)[..., None]
    logits = (cosines.masked_fill(zeroed, 0.0) * weight).masked_fill(~truth.cells, _ABSENT)
    others = torch.logaddexp(logits.flatten(1).logsumexp(1), logits.new_tensor(ReleasedRule.epsilon).log())
    return torch.logaddexp((own - rule.margin) * weight, others[:, None])


def drawn_sentences(matched: Tensor, allowed: Tensor, rule: Rule) -> Tensor:
    """(S,) the moments' term of the second stage, each column in turn positive; the paper has only the first.

    `matched` (S, K, 1 + M): cosines of a sentence's moments with the sentence, then with the batch's M drawn
    queries. `allowed` (S, 1 + M) bool: the first, and those drawn for the sentence's video.
    """
    logits = (matched / rule.moment_temperature).masked_fill(~allowed[:, None], -torch.inf)
    less = logits - rule.margin / rule.moment_temperature
    # In the sum, the margin is subtracted from the column that is the positive.
    highest = logits.amax(2, keepdim=True)
    powers = (logits - highest).exp()
    sums = powers.sum(2, keepdim=True) - powers + (less - highest).exp()
    rows = (sums.log() + highest - less[..., :1]).masked_fill(~allowed[:, None], 0.0)
    return rows.sum((1, 2)) / (allowed.sum(1) * matched.shape[1])
