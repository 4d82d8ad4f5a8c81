"""Builds a graph that multiplies with weights in 8-bit integers: passages take half the time of float32.

Each row of the input and each output channel of the weights has a scale of its own, so the vector of a text
does not depend on the other texts of its batch. Weights have 7 bits: processors without VNNI add two products
in 16 bits, which 8-bit weights would overflow. Time and loss: `benchmarks/encoder_precision.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders._onnx_graph import CONTRIB, FLOAT, INT8, UINT8, Graph

_INTEGERS, _SCALES = ".weight.int8", ".weight.scales"
_MOST = 63
_MIDDLE = 128  # the unsigned byte that stands for 0


class QuantisedGraph(Graph):
    """See `Graph`; a layer's parameters are its bias and those of `integer_parameters`."""

    def __init__(self) -> None:
        super().__init__()
        self._quantised: set[str] = set()
        floats = {"unit": 1.0, "none": 0.0, "least": 1e-12, "step": 1 / 127, "shift": _MIDDLE}
        for name, number in floats.items():
            self.scalar(name, FLOAT, number)
        self.scalar("middle", UINT8, _MIDDLE)
        self.integers("columns", [1])

    def linear(self, hidden: str, prefix: str) -> str:
        """Add x W^T + b; the rows of x are quantised once for all layers that read them."""
        if hidden not in self._quantised:
            self._quantised.add(hidden)
            self._quantise_rows(hidden)
        integers = self.parameter(prefix + _INTEGERS, INT8)
        scales = self.parameter(prefix + _SCALES)
        inputs = [f"{hidden}.bytes", integers, "unit", scales, "middle"]
        product = self.node("MatMulIntegerToFloat", inputs, f"{prefix}.product", CONTRIB)
        scaled = self.node("Mul", [product, f"{hidden}.scales"], f"{prefix}.scaled")
        return self.node("Add", [scaled, f"{prefix}.bias"], f"{prefix}.out")

    def _quantise_rows(self, hidden: str) -> None:
        """(N, D) -> `hidden`.bytes (N, D), and `hidden`.scales (N, 1): x = scale (byte - 128)."""
        size = self.node("Abs", [hidden], f"{hidden}.size")
        largest = self.node("ReduceMax", [size, "columns"], f"{hidden}.largest", keepdims=0)
        above = self.node("Max", [largest, "least"], f"{hidden}.above")
        scale = self.node("Mul", [above, "step"], f"{hidden}.scale")
        nothing = self.node("Mul", [scale, "none"], f"{hidden}.nothing")
        shifted = self.node("Add", [nothing, "shift"], f"{hidden}.shifted")
        middles = self.node("Cast", [shifted], f"{hidden}.middles", to=UINT8)
        self.node("QuantizeLinear", [hidden, scale, middles], f"{hidden}.bytes", axis=0)
        self.node("Unsqueeze", [scale, "columns"], f"{hidden}.scales")


def integer_parameters(tensors: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """The tensors, and for each weight (out, in) its integers (in, out) int8 with scales (out,) float32."""
    made = dict(tensors)
    for name, weight in tensors.items():
        prefix = name.removesuffix(".weight")
        if prefix != name and weight.ndim == 2 and "embeddings" not in name:
            values = weight.astype(np.float32).T
            scales = np.maximum(np.abs(values).max(axis=0), np.float32(1e-12)) / np.float32(_MOST)
            made[prefix + _INTEGERS] = np.rint(values / scales).astype(np.int8)
            made[prefix + _SCALES] = scales.astype(np.float32)
    return made
