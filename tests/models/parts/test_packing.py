"""Packed rows: what goes in comes out at its place, whatever the lengths."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whenabouts.models._parts.packing import FEWEST, PIECES, Packing


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3 * FEWEST))
def test_packed_rows_come_back_to_their_places_and_the_rest_is_filled(lengths: list[int]) -> None:
    mask = _mask(lengths)
    packing = Packing.of(mask)
    values = torch.arange(mask.numel() * 2.0).view(*mask.shape, 2)
    rows = packing.pack(values)
    assert len(packing) == len(rows) == sum(lengths)
    assert torch.equal(packing.unpack(rows, fill=-1.0), torch.where(mask[..., None], values, -1.0))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3 * FEWEST))
def test_pieces_hold_whole_sequences_at_their_own_length(lengths: list[int]) -> None:
    mask = _mask(lengths)
    packing = Packing.of(mask)
    values = torch.arange(1.0, mask.numel() + 1).view(mask.shape)
    pieces = packing.split(packing.pack(values))
    sequences = [
        sequence[real].tolist()
        for piece, rows in zip(packing.pieces, pieces, strict=True)
        for sequence, real in zip(piece.unpack(rows), piece.mask, strict=True)
    ]
    expected = [row[real].tolist() for row, real in zip(values, mask, strict=True)]
    assert sorted(sequences) == sorted(expected)
    assert all(piece.mask.any(0).all() for piece in packing.pieces), "a piece has a column of padding"


def test_positions_count_from_the_start_of_each_sequence() -> None:
    lengths = [3, 1, 2] * FEWEST
    packing = Packing.of(_mask(lengths))
    places = packing.unpack(packing.positions() + 1)
    assert torch.equal(places, (torch.arange(3) + 1).expand(len(lengths), 3) * packing.mask)


def test_batches_of_many_lengths_are_cut_and_small_or_full_ones_are_not() -> None:
    assert len(Packing.of(_mask([1, 2, 3, 4] * FEWEST)).pieces) == PIECES
    assert len(Packing.of(_mask([1, 2])).pieces) == 1
    full = Packing.of(_mask([4] * FEWEST))
    assert len(full.pieces) == 1
    assert full.index is None


def test_everything_computes_padding_too() -> None:
    packing = Packing.of(_mask([3, 1]), everything=True)
    assert len(packing) == 6
    assert packing.positions().tolist() == [0, 1, 2, 0, 1, 2]
    assert packing.without_padding(torch.ones(2, 3), 7.0).tolist() == [[1, 1, 1], [1, 7, 7]]


@pytest.mark.parametrize("lengths", [[3, 1, 2], [1, 5, 2, 4] * FEWEST])
def test_gradients_reach_the_real_rows_alone(lengths: list[int]) -> None:
    mask = _mask(lengths)
    packing = Packing.of(mask)
    values = torch.randn(*mask.shape, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(packing.unpack(packing.pack(values)).sum(), values)
    assert torch.equal(gradient, mask[..., None].expand_as(values).float())
