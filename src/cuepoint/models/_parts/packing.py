"""The real rows of a padded batch, so that no layer computes what lies behind the end of a sequence.

On simulated Charades-STA a batch of 128 videos is padded to 24 clips (median) where a video has 10: more than
half of a padded batch is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which positions of a padded batch (B, T) are computed.

    `mask` (B, T) is true where there is something. `index` (N,) int64 are the computed positions of the batch
    laid flat, ascending; None where every position is computed, real or not. Layers work on packed rows
    (N, D); what mixes positions (attention, convolution, softmax) unpacks them.
    """

    mask: Tensor
    index: Tensor | None

    @classmethod
    def of(cls, mask: Tensor, *, everything: bool = False) -> Packing:
        """The real positions; all of them where `everything` (the released programs compute padding too)."""
        if everything or bool(mask.all()):
            return cls(mask, None)
        return cls(mask, mask.flatten().nonzero()[:, 0])

    @property
    def steps(self) -> int:
        """T, the padded length."""
        return self.mask.shape[1]

    def positions(self) -> Tensor:
        """(N,) int64: the place of each computed row in its sequence, from 0."""
        if self.index is not None:
            return self.index % self.steps
        places = torch.arange(self.steps, device=self.mask.device)
        return places.expand(len(self.mask), -1).flatten()

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, …) to (N, …)."""
        flat = padded.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)

    def unpack(self, rows: Tensor, fill: float = 0.0) -> Tensor:
        """(N, …) to (B, T, …), with `fill` where nothing was computed."""
        shape = (*self.mask.shape, *rows.shape[1:])
        if self.index is None:
            return rows.reshape(shape)
        flat = rows.new_full((self.mask.numel(), *rows.shape[1:]), fill)
        return flat.index_copy_(0, self.index, rows).view(shape)

    def without_padding(self, padded: Tensor, fill: float) -> Tensor:
        """(B, T, …) with `fill` in the place of padding."""
        outside = ~self.mask
        return padded.masked_fill(outside.view(*outside.shape, *[1] * (padded.dim() - 2)), fill)
