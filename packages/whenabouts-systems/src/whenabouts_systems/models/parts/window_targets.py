"""Targets and losses of systems that predict windows: true windows matched to predictions, and saliency.

Shapes: Q queries, each with its video; N predicted and W true windows of a query; T clips. Windows are
(centre, width) as shares of the video, filled up with NaN if a query has fewer than W.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from whenabouts_systems.models.protocol import Batch

_RATINGS = 11
_UNSEEN = -1e3
FOREGROUND, BACKGROUND = 0, 1
"""The classes of a predicted window, as in the code of the released programs (their comments differ)."""


@dataclass(frozen=True)
class Windows:
    """Predictions for Q pairs: `logits` (Q, N, 2) of the classes, `spans` (Q, N, 2) as centre and width."""

    logits: Tensor
    spans: Tensor


@dataclass(frozen=True)
class Weights:
    """The weights of the terms in the loss, or in the matching."""

    span: float = 10.0
    giou: float = 1.0
    label: float = 4.0


def true_windows(batch: Batch, clips: Tensor) -> Tensor:
    """(Q, W, 2): centre and width of each query's windows, as shares of its video with `clips` (Q,) clips.

    They come from `labels["windows"]` (Q, W, 2), which are start and end in clips, or else from `spans`.
    """
    start, end = (_windows_of(batch).to(torch.float32) / clips[:, None, None]).unbind(-1)
    return torch.stack([(start + end) / 2, end - start], -1)


def _windows_of(batch: Batch) -> Tensor:
    """(Q, W, 2): start and end of each query's windows in clips."""
    if (given := batch.labels.get("windows")) is not None:
        return given
    return torch.stack([batch.spans[:, 0], batch.spans[:, 1] + 1], -1)[:, None]


def borders_of(spans: Tensor) -> Tensor:
    """Start and end (..., 2) of windows given as centre and width (..., 2)."""
    centre, width = spans.unbind(-1)
    return torch.stack([centre - width / 2, centre + width / 2], -1)


def generalized_iou(first: Tensor, second: Tensor) -> Tensor:
    """Generalized IoU (Rezatofighi, 2019): IoU minus the share of the windows' hull that neither covers.

    Windows are (..., 2) centre and width, broadcast.
    """
    (start, end), (other_start, other_end) = borders_of(first).unbind(-1), borders_of(second).unbind(-1)
    shared = (torch.minimum(end, other_end) - torch.maximum(start, other_start)).clamp(min=0)
    union = (end - start) + (other_end - other_start) - shared
    around = (torch.maximum(end, other_end) - torch.minimum(start, other_start)).clamp(min=0)
    return shared / union - (around - union) / around


