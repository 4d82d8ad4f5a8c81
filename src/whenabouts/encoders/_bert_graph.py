"""A BERT sentence encoder as an ONNX graph, written without the `onnx` package.

The package `onnx` could write the same graph in place of the 60 lines of protocol buffers below (field
numbers: onnx.proto3, IR version 9). It was not taken: its import takes 0.14 s of processor time, where
opening MiniLM and encoding a query takes 0.34 s in all, and 31 MB of disk. The graph holds no weights: every
parameter is an external initializer with the name that it has in the safetensors file, and the caller hands
in views of the mapped file.

Choices that were measured (see benchmarks/encoders.py): Gemm with transB takes PyTorch's (out, in)
weights as they lie in the file; Add + LayerNormalization is faster on CPU than the fused
SkipLayerNormalization; com.microsoft.MultiHeadAttention needs no packed copy of the three projections.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

_FLOAT, _INT32, _INT64 = 1, 6, 7
_EXTERNAL = 1
_CONTRIB = "com.microsoft"
Pooling = Literal["mean", "cls"]


@dataclass(frozen=True, slots=True)
class BertShape:
    """What of a BERT's configuration shapes its graph."""

    width: int
    layers: int
    heads: int
    epsilon: float
    activation: Literal["none", "tanh"]
    pooling: Pooling


def bert_graph(shape: BertShape) -> Graph:
    """A graph from `ids` (B, L) int32, `lengths` (B,) int32 to `vectors` (B, width) float32 of unit length,
    and `tokens` (B, L, width) float32, the last hidden state.

    Rows of `ids` are padded on the right; `lengths` says how many of a row's tokens are real (what `tokens`
    holds behind them is void).
    """
    graph = Graph()
    hidden = _embeddings(graph, shape)
    for layer in range(shape.layers):
        hidden = _layer(graph, shape, hidden, f"encoder.layer.{layer}.")
    pooled = _pool(graph, shape, hidden)
    graph.node("LpNormalization", [pooled], "vectors", axis=-1, p=2)
    graph.inputs = [_value("ids", _INT32, ("B", "L")), _value("lengths", _INT32, ("B",))]
    graph.outputs = [
        _value("vectors", _FLOAT, ("B", shape.width)),
        _value("tokens", _FLOAT, ("B", "L", shape.width)),
    ]
    return graph


def _embeddings(graph: Graph, shape: BertShape) -> str:
    words = graph.node("Gather", ["embeddings.word_embeddings.weight", "ids"], "words")
    size = graph.node("Shape", ["ids"], "size")
    graph.node("Slice", [size, graph.integers("one", [1]), graph.integers("two", [2])], "length")
    graph.node("Concat", [size, graph.integers("width", [shape.width])], "batched", axis=0)
    zero = graph.integers("zero", [0])
    places = graph.node("Slice", ["embeddings.position_embeddings.weight", zero, "length", zero], "places")
    kind = graph.node("Slice", ["embeddings.token_type_embeddings.weight", zero, "one", zero], "kind")
    placed = graph.node("Add", [places, kind], "placed")
    total = graph.node("Add", [words, placed], "embedded")
    graph.integers("flat", [-1, shape.width])
    normed = graph.layer_norm(total, "embeddings.LayerNorm", shape.epsilon)
    return graph.node("Reshape", [normed, "flat"], "hidden")


def _layer(graph: Graph, shape: BertShape, hidden: str, prefix: str) -> str:
    """One transformer layer on (B * L, width); only the attention sees sentences."""
    parts = []
    for role in ("query", "key", "value"):
        projected = graph.linear(hidden, f"{prefix}attention.self.{role}")
        parts.append(graph.node("Reshape", [projected, "batched"], f"{projected}.batched"))
    mixed = graph.node(
        "MultiHeadAttention", [*parts, "", "lengths"], f"{prefix}mixed", _CONTRIB, num_heads=shape.heads
    )
    flat = graph.node("Reshape", [mixed, "flat"], f"{prefix}mixed.flat")
    hidden = _residual(graph, shape, flat, hidden, f"{prefix}attention.output")
    wide = graph.linear(hidden, f"{prefix}intermediate.dense")
    active = graph.node("Gelu", [wide], f"{prefix}active", approximate=shape.activation)
    return _residual(graph, shape, active, hidden, f"{prefix}output")


def _residual(graph: Graph, shape: BertShape, fresh: str, kept: str, prefix: str) -> str:
    projected = graph.linear(fresh, f"{prefix}.dense")
    total = graph.node("Add", [projected, kept], f"{prefix}.sum")
    return graph.layer_norm(total, f"{prefix}.LayerNorm", shape.epsilon)


