"""Rows at hand: mapped or held, sound, and the same whichever way they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from whenabouts.intake.files import FormatError
from whenabouts_systems.features import open_features
from whenabouts_systems.features.cache import CachedRows, largest_bits

ROWS = {f"item{at}": np.random.default_rng(at).normal(size=(at + 1, 3)) for at in range(5)}


def written(path: Path, dtype: str = "<f4", **settings: Any) -> Path:
    userblock = settings.pop("userblock_size", 0)
    with h5py.File(path, "w", userblock_size=userblock) as file:
        for name, rows in ROWS.items():
            file.create_dataset(name, data=rows.astype(dtype), **settings)
    return path


@pytest.mark.parametrize(
    ("settings", "is_mapped"),
    [
        ({}, True),
        ({"dtype": "<f2"}, True),
        ({"dtype": "<f8"}, True),
        ({"dtype": ">f4"}, True),
        ({"userblock_size": 1024}, True),
        ({"compression": "gzip"}, False),
        ({"chunks": (1, 3)}, False),
    ],
)
@pytest.mark.parametrize("most_bytes", [0, 1 << 20])
def test_rows_are_those_of_the_file(
    tmp_path: Path, settings: dict[str, Any], is_mapped: bool, most_bytes: int
) -> None:
    path = written(tmp_path / "a.h5", **settings)
    with open_features(path) as source:
        found = CachedRows(source, list(ROWS), most_bytes)
        for number, rows in enumerate(ROWS.values()):
            expected = rows.astype(settings.get("dtype", "<f4"))
            np.testing.assert_allclose(found[number], expected, rtol=1e-6)
        assert found.lengths.tolist() == [1, 2, 3, 4, 5] and not found.is_zero.any()
        is_swapped = settings.get("dtype") == ">f4"
        held = (is_mapped and not is_swapped) or most_bytes > 0
        assert found.items_held == (len(ROWS) if held else 0)
        assert (found.bytes_held == 0) == ((is_mapped and not is_swapped) or not most_bytes)


def test_half_a_memory_holds_some_and_reads_the_rest(tmp_path: Path) -> None:
    path = written(tmp_path / "a.h5", compression="gzip")
    with open_features(path) as source:
        found = CachedRows(source, list(ROWS), 100)
        assert 0 < found.items_held < len(ROWS) and 0 < found.bytes_held <= 100
        np.testing.assert_allclose(found[4], ROWS["item4"], rtol=1e-6)


def test_a_value_that_is_not_finite_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        file["item3"][2, 1] = -np.inf
    told = r"a.h5.*item 'item3'.*1 of 4 rows are not finite, the first is row 2"
    with open_features(path) as source, pytest.raises(FormatError, match=told):
        CachedRows(source, list(ROWS), 1 << 20)


@pytest.mark.parametrize(("dtype", "value"), [("<f4", 1e38), ("<f8", 1e300), (">f4", -1e17)])
def test_a_value_too_large_for_its_square_is_named_with_file_item_and_row(
    tmp_path: Path, dtype: str, value: float
) -> None:
    path = written(tmp_path / "a.h5", dtype)
    with h5py.File(path, "r+") as file:
        file["item3"][2, 1] = value
    with open_features(path) as source, pytest.raises(FormatError) as error:
        CachedRows(source, list(ROWS), 1 << 20)
    told = str(error.value)
    assert "a.h5: item 'item3': row 2 of 4 holds a number as large as 1e+" in told
    assert "accepted: numbers up to 1e+16, whose squares float32 can add" in told


def test_mapped_rows_outlive_the_file_and_cannot_be_changed(tmp_path: Path) -> None:
    with open_features(written(tmp_path / "a.h5")) as source:
        rows = source.get("item2")
    np.testing.assert_allclose(rows, ROWS["item2"], rtol=1e-6)
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(data=st.data())
def test_a_glance_tells_zeros_and_what_is_not_finite(dtype: Any, data: st.DataObject) -> None:
    size = np.dtype(dtype).itemsize * 8
    rows = data.draw(arrays_of.arrays(dtype, (2, 3), elements=st.floats(width=size)))
    largest, infinity = largest_bits(rows)
    assert (largest < infinity) == bool(np.isfinite(rows).all())
    assert (largest == 0) == (not rows.any())
