"""Builds a BERT sentence encoder as an ONNX graph.

Every parameter is an external initializer, whose array the caller supplies: float parameters by their names
in Hugging Face's BERT, integer ones by those of `integer_parameters`.

Choices: Gemm with transB takes PyTorch's (out, in) weights as stored; Add + LayerNormalization is faster on
CPU than the fused SkipLayerNormalization; com.microsoft.MultiHeadAttention needs no packed copy of the three
projections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from whenabouts.encoders._onnx_graph import CONTRIB, FLOAT, INT32, INT64, Graph, value
from whenabouts.encoders._quantised_graph import QuantisedGraph

WORD_TABLE = "words.table"
"""The name of the input that holds rows of the word table, for graphs with `words_given`."""

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True, slots=True)
class BertShape:
    """The parts of a BERT's configuration that shape its graph."""

    width: int
    layers: int
    heads: int
    epsilon: float
    activation: Literal["none", "tanh"]
    pooling: Pooling


def bert_graph(shape: BertShape, *, words_given: bool = False, quantised: bool = False) -> Graph:
    """The graph of a BERT. Inputs: `ids` (B, L) int32 and `lengths` (B,) int32. Outputs: unit `vectors`
    (B, width) float32, and `tokens` (B, L, width) float32, the last hidden state.

    Rows of `ids` are padded on the right; `lengths` counts the real tokens of a row, after which `tokens` are
    undefined. With `words_given`, `ids` index the rows of the input WORD_TABLE (N, width). `quantised`
    computes the layers in 8-bit integers.
    """
    graph = QuantisedGraph() if quantised else Graph()
    hidden = _embeddings(graph, shape, WORD_TABLE if words_given else "embeddings.word_embeddings.weight")
    for layer in range(shape.layers):
        hidden = _layer(graph, shape, hidden, f"encoder.layer.{layer}.")
    pooled = _pool(graph, shape, hidden)
    graph.node("LpNormalization", [pooled], "vectors", axis=-1, p=2)
    graph.inputs = [value("ids", INT32, ("B", "L")), value("lengths", INT32, ("B",))]
    if words_given:
        graph.inputs.append(value(WORD_TABLE, FLOAT, ("N", shape.width)))
    graph.outputs = [
        value("vectors", FLOAT, ("B", shape.width)),
        value("tokens", FLOAT, ("B", "L", shape.width)),
    ]
    return graph


def _embeddings(graph: Graph, shape: BertShape, table: str) -> str:
    words = graph.node("Gather", [table, "ids"], "words")
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
    """One transformer layer on (B * L, width); only the attention separates sentences."""
    parts = []
    for role in ("query", "key", "value"):
        projected = graph.linear(hidden, f"{prefix}attention.self.{role}")
        parts.append(graph.node("Reshape", [projected, "batched"], f"{projected}.batched"))
    mixed = graph.node(
        "MultiHeadAttention", [*parts, "", "lengths"], f"{prefix}mixed", CONTRIB, num_heads=shape.heads
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
    """(B * L, width) -> (B, width): the first token, or the mean over real tokens."""
    hidden = graph.node("Reshape", [hidden, "batched"], "tokens")
    if shape.pooling == "cls":
        return graph.node("Gather", [hidden, graph.scalar("first", INT64, 0)], "pooled", axis=1)
    longest = graph.node("Squeeze", ["length"], "longest")
    start, stride = graph.scalar("start", INT64, 0), graph.scalar("stride", INT64, 1)
    steps = graph.node("Range", [start, longest, stride], "steps")
    limits = graph.node("Unsqueeze", ["lengths", "one"], "limits")
    wide_limits = graph.node("Cast", [limits], "limits.wide", to=INT64)
    real = graph.node("Less", [steps, wide_limits], "real")
    weights = graph.node("Cast", [real], "real.float", to=FLOAT)
    row = graph.node("Unsqueeze", [weights, "one"], "real.row")
    total = graph.node("MatMul", [row, hidden], "total")
    total = graph.node("Squeeze", [total, "one"], "total.flat")
    count = graph.node("Cast", [limits], "count", to=FLOAT)
    return graph.node("Div", [total, count], "pooled")
