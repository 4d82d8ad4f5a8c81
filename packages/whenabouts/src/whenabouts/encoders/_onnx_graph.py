"""Writes an ONNX graph without the `onnx` package.

The package could replace the 60 lines of protocol buffers below (field numbers: onnx.proto3, IR version 9).
But it takes 31 MB of disk, and its import takes 0.14 s of processor time, while opening MiniLM and encoding a
query takes 0.34 s in all. A graph holds no weights: every parameter is an external initializer whose values
the caller supplies.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

FLOAT, UINT8, INT8, INT32, INT64 = 1, 2, 3, 6, 7
CONTRIB = "com.microsoft"
_EXTERNAL = 1


class Graph:
    """A graph under construction; `parameters` are its external initializers with their types."""

    def __init__(self) -> None:
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []
        self.parameters: dict[str, int] = {}
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def node(
        self, op: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: object
    ) -> str:
        """Add a node with one output; returns the output's name. Weights and biases become parameters."""
        for name in inputs:
            if name.endswith((".weight", ".bias")):
                self.parameter(name)
        message = b"".join(_bytes(1, name) for name in inputs) + _bytes(2, output) + _bytes(3, output)
        message += _bytes(4, op) + b"".join(_bytes(5, _attribute(*item)) for item in attributes.items())
        self._nodes.append(message + (_bytes(7, domain) if domain else b""))
        return output

    def parameter(self, name: str, kind: int = FLOAT) -> str:
        """Add an external initializer; returns its name."""
        self.parameters[name] = kind
        return name

    def integers(self, name: str, values: Sequence[int]) -> str:
        """Add a constant: a row of int64; returns its name."""
        content = struct.pack(f"<{len(values)}q", *values)
        self._constants.append(_int(1, len(values)) + _int(2, INT64) + _bytes(8, name) + _bytes(9, content))
        return name

    def scalar(self, name: str, kind: int, number: float) -> str:
        """Add a constant: one number of the type `FLOAT`, `UINT8` or `INT64`; returns its name."""
        content = struct.pack({FLOAT: "<f", UINT8: "<B", INT64: "<q"}[kind], number)
        self._constants.append(_int(2, kind) + _bytes(8, name) + _bytes(9, content))
        return name

    def linear(self, hidden: str, prefix: str) -> str:
        """Add x W^T + b with PyTorch's weight layout; returns the output's name."""
        return self.node("Gemm", [hidden, f"{prefix}.weight", f"{prefix}.bias"], f"{prefix}.out", transB=1)

    def layer_norm(self, hidden: str, prefix: str, epsilon: float) -> str:
        """Add a LayerNorm over the last axis; returns the output's name."""
        inputs = [hidden, f"{prefix}.weight", f"{prefix}.bias"]
        return self.node("LayerNormalization", inputs, f"{prefix}.out", axis=-1, epsilon=epsilon)

    def model(self, shapes: Mapping[str, Sequence[int]]) -> bytes:
        """The finished ModelProto; `shapes` gives the shape of each parameter."""
        external = (_external(name, kind, shapes[name]) for name, kind in self.parameters.items())
        tensors = [*external, *self._constants]
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, "encoder")
        graph += b"".join(_bytes(5, tensor) for tensor in tensors)
        graph += b"".join(_bytes(11, value) for value in self.inputs)
        graph += b"".join(_bytes(12, value) for value in self.outputs)
        opsets = _bytes(8, _bytes(1, "") + _int(2, 20)) + _bytes(8, _bytes(1, CONTRIB) + _int(2, 1))
        return _int(1, 9) + _bytes(2, "whenabouts") + _bytes(7, graph) + opsets


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # negative numbers are written as their 64-bit two's complement
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _attribute(name: str, value: object) -> bytes:
    """AttributeProto: name = 1, f = 2, i = 3, s = 4, ints = 8, type = 20."""
    if isinstance(value, tuple):
        return _bytes(1, name) + b"".join(_int(8, item) for item in value) + _int(20, 7)
    if isinstance(value, float):
        return _bytes(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    if isinstance(value, int):
        return _bytes(1, name) + _int(3, value) + _int(20, 2)
    return _bytes(1, name) + _bytes(4, str(value)) + _int(20, 3)


def _external(name: str, kind: int, shape: Sequence[int]) -> bytes:
    """TensorProto without content; its location is never opened."""
    place = _bytes(13, _bytes(1, "location") + _bytes(2, "handed-in"))
    dims = b"".join(_int(1, size) for size in shape)
    return dims + _int(2, kind) + _bytes(8, name) + place + _int(14, _EXTERNAL)


def value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    """An input or output of a graph: a type (`FLOAT`, `INT32`) and sizes, unknown ones as letters."""
    dims = b"".join(_bytes(1, _bytes(2, size) if isinstance(size, str) else _int(1, size)) for size in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _int(1, kind) + _bytes(2, dims)))
