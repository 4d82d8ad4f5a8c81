"""How sure it is that what looks like a picture is of the same video."""

from __future__ import annotations

import pytest

from whenabouts.confidence.alike import Alike, curves
from whenabouts.confidence.probability import MOST


def test_the_packaged_network_has_a_curve_that_rises_with_the_cosine() -> None:
    curve = curves()["efficientnet-lite2"]
    stated = [curve.of(cosine) for cosine in (-1.0, 0.4, 0.6, 0.7, 0.9, 1.0)]
    assert stated == sorted(stated)
    assert stated[1] < 0.01 and 0.1 < stated[2] < 0.5 and stated[4] == stated[5] == MOST


def test_a_curve_is_one_half_where_its_log_odds_are_none() -> None:
    assert Alike(-18.0, 30.0).of(0.6) == pytest.approx(0.5)
