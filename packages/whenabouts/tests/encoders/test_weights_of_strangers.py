"""Files of weights that are damaged or lie: a line that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whenabouts.encoders.onnx_bert import _map_weights
from whenabouts.intake.files import FormatError


def safetensors(header: Any, data: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 20,
        safetensors(b"\xff{}"),
        safetensors(b"[" * 3000),
        safetensors([1]),
        safetensors({"a": 1}),
        safetensors({"a": {"dtype": ["F32"]}}),
        safetensors({"a": {"dtype": "F32", "data_offsets": [0, 99], "shape": [4]}}),
        safetensors({"a": {"dtype": "F32", "data_offsets": [0, 16], "shape": [1 << 40, 1 << 40]}}),
        safetensors({"a": {"dtype": "F32", "data_offsets": [-9, 16], "shape": [4]}}),
        safetensors({"a": {"dtype": "F32", "data_offsets": [0, 16], "shape": "4"}}),
    ],
)
def test_a_file_that_is_no_safetensors_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is cut short, damaged or not a safetensors file") as error:
        _map_weights(path)
    assert str(error.value).startswith(str(path)) and str(error.value).isprintable()
