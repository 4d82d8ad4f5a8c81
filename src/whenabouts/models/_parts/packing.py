"""The real rows of a padded batch, so that no layer computes what lies behind the end of a sequence.

Blocks take padded batches (B, T, D) with their mask and give padded batches; only they know of packing. It is
worth it on a CPU: without it a training step of XML takes 1.6 times as long where clips are as many as in TVR
(a video of 100 clips, one of 51 on average), by `benchmarks/training_step.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Packing:
    """Which positions of a padded batch (B, T) are computed.

    `mask` (B, T) is true where there is something, from the first position on. `index` (N,) int64 are the
    computed positions of the batch laid flat; None where every position is computed, real or not.
    """

    mask: Tensor
    index: Tensor | None

    @classmethod
    def of(cls, mask: Tensor, *, everything: bool = False) -> Packing:
        """The real positions; all of them where `everything`."""
        if everything or bool(mask.all()):
            return cls(mask, None)
        return cls(mask, mask.flatten().nonzero()[:, 0])

    @property
    def steps(self) -> int:
        """T, the padded length."""
        return self.mask.shape[1]

    def positions(self) -> Tensor:
        """(N,) int64: the place of each computed row in its sequence, from 0."""
        return self.pack(torch.arange(self.steps, device=self.mask.device).expand(len(self.mask), -1))

    def sequences(self) -> Tensor:
        """(N,) int64: the sequence that each computed row belongs to."""
        every = torch.arange(len(self.mask), device=self.mask.device)
        return self.pack(every[:, None].expand(-1, self.steps))

    def pack(self, padded: Tensor) -> Tensor:
        """(B, T, …) to (N, …)."""
        flat = padded.flatten(0, 1)
        return flat if self.index is None else flat.index_select(0, self.index)

    def unpack(self, rows: Tensor) -> Tensor:
        """(N, …) to (B, T, …), zero where nothing was computed."""
        shape = (*self.mask.shape, *rows.shape[1:])
        if self.index is None:
            return rows.reshape(shape)
        flat = rows.new_zeros((self.mask.numel(), *rows.shape[1:]))
        return flat.index_copy_(0, self.index, rows).view(shape)


class PackedModule(nn.Module):
    """A block from padded batches to padded batches that computes their real rows, and leaves zeros behind.

    A block says what it does in `on_rows`. After `compute_padding` it computes the padding as well.
    """

    computes_padding = False

    def packing(self, mask: Tensor) -> Packing:
        """Which rows of a batch with this mask (B, T) are computed."""
        return Packing.of(mask, everything=self.computes_padding)

    def forward(self, padded: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) with its mask (B, T) to (B, T, D')."""
        packing = self.packing(mask)
        return packing.unpack(self.on_rows(packing.pack(padded), packing))

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D'), for packed rows."""
        raise NotImplementedError


def compute_padding(model: nn.Module) -> None:
    """Let all blocks of a model compute the rows of the padding, as the released programs do."""
    for module in model.modules():
        if isinstance(module, PackedModule):
            module.computes_padding = True
