"""Finds the part of a picture that changed since its text was read, so that unchanged text is read once.

Pictures are compared in cells. Only a strip around the changed rows is read again, over the picture's whole
width: lines above and below a moving speaker stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whenabouts.video.text_reader import Box, TextLine

# Side of a cell in pixels: a letter fills several cells, and a cell's mean has little noise.
_CELL = 8
# A cell changed if its mean brightness, of 256 levels, differs by more than this. Fewer cells are ignored.
_CHANGED_LEVELS = 16.0
_LEAST_CELLS = 6
# Above and below a change, 1/8 of the picture's height is read too, for whole lines. If the strip exceeds
# this share of the height, the whole picture is read.
_MARGIN = 8
_LARGEST_STRIP = 0.6


@dataclass(frozen=True, slots=True)
class Strip:
    """The rows of cells to read in a picture, `top` to `bottom` (exclusive) of `rows`, over its full width.

    Lines whose middle lies from row `first` to row `last` are replaced. Nearer to the edges of the strip,
    where new readings may be cut off, the earlier lines stay.
    """

    top: int
    bottom: int
    first: int
    last: int
    rows: int

    def of(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The strip's part of a picture."""
        return image if self.bottom - self.top == self.rows else image[self.top * _CELL : self.bottom * _CELL]

    def renewed_cells(
        self, before: NDArray[np.float32] | None, now: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The reference cells after the strip was read; elsewhere they stay, so that slow changes add up."""
        if before is None or before.shape != now.shape:
            return now
        cells = before.copy()
        cells[self.top : self.bottom] = now[self.top : self.bottom]
        return cells

    def renewed_lines(self, before: Sequence[TextLine], seen: Sequence[TextLine]) -> tuple[TextLine, ...]:
        """The picture's lines: in rows `first` to `last` those of `seen`, elsewhere those of `before`."""
        if self.bottom - self.top == self.rows:
            return tuple(seen)
        placed = [replace(line, box=self._placed(line.box)) for line in seen]
        return (
            *(line for line in before if not self._renews(line)),
            *(line for line in placed if self._renews(line)),
        )

    def _placed(self, box: Box) -> Box:
        left, top, right, bottom = box
        high = self.bottom - self.top
        return left, (self.top + high * top) / self.rows, right, (self.top + high * bottom) / self.rows

    def _renews(self, line: TextLine) -> bool:
        return self.first <= (line.box[1] + line.box[3]) / 2 * self.rows <= self.last


def cell_means(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H / 8, W / 8): brightness of each cell of a picture (H, W, 3), without partial cells at the edges."""
    height, width = (side - side % _CELL for side in image.shape[:2])
    # The green channel stands for the brightness, because it dominates luminance.
    green = image[:height, :width, 1].reshape(height // _CELL, _CELL, width // _CELL, _CELL)
    return np.asarray(green.mean(axis=(1, 3), dtype=np.float32))


def changed_strip(before: NDArray[np.float32] | None, now: NDArray[np.float32]) -> Strip | None:
    """The part of a picture to read; None if fewer than 6 cells changed.

    `before` are the reference cells of the earlier picture, None for the first one; `now` are the picture's
    `cell_means`. A line of text fills dozens of cells; compression noise changes a mean by a few levels.
    """
    whole = Strip(0, len(now), 0, len(now), len(now))
    if before is None or before.shape != now.shape:
        return whole
    changed = np.abs(now - before) > _CHANGED_LEVELS
    if np.count_nonzero(changed) < _LEAST_CELLS:
        return None
    rows = np.flatnonzero(changed.any(axis=1))
    margin = len(now) // _MARGIN
    top, bottom = int(rows[0]) - margin, int(rows[-1]) + 1 + margin
    if bottom - top > _LARGEST_STRIP * len(now):
        return whole
    within = top + margin // 2, bottom - margin // 2
    return Strip(max(0, top), min(len(now), bottom), *within, len(now))
