"""An encoder of neighbouring clips or words: the convolutional alternative to attention."""

from __future__ import annotations

from torch import Tensor, nn

from whenabouts.models._parts.packing import PackedModule, Packing


class ConvolutionBlock(PackedModule):
    """Depthwise and pointwise convolution, ReLU, dropout, residual LayerNorm.

    What lies behind the end of a sequence counts as zero, unless padding is computed, too.
    """

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.pointwise = nn.Conv1d(width, width, 1)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, D) to (N, D), for packed rows."""
        channels = packing.unpack(rows).transpose(1, 2)
        convolved = self.pointwise(self.depthwise(channels)).relu()
        normed: Tensor = self.norm(self.dropout(packing.pack(convolved.transpose(1, 2))) + rows)
        return normed
