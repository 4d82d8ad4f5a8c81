"""Join feature items into batches, so that thousands of small ones cost as little as a few large ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts_systems.features.source import Rows

_BATCH_BYTES = 8 << 20
_SLICE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """Several items: their rows, concatenated in one or more equally long arrays, and each first row."""

    ids: tuple[str, ...]
    starts: NDArray[np.intp]
    arrays: tuple[Rows, ...]

    def per_item(self, fold: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """A value per row folded to a value per item."""
        folded: NDArray[Any] = fold.reduceat(values, self.starts)
        return folded

    def slices(self) -> Iterator[tuple[slice, tuple[Rows, ...]]]:
        """The rows in slices whose copies stay small; float16 as float32, in which NumPy is quicker."""
        for start in range(0, len(self.arrays[0]), _SLICE_ROWS):
            cut = slice(start, start + _SLICE_ROWS)
            rows = (array[cut].astype(np.result_type(array, np.float32), copy=False) for array in self.arrays)
            yield cut, tuple(rows)


def row_norms(rows: Rows) -> NDArray[np.float64]:
    """(T,) lengths of rows as vectors, summed in float64; not finite where a row is not."""
    wide = rows.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.sqrt(np.vecdot(wide, wide)), dtype=np.float64)


def item_batches(items: Iterable[tuple[str, Sequence[Rows]]]) -> Iterator[ItemBatch]:
    """Batches of some 8 MB; each item has arrays of one length and is never cut."""
    waiting: list[tuple[str, Sequence[Rows]]] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += sum(array.nbytes for array in item[1])
        if size >= _BATCH_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(items: Sequence[tuple[str, Sequence[Rows]]]) -> ItemBatch:
    lengths = np.array([len(arrays[0]) for _, arrays in items], dtype=np.intp)
    sides = zip(*(arrays for _, arrays in items), strict=True)
    joined = tuple(side[0] if len(side) == 1 else np.concatenate(side) for side in sides)
    return ItemBatch(tuple(item for item, _ in items), np.cumsum(lengths) - lengths, joined)
