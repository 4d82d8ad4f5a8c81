"""Averaging a batch of videos to stretches of equal time, against the same for one video after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from whenabouts_systems.features.resample import average_to_length
from whenabouts_systems.models.parts.averaging import averaged, clips_of, even_borders, frames_of
from whenabouts_systems.models.protocol import ClipBatch
from whenabouts_systems.released import clips as released_clips
from whenabouts_systems.released.ms_sl import held_borders


def _padded(lengths: list[int], width: int = 3) -> tuple[Tensor, Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    rows = torch.randn(*mask.shape, width, generator=torch.Generator().manual_seed(0))
    return rows.masked_fill(~mask[..., None], 1e3), mask


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=5),
    st.booleans(),
)
def test_a_batch_is_averaged_as_each_video_alone(sizes: list[tuple[int, int]], released: bool) -> None:
    lengths, counts = [length for length, _ in sizes], [count for _, count in sizes]
    rows, mask = _padded(lengths)
    found = averaged(rows, mask, torch.tensor(counts), held_borders if released else even_borders)
    for video, (length, count) in enumerate(sizes):
        average = released_clips.average_to_length if released else average_to_length
        alone = average(rows[video, :length].numpy(), count)
        np.testing.assert_allclose(found[video, :count].numpy(), alone, atol=1e-5)
        assert (found[video, count:] == 0).all()


def test_short_videos_keep_their_frames_and_long_ones_are_averaged() -> None:
    rows, mask = _padded([3, 9])
    frames, there = frames_of(ClipBatch({"video": rows}, mask), ["video"], 6)
    assert there.sum(1).tolist() == [3, 6]
    unit = torch.nn.functional.normalize(rows[0, :3], dim=-1)
    torch.testing.assert_close(frames[0, :3], unit, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(frames.norm(dim=-1)[there], torch.ones(9), atol=1e-4, rtol=1e-4)


def test_the_last_frame_counts_unless_as_released() -> None:
    rows, mask = _padded([8])
    changed = rows.clone()
    changed[0, 7] += 5
    for released in (False, True):
        before, after = (
            clips_of(
                ClipBatch({"video": one}, mask), ["video"], 2, held_borders if released else even_borders
            )
            for one in (rows, changed)
        )
        assert torch.equal(before, after) is released


@pytest.mark.parametrize("names", [["one", "two"], ["two", "one"]])
def test_streams_lie_side_by_side_in_the_order_that_is_asked_for(names: list[str]) -> None:
    rows, mask = _padded([4])
    streams = {"one": rows, "two": -rows}
    sign = 1 if names[0] == "one" else -1
    made = clips_of(ClipBatch(streams, mask), names, 4)
    torch.testing.assert_close(
        made[..., :3], sign * torch.nn.functional.normalize(rows, dim=-1), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(made[..., 3:], -made[..., :3])
