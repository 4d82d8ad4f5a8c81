"""The losses of MMN, CroCs and G2L: scaled cross-entropy of the IoU, and contrast of moments and sentences.

Sources: Wang et al., "Negative Sample Matters" (MMN), equations 3 to 6; paper 001 (CroCs), equations 4 to 6;
Li et al., "G2L" (ICCV 2023) for weights of negatives.

- `Keep` restricts the negatives: MMN and CroCs' first stage exclude videos that may answer the sentence,
  CroCs' second stage keeps only the drawn hard negatives.
- `Positives.share` weights the negatives in a sentence's own video (G2L).

Shapes: S sentences with a true moment, A >= S sentences in all (those after the first S are negatives only),
V videos, P cells of a map (see `moment_map`), K positive cells of a sentence, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

ABSENT = -1e4
"""The logit of an excluded pair: exp of it is 0, yet logsumexp over such logits alone stays finite."""
_LEAST_SHARE = 1e-4
"""Shares are clamped to this minimum before their logarithm is taken."""


@dataclass(frozen=True)
class Truth:
    """The true moments of a batch's sentences.

    `iou` (S, P): IoU of the sentence's moment with each cell of its own video. `video_of` (S,) int64. `cells`
    (V, P) bool: the cells of each video. `overlap` (S, S): IoU of the moments of two sentences; unused for
    sentences of different videos.
    """

    iou: Tensor
    video_of: Tensor
    cells: Tensor
    overlap: Tensor


@dataclass(frozen=True)
class Rule:
    """The settings of the contrast.

    - `positives` is K: the K cells of the highest IoU are a sentence's positives.
    - `margin` is subtracted from the cosine of a positive pair. Cosines are divided by `moment_temperature`
      where moments look for their sentence, by `sentence_temperature` the other way round.
    - A cell of the same video is a negative if its IoU is below `negative_iou`. Positive cells are never
      negatives, even with a lower IoU, as happens for short moments.
    - A sentence of the same video is a negative if the IoU of the two moments is below `same_iou`.
    """

    margin: float
    moment_temperature: float = 0.1
    sentence_temperature: float = 0.1
    positives: int = 1
    negative_iou: float = 0.5
    same_iou: float = 0.5

    def logits_inside(self, logits: Tensor, truth: Truth, positives: Positives) -> Tensor:
        """(S, 1 or K, P): logits (S, P) of the cells of each sentence's video, with the logarithm of `share`.

        `ABSENT` for cells that are not negatives.
        """
        weighed = logits[:, None]
        if positives.share is not None:
            weighed = weighed + _log_share(positives.share)
        return weighed.masked_fill(~negatives_inside(truth, self, positives)[:, None], ABSENT)

    def log_of_negatives(self, inside: Tensor, outside: Tensor) -> Tensor:
        """(S, 1 or K): logsumexp of the logits of all negatives.

        `inside` (S, 1 or K, P): as from `logits_inside`; `outside` (S, 1): logsumexp over other videos.
        """
        return torch.logaddexp(inside.logsumexp(2), outside)


@dataclass(frozen=True)
class Keep:
    """The pairs that may be negatives; None: all. A sentence is always compared with its own moment.

    `sentences` (S, A) bool: the sentences that moments of sentence s are compared with. `cells` (S, V) bool:
    the other videos whose cells are negatives of sentence s; for its own video `Rule` decides.
    """

    sentences: Tensor | None = None
    cells: Tensor | None = None

    @classmethod
    def of_pairs(cls, pairs: Tensor, video_of: Tensor) -> Keep:
        """From `pairs` (A, V) bool: whether a sentence and a video may be a negative pair.

        Moments of sentence s are compared with sentence t if the pair (t, video of s) is true, and sentence s
        with the cells of video v if (s, v) is true.
        """
        own = torch.arange(pairs.shape[1], device=pairs.device) == video_of[:, None]
        count = len(video_of)
        kept = torch.cat([pairs[:count] | own, pairs[count:]])
        return cls(kept[:, video_of].T, kept[:count])


@dataclass(frozen=True)
class Positives:
    """The positive cells of each sentence, and the weights of the other cells of its video as negatives.

    `real` (S, K) bool: false where a video has fewer than K cells. `chosen` (S, K) int64: the cells. `share`
    (S, K, P) in [0, 1]: the weight of each cell of the own video as a negative; None: 1.
    """

    real: Tensor
    chosen: Tensor
    share: Tensor | None = None

    def mean(self, losses: Tensor) -> Tensor:
        """The mean of losses (S, K) over real positives."""
        return (losses * self.real).sum() / self.real.sum().clamp(min=1)


def scaled_bce(logits: Tensor, iou: Tensor, cells: Tensor, lowest: float, highest: float) -> Tensor:
    """Cross-entropy of the IoU head, averaged over all real cells.

    `logits`, `iou` (S, P) of each sentence's own video, `cells` (S, P) bool. The target is
    (IoU - lowest) / (highest - lowest), clamped to [0, 1].
    """
    target = ((iou - lowest) / (highest - lowest)).clamp(0, 1)
    terms = functional.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
    return (terms * cells).sum() / cells.sum().clamp(min=1)


def mutual_matching(
    sentences: Tensor,
    cells: Tensor,
    truth: Truth,
    rule: Rule,
    keep: Keep | None = None,
    positives: Positives | None = None,
) -> tuple[Tensor, Tensor]:
    """The two contrastive terms: moments look for their sentence, and sentences for their moment.

    `sentences` (A, D) and `cells` (V, P, D) are unit vectors of the contrastive space. Both terms are means
    over the positive pairs of sentences and cells. `positives` default to `positive_cells`.
    """
    keep, positives = keep or Keep(), positives or positive_cells(truth, rule.positives)
    moments = cells[truth.video_of[:, None], positives.chosen]
    matched = (moments @ sentences.T).float()
    of_moments = _moment_losses(matched, truth, positives, rule, keep)
    of_sentences = _sentence_losses(sentences, cells, own_sentence(matched), truth, positives, rule, keep)
    return positives.mean(of_moments), positives.mean(of_sentences)


def positive_cells(truth: Truth, count: int) -> Positives:
    """The `count` cells with the highest IoU; of equal ones the later, so that the choice is unique."""
    own = truth.iou.masked_fill(~truth.cells[truth.video_of], -1.0)
    highest, order = own.flip(1).sort(dim=1, descending=True, stable=True)
    return Positives(highest[:, :count] >= 0, own.shape[1] - 1 - order[:, :count])


def negatives_inside(truth: Truth, rule: Rule, positives: Positives) -> Tensor:
    """(S, P) bool: the cells of a sentence's own video that are negatives."""
    far = truth.cells[truth.video_of] & (truth.iou < rule.negative_iou)
    chosen = positives.chosen
    return far.scatter(1, chosen, far.gather(1, chosen) & ~positives.real)


