"""Batches on a device, and what happens where memory does not suffice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.encoders.protocol import EncoderOutOfMemory, EncoderSettings

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from whenabouts.encoders.on_torch import in_batches, model_dtype  # noqa: E402


class Small:
    """A device with room for so many items at a time."""

    def __init__(self, room: int, error: Exception) -> None:
        self.room, self.error, self.sizes = room, error, list[int]()

    def encode(self, items: Sequence[float]) -> Any:
        if len(items) > self.room:
            raise self.error
        self.sizes.append(len(items))
        return torch.tensor([[item, 1.0] for item in items])


ERRORS = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_fewer_items_are_taken_at_a_time_where_memory_does_not_suffice(error: Exception) -> None:
    items, device = list(map(float, range(11))), Small(3, error)
    vectors = in_batches(device.encode, items, 8, 2, remedy="")
    assert device.sizes == [2, 2, 2, 2, 2, 1]
    np.testing.assert_allclose(vectors, in_batches(Small(99, error).encode, items, 99, 2, remedy=""))


@pytest.mark.parametrize("error", ERRORS)
def test_one_item_that_is_too_much_is_an_error_with_the_remedy(error: Exception) -> None:
    with pytest.raises(EncoderOutOfMemory, match=r"out of memory .*take fewer frames"):
        in_batches(Small(0, error).encode, [1.0, 2.0], 2, 2, remedy="take fewer frames")


def test_another_error_is_not_called_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shapes differ"):
        in_batches(Small(0, RuntimeError("shapes differ")).encode, [1.0], 1, 2, remedy="")


def test_a_model_made_in_bfloat16_keeps_it_where_half_precision_is_used(tmp_path: Path) -> None:
    card, chip = torch.device("cuda"), torch.device("cpu")
    for config, expected in (
        ({"dtype": "bfloat16"}, torch.bfloat16),
        ({"text_config": {"torch_dtype": "bfloat16"}}, torch.bfloat16),
        ({"dtype": "float32"}, torch.float16),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert model_dtype(tmp_path, EncoderSettings(), card) == expected
        assert model_dtype(tmp_path, EncoderSettings(), chip) == torch.float32
