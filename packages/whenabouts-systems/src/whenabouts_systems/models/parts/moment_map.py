"""The sparse 2-D map of moments (2D-TAN, MMN): its cells, their features, and a convolution over it.

Cell (first, last) is the moment of the clips first to last. With pooling counts (15, 8, 8) a map has all
moments of up to 16 clips, then moments of 18, 20, ... 32 clips that begin at an even clip, then moments of
36, 40, ... clips that begin at a multiple of 4. A video of 64 clips has 1,104 cells; of 128 clips, with
(15, 8, 8, 8), 2,548.

Cells are stored as rows, not as a square: row p of a video of n clips is cell p of `cells_of(counts, n)`.
They are ordered by last clip, then by first. So the cells of a shorter video come first and padding last.

Shapes: V videos, N clips, P cells, S sentences, D width.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, cast

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.layers import unit
from whenabouts_systems.models.parts.sparse_convolution import Area, convolved

Counts = Annotated[
    tuple[Annotated[int, Meta(ge=0)], ...],
    Meta(min_length=1, description="whole numbers, 0 or more, at least one of them"),
]
"""Pooling counts: the number of moment lengths in each group of a map."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a map of `clips` clips: their `first` and `last` clips, inclusive, (P,) int64."""

    clips: int
    first: Tensor
    last: Tensor

    def __len__(self) -> int:
        return len(self.first)

    def there(self, clips: Tensor) -> Tensor:
        """(V, P) bool: the cells inside videos of `clips` (V,) clips."""
        return self.last.to(clips.device) < clips[:, None]

    def overlaps(self, moments: Tensor, clips: Tensor) -> Tensor:
        """(S, P) IoU of moments (S, 2), as shares of their video, with the cells of videos of (S,) clips.

        A cell is [first / n, (last + 1) / n). An empty moment has IoU 0.
        """
        count = clips[:, None]
        first, last = self.first.to(moments.device), self.last.to(moments.device)
        cells = torch.stack([first / count, (last + 1) / count], -1)
        return iou(moments[:, None].to(cells.dtype), cells)

    def square(self, values: Tensor, fill: float) -> Tensor:
        """(V, P) values as maps (V, N, N), with `fill` for missing cells."""
        at = self.first * self.clips + self.last
        whole = values.new_full((len(values), self.clips * self.clips), fill)
        whole = whole.index_copy(1, at.to(values.device), values)
        return whole.view(-1, self.clips, self.clips)


def iou(spans: Tensor, others: Tensor) -> Tensor:
    """(...) intersection over union of spans (..., 2); 0 if both are empty.

    The union is computed as the hull: they differ only if the intersection is 0.
    """
    shared = torch.minimum(spans[..., 1], others[..., 1]) - torch.maximum(spans[..., 0], others[..., 0])
    hull = torch.maximum(spans[..., 1], others[..., 1]) - torch.minimum(spans[..., 0], others[..., 0])
    return torch.where(hull > 0, shared.clamp(min=0) / hull.clamp(min=1e-12), 0.0)


def offsets(counts: Counts, clips: int) -> Iterator[tuple[int, int]]:
    """last - first of each diagonal of a map, and the stride of its first clips.

    >>> [offset for offset, _ in offsets((3, 2), 12)]
    [0, 1, 2, 3, 5, 7]
    """
    offset, stride = 0, 1
    yield offset, stride
    for count in counts:
        for _ in range(count):
            offset += stride
            if offset >= clips:
                return
            yield offset, stride
        stride *= 2


def _by_diagonals(counts: Counts, clips: int) -> list[tuple[int, int]]:
    """(last, first) of every cell, diagonal by diagonal."""
    return [
        (first + offset, first)
        for offset, stride in offsets(counts, clips)
        for first in range(0, clips - offset, stride)
    ]


@lru_cache(maxsize=64)
def cells_of(counts: Counts, clips: int) -> Cells:
    """The cells of a map of `clips` clips."""
    last, first = torch.tensor(sorted(_by_diagonals(counts, clips)), dtype=torch.int64).unbind(1)
    return Cells(clips, first.contiguous(), last.contiguous())