def matched(predicted: Windows, truth: Tensor, costs: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """The cheapest assignment of true windows to predictions: (M,) numbers of query, prediction and truth.

    A pair costs `span` * L1 distance - `giou` * generalized IoU - `label` * probability of the foreground.
    The predictions of a query are in ascending order.
    """
    from scipy.optimize import linear_sum_assignment  # only training needs SciPy, which its extra installs

    exists = truth.isfinite().all(-1)
    with torch.no_grad():
        filled = truth.nan_to_num(0.5)[:, None]
        spans = predicted.spans.float()[:, :, None]
        probability = predicted.logits.float().softmax(-1)[..., FOREGROUND]
        cost = costs.span * (spans - filled).abs().sum(-1)
        cost = cost - costs.giou * generalized_iou(spans, filled) - costs.label * probability[..., None]
    table, counts = cost.cpu().numpy(), exists.sum(1).tolist()
    pairs = [
        (query, prediction, target)
        for query, count in enumerate(counts)
        for prediction, target in zip(*linear_sum_assignment(table[query, :, :count]), strict=True)
    ]
    rows = torch.tensor(pairs, dtype=torch.int64, device=truth.device).reshape(-1, 3)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def window_losses(
    predicted: Windows,
    truth: Tensor,
    weights: Weights,
    costs: Weights,
    class_loss: Callable[[Tensor, Tensor], Tensor],
) -> dict[str, Tensor]:
    """The weighted terms `span` (L1), `giou` and `label` of one layer's predictions.

    `span` and `giou` are means over the windows matched with `costs`; `span` is also averaged over centre and
    width. Unmatched predictions are background. `class_loss` gets logits (Q, N, 2) and classes (Q, N).
    """
    rows = matched(predicted, truth, costs)
    query, prediction, _ = rows
    classes = torch.full(predicted.logits.shape[:2], BACKGROUND, device=truth.device)
    classes[query, prediction] = FOREGROUND
    label = class_loss(predicted.logits.float(), classes)
    return {**_span_losses(predicted.spans, truth, rows, weights), "label": weights.label * label}


def assigned_spans(spans: Tensor, truth: Tensor, weights: Weights, costs: Weights) -> dict[str, Tensor]:
    """Terms `span` and `giou` of spans (Q, N, 2) without classes; 0 if there is nothing to match."""
    predicted = Windows(torch.zeros_like(spans), spans)
    return _span_losses(spans, truth, matched(predicted, truth, costs), weights)


def _span_losses(
    spans: Tensor, truth: Tensor, rows: tuple[Tensor, Tensor, Tensor], weights: Weights
) -> dict[str, Tensor]:
    query, prediction, target = rows
    assigned, true = spans[query, prediction].float(), truth[query, target]
    distance, shared = (assigned - true).abs(), generalized_iou(assigned, true)
    return {
        "span": weights.span * distance.sum() / max(1, distance.numel()),
        "giou": weights.giou * (1 - shared).sum() / max(1, len(shared)),
    }


def saliency_labels(batch: Batch, mask: Tensor) -> Tensor:
    """(Q, T): the saliency of each clip for its query.

    It is `labels["saliency"]`: in QVHighlights the sum of three annotators' ratings (0 to 4), 0 outside of
    the windows. Without this label, it is 1 for each clip that a window touches.
    """
    given = batch.labels.get("saliency")
    return (relevant_clips(batch, mask) if given is None else given).to(torch.float32)


def relevant_clips(batch: Batch, mask: Tensor) -> Tensor:
    """(Q, T) bool: the clips that a window of the query touches, or `labels["relevant_clips"]` if given."""
    if (given := batch.labels.get("relevant_clips")) is not None:
        return given
    windows = _windows_of(batch)
    begins = torch.arange(mask.shape[1], device=mask.device, dtype=torch.float32)
    inside = (windows[..., :1] < begins + 1) & (windows[..., 1:] > begins)
    return inside.any(1) & mask


def saliency_pairs(batch: Batch, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Two pairs of clips for each query, as in Moment-DETR: clips (Q, 2) to score higher, and to score lower.

    The first pair is the best and the worst rated clip of the windows, the second a random clip inside and a
    random clip outside of them. If windows fill the video, the second pair repeats the first. If the batch
    has `labels["saliency_pairs"]` (Q, 2, 2), higher and lower, they are used instead.
    """
    if (given := batch.labels.get("saliency_pairs")) is not None:
        return given[:, 0], given[:, 1]
    inside, labels = relevant_clips(batch, mask), saliency_labels(batch, mask)
    best = labels.masked_fill(~inside, -torch.inf).argmax(1)
    worst = labels.masked_fill(~inside, torch.inf).argmin(1)
    drawn = torch.rand(mask.shape, device=mask.device)
    within = drawn.masked_fill(~inside, -1.0).argmax(1)
    outside = inside.logical_not() & mask
    without = drawn.masked_fill(~outside, -1.0).argmax(1)
    has_outside = outside.any(1)
    higher = torch.stack([best, within.where(has_outside, best)], 1)
    return higher, torch.stack([worst, without.where(has_outside, worst)], 1)


def saliency_hinge(scores: Tensor, higher: Tensor, lower: Tensor, margin: float) -> Tensor:
    """Moment-DETR, equation 5: twice the mean over pairs of max(0, margin + lower - higher)."""
    difference = scores.gather(1, lower) - scores.gather(1, higher)
    return 2 * (margin + difference).clamp(min=0).mean()


def rating_contrast(scores: Tensor, labels: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """QD-DETR, equation 6: for each rating, a contrast of clips that reach it with all others.

    All arguments are (Q, C): the clips of a query's pass, then those of the pass with wrong words. For each
    rating from 1 to 11, the loss is the mean over queries of minus the mean log-probability of the positive
    clips (0 for a query without positive clips). The result is the sum of these losses divided by 12.
    """
    logits = torch.where(mask, scores, _UNSEEN) / temperature
    shifted = logits - logits.amax(1, keepdim=True)
    log_probability = shifted - (shifted.exp().sum(1, keepdim=True) + 1e-6).log()
    ratings = torch.arange(1, _RATINGS + 1, device=labels.device, dtype=labels.dtype)
    positive = (labels[None] >= ratings[:, None, None]).to(scores.dtype)
    mean = (positive * (log_probability * mask)[None]).sum(-1) / (positive.sum(-1) + 1e-6)
    return -mean.mean(1).sum() / (_RATINGS + 1)
