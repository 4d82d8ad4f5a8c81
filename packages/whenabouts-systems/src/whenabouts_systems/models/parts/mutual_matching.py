"""The losses of MMN: scaled binary cross-entropy, and contrast of moments with sentences both ways.

Shapes: S sentences with a truth, A >= S sentences in all (the first S are those with a truth, the others are
negatives only), V videos, P cells of a map (see `moment_map`), K positive cells of a sentence, D width.

`Keep` narrows which pairs are negatives: it takes pairs out (CroCs: those that are too similar), or leaves
only chosen ones (CroCs' second stage: `Keep.of_pairs` with the chosen pairs true). `Positives.share` weighs
the negatives of a sentence's own video (G2L). Sources: Wang et al., "Negative Sample Matters" (MMN),
equations 3 to 6; paper 001, equations 4 to 6; for the weights Li et al., "G2L" (ICCV 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

ABSENT = -1e4
"""A logit that adds nothing to a sum of exponentials, and of which a gradient can be taken (unlike -inf)."""
_RELEASED_EPSILON = 1e-6
_LEAST_SHARE = 1e-4
"""A share below this counts as this: its logarithm is taken."""


@dataclass(frozen=True)
class Truth:
    """The truth about a batch's sentences.

    `iou` (S, P): how far the sentence's moment overlaps each cell of its own video. `video_of` (S,) int64.
    `cells` (V, P) bool: which cells a video has. `overlap` (S, S): IoU of the moments of two sentences; what
    stands there for sentences of different videos is not read.
    """

    iou: Tensor
    video_of: Tensor
    cells: Tensor
    overlap: Tensor


@dataclass(frozen=True)
class Rule:
    """The numbers of the contrast.

    `positives` is K, how many cells of the highest IoU are a sentence's. The cosine of a positive pair is
    lessened by `margin`, then all are divided by a temperature: that of moments that look for their sentence,
    or of sentences that look for their moment. A cell of the same video is a negative where its IoU is below
    `negative_iou` and it is none of the sentence's positives (of a short moment even the best cell's IoU may
    be so low); a sentence of the same video where the moments' IoU is below `same_iou`.

    `as_released`: cells of the same video at or above `negative_iou` are not left out: each adds exp(0) = 1
    to the sum, and 1e-6 is added to it. A positive cell below `negative_iou` is a negative of its own, too.
    """

    margin: float
    moment_temperature: float = 0.1
    sentence_temperature: float = 0.1
    positives: int = 1
    negative_iou: float = 0.5
    same_iou: float = 0.5
    as_released: bool = False


@dataclass(frozen=True)
class Keep:
    """Which pairs may be negatives; None: all. A sentence and its own moment are always compared.

    `sentences` (S, A) bool: of the moments of sentence s, which sentences. `cells` (S, V) or (S, V, P) bool:
    of sentence s, which videos' cells.
    """

    sentences: Tensor | None = None
    cells: Tensor | None = None

    @classmethod
    def of_pairs(cls, pairs: Tensor, video_of: Tensor) -> Keep:
        """From pairs (A, V) of a sentence and a video: both ways, except that an own video stays whole.

        The moments of sentence s meet sentence t where the pair (t, video of s) is true; sentence s meets the
        cells of video v where (s, v) is. Pairs of one video are left to the rules of IoU.
        """
        own = torch.arange(pairs.shape[1], device=pairs.device) == video_of[:, None]
        count = len(video_of)
        kept = torch.cat([pairs[:count] | own, pairs[count:]])
        return cls(kept[:, video_of].T, kept[:count])


@dataclass(frozen=True)
class Positives:
    """The cells that are positives of each sentence, and how much the others of its video count as negatives.

    `real` (S, K) bool: whether a sentence has so many; `chosen` (S, K) int64: the cells. `share` (S, K, P) in
    [0, 1]: the weight of each cell of the own video beside a positive one (None: 1).
    """

    real: Tensor
    chosen: Tensor
    share: Tensor | None = None

    def mean(self, losses: Tensor) -> Tensor:
        """The mean of losses (S, K) over the positives that are real."""
        return (losses * self.real).sum() / self.real.sum().clamp(min=1)


def scaled_bce(logits: Tensor, iou: Tensor, cells: Tensor, lowest: float, highest: float) -> Tensor:
    """Cross-entropy of the IoU head, averaged over all cells that are there.

    `logits` and `iou` are (S, P) for a sentence's own video, `cells` (S, P) bool; the target is
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
    """The two contrastive terms, not weighted: moments that look for their sentence, and the reverse.

    `sentences` (A, D) and `cells` (V, P, D) are unit vectors of the contrastive space. Both terms are means
    over the positive pairs of sentences and cells; `positives` are those of `positive_cells` where none are
    given.
    """
    keep, positives = keep or Keep(), positives or positive_cells(truth, rule.positives)
    moments = cells[truth.video_of[:, None], positives.chosen]
    matched = (moments @ sentences.T).float()
    of_moments = _moment_losses(matched, truth, positives, rule, keep)
    of_sentences = _sentence_losses(sentences, cells, own_sentence(matched), truth, positives, rule, keep)
    return positives.mean(of_moments), positives.mean(of_sentences)


