"""Average rows of features and turn seconds into clips as released programs do; an experiment may choose so.

The results differ from `features.resample` and `whenabouts.clips` at ends: averaging usually leaves out the
last row of a video, and the last clip of a moment is exclusive.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts_systems.features.resample import check_counts
from whenabouts_systems.features.source import Rows

Indices = NDArray[np.int64]


def average_to_length(rows: Rows, count: int) -> NDArray[np.float32]:
    """(count, D) float32: T rows averaged to `count`, as ReLoCLNet, TVR-Ranking, MS-SL and MMN do.

    Borders of segments are at most T - 1, so the last row is left out unless its segment would be empty.
    Raises UsageError without rows or for a count below 1.
    """
    check_counts(len(rows), count)
    # The programs divide first: the order of the operations decides how halves are rounded.
    borders = np.rint(np.arange(count + 1) / count * len(rows)).astype(np.intp)
    borders = np.minimum(borders, len(rows) - 1)
    sums = np.add.reduceat(np.asarray(rows, dtype=np.float32), borders, axis=0)[:-1]
    sums /= np.maximum(np.diff(borders), 1)[:, None]
    return sums


def clip_spans(start: ArrayLike, end: ArrayLike, clip_seconds: ArrayLike) -> tuple[Indices, Indices]:
    """floor(start / clip) and ceil(end / clip), as in the programs of XML, ReLoCLNet and TVR-Ranking.

    The last clip is exclusive, and seconds are not rounded.
    """
    clip = np.asarray(clip_seconds, np.float64)
    first, last = np.floor(np.asarray(start) / clip), np.ceil(np.asarray(end) / clip)
    return np.asarray(first, np.int64), np.asarray(last, np.int64)
