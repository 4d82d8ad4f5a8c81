"""Shot boundaries, from the small frames that are sampled anyway.

A frame is described by the mean colours of 6 x 8 cells. A cell changes by the largest change of a colour.
The step between two frames is the square of the mean root of these changes: a cut changes almost all cells at
once, a moving object few, noise and compression none. A camera that moves changes the cells, but not the
colours of the whole picture, so their histogram is compared, too.

- A **hard cut** is a change of cells and colours that stands out from those around it: with a fast camera or
  in a busy scene all changes are large. A photographer's flash is no cut, because the picture returns.
- In a **cross-fade** the picture in the middle is the mean of those at the ends, which no movement gives.
  Light that changes gives it too, and changes all cells alike.
- A **fade through black** leaves a picture and comes to one again.

Thresholds were chosen on one half of the recordings of `benchmarks/shots.py`, and `_BEND_APART` on a sample
video whose light changes. docs/limits.md has the results on the other half.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.video.frames import Frame

NAME = "built-in"
# A fast camera changes as much in a quarter of a second as a cut does, and little in a twelfth.
FRAMES_A_SECOND, SIZE = 12.0, 64
SECONDS_AN_HOUR = 10.0  # beside decoding
# Frames that follow sooner are left out, so streams that read more frames hardly change what is found.
_LEAST_GAP_SECONDS = 0.06

_ROWS, _COLUMNS = 6, 8
# Finer pictures do not change the means.
_ENOUGH_PIXELS = 48
# The least step of a cut, as a share of the range; more for frames further apart than `_CLOSE_SECONDS`.
_LEAST_CUT, _MORE_A_SECOND, _CLOSE_SECONDS = 0.03, 0.2, 0.1
# A change of cells, and one of colours, is divided by the mean of the three on either side, plus noise. Of a
# cut, the product of both is at least this, and none of the six changes more cells.
_STANDS_OUT, _AROUND, _NOISE, _COLOUR_NOISE = 8.0, 3, 0.007, 0.02
# A film may show five pictures a second, each several times. Frames that change by less are one picture; the
# three on either side are pictures, no further away than this.
_SAME, _AROUND_SECONDS = 0.001, 0.5
# After a flash the picture is almost the one before.
_FLASH_SECONDS, _RETURNED_SHARE = 0.3, 0.35
# A gradual change is looked for over these many seconds. It changes the picture by `_LEAST_FADE`. The picture
# in its middle is the mean of those at its ends, but for the share `_BEND` of the change and for the share
# `_BEND_APART` of what is left of the change without its median over the cells: light changes all alike.
_FADE_SECONDS, _LEAST_FADE, _BEND, _BEND_APART, _FEWEST_STEPS = (0.5, 0.75, 1.1), 0.18, 0.22, 0.4, 3
# What changes for longer is a camera that moves.
_LONGEST_FADE_SECONDS = 1.7
# No cell of a black picture is brighter; a picture that changes to it changes by so much.
_BLACK, _LEAST_FROM_BLACK = 0.12, 0.1

Cells = NDArray[np.float32]
Recent = deque[tuple[float, Cells]]


class CellFinder:
    """Takes frames in order of time and finds the starts of shots.

    Costs 20 bytes a frame, 9 MB for ten hours at twelve frames a second.
    """

    def __init__(self) -> None:
        self._recent: Recent = deque()  # of the longest of `_FADE_SECONDS`
        self._times = array("d")
        self._steps = array("f")  # from the frame before
        self._recoloured = array("f")  # shares of the pixels, likewise
        self._histogram: NDArray[np.int64] | None = None  # of the newest frame
        # The number of frames since the same picture, if a flash ended here; else 0.
        self._flashes = array("i")
        self._fades = _FadeFinder()

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        time, recent = frame.seconds, self._recent
        if recent and time - recent[-1][0] < _LEAST_GAP_SECONDS:
            return
        small = _small(frame.image)
        cells, histogram = _cells(small), _histogram(small)
        while len(recent) > 1 and time - recent[1][0] >= _FADE_SECONDS[-1]:
            recent.popleft()
        changes = _changes(cells, recent[-1][1]) if recent else np.zeros(1, np.float32)
        step = float(np.sqrt(changes).mean()) ** 2
        self._times.append(time)
        self._steps.append(step)
        self._recoloured.append(_recoloured(histogram, self._histogram))
        self._histogram = histogram
        recent.append((time, cells))
        self._flashes.append(_frames_since_same(recent, _RETURNED_SHARE * step) if step >= _LEAST_CUT else 0)
        self._fades.look(recent)

    def borders(self) -> list[float]:
        """Seconds of the first frame of each new shot, rising, without the first shot; fades at their middle.

        More frames may be added afterwards, which may change the last borders.
        """
        times, steps = np.frombuffer(self._times), np.frombuffer(self._steps, np.float32)
        if len(times) < 2:
            return []
        recoloured = np.frombuffer(self._recoloured, np.float32)
        flashes = np.frombuffer(self._flashes, np.int32)
        cuts = times[_cuts(times, steps, recoloured, flashes)]
        del times, steps, recoloured, flashes  # views keep the arrays from growing
        return sorted([*cuts.tolist(), *self._fades.borders(cuts)])


class _Fade(NamedTuple):
    """A gradual change: what overlaps is one, with the middle of the best."""

    badness: float
    middle: float
    start: float
    end: float


class _FadeFinder:
    """Finds gradual changes: cross-fades, and fades through black."""

    def __init__(self) -> None:
        self._fades: list[_Fade] = []  # rising
        # The first black frame, the first frame after them, and whether a picture came before.
        self._blacks: list[tuple[float, float, bool]] = []

    def look(self, recent: Recent) -> None:
        """Look at the newest frame of `recent`, whose other frames are those before it."""
        time, cells = recent[-1]
        self._look_for_black(recent, time, cells)
        times = np.array([each for each, _ in recent])
        for seconds in _FADE_SECONDS:
            first = int(np.searchsorted(times, time - seconds + 0.5 * _LEAST_GAP_SECONDS, "right")) - 1
            if 0 <= first <= len(times) - 1 - _FEWEST_STEPS:
                middle = int(np.searchsorted(times, (times[first] + time) / 2))
                self._look_for_fade(*(recent[at] for at in (first, middle, -1)))

    def _look_for_fade(self, *frames: tuple[float, Cells]) -> None:
        """Note a cross-fade from the first of three frames to the third, if the second is between them."""
        (start, before), (at, between), (end, after) = frames
        changes = after - before
        change = _change(after, before)
        if change < _LEAST_FADE:
            return
        apart = _change(changes, np.median(changes, axis=0))
        bend = _change(between, before + np.float32((at - start) / (end - start)) * changes)
        if bend <= min(_BEND * change, _BEND_APART * apart):
            fade = _Fade(bend / change - change, (start + end) / 2, start, end)
            if self._fades and start <= self._fades[-1].end:
                last = self._fades.pop()
                fade = min(last, fade)._replace(start=min(last.start, start), end=end)
            self._fades.append(fade)

    def _look_for_black(self, recent: Recent, time: float, cells: Cells) -> None:
        start, end, follows_picture = self._blacks[-1] if self._blacks else (0.0, 0.0, False)
        is_black = bool(cells.max() < _BLACK)
        if is_black and end < math.inf:
            follows_picture = any(_change(cells, each) >= _LEAST_FROM_BLACK for _, each in recent)
            self._blacks.append((time, math.inf, follows_picture))
        elif not is_black and end == math.inf:
            self._blacks[-1] = (start, time, follows_picture)

    def borders(self, cuts: NDArray[np.float64]) -> list[float]:
        """Seconds of the middles of gradual changes without a cut, and of the first frames after black."""
        blacks = np.array(self._blacks).reshape(-1, 3)
        starts, ends = blacks[:, 0] - _FADE_SECONDS[0], blacks[:, 1] + _FADE_SECONDS[0]
        borders = [
            end
            for start, end, follows_picture in self._blacks
            if follows_picture and end < math.inf and not _any_within(cuts, start - _LEAST_GAP_SECONDS, end)
        ]
        for fade in self._fades:
            in_black = np.searchsorted(ends, fade.start) < np.searchsorted(starts, fade.end)
            is_short = fade.end - fade.start <= _LONGEST_FADE_SECONDS
            if is_short and not in_black and not _any_within(cuts, fade.start, fade.end):
                borders.append(fade.middle)
        return borders


def check() -> None:
    """It needs nothing."""


def open_finder(threads: int) -> CellFinder:
    """A finder for one video; it uses one thread."""
    return CellFinder()


def _small(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(height, width, 3) some of a picture's pixels."""
    stride = max(1, min(image.shape[:2]) // _ENOUGH_PIXELS)
    return image[::stride, ::stride]


def _histogram(small: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The number of pixels of each colour, in 16 levels of red, green and blue."""
    red, green, blue = np.moveaxis(small.astype(np.uint16) & 0xF0, -1, 0)
    return np.bincount((red << 4 | green | blue >> 4).ravel(), minlength=4096)


def _recoloured(histogram: NDArray[np.int64], before: NDArray[np.int64] | None) -> float:
    """The share of the pixels that have a colour which the picture before lacks; 0 without one."""
    return 0.0 if before is None else float(np.abs(histogram - before).sum() / (2 * histogram.sum()))


def _cells(small: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Mean colours of the cells of a picture, (rows x columns, 3) in [0, 1]."""
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


def _frames_since_same(recent: Recent, almost: float) -> int:
    """The number of frames since the newest picture was last seen, if another one was between; else 0."""
    (time, cells), *before = reversed(recent)
    for ago, (at, others) in enumerate(before[1:], 2):
        if time - at > _FLASH_SECONDS:
            break
        if _change(cells, others) < almost:
            return ago
    return 0


def _cuts(
    times: NDArray[np.float64], steps: Cells, recoloured: Cells, flashes: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which frames are the first after a hard cut."""
    gaps = np.diff(times, prepend=times[0])
    least = _LEAST_CUT + _MORE_A_SECOND * np.clip(gaps - _CLOSE_SECONDS, 0.0, 1.0)
    is_new = steps >= _SAME
    is_new[0] = False
    mean, largest = _around(times, steps, is_new)
    colours, _ = _around(times, recoloured, is_new)
    stands_out = steps * recoloured >= _STANDS_OUT * (mean + _NOISE) * (colours + _COLOUR_NOISE)
    is_cut = (steps >= least) & (steps > largest + _NOISE) & stands_out
    is_cut[0] = False
    for frame in np.flatnonzero(flashes).tolist():  # neither a flash is a cut, nor its end
        is_cut[frame - flashes[frame] + 1 : frame + 1] = False
    return np.asarray(is_cut)


def _around(
    times: NDArray[np.float64], changes: Cells, is_new: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and largest of three changes to a new picture before and after each frame; a missing one is 0."""
    new, ends = np.flatnonzero(is_new), np.full(_AROUND, np.inf)
    at, of_new = np.concatenate([-ends, times[new], ends]), np.pad(changes[new], _AROUND)
    before = np.searchsorted(new, np.arange(len(times)))[:, None] + np.arange(_AROUND)
    near = np.concatenate([before, before + _AROUND + is_new[:, None]], axis=1)
    values = np.where(np.abs(at[near] - times[:, None]) <= _AROUND_SECONDS, of_new[near], 0.0)
    return values.mean(axis=1), values.max(axis=1)


def _any_within(times: NDArray[np.float64], start: float, end: float) -> bool:
    """Whether one of the rising times is in (start, end]."""
    return bool(np.searchsorted(times, start, "right") < np.searchsorted(times, end, "right"))
