"""Calibrators against scikit-learn, and measures of them against their definitions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench.harness.rejection import auroc
from whenabouts_systems.ranking.calibrators import (
    METHODS,
    Isotonic,
    Method,
    Temperature,
    calibrator_from,
    expected_calibration_error,
    fit,
    reliability,
)

Floats = NDArray[np.float64]


def answers(count: int = 400, seed: int = 0) -> tuple[Floats, NDArray[np.bool_]]:
    """Raw numbers with ties, and whether each answer is right: more often the higher."""
    rng = np.random.default_rng(seed)
    raw = rng.normal(7.0, 3.0, count).round(1)
    return raw, rng.random(count) < 1 / (1 + np.exp(-(raw - 8.0) / 1.5))


def test_the_temperature_is_that_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    raw, right = answers()
    ours = fit("temperature", raw, right)
    # The same targets, a little off 0 and 1, as weights of both classes.
    up, down = (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2)
    share = np.where(right, up, down)
    theirs = linear.LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    theirs.fit(
        np.tile(raw, 2)[:, None],
        np.repeat([1, 0], len(raw)),
        sample_weight=np.concatenate([share, 1 - share]),
    )
    asked = np.linspace(-10, 25, 50)
    np.testing.assert_allclose(ours(asked), theirs.predict_proba(asked[:, None])[:, 1], atol=1e-5)


def test_the_isotonic_curve_is_that_of_scikit_learn() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    for seed in range(5):
        raw, right = answers(seed=seed)
        theirs = isotonic.IsotonicRegression(out_of_bounds="clip").fit(raw, right.astype(float))
        asked = np.linspace(-10, 25, 500)
        np.testing.assert_allclose(fit("isotonic", raw, right)(asked), theirs.predict(asked), atol=1e-9)


def test_the_area_under_the_curve_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    raw, right = answers()
    found = auroc(raw, right, np.ones(len(raw)))
    assert found == pytest.approx(metrics.roc_auc_score(right, raw), abs=1e-12)


def test_the_area_under_the_curve_is_a_count_of_pairs() -> None:
    up, down = [3.0, 1.0, 2.0], [1.0, 0.0]
    pairs = [(a > b) + (a == b) / 2 for a in up for b in down]
    found = auroc(np.array(up + down), np.arange(5) < 3, np.ones(5))
    assert found == pytest.approx(np.mean(pairs))
    assert np.isnan(auroc(np.array(down), np.zeros(2, bool), np.ones(2)))


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.booleans()), min_size=2, max_size=60),
    st.sampled_from(METHODS),
)
def test_a_higher_number_never_has_a_lower_probability(pairs: list[tuple[int, bool]], method: Method) -> None:
    raw, right = np.array([float(a) for a, _ in pairs]), np.array([b for _, b in pairs])
    if right.all() or not right.any():
        with pytest.raises(
            UsageError,
            match=r"first answers that are right: (all|none) of \d+; .* at least one right",
        ):
            fit(method, raw, right)
        return
    found = fit(method, raw, right)(np.linspace(-60, 60, 241))
    assert np.all((found >= 0) & (found <= 1))
    assert np.all(np.diff(found) >= -1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_answers_that_a_threshold_parts_are_fitted_too(method: Method) -> None:
    raw = np.arange(100.0)
    found = fit(method, raw, raw >= 50)(raw)
    assert found[:50].max() < 0.5 < found[50:].min()
    assert np.isfinite(found).all()


@pytest.mark.parametrize("method", METHODS)
def test_numbers_that_say_nothing_give_the_share_that_is_right(method: Method) -> None:
    rng = np.random.default_rng(0)
    raw, right = rng.normal(size=4000), rng.random(4000) < 0.3
    assert fit(method, np.zeros(4000), right)([0.0])[0] == pytest.approx(right.mean(), abs=1e-3)
    assert np.mean(fit(method, raw, right)(raw)) == pytest.approx(right.mean(), abs=0.02)


def test_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(UsageError, match="not finite"):
        fit("isotonic", [1.0, np.nan], [True, False])


@pytest.mark.parametrize("method", METHODS)
def test_a_calibrator_comes_back_from_its_file(method: Method) -> None:
    raw, right = answers()
    made = fit(method, raw, right)
    assert calibrator_from(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    "broken",
    [
        {"method": "oracle"},
        {"method": "temperature", "offset": 1.0, "temperature": 0.0},
        {"method": "temperature", "offset": float("nan"), "temperature": 1.0},
        {"method": "isotonic", "at": [], "share": []},
        {"method": "isotonic", "at": [0.0, 1.0], "share": [0.5, 0.4]},
        {"method": "isotonic", "at": [1.0, 0.0], "share": [0.1, 0.4]},
        {"method": "isotonic", "at": [0.0], "share": [1.5]},
        {"method": "isotonic", "at": [0.0, 1.0], "share": [0.5]},
    ],
)
def test_a_curve_that_is_none_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"method|curve"):
        calibrator_from(broken)


def test_the_logistic_curve_is_one_half_at_its_offset_and_never_overflows() -> None:
    curve = Temperature(2.0, 0.5)
    np.testing.assert_allclose(curve([2.0, 2.5, 1e9, -1e9]), [0.5, 1 / (1 + np.exp(-1)), 1.0, 0.0])
    assert Isotonic((0.0, 2.0), (0.2, 0.6))([-1.0, 1.0, 5.0]).tolist() == pytest.approx([0.2, 0.4, 0.6])


def test_bins_and_their_error_are_as_defined() -> None:
    confidence = np.array([0.05, 0.15, 0.15, 0.95, 1.0])
    right = np.array([False, True, False, True, True])
    bins = reliability(confidence, right)
    assert [(one.low, one.count) for one in bins] == [(0.0, 1), (0.1, 2), (0.9, 2)]
    assert [one.right for one in bins] == [0.0, 0.5, 1.0]
    expected = (1 * 0.05 + 2 * abs(0.15 - 0.5) + 2 * abs(0.975 - 1.0)) / 5
    assert expected_calibration_error(bins) == pytest.approx(expected)
    assert np.isnan(expected_calibration_error([]))