def _pool(graph: Graph, shape: BertShape, hidden: str) -> str:
    """(B * L, width) -> (B, width): the first token, or the mean over the real ones."""
    hidden = graph.node("Reshape", [hidden, "batched"], "tokens")
    if shape.pooling == "cls":
        return graph.node("Gather", [hidden, graph.integers("first", None)], "pooled", axis=1)
    longest = graph.node("Squeeze", ["length"], "longest")
    steps = graph.node(
        "Range", [graph.integers("start", None), longest, graph.integers("step", None, 1)], "steps"
    )
    limits = graph.node("Unsqueeze", ["lengths", "one"], "limits")
    wide_limits = graph.node("Cast", [limits], "limits.wide", to=_INT64)
    real = graph.node("Less", [steps, wide_limits], "real")
    weights = graph.node("Cast", [real], "real.float", to=_FLOAT)
    row = graph.node("Unsqueeze", [weights, "one"], "real.row")
    total = graph.node("MatMul", [row, hidden], "total")
    total = graph.node("Squeeze", [total, "one"], "total.flat")
    count = graph.node("Cast", [limits], "count", to=_FLOAT)
    return graph.node("Div", [total, count], "pooled")


class Graph:
    """A graph that is being written; `parameters` are the names of its external initializers."""

    def __init__(self) -> None:
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []
        self.parameters: list[str] = []
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def node(
        self, op: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: object
    ) -> str:
        """Add a node with one output; give the output's name. Weights and biases are parameters."""
        self.parameters += [name for name in inputs if name.endswith((".weight", ".bias"))]
        message = b"".join(_bytes(1, name) for name in inputs) + _bytes(2, output) + _bytes(3, output)
        message += _bytes(4, op) + b"".join(_bytes(5, _attribute(*item)) for item in attributes.items())
        self._nodes.append(message + (_bytes(7, domain) if domain else b""))
        return output

    def integers(self, name: str, values: Sequence[int] | None, scalar: int = 0) -> str:
        """Add a constant: a list of int64, or the scalar where there is no list."""
        dims = b"" if values is None else _int(1, len(values))
        content = (
            struct.pack(f"<{len(values)}q", *values) if values is not None else struct.pack("<q", scalar)
        )
        self._constants.append(dims + _int(2, _INT64) + _bytes(8, name) + _bytes(9, content))
        return name

    def linear(self, hidden: str, prefix: str) -> str:
        """x W^T + b with PyTorch's weight layout."""
        return self.node("Gemm", [hidden, f"{prefix}.weight", f"{prefix}.bias"], f"{prefix}.out", transB=1)

    def layer_norm(self, hidden: str, prefix: str, epsilon: float) -> str:
        """LayerNorm over the last axis."""
        inputs = [hidden, f"{prefix}.weight", f"{prefix}.bias"]
        return self.node("LayerNormalization", inputs, f"{prefix}.out", axis=-1, epsilon=epsilon)

    def model(self, shapes: Mapping[str, Sequence[int]]) -> bytes:
        """The finished ModelProto; `shapes` are those of the parameters."""
        tensors = [*(_external(name, shapes[name]) for name in self.parameters), *self._constants]
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, "bert")
        graph += b"".join(_bytes(5, tensor) for tensor in tensors)
        graph += b"".join(_bytes(11, value) for value in self.inputs)
        graph += b"".join(_bytes(12, value) for value in self.outputs)
        opsets = _bytes(8, _bytes(1, "") + _int(2, 20)) + _bytes(8, _bytes(1, _CONTRIB) + _int(2, 1))
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
    """AttributeProto: name = 1, f = 2, i = 3, s = 4, type = 20."""
    if isinstance(value, float):
        return _bytes(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    if isinstance(value, int):
        return _bytes(1, name) + _int(3, value) + _int(20, 2)
    return _bytes(1, name) + _bytes(4, str(value)) + _int(20, 3)


def _external(name: str, shape: Sequence[int]) -> bytes:
    """TensorProto without content: its location is a name that nothing ever opens."""
    place = _bytes(13, _bytes(1, "location") + _bytes(2, "handed-in"))
    dims = b"".join(_int(1, size) for size in shape)
    return dims + _int(2, _FLOAT) + _bytes(8, name) + place + _int(14, _EXTERNAL)


def _value(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(_bytes(1, _bytes(2, size) if isinstance(size, str) else _int(1, size)) for size in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _int(1, kind) + _bytes(2, dims)))
