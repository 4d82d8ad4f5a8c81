"""Two networks of convolutions over clips, one for the start of a moment and one for its end."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from whenabouts.models._parts.borders import MASKED


class BorderNetworks(nn.Module):
    """A convolution over clips to `inner` values, ReLU, a linear layer to the logit; of each border its own.

    Both networks are computed together. What lies behind the end of a video counts as zero.
    """

    def __init__(self, width: int, inner: int, kernel: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(width, 2 * inner, kernel, padding=kernel // 2)
        self.narrow = nn.Conv1d(2 * inner, 2, 1, groups=2)

    def forward(self, clips: Tensor, mask: Tensor) -> Tensor:
        """(2, P, T) logits of start and end from clips (P, T, D), which are zero in the padding.

        -1e10 in the padding, where `mask` (P, T) is false.
        """
        kernel, reach = self.wide.kernel_size[0], self.wide.kernel_size[0] // 2
        padded = functional.pad(clips, (0, 0, reach, reach))
        # Neighbours side by side, and one product: (P, T, kernel, D) with (kernel, D, 2 inner).
        near = padded.unfold(1, kernel, 1).transpose(2, 3).flatten(2)
        weight = self.wide.weight.transpose(1, 2).flatten(1)
        inner = functional.linear(near, weight, self.wide.bias).relu()
        logits: Tensor = self.narrow(inner.transpose(1, 2))
        return logits.transpose(0, 1).masked_fill(~mask, MASKED)
