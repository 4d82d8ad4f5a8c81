"""What every layout of the folder has to keep."""

from __future__ import annotations

import copy
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.features.conftest import VARIANTS, Maker, make_items

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.features import all_layouts, layout_names, layout_summaries, open_features, outline_of
from whenabouts_systems.features.layouts.store import convert_to_store
from whenabouts_systems.features.source import FeatureLocation

Variant = tuple[str, Maker]


def test_every_layout_of_the_folder_is_tested_here() -> None:
    assert {layout for layout, _ in VARIANTS.values()} == set(layout_names())
    assert all(layout_summaries().values())


def test_rows_come_out_as_they_went_in(variant: Variant, tmp_path: Path, items: dict[str, Any]) -> None:
    layout, make = variant
    with open_features(make(tmp_path / "f", items)) as source:
        assert source.layout == layout
        assert sorted(source.ids()) == sorted(items)
        assert len(source) == len(items)
        assert source.width == 6
        assert source.dtype == np.float32
        for item, rows in items.items():
            assert item in source
            assert source.length(item) == len(rows)
            np.testing.assert_array_equal(source.get(item), rows, strict=True)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_the_type_of_the_numbers_is_kept(variant: Variant, tmp_path: Path, dtype: str) -> None:
    made = make_items(dtype=dtype)
    with open_features(variant[1](tmp_path / "f", made)) as source:
        assert source.fingerprint.dtype == dtype
        for item, rows in made.items():
            np.testing.assert_array_equal(source.get(item), rows, strict=True)


def test_a_layout_is_recognised_by_its_content_and_by_its_own_reader_alone(
    variant: Variant, tmp_path: Path, items: dict[str, Any]
) -> None:
    layout, make = variant
    place = FeatureLocation(make(tmp_path / "no suffix", items))
    fitting = [module.NAME for module in all_layouts() if re.fullmatch(module.OUTLINE, outline_of(place))]
    assert fitting == [layout]


def test_the_order_of_access_changes_nothing(variant: Variant, tmp_path: Path, items: dict[str, Any]) -> None:
    path = variant[1](tmp_path / "f", items)
    order = list(items)

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(order), max_size=20))
    def check(asked: list[str]) -> None:
        with open_features(path) as source:
            for item in asked:
                np.testing.assert_array_equal(source.get(item), items[item])

    check()


def test_what_was_given_stays_when_the_source_is_closed(
    variant: Variant, tmp_path: Path, items: dict[str, Any]
) -> None:
    with open_features(variant[1](tmp_path / "f", items)) as source:
        kept = {item: source.get(item) for item in source}
    for item, rows in items.items():
        np.testing.assert_array_equal(kept[item], rows)
    source.close()
    with pytest.raises(UsageError, match="closed"):
        source.get("3MSZA")


def test_our_store_and_back_are_equal(variant: Variant, tmp_path: Path, items: dict[str, Any]) -> None:
    with open_features(variant[1](tmp_path / "f", items)) as source:
        written = convert_to_store(source, tmp_path / "ours")
        order = source.ids()
    assert written.rows == sum(map(len, items.values()))
    with open_features(tmp_path / "ours") as ours:
        assert ours.layout == "whenabouts"
        assert ours.ids() == order
        assert ours.fingerprint.content == written.content
        for item, rows in items.items():
            np.testing.assert_array_equal(ours.get(item), rows, strict=True)


def test_the_content_hash_is_that_of_the_content_and_not_of_the_layout(tmp_path: Path) -> None:
    made = make_items()
    hashes = set()
    for number, (_, make) in enumerate(VARIANTS.values()):
        with open_features(make(tmp_path / f"f{number}", made)) as source:
            hashes.add(convert_to_store(source, tmp_path / f"ours{number}").content)
    assert len(hashes) == 1
    made["9"][0, 0] += 1
    with open_features(VARIANTS["npy"][1](tmp_path / "changed", made)) as source:
        assert convert_to_store(source, tmp_path / "other").content not in hashes


def test_one_vector_an_item_is_given_as_one_row(variant: Variant, tmp_path: Path) -> None:
    layout, make = variant
    if layout == "whenabouts":  # its items are slices of rows, and always (T, D)
        return
    pooled = {item: rows[0] for item, rows in make_items().items()}
    with open_features(make(tmp_path / "f", pooled)) as source:
        assert source.is_pooled
        for item, vector in pooled.items():
            assert source.length(item) == 1
            np.testing.assert_array_equal(source.get(item), vector[None], strict=True)


