"""The real rows of a padded batch, so that no layer computes what lies behind the end of a sequence.

On simulated Charades-STA a batch of 128 videos is padded to 26 clips where a video has 11 on average: more
than half of a padded batch is nothing. Attention grows with the square of the length: for it the sequences
are taken in a few pieces of similar length, each padded for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PIECES = 4
"""Into how many pieces of similar length a batch is cut (measured: 4 is quicker than 1, 2 and 8)."""
FEWEST = 16
"""Below so many sequences a batch stays whole."""


@dataclass(frozen=True)
class Packing:
    """Which positions of a padded batch (B, T) are computed, and in which order.

    `mask` (B, T) is true where there is something, from the first position on. `index` (N,) int64 are the
    computed positions of the batch laid flat; None where every position is computed, real or not, in order.
    Layers work on packed rows (N, D); what mixes positions (attention, convolution, softmax) unpacks them.
    `parts` are packings of consecutive rows: sequences of similar length, padded to their own longest; empty
    where the batch is one piece.
    """

    mask: Tensor
    index: Tensor | None
    parts: tuple[Packing, ...] = ()

    @classmethod
    def of(cls, mask: Tensor, *, everything: bool = False) -> Packing:
        """The real positions; all of them where `everything` (the released programs compute padding too)."""
        if everything or bool(mask.all()):
            return cls(mask, None)
        if len(mask) < FEWEST or mask.is_cuda:  # a GPU does many small pieces slower than one
            return cls(mask, mask.flatten().nonzero()[:, 0])
        lengths = mask.sum(1)
        places, parts = [], []
        for sequences in lengths.argsort(stable=True).chunk(PIECES):
            part = mask[sequences, : int(lengths[sequences].max())]
            owner, step = part.nonzero().unbind(1)
            places.append(sequences[owner] * mask.shape[1] + step)
            parts.append(cls(part, None if bool(part.all()) else owner * part.shape[1] + step))
        return cls(mask, torch.cat(places), tuple(parts))

    def __len__(self) -> int:
        """N, the number of packed rows."""
        return self.mask.numel() if self.index is None else len(self.index)

    @property
    def pieces(self) -> tuple[Packing, ...]:
        """The parts, or the whole where there are none."""
        return self.parts or (self,)

    @property
    def steps(self) -> int:
        """T, the padded length."""
        return self.mask.shape[1]

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Packed rows (N, …) piece by piece; `torch.cat` puts them together again."""
        return torch.split(rows, [len(piece) for piece in self.pieces])

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
