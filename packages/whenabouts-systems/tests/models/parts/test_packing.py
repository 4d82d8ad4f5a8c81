"""Packed rows: what goes in comes out at its place, whatever the lengths."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from whenabouts_systems.models.parts.packing import FEWEST, PIECES, PackedBlock, Packing, compute_padding


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3 * FEWEST))
def test_packed_rows_come_back_to_their_places_and_the_rest_is_zero(lengths: list[int]) -> None:
    mask = _mask(lengths)
    packing = Packing.of(mask)
    values = torch.arange(1.0, mask.numel() * 2 + 1).view(*mask.shape, 2).requires_grad_()
    rows = packing.pack(values)
    assert len(packing) == len(rows) == sum(lengths)
    padded = packing.unpack(rows)
    assert torch.equal(padded, values * mask[..., None])
    (gradient,) = torch.autograd.grad(padded.sum(), values)
    assert torch.equal(gradient, mask[..., None].expand_as(values).float())


def test_rows_know_their_sequence_and_their_place_in_it() -> None:
    packing = Packing.of(_mask([3, 1, 2]))
    assert packing.positions().tolist() == [0, 1, 2, 0, 0, 1]
    assert packing.sequences().tolist() == [0, 0, 0, 1, 2, 2]
    everything = Packing.of(_mask([3, 1]), everything=True)
    assert everything.positions().tolist() == [0, 1, 2, 0, 1, 2]
    assert everything.sequences().tolist() == [0, 0, 0, 1, 1, 1]
    assert Packing.of(_mask([4, 4])).index is None


@settings(deadline=None, max_examples=40)
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


def test_batches_of_many_lengths_are_cut_and_small_or_full_ones_are_not() -> None:
    many = Packing.of(_mask([3, 1, 2] * FEWEST))
    assert len(many.pieces) == PIECES
    places = many.unpack(many.positions() + 1)
    assert torch.equal(places, (torch.arange(3) + 1).expand(len(many.mask), 3) * many.mask)
    assert len(Packing.of(_mask([1, 2])).pieces) == 1
    assert len(Packing.of(_mask([4] * FEWEST)).pieces) == 1


class _Count(PackedBlock):
    """The number of rows that it is given, in each row."""

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        return torch.full_like(rows, len(rows))


def test_a_block_computes_real_rows_alone_and_padding_too_where_the_model_says_so() -> None:
    mask, block = _mask([3, 1]), _Count()
    padded = torch.zeros(2, 3, 1)
    assert block(padded, mask)[..., 0].tolist() == [[4, 4, 4], [4, 0, 0]]
    packing = Packing.of(mask)
    assert block(packing.pack(padded), packing)[..., 0].tolist() == [4, 4, 4, 4]
    compute_padding(nn.Sequential(block))
    assert block(padded, mask)[..., 0].tolist() == [[6, 6, 6], [6, 6, 6]]
