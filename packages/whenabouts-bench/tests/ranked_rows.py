"""Ranked lists that are the same but for neighbours of nearly the same score, which may change places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

Row = Sequence[Any]
"""Video, start, end and score."""


def assert_same_ranking(
    mine: Sequence[Row],
    theirs: Sequence[Row],
    *,
    close: float = 1e-4,
    rtol: float = 1e-4,
    atol: float = 0.0,
) -> None:
    """Place by place the same scores, and the same rows but where the released scores are that `close`.

    A row that is not in the released list must lie where that list was cut off. `mine` may be longer.
    """
    ours, released = ([tuple(row) for row in rows] for rows in (mine[: len(theirs)], theirs))
    assert len(ours) == len(released) and len({row[:3] for row in ours}) == len(ours)
    values, told = (np.array([row[3] for row in rows]) for rows in (ours, released))
    np.testing.assert_allclose(values, told, rtol=rtol, atol=atol)
    score = {row[:3]: row[3] for row in released}
    for row, other in zip(ours, released, strict=True):
        if row[:3] != other[:3]:
            of_row = score.get(row[:3], released[-1][3])
            assert of_row == pytest.approx(other[3], rel=close), (row, other)
