"""Pack a padded batch into its real rows, so that layers do not compute padding.

Blocks take padded batches (B, T, D) with their mask and return padded batches. For several blocks in turn, a
batch is packed once before the first and unpacked after the last. On a CPU it pays: without it a training
step of XML takes 1.6 times as long with videos as in TVR (51 clips on average, at most 100), measured by
`benchmarks/training_step.py`.

Attention costs the square of the length, so it computes a few pieces of the batch in turn: each has sequences
of similar length, padded to the longest of the piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

PIECES = 4
"""The number of pieces that a batch is cut into (measured: 4 is faster than 1, 2 and 8)."""
FEWEST = 16
"""A batch of fewer sequences is not cut into pieces."""


@dataclass(frozen=True)
class Packing:
    """The positions of a padded batch (B, T) that are computed, in order.

    `mask` (B, T) is true at real positions, which come first in each sequence. `index` (N,) int64 are the
    computed positions in the batch as one row of B * T; None if every position is computed, real or not.
    `parts` are packings of consecutive rows: sequences of similar length, padded to the longest of the part;
    empty if the batch is one piece.
    """

    mask: Tensor
    index: Tensor | None
    parts: tuple[Packing, ...] = ()

    @classmethod
    def of(cls, mask: Tensor, *, everything: bool = False) -> Packing:
        """The packing of the real positions, or of all positions with `everything`."""
        if everything or bool(mask.all()):
            return cls(mask, None)
        if len(mask) < FEWEST or mask.is_cuda:  # a GPU is slower with many small pieces
            return cls(mask, mask.flatten().nonzero()[:, 0])
        lengths = mask.sum(1)
        index, parts = [], []
        for sequences in lengths.argsort(stable=True).chunk(PIECES):
            part = mask[sequences, : int(lengths[sequences].max())]
            owner, step = part.nonzero().unbind(1)
            index.append(sequences[owner] * mask.shape[1] + step)
            parts.append(cls(part, None if bool(part.all()) else owner * part.shape[1] + step))
        return cls(mask, torch.cat(index), tuple(parts))

    def __len__(self) -> int:
        """N, the number of packed rows."""
        return self.mask.numel() if self.index is None else len(self.index)

    @property
    def pieces(self) -> tuple[Packing, ...]:
        """The parts, or the whole batch if there are none."""
        return self.parts or (self,)

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Packed rows (N, …) of each piece; `torch.cat` joins them again."""
        return torch.split(rows, [len(piece) for piece in self.pieces])

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
        """(N, …) to (B, T, …), zero at positions that are not computed."""
        shape = (*self.mask.shape, *rows.shape[1:])
        if self.index is None:
            return rows.reshape(shape)
        flat = rows.new_zeros((self.mask.numel(), *rows.shape[1:]))
        return flat.index_copy_(0, self.index, rows).view(shape)


class PackedModule(nn.Module):
    """Layers that compute only real rows of padded batches; after `compute_padding` also the padding."""

    computes_padding = False

    def packing(self, mask: Tensor) -> Packing:
        """The packing of a batch with this mask (B, T)."""
        return Packing.of(mask, everything=self.computes_padding)


class PackedBlock(PackedModule, ABC):
    """A block from sequences to sequences of the same lengths."""

    def forward(self, sequences: Tensor, where: Tensor | Packing) -> Tensor:
        """(B, T, D) with its mask (B, T) to (B, T, D'), zero in the padding; packed (N, D) to (N, D')."""
        if isinstance(where, Packing):
            return self.on_rows(sequences, where)
        packing = self.packing(where)
        return packing.unpack(self.on_rows(packing.pack(sequences), packing))

    @abstractmethod
    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D'), for packed rows."""


def in_turn(padded: Tensor, mask: Tensor, *blocks: PackedBlock) -> Tensor:
    """(B, T, D'): sequences (B, T, D) with their mask (B, T) after all blocks in turn, packed once."""
    packing = blocks[0].packing(mask)
    rows = packing.pack(padded)
    for block in blocks:
        rows = block(rows, packing)
    return packing.unpack(rows)


def compute_padding(model: nn.Module) -> None:
    """Let all blocks of a model compute the rows of the padding, as the released programs do."""
    for module in model.modules():
        if isinstance(module, PackedModule):
            module.computes_padding = True
