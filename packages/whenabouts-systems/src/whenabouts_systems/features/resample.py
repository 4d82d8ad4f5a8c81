"""Many clips averaged to a fixed number, and rows brought to unit length, right or as released."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError

Rows = NDArray[np.floating[Any]]

_ADDED_AS_RELEASED = 1e-5


def average_to_length(rows: Rows, count: int, *, as_released: bool = False) -> NDArray[np.float32]:
    """(count, D) float32: the T rows cut into `count` stretches of equal time, each averaged.

    Stretch i is rows round(i*T/count) up to round((i+1)*T/count), halves to the even number; a stretch that
    holds no row (T below `count`) is the row at its border. As 2D-TAN and MMN bring videos to
    NUM_PRE_CLIPS, and MS-SL to 32.

    `as_released`: the borders are held at T-1, as in the released programs, so that the last row is left out
    wherever its stretch holds another.
    """
    borders = _borders(len(rows), count, as_released)
    wide = np.asarray(rows, dtype=np.float32)
    if as_released:
        sums = np.add.reduceat(wide, borders, axis=0)[:-1]
    else:
        # A border may stand behind the last row; the stretch before it ends there by itself.
        borders[:-1] = np.minimum(borders[:-1], len(rows) - 1)
        sums = np.add.reduceat(wide, borders[:-1], axis=0)
    sums /= np.maximum(np.diff(borders), 1)[:, None]
    return sums


def average_down_to(rows: Rows, most: int, *, as_released: bool = False) -> NDArray[np.float32]:
    """(min(T, most), D) float32: rows as they are where they are few enough, else averaged to `most`.

    As ReLoCLNet and TVR-Ranking bring long videos to 128 rows ("uniform feature sampling"). A row then
    covers more time: see `clip_seconds_after`. The released programs keep the old clip length in their labels
    and so are wrong in such videos. `as_released` as in `average_to_length`: the very last row is left out.
    """
    if len(rows) <= most:
        _check(len(rows), most)
        return np.asarray(rows, dtype=np.float32)
    return average_to_length(rows, most, as_released=as_released)


def clip_seconds_after(length: int, count: int, clip_seconds: float) -> float:
    """Seconds that a row covers after `length` rows of `clip_seconds` were averaged to `count`.

    >>> clip_seconds_after(256, 128, 1.5)
    3.0
    """
    _check(length, count)
    return length * clip_seconds / count


def unit_rows(rows: Rows, *, as_released: bool = False) -> NDArray[np.float32]:
    """(T, D) float32, each row divided by its length; a row of zeros stays as it is.

    `as_released`: 1e-5 is added to the length first, as XML, ReLoCLNet, TVR-Ranking, CONQUER and MS-SL do;
    rows then are a little shorter than 1.
    """
    wide = np.asarray(rows, dtype=np.float32)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    if as_released:
        return np.asarray(wide / (lengths + np.float32(_ADDED_AS_RELEASED)), dtype=np.float32)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _borders(length: int, count: int, as_released: bool) -> NDArray[np.intp]:
    """(count + 1,) first rows of the stretches, and the end of the last."""
    _check(length, count)
    steps = np.arange(count + 1)
    # The order of the operations decides about halves; released programs divide first.
    exact = steps / count * length if as_released else steps * length / count
    borders = np.rint(exact).astype(np.intp)
    return np.minimum(borders, length - 1) if as_released else borders


def _check(length: int, count: int) -> None:
    if length < 1 or count < 1:
        raise UsageError(f"{length} rows cannot be averaged to {count}; both must be at least 1")