def allowed_sentences(truth: Truth, rule: Rule, keep: Keep, count: int) -> Tensor:
    """(S, A) bool: the sentences that moments of sentence s are compared with, its own included.

    Sentences of the same video with a moment of IoU `same_iou` or more are excluded.
    """
    own = truth.video_of
    same = own[:, None] == own
    allowed = functional.pad(~(same & (truth.overlap >= rule.same_iou)), (0, count - len(own)), value=True)
    if keep.sentences is not None:
        allowed = allowed & keep.sentences
    at = torch.arange(len(own), device=own.device)
    return allowed.index_put((at, at), allowed.new_ones(()))


def own_sentence(matched: Tensor) -> Tensor:
    """(S, K) from (S, K, A): the entry of each moment for its own sentence."""
    at = torch.arange(len(matched), device=matched.device)
    return matched[at, :, at]


def _moment_losses(matched: Tensor, truth: Truth, positives: Positives, rule: Rule, keep: Keep) -> Tensor:
    """(S, K) losses of the positive cells; `matched` (S, K, A) are their cosines with all sentences."""
    count, every = len(matched), matched.shape[2]
    own = torch.eye(count, every, dtype=torch.bool, device=matched.device)[:, None]
    logits = (matched - rule.margin * own) / rule.moment_temperature
    if positives.share is not None:
        # Another sentence of the same video is weighted by the share of its first positive cell.
        same = (truth.video_of[:, None] == truth.video_of)[:, None] & ~own[..., :count]
        share = torch.where(same, positives.share[:, :, positives.chosen[:, 0]], 1.0)
        logits = logits + functional.pad(_log_share(share), (0, every - count))
    allowed = allowed_sentences(truth, rule, keep, every)
    total = logits.masked_fill(~allowed[:, None], ABSENT).logsumexp(2)
    return total - own_sentence(logits)


def _sentence_losses(
    sentences: Tensor,
    cells: Tensor,
    matched: Tensor,
    truth: Truth,
    positives: Positives,
    rule: Rule,
    keep: Keep,
) -> Tensor:
    """(S, K) losses of the sentences; `matched` (S, K) are their cosines with their positive cells."""
    own_video = truth.video_of
    count, at = len(own_video), torch.arange(len(own_video), device=cells.device)
    logits = torch.einsum("sd,vpd->svp", sentences[:count], cells).float() / rule.sentence_temperature
    inside = rule.logits_inside(logits[at, own_video], truth, positives)
    allowed = truth.cells.expand(count, -1, -1).clone()
    if keep.cells is not None:
        allowed &= keep.cells[..., None]
    allowed[at, own_video] = False  # cells of the own video are in `inside`
    outside = logits.masked_fill(~allowed, ABSENT).flatten(1).logsumexp(1)[:, None]
    others = rule.log_of_negatives(inside, outside)
    own = (matched - rule.margin) / rule.sentence_temperature
    return torch.logaddexp(own, others) - own


def _log_share(share: Tensor) -> Tensor:
    """Logarithms of weights: added to logits they multiply exponentials."""
    return share.clamp(min=_LEAST_SHARE).log()
