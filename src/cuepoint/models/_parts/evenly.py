"""Rows of videos of any length averaged to a number of stretches of equal time, a batch at once.

The same stretches as `features.resample.average_to_length`, for what a system averages by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor


def averaged(rows: Tensor, mask: Tensor, counts: Tensor, *, as_released: bool = False) -> Tensor:
    """(V, M, D): row i of video v is the mean of stretch i of `counts` (V,) stretches of its real rows.

    `rows` (V, T, D), `mask` (V, T); M is the largest count, and behind a video's own there are zeros. Stretch
    i of n rows is rows round(i * n / count) up to round((i + 1) * n / count), halves to the even number; one
    that holds no row is the row at its border. `as_released`: the borders are held at n - 1, so that the
    last row is left out wherever its stretch holds another (MS-SL, GMMFormer, 2D-TAN).
    """
    shares = _shares(mask.sum(1), counts, rows.shape[1], as_released=as_released)
    return torch.bmm(shares.to(rows.dtype), rows.masked_fill(~mask[..., None], 0))


def _shares(lengths: Tensor, counts: Tensor, steps: int, *, as_released: bool) -> Tensor:
    """(V, M, T): what each row has of each stretch."""
    most = int(counts.max())
    numbers = torch.arange(most + 1, device=lengths.device).double()
    length, count = lengths[:, None].double(), counts[:, None].double()
    # The order of the operations decides about halves; released programs divide first.
    borders = (numbers / count * length if as_released else numbers * length / count).round()
    first = borders[:, :-1].minimum(length - 1)
    last = (borders.minimum(length - 1) if as_released else borders)[:, 1:].maximum(first + 1)
    place = torch.arange(steps, device=lengths.device)
    inside = (place >= first[..., None]) & (place < last[..., None])
    real = numbers[:-1] < count
    return inside * (real / (last - first))[..., None]
