"""The transformer against PyTorch's own on each sequence by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

import pytest
import torch
from torch import Tensor, nn

from whenabouts_systems.models.parts.transformer import (
    Norm,
    TransformerEncoder,
    TransformerLayer,
    perceptron,
)

WIDTH, HEADS, INNER = 8, 2, 24


def pytorchs(layer: TransformerLayer) -> nn.TransformerEncoderLayer:
    """PyTorch's layer with the same weights."""
    other = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, batch_first=True, norm_first=layer.norm == "before"
    )
    attention, ours = layer.attention, layer.state_dict()
    three = ("query", "key", "value")
    weights: Mapping[str, Tensor] = {
        "self_attn.in_proj_weight": torch.cat([getattr(attention, one).weight for one in three]),
        "self_attn.in_proj_bias": torch.cat([getattr(attention, one).bias for one in three]),
    }
    names = {
        "self_attn.out_proj": "output",
        "linear1": "wide",
        "linear2": "narrow",
        "norm1": "attention_norm",
        "norm2": "feedforward_norm",
    }
    rest = {f"{theirs}.{kind}": ours[f"{mine}.{kind}"] for theirs, mine in names.items() for kind in _KINDS}
    other.load_state_dict({**weights, **rest})
    return other


_KINDS = ("weight", "bias")


@pytest.mark.parametrize("norm", get_args(Norm))
def test_an_encoder_agrees_with_pytorchs_on_each_sequence_alone(norm: Norm) -> None:
    torch.manual_seed(0)
    encoder = TransformerEncoder(3, WIDTH, HEADS, INNER, 0.0, norm)
    lengths = torch.tensor([5, 1, 3, *range(1, 18)])  # enough sequences for several pieces
    mask = torch.arange(17) < lengths[:, None]
    rows = torch.randn(*mask.shape, WIDTH)
    encoded = encoder(rows, mask)
    layers = [pytorchs(cast("TransformerLayer", layer)) for layer in encoder.layers]
    for row, length in enumerate(lengths.tolist()):
        expected = rows[row : row + 1, :length]
        for layer in layers:
            expected = layer(expected)
        if encoder.last_norm is not None:
            expected = encoder.last_norm(expected)
        torch.testing.assert_close(encoded[row, :length], expected[0], rtol=1e-4, atol=1e-5)


def test_only_a_norm_before_the_parts_needs_one_behind_the_last_layer() -> None:
    assert TransformerEncoder(1, WIDTH, HEADS, INNER, 0.0, "after").last_norm is None
    assert TransformerEncoder(1, WIDTH, HEADS, INNER, 0.0, "before").last_norm is not None


def test_a_perceptron_is_linear_layers_with_relu_between_them() -> None:
    torch.manual_seed(0)
    made = perceptron(4, 2)
    first, second, third = (one for one in made if isinstance(one, nn.Linear))
    rows = torch.randn(6, 4)
    torch.testing.assert_close(made(rows), third(second(first(rows).relu()).relu()))
    assert third.out_features == 2
