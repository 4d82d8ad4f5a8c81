"""Rows and clips of a video: which row is which clip, what is left out, what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.features.conftest import write_hdf5

from whenabouts.clips import ClipGrid
from whenabouts.types import UsageError
from whenabouts_systems.features import open_features
from whenabouts_systems.features.source import rows_on_grid

ROWS = np.arange(12, dtype=np.float16).reshape(6, 2) + 1


def test_a_row_for_each_clip_is_left_as_it_is() -> None:
    found = rows_on_grid(ROWS, ClipGrid(2.0, 12.0))
    np.testing.assert_array_equal(found.rows, ROWS, strict=True)
    assert found.mask.all() and (found.surplus, found.missing) == (0, 0)


def test_rows_behind_the_end_are_left_out_and_counted() -> None:
    found = rows_on_grid(ROWS, ClipGrid(2.0, 9.9))
    np.testing.assert_array_equal(found.rows, ROWS[:5])
    assert (found.surplus, found.missing) == (1, 0)


def test_clips_without_rows_are_zero_and_masked() -> None:
    found = rows_on_grid(ROWS, ClipGrid(2.0, 17.0))
    np.testing.assert_array_equal(found.rows[:6], ROWS)
    assert not found.rows[6:].any() and found.rows.dtype == np.float16
    assert found.mask.tolist() == [True] * 6 + [False] * 3
    assert (found.surplus, found.missing) == (0, 3)


def test_many_more_rows_than_clips_are_a_wrong_clip_length() -> None:
    with pytest.raises(UsageError, match=r"f: 6 rows for 3 clips of 2 s in 6 s; rows of 1 s would fit"):
        rows_on_grid(ROWS, ClipGrid(2.0, 6.0), "f")


@given(st.integers(1, 60), st.floats(0.1, 200))
def test_clips_keep_their_number_and_rows_their_place(length: int, duration: float) -> None:
    rows, grid = np.arange(1, length + 1)[:, None].astype(np.float32), ClipGrid(1.5, duration)
    if length - len(grid) > max(2, len(grid) / 10):
        with pytest.raises(UsageError):
            rows_on_grid(rows, grid)
        return
    found = rows_on_grid(rows, grid)
    assert len(found.rows) == len(found.mask) == len(grid)
    assert length - found.surplus == found.mask.sum() == len(grid) - found.missing
    np.testing.assert_array_equal(found.rows[found.mask, 0], np.arange(1, found.mask.sum() + 1))


def test_a_source_brings_its_rows_to_a_videos_clips(tmp_path: Path) -> None:
    made = {name: ROWS[:length] for name, length in (("a", 4), ("b", 5), ("c", 2))}
    with open_features(write_hdf5(tmp_path / "video_cl-1.5.h5", made)) as source:
        assert source.clip_seconds == 1.5
        assert source.grid("a", 6.0) == ClipGrid(1.5, 6.0)
        assert source.on_grid("b", 6.0).surplus == 1
        assert source.on_grid("c", 6.0).missing == 2


@pytest.mark.parametrize(
    ("name", "clip_seconds"),
    [
        ("tvr_resnet152_rgb_max_cl-1.5.h5", 1.5),
        ("tiny_video_cl-3.h5", 3.0),
        ("without_a_suffix_cl-1.5", 1.5),
        ("x_cl-0.h5", None),
        ("vgg_rgb_features.hdf5", None),
    ],
)
def test_the_clip_length_of_tvr_stands_in_the_files_name(
    tmp_path: Path, name: str, clip_seconds: float | None
) -> None:
    with open_features(write_hdf5(tmp_path / name, {"a": ROWS})) as source:
        assert source.clip_seconds == clip_seconds


def test_what_stands_in_the_file_goes_before_its_name_and_is_not_overruled(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "video_cl-1.5.h5", {"a": ROWS}, clip_seconds=2.0)
    with open_features(path) as source:
        assert source.clip_seconds == 2.0
    with open_features(path, clip_seconds=2.0) as source:
        assert source.clip_seconds == 2.0
    with (
        open_features(path, clip_seconds=1.5) as source,
        pytest.raises(UsageError, match=r"are 2 s long.*not 1\.5 s"),
    ):
        source.grid("a", 3.0)
