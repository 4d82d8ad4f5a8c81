"""Labels of a moment's borders that fall off inside it, and the loss that learns them (CET and BET).

Papers 001 (appendix C.2, equations 10 to 12) and 002 (appendix B.2, equations 9 and 10). The printed
numerators are `x_e - i` and `i - x_s`, the denominators and conditions have stars: `x_e* - x_s* + 1`,
`x_s* <= i <= x_e*`. With starred first and last clips, both inclusive, `x_e* - x_s* + 1` is the moment's
number of clips n; a label that is to be 1 at the true border then asks for numerators of n there. So `x_e` is
read as the border behind the last clip, `x_e* + 1`, and `x_s` as the clip before the first, `x_s* - 1`:

    start: ((x_e* + 1 - i) / n)^k        end: ((i - x_s* + 1) / n)^k        inside the moment, else 0

The start's label is 1 at the first clip and (1 / n)^k at the last, the end's the other way round. Read
without a difference between starred and plain (`to_the_letter`), the highest label is ((n - 1) / n)^k, and a
moment of one clip has no border at all.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts.models._parts.ranking_loss import weighted_mean


def interpolated_labels(
    spans: Tensor, clips: int, power: float, *, to_the_letter: bool = False
) -> tuple[Tensor, Tensor]:
    """(Q, T) labels of start and of end, in [0, 1], of moments whose first and last clip are `spans` (Q, 2).

    `clips` is T, `power` is the k of the paper: the higher, the faster labels fall off. Paper 001, equation
    10.

    >>> start, end = interpolated_labels(torch.tensor([[1, 2]]), 4, 2.0)
    >>> start.tolist(), end.tolist()
    ([[0.0, 1.0, 0.25, 0.0]], [[0.0, 0.25, 1.0, 0.0]])
    """
    place = torch.arange(clips, device=spans.device)
    first, last = spans[:, :1], spans[:, 1:]
    inside = (place >= first) & (place <= last)
    reach = 0 if to_the_letter else 1
    count = last - first + 1
    start = ((last + reach - place) / count).clamp(min=0) ** power
    end = ((place - first + reach) / count).clamp(min=0) ** power
    return torch.where(inside, start, 0.0), torch.where(inside, end, 0.0)


def border_terms(
    logits: Tensor, labels: tuple[Tensor, Tensor], mask: Tensor, weight: Tensor | None
) -> dict[str, Tensor]:
    """The terms `start` and `end`, whose sum is equation 12 of paper 001: half of each, the mean over
    queries.

    Equation 11: the binary cross-entropy, the mean over the real clips of a query's video. `logits` (2, Q,
    T), `labels` (Q, T) twice, `mask` (Q, T); `weight` (Q,) weighs queries where it is given.
    """
    entropy = functional.binary_cross_entropy_with_logits(
        logits.float(), torch.stack(labels), reduction="none"
    )
    means = (entropy * mask).sum(2) / mask.sum(1)
    return dict(zip(("start", "end"), 0.5 * weighted_mean(means, weight), strict=True))
