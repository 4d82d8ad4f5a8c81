"""BERT's layers, against PyTorch's own on each sequence by itself; places and types."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.bert import BertEncoder, BertLayer, ProjectedEncoder, TypedPositions

WIDTH, HEADS, INNER = 8, 2, 20
NAMES = {
    "self_attn.out_proj": "attention.output",
    "linear1": "wide",
    "linear2": "narrow",
    "norm1": "attention.norm",
    "norm2": "norm",
}


def _pytorchs(layer: BertLayer) -> nn.TransformerEncoderLayer:
    """PyTorch's layer with the same weights."""
    other = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, 0.0, activation="gelu", batch_first=True)
    ours = layer.state_dict()
    three = [f"attention.attention.{name}" for name in ("query", "key", "value")]
    kinds = ("weight", "bias")
    weights = {
        f"self_attn.in_proj_{kind}": torch.cat([ours[f"{one}.{kind}"] for one in three]) for kind in kinds
    }
    rest = {f"{theirs}.{kind}": ours[f"{mine}.{kind}"] for theirs, mine in NAMES.items() for kind in kinds}
    other.load_state_dict({**weights, **rest})
    return other


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("lengths", [[4], [3, 5, 1]])
@torch.no_grad()
def test_an_encoder_does_what_pytorchs_layers_do_one_after_the_other(lengths: list[int]) -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(2, WIDTH, HEADS, INNER, 0.1).eval()
    padded = torch.randn(len(lengths), max(lengths), WIDTH)
    encoded = encoder(padded, _mask(lengths))
    layers = [_pytorchs(layer) for layer in encoder.layers if isinstance(layer, BertLayer)]
    for row, length in enumerate(lengths):
        expected = padded[row : row + 1, :length]
        for layer in layers:
            expected = layer(expected)
        torch.testing.assert_close(encoded[row, :length], expected[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_features_are_projected_before_they_are_encoded() -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(1, WIDTH, HEADS, INNER, 0.1)
    whole, mask = ProjectedEncoder(5, WIDTH, 0.1, encoder).eval(), _mask([3, 2])
    features = torch.randn(2, 3, 5) * 4 + 1
    normed = nn.functional.layer_norm(features, (5,))
    projected = (normed @ whole.projection.linear.weight.T + whole.projection.linear.bias).relu()
    torch.testing.assert_close(whole(features, mask), whole.encoder(projected, mask))


@pytest.mark.parametrize(("each", "first"), [(1, 1), (2, 0), (1, 0)])
@torch.no_grad()
def test_each_row_gets_its_place_and_its_type(each: int, first: int) -> None:
    torch.manual_seed(0)
    positions, mask = TypedPositions(4, WIDTH, 0.1, "clips").eval(), _mask([2 * each, 3 * each])
    rows = torch.randn(5 * each, WIDTH)
    padded = torch.zeros(*mask.shape, WIDTH)
    padded[mask] = rows
    placed = positions(padded, mask, first, each)[mask]
    at = 0
    for length in (2, 3):
        for place in range(length):
            for kind in range(first, first + each):
                expected = _placed(positions, rows[at], place, kind)
                torch.testing.assert_close(placed[at], expected)
                at += 1
    assert at == len(rows)


def _placed(positions: TypedPositions, row: Tensor, place: int, kind: int) -> Tensor:
    added = row + positions.places.weight[place] + positions.types.weight[kind]
    return nn.functional.layer_norm(added, (WIDTH,))


def test_a_sequence_longer_than_the_table_is_told_in_places_and_not_in_rows() -> None:
    positions = TypedPositions(4, WIDTH, 0.1, "clips")
    positions(torch.zeros(1, 8, WIDTH), _mask([8]), 0, 2)
    with pytest.raises(
        UsageError, match=r"a sequence of 5 clips, but the model has places for 4: .*max_clips = 5"
    ):
        positions(torch.zeros(1, 10, WIDTH), _mask([10]), 0, 2)
