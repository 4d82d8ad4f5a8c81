"""Score fusion: what full text and vectors say, on one scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.moments.fusion import COSINE_WEIGHT, Scale, fuse, measure_scale
from whenabouts.types import UsageError

cosines = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=30)


def test_fused_is_bm25_plus_cosines_in_spreads_above_the_level() -> None:
    fused = fuse([0.1, 0.3], [0.0, 7.0], Scale(0.1, 0.05))
    np.testing.assert_allclose(fused, [0.0, 7.0 + COSINE_WEIGHT * 4])


def test_pictures_have_no_words_and_words_may_have_no_vectors() -> None:
    np.testing.assert_allclose(fuse([0.2], None, Scale(0.1, 0.1)), [COSINE_WEIGHT])
    np.testing.assert_allclose(fuse(None, [3.0, 0.0]), [3.0, 0.0])


def test_what_is_given_is_not_changed() -> None:
    bm25 = np.array([1.0, 2.0])
    fuse(None, bm25)[0] = 9
    fuse([0.1, 0.2], bm25)[0] = 9
    np.testing.assert_array_equal(bm25, [1.0, 2.0])


@pytest.mark.parametrize(
    ("cosine", "bm25", "problem"),
    [
        (None, None, "nothing to fuse"),
        ([0.1], [1.0, 2.0], "1 cosines and 2 BM25"),
        ([0.0, np.nan], None, r"cosine\[1\] is nan"),
        (None, [np.inf], r"bm25\[0\] is inf"),
        ([[0.1]], None, r"cosine must be one row of numbers; its shape is \(1, 1\)"),
    ],
)
def test_scores_that_do_not_fit_are_refused(
    cosine: list[float] | None, bm25: list[float] | None, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        fuse(cosine, bm25)


def test_no_clips_give_no_scores() -> None:
    assert fuse([], []).shape == (0,)


def test_a_scale_needs_finite_numbers_and_a_spread() -> None:
    with pytest.raises(UsageError, match="spread"):
        Scale(0.0, 0.0)
    with pytest.raises(UsageError, match="needs one cosine or more, all finite; 0 were given"):
        measure_scale([])
    with pytest.raises(UsageError, match="all finite; 2 were given"):
        measure_scale([0.1, np.nan])
    assert measure_scale([0.25, 0.25]) == Scale(0.25, 1.0)
    assert Scale.from_json(Scale(0.1, 0.2).to_json()) == Scale(0.1, 0.2)


@given(cosines, st.floats(0.125, 8), st.floats(-5, 5))
def test_another_scale_of_cosines_gives_the_same_curve(
    values: list[float], factor: float, shift: float
) -> None:
    cosine = np.asarray(values)
    if cosine.std() < 1e-3:
        return
    background = np.linspace(-0.3, 0.5, 50)
    one = fuse(cosine, None, measure_scale(background))
    other = fuse(cosine * factor + shift, None, measure_scale(background * factor + shift))
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@given(cosines)
def test_without_a_scale_the_cosines_are_their_own_background(values: list[float]) -> None:
    fused = fuse(values, np.zeros(len(values)))
    assert np.isfinite(fused).all()
    assert abs(fused.mean()) < 1e-6
