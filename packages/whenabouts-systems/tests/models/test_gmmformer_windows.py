"""Windows of attention, and blocks that look through several of them."""

from __future__ import annotations

import math

import pytest
import torch

from whenabouts_systems.models.gmmformer import GaussianBlock, windows
from whenabouts_systems.models.parts.layers import AttentionBlock


def test_a_window_lies_around_its_row_and_falls_off_with_the_distance() -> None:
    found = windows(torch.tensor([5]), 5, 2.0)[0]
    for row in range(5):
        for other in range(5):
            expected = math.exp(-(((row - other) / 4) ** 2) / (2 * (2 / 9) ** 2))
            assert found[row, other].item() == pytest.approx(expected, abs=1e-6)


def test_a_window_is_as_wide_as_the_video_and_not_as_the_batch() -> None:
    together = windows(torch.tensor([4, 9]), 9, 1.0)
    torch.testing.assert_close(together[0, :4, :4], windows(torch.tensor([4]), 4, 1.0)[0])
    assert windows(torch.tensor([1]), 3, 1.0)[0, 0, 0] == 1


def test_the_released_window_lies_before_its_row() -> None:
    released = windows(torch.tensor([5]), 5, 1.0, middles=torch.tensor([5]))[0]
    torch.testing.assert_close(released[2], torch.tensor([0.0023, 0.6028, 1, 0.0105, 0]), atol=1e-4, rtol=0)


def test_a_very_wide_window_leaves_attention_as_it_is_and_a_narrow_one_does_not() -> None:
    torch.manual_seed(0)
    mask = torch.arange(7) < torch.tensor([7, 4])[:, None]
    rows = torch.randn(2, 7, 8) * 3
    for width, same in ((1e4, True), (0.5, False)):
        block = GaussianBlock(8, 2, 0.0, [width]).eval()
        plain, seen = block.blocks[0], block.blocks[1]
        assert isinstance(plain, AttentionBlock)
        seen.load_state_dict(plain.state_dict())
        near = torch.allclose(plain(rows, mask), seen(rows, mask), atol=1e-5)
        assert near is same
        torch.testing.assert_close(
            block(rows, mask), (plain(rows, mask) + seen(rows, mask)) / 2, atol=1e-6, rtol=1e-5
        )


def test_neither_padding_nor_batch_mates_move_a_row() -> None:
    torch.manual_seed(0)
    block = GaussianBlock(8, 2, 0.0, [0.5, 5.0]).eval()
    mask = torch.arange(9) < torch.tensor([3, 9, 5])[:, None]
    padded = torch.randn(*mask.shape, 8)
    together = block(padded, mask)
    alone = block(padded[:1, :3], mask[:1, :3])
    torch.testing.assert_close(together[0, :3], alone[0], atol=1e-5, rtol=1e-5)
