"""How MS-SL's and GMMFormer's programs cut videos into stretches."""

from __future__ import annotations

from torch import Tensor


def held_borders(numbers: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
    """`even_borders` held at the last row, which is left out wherever its stretch holds another row.

    The programs divide first; the order of the operations decides about halves.
    """
    return (numbers / counts * lengths).round().minimum(lengths - 1)