def test_two_sources_of_one_file_do_not_disturb_each_other(
    variant: Variant, tmp_path: Path, items: dict[str, Any]
) -> None:
    path = variant[1](tmp_path / "f", items)
    first, second = open_features(path), open_features(path)
    first.close()
    np.testing.assert_array_equal(second.get("9"), items["9"])
    again = copy.copy(second)
    second.close()
    np.testing.assert_array_equal(again.get("9"), items["9"])
    assert again.layout == second.layout
    again.close()


def test_threads_may_share_a_source(variant: Variant, tmp_path: Path, items: dict[str, Any]) -> None:
    start = threading.Barrier(4)

    def read(_: int) -> bool:
        start.wait()
        return all(np.array_equal(source.get(item), rows) for item, rows in list(items.items()) * 5)

    with open_features(variant[1](tmp_path / "f", items)) as source, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_an_unknown_id_is_named_with_some_that_are_known(
    variant: Variant, tmp_path: Path, items: dict[str, Any]
) -> None:
    with open_features(variant[1](tmp_path / "f", items)) as source:
        for wrong in ("nobody", "../f/9", "/etc/passwd", "9/..", ""):
            assert wrong not in source
            for ask in (source.get, source.length):
                with pytest.raises(
                    FormatError, match="there is no such item; accepted: one of its 7 ids"
                ) as e:
                    ask(wrong)
                assert "\n" not in str(e.value) and str(tmp_path / "f") in str(e.value)


def test_rows_that_are_not_finite_are_kept_or_refused_as_asked(variant: Variant, tmp_path: Path) -> None:
    made = make_items()
    made["ünï"][-1, 2] = np.nan
    made["9"][0, 0] = -np.inf
    path = variant[1](tmp_path / "f", made)
    with open_features(path) as source:
        np.testing.assert_array_equal(source.get("ünï"), made["ünï"])
    with open_features(path, strict=True) as source:
        np.testing.assert_array_equal(source.get("3MSZA"), made["3MSZA"])
        for item in ("ünï", "9"):
            with pytest.raises(FormatError, match=f"item '{item}': 1 of .* not finite"):
                source.get(item)


def test_items_of_no_rows_are_refused(variant: Variant, tmp_path: Path) -> None:
    made = make_items() | {"empty": np.zeros((0, 6), np.float32)}
    path = variant[1](tmp_path / "f", made)
    with pytest.raises(FormatError, match=r"'empty'.*is empty, of shape|accepted: 1 or more rows"):
        open_features(path).get("empty")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (np.zeros((1, 4, 6), np.float32), r"has shape \(1, 4, 6\); accepted: \(T, D\)"),
        (np.zeros(6, np.float32), r"has shape \(6,\), but the first item has"),
        (np.zeros((4, 5), np.float32), "is 5 wide; accepted: the width of the first item, 6"),
        (np.zeros((4, 6), np.int64), "int64|'<i8'"),
        (np.zeros((4, 6), np.complex64), "complex64|'<c8'"),
    ],
)
def test_what_is_no_rows_is_named_with_what_was_found_and_what_is_accepted(
    variant: Variant, tmp_path: Path, wrong: Any, told: str
) -> None:
    layout, make = variant
    if layout == "whenabouts":  # one array for all items: its own faults are in test_store.py
        return
    made = make_items() | {"wrong": wrong}
    with open_features(make(tmp_path / "f", made)) as source, pytest.raises(FormatError, match=told) as error:
        source.get("wrong")
    assert "item 'wrong'" in str(error.value) and str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_the_clip_length_is_the_callers_or_unknown(
    variant: Variant, tmp_path: Path, items: dict[str, Any]
) -> None:
    path = variant[1](tmp_path / "f", items)
    with open_features(path) as source:
        assert source.clip_seconds is None
        assert "clip_seconds" in source.fingerprint.unknown
        with pytest.raises(UsageError, match="the file does not say how many seconds"):
            source.grid("9", 10.0)
    with open_features(path, clip_seconds=1.5) as source:
        assert len(source.grid("9", 10.0)) == 7
        with pytest.raises(FormatError, match="no such item"):
            source.grid("nobody", 10.0)
    with pytest.raises(UsageError, match="above 0"):
        open_features(path, clip_seconds=0)


@pytest.mark.parametrize("layout", sorted({layout for layout, _ in VARIANTS.values()}))
def test_a_layout_that_is_forced_on_another_file_says_what_it_misses(layout: str, tmp_path: Path) -> None:
    wrong = tmp_path / "text"
    wrong.write_text("hello")
    (tmp_path / "empty").mkdir()
    for path in (wrong, tmp_path / "empty", tmp_path / "nothing"):
        with pytest.raises(FormatError) as error, open_features(path, layout=layout) as source:
            source.ids()
        assert str(path) in str(error.value) and "\n" not in str(error.value)
