"""Attention, convolution, pooling, borders and projection against the same thing written plainly."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.borders import (
    BorderConvolution,
    BorderLinear,
    at_truth,
    log_probabilities,
)
from whenabouts_systems.models.parts.layers import (
    AttentionBlock,
    CrossAttentionBlock,
    InputProjection,
    MaxPooling,
    ModularPooling,
    PositionEmbedding,
    initialise,
    unit,
)
from whenabouts_systems.models.parts.packing import Packing
from whenabouts_systems.models.protocol import best_key
from whenabouts_systems.models.xml import ConvolutionBlock

LENGTHS = torch.tensor([3, 7, 1, 5])
MASK = torch.arange(7) < LENGTHS[:, None]


def _padded(width: int, seed: int = 0) -> Tensor:
    """Sequences with zeros behind their ends."""
    drawn = torch.randn(*MASK.shape, width, generator=torch.Generator().manual_seed(seed))
    return drawn * MASK[..., None]


def _sequences(padded: Tensor) -> list[Tensor]:
    assert not padded[~MASK].any(), "there is something behind an end"
    return [sequence[real] for sequence, real in zip(padded, MASK, strict=True)]


def _plain_attention(layer: nn.Module, queries: Tensor, others: Tensor, heads: int) -> Tensor:
    """Of one sequence (T, D), head by head."""
    projected = (layer.query(queries), layer.key(others), layer.value(others))  # type: ignore[operator]
    mixed = []
    for query, key, value in zip(*(rows.chunk(heads, 1) for rows in projected), strict=True):
        scores = query @ key.T / math.sqrt(query.shape[1])
        mixed.append(scores.softmax(1) @ value)
    return torch.cat(mixed, 1)


@torch.no_grad()
def test_self_attention_is_that_of_each_sequence_alone() -> None:
    torch.manual_seed(1)
    block, padded = AttentionBlock(8, 2, 0.3).eval(), _padded(8)
    for rows, encoded in zip(_sequences(padded), _sequences(block(padded, MASK)), strict=True):
        mixed = block.output(_plain_attention(block.attention, rows, rows, 2))
        torch.testing.assert_close(encoded, block.norm(mixed + rows))


@torch.no_grad()
def test_cross_attention_is_that_of_each_video_alone() -> None:
    torch.manual_seed(1)
    block, padded, others = CrossAttentionBlock(8, 2, 0.3).eval(), _padded(8), _padded(8, 1)
    packing = Packing.of(MASK)
    encoded = _sequences(packing.unpack(block(packing.pack(padded), packing.pack(others), packing)))
    for rows, other, mixed in zip(_sequences(padded), _sequences(others), encoded, strict=True):
        expected = block.norm(_plain_attention(block.attention, rows, other, 2) + rows)
        torch.testing.assert_close(mixed, expected)


@torch.no_grad()
def test_a_convolutional_encoder_sees_zeros_behind_the_end() -> None:
    torch.manual_seed(1)
    block, padded = ConvolutionBlock(8, 5, 0.3).eval(), _padded(8)
    for rows, encoded in zip(_sequences(padded), _sequences(block(padded, MASK)), strict=True):
        convolved = block.pointwise(block.depthwise(rows.T[None])).relu()[0].T
        torch.testing.assert_close(encoded, block.norm(convolved + rows))


@torch.no_grad()
def test_modular_pooling_is_a_softmax_over_each_query_s_own_words() -> None:
    torch.manual_seed(1)
    pooling, padded = ModularPooling(8, 2), _padded(8)
    vectors, weights = pooling(padded, MASK)
    for number, words in enumerate(_sequences(padded)):
        expected = pooling.linear(words).softmax(0)
        torch.testing.assert_close(weights[number, : len(words)], expected)
        torch.testing.assert_close(vectors[number], expected.T @ words)


@torch.no_grad()
def test_max_pooling_takes_the_largest_value_of_the_words() -> None:
    padded = (_padded(8) - 9.0) * MASK[..., None]  # below zero, so that padding would win if it counted
    vectors, weights = MaxPooling(2)(padded, MASK)
    for number, words in enumerate(_sequences(padded)):
        torch.testing.assert_close(vectors[number], words.amax(0).expand(2, 8))
    assert weights.sum(1).allclose(torch.ones(len(weights), 2))


@torch.no_grad()
def test_the_best_key_is_the_best_of_the_video_s_own() -> None:
    clips, vectors = (_padded(8) - 1.0) * MASK[..., None], torch.rand(3, 8)
    best = best_key(vectors, clips, MASK)
    for number, own in enumerate(_sequences(clips)):
        torch.testing.assert_close(best[:, number], (vectors @ own.T).amax(1))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["conv", "linear"])
@pytest.mark.parametrize("streams", [1, 2])
def test_three_ways_to_the_logits_agree(kind: str, streams: int) -> None:
    torch.manual_seed(1)
    predictor = BorderConvolution(5) if kind == "conv" else BorderLinear(8)
    clips = [_padded(8, seed) for seed in range(streams)]
    queries = [torch.randn(len(MASK), 8) for _ in range(streams)]
    every = torch.arange(len(MASK))
    pairs = (every.repeat_interleave(len(every)), every.repeat(len(every)))
    whole = predictor(
        [vectors[pairs[0]] for vectors in queries],
        [stream[pairs[1]] for stream in clips],
        MASK[pairs[1]],
    )
    torch.testing.assert_close(predictor.some(queries, clips, MASK, pairs), whole)
    spans = torch.stack([LENGTHS // 2, LENGTHS - 1], 1)
    at = predictor.at(queries, clips, (every, spans))
    table = whole.view(2, len(every), len(every), -1)
    for border in (0, 1):
        torch.testing.assert_close(at[border], table[border][:, every, spans[:, border]])


@torch.no_grad()
def test_border_logits_are_a_convolution_of_the_video_s_own_products() -> None:
    torch.manual_seed(1)
    predictor, clips, query = BorderConvolution(5), torch.randn(4, 8), torch.randn(1, 8)
    padded, mask = torch.cat([clips, torch.full((3, 8), 9.0)])[None], torch.arange(7)[None] < 4
    start, end = predictor([query], [padded], mask)
    products = (clips @ query[0])[None, None]
    torch.testing.assert_close(start[:, :4], predictor.start(products)[0])
    torch.testing.assert_close(end[:, :4], predictor.end(products)[0])
    assert (start[:, 4:] == -1e10).all()


def test_the_truth_s_likelihood_is_read_at_both_borders() -> None:
    logits = torch.tensor([[[0.0, 1.0, -1e10]], [[2.0, 0.0, -1e10]]])
    found = at_truth(log_probabilities(logits), torch.tensor([[1, 0]]))
    assert float(found) == pytest.approx(-math.log1p(math.exp(-1)) - math.log1p(math.exp(-2)))


@torch.no_grad()
def test_a_projection_normalises_before_the_linear_layer() -> None:
    projection, rows = InputProjection(6, 4, 0.5).eval(), torch.randn(3, 6) * 50 + 7
    plain = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    projected = projection(rows[None], torch.ones(1, 3, dtype=torch.bool))[0]
    torch.testing.assert_close(projected, projection.linear(plain).relu())


@torch.no_grad()
def test_a_position_is_added_before_the_norm() -> None:
    positions, padded = PositionEmbedding(9, 4, 0.5, "clips").eval(), _padded(4)
    for rows, placed in zip(_sequences(padded), _sequences(positions(padded, MASK)), strict=True):
        torch.testing.assert_close(placed, positions.norm(rows + positions.table.weight[: len(rows)]))


def test_a_sequence_longer_than_the_table_is_refused() -> None:
    with pytest.raises(UsageError, match="4 clips, but the model has places for 3"):
        PositionEmbedding(3, 2, 0.0, "clips")(torch.zeros(1, 4, 2), torch.ones(1, 4, dtype=torch.bool))


def test_fresh_weights_have_the_spread_asked_for_and_no_bias() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(100, 100), nn.Embedding(100, 100), nn.LayerNorm(5), nn.Conv1d(1, 1, 5)])
    initialise(layers, 0.02)
    linear, table, norm = layers[0], layers[1], layers[2]
    assert isinstance(linear, nn.Linear)
    assert not linear.bias.any()
    for layer in (linear, table):
        assert isinstance(layer.weight, Tensor)
        assert float(layer.weight.std().detach()) == pytest.approx(0.02, rel=0.05)
    assert torch.equal(torch.as_tensor(norm.weight), torch.ones(5))


def test_unit_rows_have_length_one_and_zero_stays_zero() -> None:
    lengths = unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).norm(dim=1)
    assert lengths.tolist() == pytest.approx([1.0, 0.0])
