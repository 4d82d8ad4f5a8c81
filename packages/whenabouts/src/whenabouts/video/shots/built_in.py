"""Shot boundaries, from the small frames that are sampled anyway.

A frame is described by the mean colours of 6 x 8 cells. Two frames differ by the mean over the cells of the
largest change of a colour: a cut changes almost all cells at once, a moving object few, noise and compression
none.

- A **hard cut** is a large step that stands out from the steps around it: with a fast camera or a busy scene
  all steps are large. Between similar pictures the step is small, and stands out all the more.
- A **gradual change** (cross-fade, fade from black) goes straight from one picture to another: its steps add
  up to the whole change, and the picture is still before and after.
- A photographer's flash is neither, because the picture returns.

Thresholds were set on the sample videos at 2 to 60 frames a second, those of small steps on half of the films
of `benchmarks/shots.py`, which measures on the other half; docs/limits.md lists the failures.
"""

from __future__ import annotations

from array import array
from collections import deque

import numpy as np
from numpy.typing import NDArray

from whenabouts.video.frames import Frame

NAME = "built-in"
# Shots are placed to a quarter of a second; more frames cost more than the precision is worth.
FRAMES_A_SECOND, SIZE = 4.0, 64
SECONDS_AN_HOUR = 0.0  # beside decoding

_ROWS, _COLUMNS = 6, 8
# Finer pictures do not change the means.
_ENOUGH_PIXELS = 48
# The least change of a cut, as a share of the range, for frames up to half a second apart; more for larger
# distances.
_LEAST_CHANGE, _MORE_A_SECOND, _CLOSE_SECONDS = 0.16, 0.2, 0.5
# A cut is twice as large as the mean of three steps on either side, plus noise.
_TIMES_AROUND, _AROUND, _NOISE = 2.0, 3, 0.005
# A smaller step is a cut if it stands out more, and if at least three of four cells change: a caption that
# appears changes few.
_LEAST_SMALL, _SMALL_TIMES_AROUND, _LEAST_CELL, _STILL_SHARE = 0.05, 4.0, 0.01, 0.25
# After a flash the picture is almost the one before.
_RETURNED_SHARE = 0.35
# A gradual change has at least `_FEWEST_STEPS` steps within `_FADE_SECONDS` and changes the picture by
# `_LEAST_FADE`. It is straight: the whole change is at least the share `_STRAIGHT` of the path. Steps before
# and after it are at most the share `_RESTS_AT` of its largest.
_FEWEST_STEPS, _FADE_SECONDS, _LEAST_FADE, _STRAIGHT, _RESTS_AT = 3, 1.0, 0.1, 0.85, 0.5
# Each of its steps is at most this share of the path.
_LARGEST_STEP = 0.6