def positive_cells(truth: Truth, count: int) -> Positives:
    """The `count` cells of the highest IoU; of cells with the same IoU the later ones, for one answer."""
    own = truth.iou.masked_fill(~truth.cells[truth.video_of], -1.0)
    highest, order = own.flip(1).sort(dim=1, descending=True, stable=True)
    return Positives(highest[:, :count] >= 0, own.shape[1] - 1 - order[:, :count])


def negatives_inside(truth: Truth, rule: Rule, positives: Positives) -> Tensor:
    """(S, P) bool: which cells of its own video are negatives of a sentence; its positives are none."""
    far = truth.cells[truth.video_of] & (truth.iou < rule.negative_iou)
    chosen = positives.chosen
    return far.scatter(1, chosen, far.gather(1, chosen) & ~positives.real)


def allowed_sentences(truth: Truth, rule: Rule, keep: Keep, count: int) -> Tensor:
    """(S, A) bool: which sentences a moment of sentence s is compared with, its own included.

    Those of the same video are left out where the two moments overlap by `same_iou` or more.
    """
    own = truth.video_of
    same = own[:, None] == own
    there = functional.pad(~(same & (truth.overlap >= rule.same_iou)), (0, count - len(own)), value=True)
    if keep.sentences is not None:
        there = there & keep.sentences
    at = torch.arange(len(own), device=own.device)
    return there.index_put((at, at), there.new_ones(()))


def own_sentence(matched: Tensor) -> Tensor:
    """(S, K) of (S, K, A): the cosines with each moment's own sentence."""
    at = torch.arange(len(matched), device=matched.device)
    return matched[at, :, at]


def _moment_losses(matched: Tensor, truth: Truth, positives: Positives, rule: Rule, keep: Keep) -> Tensor:
    """(S, K) each positive cell's loss; `matched` (S, K, A) are its cosines with all sentences."""
    count, every = len(matched), matched.shape[2]
    own = torch.eye(count, every, dtype=torch.bool, device=matched.device)[:, None]
    logits = (matched - rule.margin * own) / rule.moment_temperature
    if positives.share is not None:
        # Another sentence of the same video counts by how far its moment lies from this one.
        same = (truth.video_of[:, None] == truth.video_of)[:, None] & ~own[..., :count]
        share = torch.where(same, positives.share[:, :, positives.chosen[:, 0]], 1.0)
        logits = logits + functional.pad(_log_share(share), (0, every - count))
    there = allowed_sentences(truth, rule, keep, every)
    total = logits.masked_fill(~there[:, None], ABSENT).logsumexp(2)
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
    """(S, K) each sentence's loss for each of its positive cells, whose cosines are `matched` (S, K)."""
    own_video = truth.video_of
    count, at = len(own_video), torch.arange(len(own_video), device=cells.device)
    logits = torch.einsum("sd,vpd->svp", sentences[:count], cells).float() / rule.sentence_temperature
    inside = _logits_inside(logits[at, own_video], truth, positives, rule)
    there = truth.cells.expand(count, -1, -1).clone()
    if keep.cells is not None:
        there &= keep.cells if keep.cells.dim() == 3 else keep.cells[..., None]
    there[at, own_video] = False  # its cells are counted apart, in `inside`
    outside = logits.masked_fill(~there, ABSENT).flatten(1).logsumexp(1)[:, None]
    others = torch.logaddexp(inside.logsumexp(2), outside)
    if rule.as_released:
        others = torch.logaddexp(others, others.new_tensor(_RELEASED_EPSILON).log())
    own = (matched - rule.margin) / rule.sentence_temperature
    return torch.logaddexp(own, others) - own


def _logits_inside(logits: Tensor, truth: Truth, positives: Positives, rule: Rule) -> Tensor:
    """(S, 1 or K, P) of a sentence's own video, from its cells' logits (S, P); absent what is no negative."""
    if rule.as_released:  # cells near the truth are not left out, but add exp(0)
        zeroed = logits.masked_fill(truth.iou >= rule.negative_iou, 0.0)
        return zeroed.masked_fill(~truth.cells[truth.video_of], ABSENT)[:, None]
    weighed = logits[:, None]
    if positives.share is not None:
        weighed = weighed + _log_share(positives.share)
    return weighed.masked_fill(~negatives_inside(truth, rule, positives)[:, None], ABSENT)


def _log_share(share: Tensor) -> Tensor:
    """Logarithms of weights, which multiply exponentials where they are added to logits."""
    return share.clamp(min=_LEAST_SHARE).log()
