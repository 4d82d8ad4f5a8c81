"""How far two feature files differ, and the one sentence that says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.features.conftest import VARIANTS, make_items, write_hdf5

from whenabouts_systems.features import _batches, open_features
from whenabouts_systems.features.compare import Comparison, compare


def held_against(tmp_path: Path, a: dict[str, Any], b: dict[str, Any]) -> Comparison:
    for name in ("a.h5", "b.h5"):
        (tmp_path / name).unlink(missing_ok=True)
    with (
        open_features(write_hdf5(tmp_path / "a.h5", a)) as first,
        open_features(write_hdf5(tmp_path / "b.h5", b)) as second,
    ):
        found = compare(first, second)
    json.dumps(found.to_json())
    assert all("\n" not in line for line in found.lines())
    return found


def cosine(a: Any, b: Any) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(sum(x * y for x, y in zip(a, b, strict=True)) / (sum(a * a) ** 0.5 * sum(b * b) ** 0.5))


def test_equal_numbers_are_the_same_features_in_any_two_layouts(tmp_path: Path) -> None:
    made = make_items()
    sources = [open_features(make(tmp_path / f"{n}", made)) for n, (_, make) in enumerate(VARIANTS.values())]
    for source in sources[1:]:
        found = compare(sources[0], source)
        assert found.verdict == "same"
        assert found.sentence.startswith("These are the same features: every number is equal in the")
        assert found.cosine_mean == found.cosine_min == 1.0
        assert found.rows_equal == found.rows_compared == sum(map(len, made.values()))
    for source in sources:
        source.close()


def test_half_precision_is_called_rounded_whatever_type_it_is_stored_in(tmp_path: Path) -> None:
    made = make_items(width=64)
    for back in (np.float16, np.float32):
        rounded = {item: rows.astype(np.float16).astype(back) for item, rows in made.items()}
        found = held_against(tmp_path, made, rounded)
        assert found.verdict == "rounded"
        assert "the same features, rounded (float16)" in found.sentence
        assert found.cosine_min is not None and found.cosine_min > 1 - 1e-6


def test_coarser_rounding_is_said_to_be_coarser(tmp_path: Path) -> None:
    made = make_items(width=256)
    coarse = {item: torch.from_numpy(rows).bfloat16().float().numpy() for item, rows in made.items()}
    found = held_against(tmp_path, made, coarse)
    assert found.verdict == "rounded" and "more coarsely than to float16" in found.sentence


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_of_other_lengths_are_the_same_up_to_normalisation(tmp_path: Path, dtype: Any) -> None:
    made = make_items(width=64)
    unit = {item: (r / np.linalg.norm(r, axis=1, keepdims=True)).astype(dtype) for item, r in made.items()}
    found = held_against(tmp_path, made, unit)
    assert found.verdict == "normalised"
    assert "the same features up to normalisation" in found.sentence
    assert found.norm_means is not None and found.norm_means[0] > 2 and abs(found.norm_means[1] - 1) < 1e-3


def test_other_numbers_are_different_features_and_the_worst_items_are_named(tmp_path: Path) -> None:
    made = make_items(count=30, width=64)
    changed = {item: rows.copy() for item, rows in made.items()}
    rng = np.random.default_rng(1)
    for strength, item in ((5.0, "9"), (1.0, "ünï"), (0.1, "more 3")):
        changed[item] += strength * rng.normal(size=changed[item].shape).astype(np.float32)
    found = held_against(tmp_path, made, changed)
    assert found.verdict == "different"
    assert found.sentence.startswith("These are different features: ")
    assert [item.id for item in found.worst[:3]] == ["9", "ünï", "more 3"]
    assert len(found.worst) == 10
    for worst in found.worst:
        each = [cosine(a, b) for a, b in zip(made[worst.id], changed[worst.id], strict=True)]
        assert worst.cosine_mean == pytest.approx(np.mean(each), abs=1e-9)
        assert worst.cosine_min == pytest.approx(min(each), abs=1e-9)
    means = [np.mean([cosine(a, b) for a, b in zip(made[i], changed[i], strict=True)]) for i in made]
    assert found.cosine_mean == pytest.approx(np.mean(means), abs=1e-9)
    assert found.percentiles[5] == pytest.approx(np.percentile(means, 5), abs=1e-9)


def test_another_width_is_other_features(tmp_path: Path) -> None:
    found = held_against(tmp_path, make_items(width=6), make_items(width=5))
    assert found.verdict == "different" and "A is 6 wide and B 5" in found.sentence
    assert found.cosine_mean is None and "width: 6 in A, 5 in B" in found.fingerprints


def test_no_common_id_is_said_with_an_id_of_each(tmp_path: Path) -> None:
    found = held_against(tmp_path, {"v_1": np.ones((1, 2))}, {"1": np.ones((1, 2))})
    assert found.verdict == "incomparable"
    assert found.sentence == (
        "Nothing can be compared: no id is in both (A has 'v_1', B has '1'); 1 only in A; 1 only in B."
    )


def test_lengths_and_ids_that_differ_are_counted(tmp_path: Path) -> None:
    made = make_items(count=12)
    other = {item: rows for item, rows in made.items() if item != "9"}
    other["3MSZA"] = np.concatenate([made["3MSZA"], made["3MSZA"][:1]])
    other["v_QOlSCBRmfWY"] = np.concatenate([made["v_QOlSCBRmfWY"]] * 3)
    found = held_against(tmp_path, made, other | {"new": made["9"]})
    assert found.verdict == "same"
    assert (found.differing_lengths, found.only_in_a, found.only_in_b) == (2, ("9",), ("new",))
    assert found.sentence.endswith(
        "; 1 only in A; 1 only in B; 2 differ in their number of rows (the shorter counts)."
    )
    assert [item.id for item in found.worst[:2]] == ["v_QOlSCBRmfWY", "3MSZA"]
    assert found.worst[1].length_b == found.worst[1].length_a + 1


def test_rows_that_are_not_finite_are_left_out_and_counted(tmp_path: Path) -> None:
    made = make_items()
    broken = {item: rows.copy() for item, rows in made.items()}
    broken["9"][:] = np.nan
    broken["3MSZA"][0, 0] = np.inf
    found = held_against(tmp_path, made, broken)
    assert found.rows_not_finite == len(made["9"]) + 1
    assert found.rows_not_finite_by_file == (0, found.rows_not_finite)
    assert found.verdict == "same_where_finite", "what is left is equal, but not every number"
    assert found.sentence.startswith(
        "These are the same features where both are finite: all finite rows are equal"
    )
    count = found.rows_not_finite
    assert found.sentence.endswith(f"; {count} rows are not finite (0 in A, {count} in B).")
    assert found.worst[0].id == "9" and np.isnan(found.worst[0].cosine_mean)
    assert held_against(tmp_path, broken, broken).verdict == "same"
    nothing = {item: np.full_like(rows, np.nan) for item, rows in made.items()}
    assert "no row is finite" in held_against(tmp_path, made, nothing).sentence


def test_rows_that_are_not_finite_do_not_hide_how_the_others_differ(tmp_path: Path) -> None:
    made = make_items(width=64)
    broken = {item: rows.copy() for item, rows in made.items()}
    broken["9"][0] = np.nan
    rounded = {item: rows.astype(np.float16) for item, rows in made.items()}
    rounded["3MSZA"][0, 0] = np.nan
    found = held_against(tmp_path, broken, rounded)
    assert found.verdict == "rounded"
    assert found.sentence.endswith("; 2 rows are not finite (1 in A, 1 in B).")
    broken["3MSZA"][0] = np.inf
    assert held_against(tmp_path, broken, rounded).rows_not_finite_by_file == (2, 1)
    assert held_against(tmp_path, broken, rounded).rows_not_finite == 2


def test_rows_of_zeros_agree_with_each_other_and_with_nothing_else(tmp_path: Path) -> None:
    zero, one = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    assert held_against(tmp_path, {"a": zero}, {"a": zero}).cosine_min == 1
    found = held_against(tmp_path, {"a": zero}, {"a": one})
    assert found.verdict == "different" and found.cosine_min == 0


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_very_small_and_very_large_numbers_do_not_mislead(tmp_path: Path, scale: float) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(5, 32)) * scale for _ in range(2))
    found = held_against(tmp_path, {"a": a.astype(np.float32)}, {"a": (2 * a).astype(np.float32)})
    assert found.verdict == "normalised"
    assert held_against(tmp_path, {"a": a}, {"a": b}).cosine_min == pytest.approx(
        min(cosine(x / scale, y / scale) for x, y in zip(a, b, strict=True)), abs=1e-9
    )


@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.integers(0, 99), st.sampled_from([1, 300, 1 << 20]), st.sampled_from([1, 3, 4096]))
def test_blocks_change_nothing_and_a_and_b_may_be_swapped(
    tmp_path: Path, seed: int, block_bytes: int, slice_rows: int
) -> None:
    a, b = make_items(seed, count=9), make_items(seed + 1000, count=8)
    usual = held_against(tmp_path, a, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_batches, "_BATCH_BYTES", block_bytes)
        patch.setattr(_batches, "_SLICE_ROWS", slice_rows)
        other = held_against(tmp_path, a, b)
        swapped = held_against(tmp_path, b, a)
    assert other.verdict == usual.verdict == swapped.verdict
    assert other.cosine_mean == pytest.approx(usual.cosine_mean, abs=1e-12)
    assert swapped.cosine_mean == pytest.approx(usual.cosine_mean, abs=1e-12)
    assert [item.id for item in other.worst] == [item.id for item in usual.worst]
    assert swapped.only_in_a == usual.only_in_b
