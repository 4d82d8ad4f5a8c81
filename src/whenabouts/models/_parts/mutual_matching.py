"""The losses of MMN: scaled binary cross-entropy, and contrast of moments with sentences both ways.

Shapes: S sentences with a truth, A >= S sentences in all (the first S are those with a truth, the others are
negatives only), V videos, P cells of a map (see `moment_map`), K positive cells of a sentence, D width.

Which pairs are negatives is the caller's to narrow: `Keep` takes pairs out (CroCs: those that are too
similar), or leaves only chosen ones (CroCs' second stage: `Keep.of_pairs` with the chosen pairs true).
Sources: Wang et al., "Negative Sample Matters" (MMN), equations 3 to 6; paper 001, equations 4 to 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_NOT_THERE = -1e4
"""A logit that adds nothing to a sum of exponentials, and of which a gradient can be taken."""
_RELEASED_EPSILON = 1e-6


@dataclass(frozen=True)
class Truth:
    """What is known of a batch's sentences.

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


def scaled_bce(
    logits: Tensor, iou: Tensor, cells: Tensor, lowest: float, highest: float, keep: Tensor | None = None
) -> Tensor:
    """Cross-entropy of the IoU head, averaged over all cells that are there.

    `logits` and `iou` are (S, P) for a sentence's own video, `cells` (S, P) bool; the target is
    (IoU - lowest) / (highest - lowest), held in [0, 1]. `keep` (S, P) bool takes cells out.
    """
    counted = cells if keep is None else cells & keep
    target = ((iou - lowest) / (highest - lowest)).clamp(0, 1)
    terms = functional.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
    return (terms * counted).sum() / counted.sum().clamp(min=1)


def mutual_matching(
    sentences: Tensor, cells: Tensor, truth: Truth, rule: Rule, keep: Keep | None = None
) -> tuple[Tensor, Tensor]:
    """The two contrastive terms, not weighted: moments that look for their sentence, and the reverse.

    `sentences` (A, D) and `cells` (V, P, D) are unit vectors of the contrastive space. Both are means over
    the positive pairs of sentences and cells.
    """
    keep = keep or Keep()
    best, chosen = positive_cells(truth, rule.positives)
    moments = cells[truth.video_of[:, None], chosen]
    matched = (moments @ sentences.T).float()
    of_moments = _moment_losses(matched, truth, rule, keep)
    near = truth.iou >= rule.negative_iou
    if not rule.as_released:
        near = ~negatives_inside(truth, rule, best, chosen)
    of_sentences = _sentence_losses(sentences, cells, _own(matched), truth, rule, keep, near)
    count = best.sum().clamp(min=1)
    return (of_moments * best).sum() / count, (of_sentences * best).sum() / count


def positive_cells(truth: Truth, count: int) -> tuple[Tensor, Tensor]:
    """(S, K) bool whether there are so many, and (S, K) int64 the cells of the highest IoU.

    Of cells with the same IoU the later ones, so that there is one answer.
    """
    own = truth.iou.masked_fill(~truth.cells[truth.video_of], -1.0)
    found, order = own.flip(1).sort(dim=1, descending=True, stable=True)
    return found[:, :count] >= 0, own.shape[1] - 1 - order[:, :count]


def negatives_inside(truth: Truth, rule: Rule, real: Tensor, chosen: Tensor) -> Tensor:
    """(S, P) bool: which cells of its own video are negatives of a sentence.

    `real` and `chosen` (S, K) are its positive cells, which are none.
    """
    far = truth.cells[truth.video_of] & (truth.iou < rule.negative_iou)
    return far.scatter(1, chosen, far.gather(1, chosen) & ~real)


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


def _moment_losses(matched: Tensor, truth: Truth, rule: Rule, keep: Keep) -> Tensor:
    """(S, K) each positive cell's loss; `matched` (S, K, A) are its cosines with all sentences."""
    there = allowed_sentences(truth, rule, keep, matched.shape[2])
    own = torch.eye(len(matched), matched.shape[2], dtype=matched.dtype, device=matched.device)
    logits = (matched - rule.margin * own[:, None]) / rule.moment_temperature
    total = logits.masked_fill(~there[:, None], _NOT_THERE).logsumexp(2)
    return total - _own(logits)


def _own(matched: Tensor) -> Tensor:
    """(S, K) of (S, K, A): each sentence's own."""
    at = torch.arange(len(matched), device=matched.device)
    return matched[at, :, at]


def _sentence_losses(
    sentences: Tensor, cells: Tensor, positive: Tensor, truth: Truth, rule: Rule, keep: Keep, near: Tensor
) -> Tensor:
    """(S, K) each sentence's loss for each of its positive cells, whose cosines are `positive` (S, K).

    `near` (S, P) bool: which cells of its own video are no negatives of a sentence.
    """
    count = len(truth.video_of)
    cosines = torch.einsum("sd,vpd->svp", sentences[:count], cells).float()
    there = truth.cells.expand(count, -1, -1).clone()
    if keep.cells is not None:
        there &= keep.cells if keep.cells.dim() == 3 else keep.cells[..., None]
    at = torch.arange(count, device=cells.device)
    own_cells = truth.cells[truth.video_of]
    there[at, truth.video_of] = own_cells if rule.as_released else own_cells & ~near
    if rule.as_released:
        cosines = cosines.index_put(
            (at, truth.video_of), cosines[at, truth.video_of].masked_fill(near & own_cells, 0.0)
        )
    logits = (cosines / rule.sentence_temperature).masked_fill(~there, _NOT_THERE)
    others = logits.flatten(1).logsumexp(1)[:, None]
    if rule.as_released:
        others = torch.logaddexp(others, others.new_tensor(_RELEASED_EPSILON).log())
    own = (positive - rule.margin) / rule.sentence_temperature
    return torch.logaddexp(own, others) - own
