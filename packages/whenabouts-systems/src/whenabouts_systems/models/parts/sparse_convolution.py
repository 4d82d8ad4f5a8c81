"""A 2-D convolution over a subset of the plane, for the maps of MMN.

It takes the faster of two ways. Wide rows on a CPU are gathered for each place of the kernel, multiplied by
its matrix and added up; this skips missing places (half of a triangle's square). Narrow rows, and all rows on
a GPU, go through a dense convolution over the smallest box.

Shapes: V videos, C places, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

GATHERED_FROM = 384
"""The least width at which rows are gathered. A step of MMN on one thread takes, gathered and dense: 1.32 and
0.75 s at a width of 48 (48 videos), 3.5 and 3.5 s at 256 (8 videos), 6.9 and 7.8 s at 512 (4 videos)."""


@dataclass(frozen=True, eq=False)
class Area:
    """Some places of a box `size` x `size` that begins `margin` before the origin.

    `places` (C,) are the flat indices of the rows in the box.
    """

    size: int
    margin: int
    places: Tensor

    @property
    def is_whole(self) -> bool:
        """Whether the rows are all places of the box, in order."""
        return len(self.places) == self.size**2 and bool(torch.equal(self.places, torch.arange(self.size**2)))

    def boxed(self, rows: Tensor) -> Tensor:
        """(V, C, D) to (V, D, size, size), zero for missing rows; contiguous along D."""
        if not self.is_whole:
            empty = rows.new_zeros((len(rows), self.size**2, rows.shape[2]))
            rows = empty.index_copy(1, self.places.to(rows.device), rows)
        return rows.reshape(len(rows), self.size, self.size, -1).permute(0, 3, 1, 2)

    def rows(self, box: Tensor) -> Tensor:
        """(V, C, D): the rows of the places of a box (V, D, size, size)."""
        flat = box.permute(0, 2, 3, 1).reshape(len(box), self.size**2, -1)
        return flat if self.is_whole else flat.index_select(1, self.places.to(box.device))


def convolved(rows: Tensor, conv: nn.Conv2d, before: Area, after: Area) -> Tensor:
    """Rows (V, C', D') of `after`: `conv`, whose kernel is square and odd, of rows (V, C, D) of `before`."""
    kernel = conv.kernel_size[0]
    if rows.device.type == "cpu" and rows.shape[2] >= GATHERED_FROM and not torch.is_autocast_enabled("cpu"):
        near = neighbours(before, after, kernel)
        arguments = (rows, conv.weight, conv.bias, near, len(after.places))
        convolved_rows: Tensor = _Gathered.apply(*arguments)  # type: ignore[no-untyped-call]
        return convolved_rows
    padding = kernel // 2 + after.margin - before.margin
    return after.rows(functional.conv2d(before.boxed(rows), conv.weight, conv.bias, padding=padding))


Neighbours = tuple[tuple[Tensor, Tensor], ...]
"""For each place of a kernel: output rows, and the input rows they read."""


@lru_cache(maxsize=256)
def neighbours(before: Area, after: Area, kernel: int) -> Neighbours:
    """The pairs of output and input rows for each place of a kernel."""
    edge = max(before.margin, after.margin) + kernel
    size = before.size - 2 * before.margin + 2 * edge
    row_at = torch.full((size, size), -1)
    row_at[_on_plane(before, edge)] = torch.arange(len(before.places))
    first, last = _on_plane(after, edge)
    pairs = []
    for down in range(-(kernel // 2), kernel // 2 + 1):
        for right in range(-(kernel // 2), kernel // 2 + 1):
            seen = row_at[first + down, last + right]
            there = (seen >= 0).nonzero()[:, 0]
            pairs.append((there, seen[there]))
    return tuple(pairs)


def _on_plane(area: Area, edge: int) -> tuple[Tensor, Tensor]:
    """(C,) twice: rows and columns, counted from `edge` before the origin."""
    return area.places // area.size + edge - area.margin, area.places % area.size + edge - area.margin


class _Gathered(torch.autograd.Function):
    """The convolution, one place of the kernel at a time.

    Backward gathers the rows again. Autograd would store them for every place of the kernel.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, near: Neighbours, count: int) -> Tensor:
        turned = rows.transpose(0, 1).contiguous()
        made = bias.expand(count, len(rows), -1).contiguous()
        for matrix, (after, before) in zip(_matrices(weight), near, strict=True):
            made.index_add_(0, after, _product(turned[before], matrix))
        ctx.save_for_backward(turned, weight)
        ctx.near = near
        return made.transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        rows, weight = ctx.saved_tensors
        made = gradients[0].transpose(0, 1).contiguous()
        of_rows, matrices = torch.zeros_like(rows), _matrices(weight)
        of_matrices = torch.empty_like(matrices)
        for at, (after, before) in enumerate(ctx.near):
            some = made[after]
            of_rows.index_add_(0, before, _product(some, matrices[at].T))
            torch.mm(rows[before].flatten(0, 1).T, some.flatten(0, 1), out=of_matrices[at])
        side = weight.shape[2]
        of_weight = of_matrices.view(side, side, *of_matrices.shape[1:]).permute(3, 2, 0, 1)
        return of_rows.transpose(0, 1), of_weight, made.sum((0, 1)), None, None


def _matrices(weight: Tensor) -> Tensor:
    """(K * K, D in, D out) from a convolution's weight (D out, D in, K, K)."""
    return weight.permute(2, 3, 1, 0).flatten(0, 1).contiguous()


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """(N, V, D in) times (D in, D out), as one product."""
    return (rows.flatten(0, 1) @ matrix).view(len(rows), rows.shape[1], -1)
