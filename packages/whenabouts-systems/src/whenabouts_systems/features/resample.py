"""Average rows of features to a fixed number of clips, and scale rows to unit length.

`released.clips` averages as the released programs do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_systems.features.source import Rows


def average_to_length(rows: Rows, count: int) -> NDArray[np.float32]:
    """(count, D) float32: T rows cut into `count` stretches of equal time, each averaged.

    Stretch i is rows round(i*T/count) up to round((i+1)*T/count), halves to the even number; a stretch
    without rows (T below `count`) is the row at its border. 2D-TAN and MMN average videos to NUM_PRE_CLIPS,
    MS-SL to 32, ReLoCLNet long ones to 128; their programs also leave out the last row (`released.clips`).
    Raises UsageError without rows or for a count below 1.
    """
    check_counts(len(rows), count)
    borders = np.rint(np.arange(count + 1) * len(rows) / count).astype(np.intp)
    # A border may lie after the last row; the stretch before it ends there by itself.
    borders[:-1] = np.minimum(borders[:-1], len(rows) - 1)
    sums = np.add.reduceat(np.asarray(rows, dtype=np.float32), borders[:-1], axis=0)
    sums /= np.maximum(np.diff(borders), 1)[:, None]
    return sums


def unit_rows(rows: Rows) -> NDArray[np.float32]:
    """(T, D) float32, each row divided by its length; a row of zeros stays as it is."""
    wide = np.asarray(rows, dtype=np.float32)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def check_counts(length: int, count: int) -> None:
    """Raise UsageError if `length` rows cannot be averaged to `count`."""
    if length < 1 or count < 1:
        raise UsageError(f"{length} rows cannot be averaged to {count}; both must be at least 1")