class MaxMap(nn.Module):
    """Max pooling (2D-TAN): a cell's feature is the maximum of its clips in each dimension."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, clips: Tensor) -> Tensor:
        """(V, N, D) to (V, P, D).

        A sparse table, as for range maximum queries: maxima of 1, 2, 4, ... neighbours are computed once, and
        each cell is the maximum of the two that cover it.
        """
        tables, reach = [clips], 1
        while 2 * reach <= clips.shape[1]:
            tables.append(torch.maximum(tables[-1][:, :-reach], tables[-1][:, reach:]))
            reach *= 2
        left, right = (rows.to(clips.device) for rows in _halves(self.counts, clips.shape[1]))
        whole = torch.cat(tables, 1)
        return torch.maximum(whole.index_select(1, left), whole.index_select(1, right))


@lru_cache(maxsize=64)
def _halves(counts: Counts, clips: int) -> tuple[Tensor, Tensor]:
    """(P,) twice: the rows of the tables of `MaxMap`, concatenated, that cover each cell."""
    cells = cells_of(counts, clips)
    level = (cells.last - cells.first + 1).double().log2().floor().long()
    reach = 2**level
    begins = torch.tensor([0, *(clips - 2**k + 1 for k in range(clips.bit_length()))]).cumsum(0)[level]
    return begins + cells.first, begins + cells.last - reach + 1


class ChainMap(nn.Module):
    """Convolved features (2D-TAN): a cell is a convolution over two neighbouring cells of one clip less."""

    def __init__(self, counts: Counts, width: int) -> None:
        super().__init__()
        self.counts = counts
        strides = pairwise(stride for _, stride in offsets(counts, sys.maxsize))
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, after // before + 1, stride=after // before) for before, after in strides
        )

    def forward(self, clips: Tensor) -> Tensor:
        """(V, N, D) to (V, P, D)."""
        diagonals = [clips.transpose(1, 2)]
        places = list(offsets(self.counts, clips.shape[1]))
        for conv in self.convs[: len(places) - 1]:
            diagonals.append(conv(diagonals[-1]))
        order = _order_of_diagonals(self.counts, clips.shape[1]).to(clips.device)
        return torch.cat(diagonals, 2).index_select(2, order).transpose(1, 2)


@lru_cache(maxsize=64)
def _order_of_diagonals(counts: Counts, clips: int) -> Tensor:
    """(P,) the place of each cell in the concatenated diagonals."""
    cells = _by_diagonals(counts, clips)
    return torch.tensor(sorted(range(len(cells)), key=cells.__getitem__))


@lru_cache(maxsize=64)
def map_areas(counts: Counts, clips: int, reach: int, layers: int, whole: bool = False) -> tuple[Area, ...]:
    """The places that each layer computes; the first and the last area are the map itself.

    Layer i computes places within i * reach of a cell (others see no cell) and within (layers - i) * reach of
    a cell (no cell sees others). `whole`: the square that is (layers - i) * reach wider than the map on each
    side, as MMN's program computes it.
    """
    cells = cells_of(counts, clips)
    around = reach * layers
    image = torch.zeros(1, 1, clips + 2 * around, clips + 2 * around)
    image[0, 0, cells.first + around, cells.last + around] = 1
    areas = [Area(clips, 0, cells.first * clips + cells.last)]
    for layer in range(1, layers):
        margin = reach * (layers - layer if whole else min(layer, layers - layer))
        size = clips + 2 * margin
        near = _dilated(image, reach * layer) * _dilated(image, reach * (layers - layer))
        low = around - margin
        box = near[0, 0, low : low + size, low : low + size].flatten()
        places = torch.arange(size**2) if whole else box.nonzero()[:, 0]
        areas.append(Area(size, margin, places))
    last = Area(clips, 0, torch.arange(clips**2)) if whole else areas[0]
    return (*areas, last)


def _dilated(image: Tensor, reach: int) -> Tensor:
    return functional.max_pool2d(image, 2 * reach + 1, 1, reach)


class ProposalConvolution(nn.Module):
    """Convolutions over the map, each with batch normalisation, ReLU and a division by its real inputs.

    After each layer a value is divided by the number of real places under the kernel. Otherwise values at the
    border of the map would be smaller than in its middle. Only places that a cell of the map depends on are
    computed and count in the statistics of normalisation. With `whole_square` these statistics include the
    padded square in training, most of which sees no cell.

    Running variances begin at the variance that fresh weights give inputs with mean square `square`. With 1,
    PyTorch's default, an untrained system would give nearly equal outputs for all videos in evaluation.
    """

    def __init__(
        self,
        counts: Counts,
        given: int,
        width: int,
        kernel: int,
        layers: int,
        square: float,
        *,
        whole_square: bool = False,
    ) -> None:
        """`given` is the width of the input, `width` that of all layers."""
        super().__init__()
        self.counts, self.kernel, self.whole_square = counts, kernel, whole_square
        self.convs = nn.ModuleList(
            nn.Conv2d(width if layer else given, width, kernel) for layer in range(layers)
        )
        norms = [nn.BatchNorm1d(width) for _ in range(layers)]
        for layer, norm in enumerate(norms):
            # PyTorch draws weights of variance 1 / (3 inputs); ReLU sets half of the values to zero.
            nn.init.constant_(cast("Tensor", norm.running_var), (0.5 / kernel**4 if layer else square) / 3)
        self.norms = nn.ModuleList(norms)

    def forward(self, rows: Tensor, there: Tensor, clips: int) -> Tensor:
        """(V, P, D) cells of maps of `clips` clips, convolved; zero where `there` (V, P) is false."""
        reach, whole = self.kernel // 2, self.whole_square and self.training
        areas = map_areas(self.counts, clips, reach, len(self.convs), whole)
        full = bool(there.all())  # one mask for all videos: weights are computed once
        present = there[:1] if full else there
        rows = rows * there[..., None]
        layers = cast(
            "list[tuple[nn.Conv2d, nn.BatchNorm1d]]", list(zip(self.convs, self.norms, strict=True))
        )
        for number, (conv, norm) in enumerate(layers, 1):
            before, after = areas[number - 1], areas[number]
            weight = _weights(present, before, after, self.kernel)
            if not full and not whole:  # drop places that only padding of a shorter video depends on
                weight = weight * _depended_on(there, areas[0], after, reach * (len(layers) - number))
            rows = convolved(rows, conv, before, after)
            rows = _normalised(norm, rows, weight > 0, whole).relu() * weight[..., None]
            present = weight > 0
        if whole:
            cells = cells_of(self.counts, clips)
            rows = rows.index_select(1, (cells.first * clips + cells.last).to(rows.device))
        return rows * there[..., None]


def _weights(present: Tensor, before: Area, after: Area, kernel: int) -> Tensor:
    """(V, C) 1 / the number of real places under the kernel; 0 without any."""
    seen = before.boxed(present[..., None].float())
    ones = seen.new_ones((1, 1, kernel, kernel))
    with torch.autocast(seen.device.type, enabled=False):
        count = functional.conv2d(seen, ones, padding=kernel // 2 + after.margin - before.margin)
    count = after.rows(count)[..., 0].round()
    return torch.where(count > 0, 1 / count.clamp(min=1), 0.0)


def _depended_on(there: Tensor, cells: Area, after: Area, reach: int) -> Tensor:
    """(V, C) whether a place is within `reach` of a real cell of its own video."""
    around = functional.pad(cells.boxed(there[..., None].float()), [after.margin] * 4)
    return after.rows(_dilated(around, reach))[..., 0]


def _normalised(norm: nn.BatchNorm1d, rows: Tensor, real: Tensor, everything: bool) -> Tensor:
    """(V, C, D) normalised with the statistics of `real` rows (V or 1, C), or of `everything`."""
    if everything or not norm.training or bool(real.all()):
        flat = rows.flatten(0, 1)
        return _by_norm(norm, flat).view(rows.shape)
    chosen = real.expand(len(rows), -1)
    normed = _by_norm(norm, rows[chosen])
    return torch.zeros_like(rows, dtype=normed.dtype).index_put((chosen,), normed)


def _by_norm(norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
    """Normalised rows (N, D); a single row has no variance and gets the running statistics."""
    if norm.training and len(rows) < 2:
        means, spreads = norm.running_mean, norm.running_var
        return functional.batch_norm(rows, means, spreads, norm.weight, norm.bias, eps=norm.eps)
    normed: Tensor = norm(rows)
    return normed


class Pointwise(nn.Conv2d):
    """Projects rows into a joint space, as unit vectors.

    It is a linear layer with weights in the shape of a 1 x 1 convolution, as in released checkpoints.
    """

    def __init__(self, width: int, joint_width: int) -> None:
        super().__init__(width, joint_width, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """(..., width) to (..., joint_width)."""
        return unit(functional.linear(rows, self.weight[:, :, 0, 0], self.bias).float())
