"""Rows of a feature file brought to the clips of a video: which row is which clip, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.types import UsageError

_SURPLUS_ROWS = 2
_SURPLUS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class GridRows:
    """Rows of a video on its grid.

    `rows` is (clips, D); `mask` (clips,) is true where there was a row, and rows without one are zero.
    `surplus` rows were left out because they lie behind the video's end; `missing` clips had no row.
    """

    rows: NDArray[np.floating[Any]]
    mask: NDArray[np.bool_]
    surplus: int
    missing: int


def refuse_surplus(rows: int, grid: ClipGrid, name: str) -> None:
    """Raise UsageError for many more rows than clips (over 2 and over a tenth)."""
    clips = len(grid)
    if rows - clips > max(_SURPLUS_ROWS, _SURPLUS_SHARE * clips):
        raise UsageError(
            f"{name}: {rows} rows for {clips} clips of {grid.clip_seconds:g} s in {grid.duration:g} s; "
            f"rows of {grid.duration / rows:.3g} s would fit: is the clip length right?"
        )


def rows_on_grid(rows: NDArray[np.floating[Any]], grid: ClipGrid, name: str = "these features") -> GridRows:
    """The rows of a video on its clips: row i is clip i, from the start of the video.

    How many rows a release has is what its frames gave, often one more than the clips that hold time: rows
    behind the end are left out and counted. Where rows end early (cut at 100 clips, or the last frames not
    decoded) the last clips have none: zeros, and false in the mask. Many more rows than clips mean that the
    clip length or the video is another: UsageError.
    """
    refuse_surplus(len(rows), grid, name)
    clips = len(grid)
    surplus, missing = max(0, len(rows) - clips), max(0, clips - len(rows))
    kept = rows[:clips]
    if missing:
        kept = np.concatenate([kept, np.zeros((missing, rows.shape[1]), rows.dtype)])
    return GridRows(kept, np.arange(clips) < len(rows), surplus, missing)
