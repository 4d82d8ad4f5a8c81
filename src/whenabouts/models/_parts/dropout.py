"""Dropout that draws its zeros four at a time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_GRAINS = 1 << 16


class Dropout(nn.Module):
    """Sets values to zero with a probability and scales the others, in training.

    PyTorch's own draws one number a value on the CPU, which was a tenth of a step of XML. Here 64 random bits
    serve four values, from NumPy's SFC64, which PyTorch's generator seeds anew each time (a ninth of the
    time); the probability is rounded to 1/65536. `inplace` overwrites the values: only for what no earlier
    layer needs again in the backward pass (the results of linear layers and of LayerNorm).
    """

    def __init__(self, probability: float, *, inplace: bool = False) -> None:
        super().__init__()
        self.probability = probability
        self.inplace = inplace

    def forward(self, values: Tensor) -> Tensor:
        """The same shape; `values` themselves where not in training."""
        if not self.training or not self.probability:
            return values
        return dropped(values, self.probability, inplace=self.inplace)

    def extra_repr(self) -> str:
        """The probability."""
        return f"{self.probability}"


def dropped(values: Tensor, probability: float, *, inplace: bool = False) -> Tensor:
    """`values` (any shape), each set to zero with a probability, the others scaled so that the mean stays."""
    if values.device.type != "cpu":
        return functional.dropout(values, probability, inplace=inplace)
    noise = _noise(values, round(probability * _GRAINS))
    return values.mul_(noise) if inplace else values * noise


def _noise(like: Tensor, dropped: int) -> Tensor:
    """0 with probability `dropped` / 65536, else what keeps the mean."""
    if dropped >= _GRAINS:
        return torch.zeros_like(like)
    seed = int(torch.randint(2**62, (), dtype=torch.int64))
    drawn = torch.from_numpy(np.random.SFC64(seed).random_raw((like.numel() + 3) // 4).view(np.int16))
    kept = drawn[: like.numel()] >= dropped - _GRAINS // 2
    return kept.view(like.shape).to(like.dtype).mul_(_GRAINS / (_GRAINS - dropped))
