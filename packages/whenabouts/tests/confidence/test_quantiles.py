from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, betaincinv, ndtr, stdtr, stdtrit

from whenabouts.confidence.quantiles import (
    beta_quantile,
    beta_share,
    normal_share,
    student_quantile,
    student_share,
)

SIZES = st.floats(0.5, 1e5)
SHARES = st.floats(1e-6, 1 - 1e-6)


@given(SIZES, SIZES, SHARES)
def test_the_beta_distribution_is_that_of_scipy(a: float, b: float, share: float) -> None:
    expected = float(betaincinv(a, b, share))
    assert beta_quantile(a, b, share) == pytest.approx(expected, abs=1e-9)
    assert beta_share(a, b, expected) == pytest.approx(float(betainc(a, b, expected)), abs=1e-9)


@given(st.floats(1, 1e5), st.floats(-50, 50), st.floats(1e-4, 1 - 1e-4))
def test_students_distribution_is_that_of_scipy(freedom: float, t: float, share: float) -> None:
    assert student_share(freedom, t) == pytest.approx(float(stdtr(freedom, t)), abs=1e-9)
    assert student_quantile(freedom, share) == pytest.approx(
        float(stdtrit(freedom, share)), rel=1e-9, abs=1e-9
    )


@given(st.floats(-30, 30))
def test_the_normal_distribution_is_that_of_scipy(z: float) -> None:
    assert normal_share(z) == pytest.approx(float(ndtr(z)), rel=1e-12)


def test_the_ends_are_the_ends() -> None:
    assert (beta_share(2, 3, 0.0), beta_share(2, 3, 1.0)) == (0.0, 1.0)
    assert (beta_quantile(2, 3, 0.0), beta_quantile(2, 3, 1.0)) == (0.0, 1.0)
    assert student_quantile(5, 1.0) == math.inf and student_quantile(5, 0.0) == -math.inf
    assert student_quantile(5, 0.5) == 0.0
