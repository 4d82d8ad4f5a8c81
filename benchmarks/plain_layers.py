"""What the plain versions of systems share: layers whose weights go by their names."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional


class PlainLayers:
    """Layers over `weights`, name -> values; `dropout` is the share of values that are dropped."""

    def __init__(self, weights: Mapping[str, Tensor], dropout: float) -> None:
        self.weights, self.dropout = weights, dropout

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, rows: Tensor, epsilon: float = 1e-5) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return functional.layer_norm(rows, weight.shape, weight, bias, epsilon)

    def _dropped(self, rows: Tensor) -> Tensor:
        return functional.dropout(rows, self.dropout)
