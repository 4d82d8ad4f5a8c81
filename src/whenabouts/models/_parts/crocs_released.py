"""The losses of CroCs as its released program has them, which differ from the papers.

- A pair that is filtered out is not left out of the sum: its cosine becomes 0, so that it adds exp(0) = 1.
  For the moments' side that includes a sentence's own pair, where its own video counts as similar (as true
  similarities have it): the margin alone then stands in the denominator.
- All logits of a denominator, the positive's included, are multiplied by the number of all pairs divided by
  that of the kept ones; the numerator is not.
- Of the drawn queries' loss the matrices of one positive sentence and of all are broadcast: the mean is over
  as many rows as there are sentences, of which only the first is the loss of the paper.
- The mean cross-entropy of negatives is divided once more by the number of maps.
- A cross-entropy weighted 50-fold is built and never called; `weighted_cross_entropy` is here so that its
  number can be checked, and nothing calls it either.

No released file calls the first-stage or the second-stage loss, nor is there a sampler. Shapes as in
`mutual_matching`: S sentences, A sentences with those that are negatives only, V videos, P cells, K.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts.models._parts.mutual_matching import Keep, Rule, Truth, allowed_sentences, positive_cells

_EPSILON = 1e-6


def filtered_matching(
    sentences: Tensor, cells: Tensor, truth: Truth, rule: Rule, filtered: Tensor
) -> tuple[Tensor, Tensor]:
    """The two contrastive terms of the first stage; `filtered` (S, V) bool: similarity above the threshold.

    As `mutual_matching`: `sentences` (S, D), `cells` (V, P, D) unit vectors; means over positive pairs.
    """
    best, chosen = positive_cells(truth, rule.positives)
    matched = (cells[truth.video_of[:, None], chosen] @ sentences.T).float()
    at = torch.arange(len(matched), device=matched.device)
    own = matched[at, :, at]
    numerator = (own - rule.margin) / rule.moment_temperature
    of_moments = _filtered_moments(matched, own, truth, rule, filtered) - numerator
    numerator = (own - rule.margin) / rule.sentence_temperature
    of_sentences = _filtered_sentences(sentences, cells, own, truth, rule, filtered) - numerator
    count = best.sum().clamp(min=1)
    return (of_moments * best).sum() / count, (of_sentences * best).sum() / count


def _filtered_moments(matched: Tensor, own: Tensor, truth: Truth, rule: Rule, filtered: Tensor) -> Tensor:
    """(S, K) logarithms of the denominators of moments; `matched` (S, K, S), `own` (S, K)."""
    zero = filtered[:, truth.video_of].T
    weight = zero.numel() / (~zero).sum().clamp(min=1) / rule.moment_temperature
    there = allowed_sentences(truth, rule, Keep(), len(matched))
    there = there & ~torch.eye(len(there), dtype=torch.bool, device=there.device)
    others = (matched.masked_fill(zero[:, None], 0.0) * weight).masked_fill(~there[:, None], -torch.inf)
    itself = (own.masked_fill(zero.diagonal()[:, None], 0.0) - rule.margin) * weight
    return torch.logaddexp(itself, _log_sum(others.flatten(2)))


def _filtered_sentences(
    sentences: Tensor, cells: Tensor, own: Tensor, truth: Truth, rule: Rule, filtered: Tensor
) -> Tensor:
    """(S, K) logarithms of the denominators of sentences."""
    at = torch.arange(len(sentences), device=cells.device)
    mine = torch.zeros_like(filtered).index_put((at, truth.video_of), filtered.new_ones(()))
    pairs = (~mine).float() @ truth.cells.sum(1, dtype=torch.float32)
    kept = (~mine & ~filtered).float() @ truth.cells.sum(1, dtype=torch.float32)
    weight = pairs.sum() / kept.sum().clamp(min=1) / rule.sentence_temperature
    weight = torch.where(pairs.sum() > 0, weight, 1 / rule.sentence_temperature)
    cosines = torch.einsum("sd,vpd->svp", sentences, cells).float()
    near = torch.zeros_like(cosines, dtype=torch.bool).index_put(
        (at, truth.video_of), truth.iou >= rule.negative_iou
    )
    zero = near | (filtered & ~mine)[..., None]
    logits = (cosines.masked_fill(zero, 0.0) * weight).masked_fill(~truth.cells, -torch.inf)
    others = torch.logaddexp(_log_sum(logits.flatten(1)), logits.new_tensor(_EPSILON).log())
    return torch.logaddexp((own - rule.margin) * weight, others[:, None])


def drawn_sentences(matched: Tensor, there: Tensor, rule: Rule) -> Tensor:
    """(S,) the moments' term of the second stage, over all rows; the first row alone is the paper's.

    `matched` (S, K, 1 + M): cosines of a sentence's moments with the sentence (first) and with those that
    were drawn for its video; `there` (S, 1 + M) bool, the first true.
    """
    logits = (matched / rule.moment_temperature).masked_fill(~there[:, None], -torch.inf)
    less = logits - rule.margin / rule.moment_temperature
    highest = logits.amax(2, keepdim=True)
    powers = (logits - highest).exp()
    sums = powers.sum(2, keepdim=True) - powers + (less - highest).exp()
    rows = (sums.log() + highest - less[..., :1]).masked_fill(~there[:, None], 0.0)
    return rows.sum((1, 2)) / (there.sum(1) * matched.shape[1])


def weighted_cross_entropy(probabilities: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """50 times the weighted cross-entropy of cells, divided by how many have a weight above 0."""
    terms = functional.binary_cross_entropy(probabilities, targets, reduction="none")
    return 50 * (terms * weights).sum() / (weights > 0).sum().clamp(min=1)


def _log_sum(logits: Tensor) -> Tensor:
    """The logarithm of the sum of exponentials of the last axis; a very low number where nothing is there."""
    empty = (logits == -torch.inf).all(-1, keepdim=True)
    return logits.masked_fill(empty, -1e4).logsumexp(-1)
