"""The sparse map: its cells, their features, and the convolution against one over the whole padded square."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.moment_map import (
    ChainMap,
    MaxMap,
    Pointwise,
    ProposalConvolution,
    cells_of,
    iou,
)

COUNTS = st.sampled_from([(3,), (4, 2), (3, 2, 2), (15, 8, 8), (0, 2)])


def test_cells_are_every_moment_up_to_a_length_then_fewer_and_fewer() -> None:
    cells = cells_of((3, 2), 9)
    spans = set(zip(cells.first.tolist(), cells.last.tolist(), strict=True))
    short = {(first, last) for first in range(9) for last in range(first, min(first + 4, 9))}
    longer = {(first, first + apart) for apart in (5, 7) for first in range(0, 9 - apart, 2)}
    assert spans == short | longer


@given(COUNTS, st.integers(1, 40))
def test_the_cells_of_a_shorter_video_come_first(counts: tuple[int, ...], clips: int) -> None:
    whole, part = cells_of(counts, 40), cells_of(counts, clips)
    assert torch.equal(whole.first[: len(part)], part.first)
    assert torch.equal(whole.last[: len(part)], part.last)
    there = whole.there(torch.tensor([clips]))[0]
    assert there.tolist() == [True] * len(part) + [False] * (len(whole) - len(part))


@given(COUNTS, st.integers(1, 23))
def test_a_cell_of_the_maximum_map_is_the_largest_value_of_its_clips(
    counts: tuple[int, ...], clips: int
) -> None:
    rows = torch.randn(2, clips, 3, generator=torch.Generator().manual_seed(clips))
    cells = cells_of(counts, clips)
    expected = [
        rows[:, first : last + 1].amax(1) for first, last in zip(cells.first, cells.last, strict=True)
    ]
    assert torch.equal(MaxMap(counts)(rows), torch.stack(expected, 1))


@pytest.mark.parametrize("counts", [(4, 2), (3, 0, 2), (0, 2)])
@pytest.mark.parametrize("clips", [1, 2, 5, 8, 13, 20])
def test_a_cell_of_the_map_of_convolutions_sees_its_clips_and_no_others(
    clips: int, counts: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    layer = ChainMap(counts, 2)
    cells = cells_of(counts, clips)
    rows = torch.randn(1, clips, 2, requires_grad=True)
    made = layer(rows)
    assert made.shape == (1, len(cells), 2)
    for at in range(len(cells)):
        (seen,) = torch.autograd.grad(made[0, at].sum(), rows, retain_graph=True)
        touched = seen[0].abs().sum(1) > 0
        steps = torch.arange(clips)
        assert torch.equal(touched, (steps >= cells.first[at]) & (steps <= cells.last[at]))


def test_overlaps_are_those_of_seconds() -> None:
    cells = cells_of((3,), 4)
    moments = torch.tensor([[0.0, 0.5], [0.3, 0.9], [0.2, 0.2]])
    found = cells.overlaps(moments, torch.tensor([4, 4, 4]))
    for row, (start, end) in enumerate((moments * 20).tolist()):
        for at in range(len(cells)):
            low, high = 5.0 * int(cells.first[at]), 5.0 * (int(cells.last[at]) + 1)
            shared = max(0.0, min(end, high) - max(start, low))
            expected = shared / (end - start + high - low - shared)
            assert float(found[row, at]) == pytest.approx(expected, abs=1e-6)


def test_cells_of_a_shorter_video_are_shares_of_its_own_length() -> None:
    cells = cells_of((3,), 4)
    found = cells.overlaps(torch.tensor([[0.0, 1.0]]), torch.tensor([2]))[0]
    whole = int(((cells.first == 0) & (cells.last == 1)).nonzero())
    assert float(found[whole]) == pytest.approx(1.0)


def test_moments_without_length_overlap_nothing_and_make_no_nan() -> None:
    assert float(iou(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]))) == 0.0


def test_a_square_has_the_fill_where_there_is_no_cell() -> None:
    cells = cells_of((1, 1), 5)
    square = cells.square(torch.ones(2, len(cells)), -torch.inf)
    assert int((square == 1).sum()) == 2 * len(cells)
    assert (square[:, cells.first, cells.last] == 1).all()
    assert square[0, 3, 1] == -torch.inf
    assert square[0, 1, 4] == -torch.inf, "three clips apart, and begins at an odd clip"


def convolution(counts: tuple[int, ...], kernel: int, layers: int, **more: Any) -> ProposalConvolution:
    torch.manual_seed(1)
    made = ProposalConvolution(counts, 4, 4, kernel, layers, 1.0, **more)
    for norm in made.norms:
        nn.init.uniform_(norm.weight, 0.5, 1.5)  # type: ignore[arg-type]
        nn.init.normal_(norm.bias)  # type: ignore[arg-type]
    return made


def over_the_square(layer: ProposalConvolution, rows: Tensor, there: Tensor, clips: int) -> Tensor:
    """By the book: the whole square, padded once, video by video, the mask growing with each layer."""
    cells, reach = cells_of(layer.counts, clips), layer.kernel // 2
    found = []
    for video, real in zip(rows, there, strict=True):
        square = torch.zeros(1, 4, clips, clips)
        square[0, :, cells.first[real], cells.last[real]] = video[real].T
        mask = torch.zeros(1, 1, clips, clips)
        mask[0, 0, cells.first[real], cells.last[real]] = 1
        padding = reach * len(layer.convs)
        for conv, norm in zip(layer.convs, layer.norms, strict=True):
            ones = torch.ones(1, 1, layer.kernel, layer.kernel)
            count = functional.conv2d(mask, ones, padding=padding)
            weight = torch.where(count > 0, 1 / count.clamp(min=1), 0.0)
            square = functional.conv2d(square, conv.weight, conv.bias, padding=padding)  # type: ignore[arg-type]
            flat = norm(square.permute(0, 2, 3, 1).reshape(-1, 4))
            square = flat.view(1, *square.shape[2:], 4).permute(0, 3, 1, 2).relu() * weight
            mask, padding = (weight > 0).float(), 0
        found.append(square[0, :, cells.first, cells.last].T * real[:, None])
    return torch.stack(found)


@pytest.mark.parametrize("whole_square", [False, True])
@pytest.mark.parametrize(
    ("counts", "clips", "kernel", "layers"),
    [((3,), 4, 3, 2), ((15,), 6, 5, 3), ((3, 2, 2), 20, 3, 4), ((2, 1), 9, 5, 1), ((3,), 1, 3, 2)],
)
def test_the_convolution_is_the_one_over_the_padded_square(
    counts: tuple[int, ...], clips: int, kernel: int, layers: int, whole_square: bool
) -> None:
    layer = convolution(counts, kernel, layers, whole_square=whole_square).eval()
    cells = cells_of(counts, clips)
    lengths = torch.tensor([clips, max(1, clips - 2), 1])
    there = cells.there(lengths)
    rows = torch.randn(3, len(cells), 4)
    with torch.no_grad():
        found = layer(rows, there, clips)
        expected = over_the_square(layer, rows, there, clips)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_the_program_takes_its_statistics_from_the_padded_square_and_we_from_what_sees_something() -> None:
    counts, clips = (3,), 6
    rows = torch.randn(2, len(cells_of(counts, clips)), 4)
    there = torch.ones(rows.shape[:2], dtype=torch.bool)
    ours, theirs = (convolution(counts, 3, 2, whole_square=flag).train() for flag in (False, True))
    by_the_book = convolution(counts, 3, 2).train()
    ours(rows, there, clips)
    theirs(rows, there, clips)
    # Two copies of one video: the statistics of the batch are those of the video.
    over_the_square(by_the_book, rows[:1], there[:1], clips)
    once = convolution(counts, 3, 2, whole_square=True).train()
    once(rows[:1].expand(2, -1, -1), there, clips)
    first, book = once.norms[0], by_the_book.norms[0]
    torch.testing.assert_close(first.running_mean, book.running_mean)
    assert not torch.allclose(ours.norms[0].running_mean, theirs.norms[0].running_mean)  # type: ignore[arg-type]


def test_statistics_do_not_depend_on_what_pads_a_shorter_video() -> None:
    counts = (7,)
    layers = [convolution(counts, 3, 2).train() for _ in range(2)]
    cells = cells_of(counts, 6)
    rows = torch.randn(1, len(cells), 4)
    there = cells.there(torch.tensor([6]))
    alone = layers[0](rows, there, 6)
    wide = cells_of(counts, 8)
    padded = torch.cat([rows, torch.full((1, len(wide) - len(cells), 4), 9.0)], 1)
    found = layers[1](padded, wide.there(torch.tensor([6])), 8)
    torch.testing.assert_close(found[:, : len(cells)], alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layers[0].norms[0].running_mean, layers[1].norms[0].running_mean)
    assert not found[:, len(cells) :].any()


def test_one_place_has_no_spread_and_is_normalised_by_what_was_seen_before() -> None:
    layer = convolution((3,), 1, 1).train()
    found = layer(torch.randn(1, 1, 4), torch.ones(1, 1, dtype=torch.bool), 1)
    assert found.isfinite().all()
    assert layer.norms[0].num_batches_tracked == 0


def test_a_fresh_convolution_tells_videos_apart_in_evaluation() -> None:
    torch.manual_seed(0)
    layer = ProposalConvolution((15,), 8, 8, 5, 8, 0.5).eval()
    rows = torch.randn(2, 136, 8).relu()
    with torch.no_grad():
        found = layer(rows, torch.ones(2, 136, dtype=torch.bool), 16)
    assert (found[0] - found[1]).abs().max() > 1e-4


def test_a_pointwise_layer_is_a_convolution_of_one_by_one_and_gives_unit_vectors() -> None:
    layer = Pointwise(3, 5)
    rows = torch.randn(2, 7, 3)
    expected = functional.conv2d(rows.transpose(1, 2)[..., None], layer.weight, layer.bias)
    torch.testing.assert_close(layer(rows), functional.normalize(expected[..., 0].transpose(1, 2), dim=-1))