class CellFinder:
    """Takes frames in order of time and finds the starts of shots.

    Costs some 44 bytes a frame, 6 MB for ten hours at four frames a second.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[float, NDArray[np.float32]]] = deque()
        self._times = array("d")
        self._steps = array("f")  # change from the frame before
        self._quiet = array("f")  # the same of the cell at `_STILL_SHARE` of all, by rising change
        self._returns = array("f")  # change from the one before that
        self._changes = array("f")  # change over the last second
        self._first = array("l")  # the first frame of that second

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        time, cells = frame.seconds, _cells(frame.image)
        recent = self._recent
        while len(recent) > 2 and time - recent[1][0] >= _FADE_SECONDS:
            recent.popleft()
        changes = _changes(cells, recent[-1][1]) if recent else np.zeros(1, np.float32)
        self._steps.append(float(changes.mean()))
        self._quiet.append(float(np.quantile(changes, _STILL_SHARE)))
        self._returns.append(_change(cells, recent[-2][1]) if len(recent) > 1 else 1.0)
        self._changes.append(_change(cells, recent[0][1]) if recent else 0.0)
        self._first.append(len(self._times) - len(recent))
        self._times.append(time)
        recent.append((time, cells))

    def borders(self) -> list[float]:
        """Seconds of the first frame of each new shot, rising, without the first shot; fades at their
        middle.

        More frames may be added afterwards, which may change the last borders.
        """
        times, steps = np.frombuffer(self._times), np.frombuffer(self._steps, np.float32)
        if len(times) < 2:
            return []
        returns, quiet = (np.frombuffer(each, np.float32) for each in (self._returns, self._quiet))
        cuts = _cuts(times, steps, returns, quiet)
        changes, first = np.frombuffer(self._changes, np.float32), np.frombuffer(self._first, np.int64)
        fades = _fades(times, steps, changes, first, cuts)
        starts = sorted([*times[cuts].tolist(), *fades])
        del times, steps, changes, first, returns, quiet  # views keep the arrays from growing
        return starts


def check() -> None:
    """It needs nothing."""


def open_finder(threads: int) -> CellFinder:
    """A finder for one video; it uses one thread."""
    return CellFinder()


def _cells(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Mean colours of the cells of a picture, (rows x columns, 3) in [0, 1]."""
    stride = max(1, min(image.shape[:2]) // _ENOUGH_PIXELS)
    small = image[::stride, ::stride]
    if small.shape[0] < _ROWS or small.shape[1] < _COLUMNS:
        small = small.repeat(_ROWS, axis=0).repeat(_COLUMNS, axis=1)
    height, width = small.shape[0] // _ROWS, small.shape[1] // _COLUMNS
    cut = small[: height * _ROWS, : width * _COLUMNS]
    sums = cut.reshape(_ROWS, height, _COLUMNS, width, 3).sum(axis=(1, 3), dtype=np.uint32)
    return np.asarray(sums.reshape(-1, 3) / np.float32(255 * height * width), np.float32)


def _changes(cells: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """(cells,) the largest change of a colour."""
    return np.asarray(np.abs(cells - others).max(axis=1), np.float32)


def _change(cells: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    return float(_changes(cells, others).mean())


def _cuts(
    times: NDArray[np.float64],
    steps: NDArray[np.float32],
    returns: NDArray[np.float32],
    quiet: NDArray[np.float32],
) -> NDArray[np.bool_]:
    """Which frames are the first after a hard cut."""
    gaps = np.diff(times, prepend=times[0])
    least = _LEAST_CHANGE + _MORE_A_SECOND * np.clip(gaps - _CLOSE_SECONDS, 0.0, 1.0)
    around = _mean_around(steps[1:])  # the first frame has no step
    times_around = np.concatenate(([0.0], steps[1:] / (around + _NOISE)))
    large = (steps >= least) & (times_around >= _TIMES_AROUND)
    small = (steps >= _LEAST_SMALL) & (times_around >= _SMALL_TIMES_AROUND) & (quiet >= _LEAST_CELL)
    # Neither the frame after a flash is a cut, nor the flash itself.
    returned = returns < _RETURNED_SHARE * steps
    returned[:-1] |= returned[1:] & (steps[1:] > 0.5 * steps[:-1])
    return np.asarray((large | small) & ~returned)


def _mean_around(steps: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean of up to three steps before and after each one, without itself."""
    window = np.ones(2 * _AROUND + 1)
    sums = np.convolve(steps, window, "full")[_AROUND : _AROUND + len(steps)] - steps
    counts = np.convolve(np.ones(len(steps)), window, "full")[_AROUND : _AROUND + len(steps)] - 1
    return np.asarray(sums / np.maximum(counts, 1))


def _fades(
    times: NDArray[np.float64],
    steps: NDArray[np.float32],
    changes: NDArray[np.float32],
    first: NDArray[np.int64],
    cuts: NDArray[np.bool_],
) -> list[float]:
    """Middles of gradual changes, in seconds."""
    total = np.concatenate(([0.0], np.cumsum(steps, dtype=np.float64)))
    last = np.arange(len(times))
    path = total[last + 1] - total[first + 1]
    cut_count = np.concatenate(([0], np.cumsum(cuts)))
    without_cut = cut_count[last + 1] == cut_count[np.maximum(first - 1, 0)]
    is_gradual = (
        (changes >= _LEAST_FADE)
        & (changes >= _STRAIGHT * path)
        & without_cut
        & (last - first >= _FEWEST_STEPS)
    )
    middles: list[float] = []
    for run in np.split(last[is_gradual], np.flatnonzero(np.diff(last[is_gradual]) > 1) + 1):
        if len(run) == 0:
            continue
        end = int(run[np.argmax(changes[run])])
        begin = int(first[end])
        if _rests_around(steps, begin, end):
            half = (total[begin + 1] + total[end + 1]) / 2
            middle = begin + int(np.searchsorted(total[begin + 1 : end + 2], half))
            middles.append(float(times[middle]))
    return middles


def _rests_around(steps: NDArray[np.float32], begin: int, end: int) -> bool:
    """Whether the picture moves in several steps between two frames, and much less before and after."""
    part = steps[begin + 1 : end + 1]
    inside = float(part.max())
    if inside > _LARGEST_STEP * float(part.sum()):
        return False  # a flash, or a rejected cut
    before = steps[max(1, begin - _AROUND) : begin + 1]
    after = steps[end + 1 : end + 1 + _AROUND]
    return all(len(part) > 0 and float(part.mean()) <= _RESTS_AT * inside for part in (before, after))
