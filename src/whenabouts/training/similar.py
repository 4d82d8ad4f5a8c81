"""All pairs of captions that a file of relevant pairs holds, however it keeps them."""

from __future__ import annotations

import numpy as np

from whenabouts.relevance.pairs import RelevantPairs
from whenabouts.training.batches import Indices

_BLOCK = 1024


def similar_captions(pairs: RelevantPairs) -> tuple[Indices, Indices]:
    """(K,) twice: every two different captions that are relevant to one another, in both directions."""
    arrays = pairs.kept.arrays()
    if "columns" in arrays:
        starts, columns = arrays["starts"], arrays["columns"]
        one = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        real = arrays["confidence"] > 0
        one, other = one[real], columns[real].astype(np.int64)
    else:
        one, other = _computed(pairs)
    return np.concatenate([one, other]), np.concatenate([other, one])


def _computed(pairs: RelevantPairs) -> tuple[Indices, Indices]:
    """The pairs i < j of what is kept as vectors, computed a block of captions against another at a time."""
    count = len(pairs.captions)
    ones, others = [], []
    for low in range(0, count, _BLOCK):
        rows = np.arange(low, min(low + _BLOCK, count))
        for begin in range(low, count, _BLOCK):
            columns = np.arange(begin, min(begin + _BLOCK, count))
            both = rows if begin == low else np.concatenate([rows, columns])
            found = pairs.kept.among(both)[: len(rows), -len(columns) :] > 0
            row, column = np.nonzero(found & (rows[:, None] < columns))
            ones.append(rows[row])
            others.append(columns[column])
    return np.concatenate(ones or [np.zeros(0, np.int64)]), np.concatenate(others or [np.zeros(0, np.int64)])
