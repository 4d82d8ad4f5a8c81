"""The hand-written graph is valid ONNX."""

from __future__ import annotations

from typing import Any

import pytest

from whenabouts.encoders._bert_graph import BertShape, Pooling, bert_graph


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_bytes_parse_and_pass_the_checker(pooling: Pooling, quantised: bool) -> None:
    onnx = pytest.importorskip("onnx")
    shape = BertShape(width=8, layers=1, heads=2, epsilon=1e-12, activation="none", pooling=pooling)
    graph = bert_graph(shape, quantised=quantised)
    model = onnx.load_model_from_string(graph.model(dict.fromkeys(graph.parameters, (300, 8))))
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 20, "com.microsoft": 1}
    assert [value.name for value in model.graph.input] == ["ids", "lengths"]
    assert [
        size.dim_param or size.dim_value for size in model.graph.output[0].type.tensor_type.shape.dim
    ] == ["B", 8]
    (words,) = [tensor for tensor in model.graph.initializer if tensor.name.startswith("embeddings.word")]
    assert list(words.dims) == [300, 8]
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer if tensor.external_data}
    assert kinds == graph.parameters and len(kinds) == 5 + 16 + 6 * quantised
    assert list(kinds.values()).count(onnx.TensorProto.INT8) == 6 * quantised
    epsilon = [a.f for node in model.graph.node for a in node.attribute if a.name == "epsilon"]
    assert epsilon == pytest.approx([1e-12] * 3)
    for node in model.graph.node:
        if not node.domain:
            onnx.checker.check_node(node, _context(onnx))


def _context(onnx: Any) -> Any:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = 9
    context.opset_imports = {"": 20, "com.microsoft": 1}
    return context
