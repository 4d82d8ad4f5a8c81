"""Average the rows of a batch of videos to a number of stretches of equal time.

The same stretches as `features.resample.average_to_length`, for systems that look at a video at several
scales and so average by themselves (MS-SL, GMMFormer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from whenabouts_systems.models.protocol import ClipBatch

_ADDED = 1e-5
"""Added to the length of a row before it is divided by it, as in `inputs`."""


Borders = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Stretch numbers (M + 1,), video lengths (V, 1) and stretch counts (V, 1) -> first rows (V, M + 1)."""


def even_borders(numbers: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
    """Stretches of equal time, rounded to rows, halves to the even number."""
    return (numbers * lengths / counts).round()


def frames_of(
    videos: ClipBatch, names: Iterable[str], most: int, borders: Borders = even_borders
) -> tuple[Tensor, Tensor]:
    """(V, F, W) unit rows of the streams `names` concatenated, and their mask (V, F).

    A video of more than `most` rows is averaged to `most`.
    """
    if videos.mask.shape[1] <= most:
        return _side_by_side(videos.streams[name] for name in names), videos.mask
    return _averaged(videos, names, videos.mask.sum(1).clamp(max=most), borders)


def clips_of(videos: ClipBatch, names: Iterable[str], count: int, borders: Borders = even_borders) -> Tensor:
    """(V, count, W): each video averaged to `count` rows, of unit length in each stream, concatenated."""
    counts = torch.full_like(videos.mask.sum(1), count)
    return _averaged(videos, names, counts, borders)[0]


def _averaged(
    videos: ClipBatch, names: Iterable[str], counts: Tensor, borders: Borders
) -> tuple[Tensor, Tensor]:
    streams = [averaged(videos.streams[name], videos.mask, counts, borders) for name in names]
    return _side_by_side(streams), torch.arange(int(counts.max()), device=counts.device) < counts[:, None]


def _side_by_side(streams: Iterable[Tensor]) -> Tensor:
    """(V, M, W) of several (V, M, D), each row brought to unit length."""
    return torch.cat(
        [rows / (torch.linalg.vector_norm(rows, dim=-1, keepdim=True) + _ADDED) for rows in streams], -1
    )


def averaged(rows: Tensor, mask: Tensor, counts: Tensor, borders: Borders = even_borders) -> Tensor:
    """(V, M, D): row i of video v is the mean of stretch i of `counts` (V,) stretches of its real rows.

    `rows` (V, T, D), `mask` (V, T); M is the largest count, and rows beyond a video's own count are zero.
    Stretch i of n rows is rows round(i * n / count) up to round((i + 1) * n / count), halves to the even
    number; one that holds no row is the row at its border.
    """
    shares = _shares(mask.sum(1), counts, rows.shape[1], borders)
    return torch.bmm(shares.to(rows.dtype), rows.masked_fill(~mask[..., None], 0))


def _shares(lengths: Tensor, counts: Tensor, steps: int, borders: Borders) -> Tensor:
    """(V, M, T): the weight of each row in each stretch."""
    most = int(counts.max())
    numbers = torch.arange(most + 1, device=lengths.device).double()
    length, count = lengths[:, None].double(), counts[:, None].double()
    rows = borders(numbers, length, count)
    first = rows[:, :-1].minimum(length - 1)
    last = rows[:, 1:].maximum(first + 1)
    place = torch.arange(steps, device=lengths.device)
    inside = (place >= first[..., None]) & (place < last[..., None])
    real = numbers[:-1] < count
    return inside * (real / (last - first))[..., None]
