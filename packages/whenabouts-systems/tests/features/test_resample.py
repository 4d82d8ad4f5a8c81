"""Averaging to a fixed number of clips: outputs of released programs, a plain loop, properties."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_systems.features.resample import average_to_length, unit_rows
from whenabouts_systems.models.inputs import Inputs, LongVideos, StreamInput
from whenabouts_systems.released import clips as released

GOLDEN = np.load(Path(__file__).parent / "golden" / "resample.npz", allow_pickle=False)
DOWN = sorted(
    name.removeprefix("uniform_sampling.in_") for name in GOLDEN.files if ".in_" in name and "_to_" in name
)


def plain(rows: NDArray[Any], count: int, as_released: bool) -> NDArray[np.float64]:
    """The definition, row by row."""
    last = len(rows) - 1 if as_released else len(rows)
    borders = [min(round(i * len(rows) / count), last) for i in range(count + 1)]
    wide = rows.astype(np.float64)
    stretches = []
    for start, end in pairwise(borders):
        stretches.append(wide[start:end].mean(axis=0) if start < end else wide[min(start, len(rows) - 1)])
    return np.stack(stretches)


def pooled(rows: NDArray[Any], most: int, long_videos: LongVideos) -> NDArray[np.float32]:
    """A video's rows as a system reads them that takes at most so many."""
    width = rows.shape[1]
    streams = {"video": StreamInput(width, normalise=False)}
    inputs = Inputs(StreamInput(width), streams, max_clips=most, long_videos=long_videos)
    return inputs.clips([{"video": rows}]).streams["video"][0].numpy()


@pytest.mark.parametrize("case", range(4))
def test_mmn_averages_clips_as_its_program_did(case: int) -> None:
    raw, count = GOLDEN[f"avgfeats.{case}.in_raw"], int(GOLDEN[f"avgfeats.{case}.num_pre_clips"])
    expected = GOLDEN[f"avgfeats.{case}.out"]
    found = released.average_to_length(unit_rows(raw), count)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("case", DOWN)
def test_reloclnet_resamples_as_its_program_did(case: str) -> None:
    rows, expected = GOLDEN[f"uniform_sampling.in_{case}"], GOLDEN[f"uniform_sampling.out_{case}"]
    found = pooled(rows, int(case.partition("_to_")[2]), "pool-as-released")
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_golden_cases_are_those_that_were_recorded() -> None:
    assert len(DOWN) == 8


def test_rows_are_brought_to_unit_length_as_the_programs_did() -> None:
    raw = GOLDEN["l2norm.in"]
    found = Inputs(StreamInput(raw.shape[1]), max_tokens=len(raw)).queries([raw]).tokens[0].numpy()
    np.testing.assert_allclose(found, GOLDEN["l2norm.out"], rtol=1e-6)


def test_unit_rows_have_unit_length_and_zero_rows_stay() -> None:
    rows = np.array([[3, 4], [0, 0], [1e-10, 0]], np.float32)
    np.testing.assert_allclose(unit_rows(rows), np.array([[0.6, 0.8], [0, 0], [1, 0]]), rtol=1e-6)


def test_the_last_row_counts_unless_as_released() -> None:
    rows = np.arange(20, dtype=np.float32)[:, None]
    assert average_to_length(rows, 10)[-1] == 18.5
    assert released.average_to_length(rows, 10)[-1] == 18


@given(st.integers(1, 300), st.integers(1, 130), st.integers(0, 9), st.booleans())
def test_stretches_are_what_their_definition_says(
    length: int, count: int, seed: int, as_released: bool
) -> None:
    rows = np.random.default_rng(seed).normal(size=(length, 3)).astype(np.float32)
    if as_released:
        count = 1 << (count % 8)  # powers of two, as in all settings: the released order of division is exact
    average = released.average_to_length if as_released else average_to_length
    found = average(rows, count)
    assert found.shape == (count, 3) and found.dtype == np.float32
    np.testing.assert_allclose(found, plain(rows, count, as_released), atol=2e-5)


@given(st.integers(1, 200), st.integers(1, 64))
def test_every_row_weighs_in_and_no_mean_leaves_the_range(length: int, count: int) -> None:
    rows = np.arange(length, dtype=np.float32)[:, None]
    found = average_to_length(rows, count)[:, 0]
    assert found.min() >= 0 and found.max() <= length - 1
    assert (np.diff(found) >= 0).all()
    bump = np.zeros((length, 1), np.float32)
    bump[-1] = 1
    assert average_to_length(bump, count)[-1, 0] > 0, "the last row is in the last stretch"


@given(st.integers(1, 60))
def test_as_many_as_there_are_changes_nothing(length: int) -> None:
    rows = np.random.default_rng(length).normal(size=(length, 2)).astype(np.float32)
    np.testing.assert_array_equal(average_to_length(rows, length), rows)
    np.testing.assert_array_equal(pooled(rows, length + 5, "pool"), rows)


def test_half_precision_is_averaged_in_single_and_nothing_is_changed_in_place() -> None:
    rows = np.full((4, 1), 60_000, np.float16)
    before = rows.copy()
    assert average_to_length(rows, 1)[0, 0] == rows.astype(np.float32)[0, 0]
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize(("length", "count"), [(0, 4), (4, 0), (3, -1)])
def test_nothing_cannot_be_averaged(length: int, count: int) -> None:
    for average in (average_to_length, released.average_to_length):
        with pytest.raises(UsageError, match="both must be at least 1"):
            average(np.zeros((length, 2), np.float32), count)
