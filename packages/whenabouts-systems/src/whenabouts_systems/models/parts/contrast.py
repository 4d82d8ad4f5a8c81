"""Contrastive losses of ReLoCLNet: a moment's clips against the video's others, a video against others.

Both are losses of each query (Q,), so that queries can be weighted (paper 004), and both take one stream or
the mean of several. Scores are dot products, without a temperature.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional


def clip_labels(spans: Tensor, clips: int) -> Tensor:
    """(Q, T) bool: clips from the first to the last of each span, both inclusive.

    `spans` (Q, 2) are the targets of start and end. If a target's end is the clip after the moment (labels
    "as-released"), that clip is labelled too, as in the released program.
    """
    place = torch.arange(clips, device=spans.device)
    return (place >= spans[:, :1]) & (place <= spans[:, 1:])


def frame_contrast(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """(Q,) a loss that is low if the clips of a moment score higher than the other clips of its video.

    The negated Jensen-Shannon lower bound of mutual information:

        mean over other clips of (softplus(-s) + s - log 2) - mean over the moment's of (log 2 - softplus(-s))

    `scores` (Q, T): dot products of each query with the clips of its own video; `labels` (Q, T) bool: the
    moment's clips; `mask` (Q, T) bool. A side without a clip counts 0: the moment may fill the video.
    """
    softplus = functional.softplus(-scores)
    inside = _mean_where(math.log(2) - softplus, labels & mask)
    outside = _mean_where(softplus + scores - math.log(2), ~labels & mask)
    return outside - inside


def video_contrast(scores: Tensor, video_of: Tensor, positives: Tensor | None = None) -> Tensor:
    """(Q,) a loss that is low if a query's own video scores higher than others, and it with other queries.

    `scores` (Q, V): of every query with every video; `video_of` (Q,) int64: each query's own video. The score
    of query i and its video is compared with the scores in its row and in its column.

    Without `positives`, as released: log of the sum of exp over row and column - own score. The own pair
    is in both and so counts twice, and a second positive counts as a negative.

    With `positives` (Q, V) bool: `positive_pair_contrast`, "exponentials", of row and column, each pair
    once. If each query has one positive, both forms are the same but for the pair counted twice.
    """
    own_scores = scores.gather(1, video_of[:, None])
    column = scores[:, video_of].T
    if positives is None:
        return torch.cat([scores, column], dim=1).logsumexp(1) - own_scores[:, 0]
    itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    pairs = torch.cat([scores, column.masked_fill(itself, -torch.inf)], dim=1)
    answers = positives.scatter(1, video_of[:, None], True)
    return positive_pair_contrast(pairs, torch.cat([answers, answers[:, video_of].T], dim=1))


Numerator = Literal["exponentials", "scores"]


def positive_pair_contrast(
    scores: Tensor, positives: Tensor, numerator: Numerator = "exponentials"
) -> Tensor:
    """(A,) a loss that is low if an anchor's positives score highest: XML's video contrast (paper 004, C.1).

    The paper prints no equation: "we sum the scores masked by the positive pair mask instead of using only
    the diagonal elements as the nominator", after Khosla et al. (its reference 27). With scores s (A, C) and
    the mask M, `positives` (A, C) bool, that is one of

        "exponentials": log sum_j exp(s_ij) - log sum_j M_ij exp(s_ij)      never negative
        "scores":       log sum_j exp(s_ij) - sum_j M_ij s_ij               the words, taken literally

    Both are -log softmax of the own pair if an anchor has one positive. The second falls without bound as
    positives grow in number or score (scores that are cosines are bounded). An anchor has at least one
    positive.
    """
    every = scores.logsumexp(1)
    if numerator == "scores":
        return every - torch.where(positives, scores, 0.0).sum(1)
    return every - scores.masked_fill(~positives, -torch.inf).logsumexp(1)


def _mean_where(values: Tensor, chosen: Tensor) -> Tensor:
    """(Q,) mean of the chosen values of each row; 0 if none is chosen."""
    return torch.where(chosen, values, 0.0).sum(1) / chosen.sum(1).clamp(min=1)
