"""Frame rates, time codes, and the frames of a span of seconds. Exact: fractions, never floats.

A frame is in [start, end) if it is shown at or after `start` and before `end`. Seconds have a tolerance of
half a millisecond, because containers and lists round times to milliseconds: a frame that misses a border by
no more counts as at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from whenabouts.times import can_drop, nominal
from whenabouts.types import UsageError

HALF_MILLISECOND = Fraction(1, 2000)
_MICROSECONDS = 1_000_000
# Rates that editing programs support; 1000/1001 is NTSC's.
_NTSC = tuple(rate * Fraction(1000, 1001) for rate in (24, 30, 60, 120))
STANDARD_RATES = tuple(sorted([*map(Fraction, (24, 25, 30, 48, 50, 60, 100, 120)), *_NTSC]))
_NEAR = Fraction(1, 2000)


def exact(seconds: float | Fraction) -> Fraction:
    """Seconds rounded to the microsecond, so that 0.1 is exactly a tenth.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    if isinstance(seconds, Fraction):
        return seconds
    return Fraction(round(seconds * _MICROSECONDS), _MICROSECONDS)


def border(seconds: float | Fraction) -> Fraction:
    """The first instant that counts as at or after `seconds`."""
    return exact(seconds) - HALF_MILLISECOND


def nearest_rate(rate: Fraction) -> Fraction:
    """The standard rate within 0.05 % of a measured one, else the measured one.

    >>> nearest_rate(Fraction(2997, 100)), nearest_rate(Fraction(25, 2))
    (Fraction(30000, 1001), Fraction(25, 2))
    """
    best = min(STANDARD_RATES, key=lambda standard: abs(standard - rate))
    return best if abs(best - rate) <= best * _NEAR else rate


def snapped_rate(rate: Fraction) -> Fraction:
    """The nearest standard rate, however far; irregular rates are mapped to it."""
    return min(STANDARD_RATES, key=lambda standard: (abs(standard - rate), standard))


def parse_rate(text: str) -> Fraction:
    """A frame rate as users write it: 25, 23.976, 29.97 or 30000/1001.

    >>> parse_rate("29.97"), parse_rate("24000/1001"), parse_rate("12.5")
    (Fraction(30000, 1001), Fraction(24000, 1001), Fraction(25, 2))
    """
    try:
        rate = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not 1 <= rate <= 1000:
        raise UsageError(f"{text!r} is not a frame rate; write 25, 29.97 or 30000/1001 (1 to 1000 a second)")
    return nearest_rate(rate)


def timecode(frame: int, rate: Fraction, *, drop: bool = False) -> str:
    """The time code of a frame counted from 0; hours do not wrap after a day.

    Drop-frame skips numbers 0 and 1 (for 60: 0 to 3) of each minute but every tenth, so that the time code
    stays in step with real time (SMPTE ST 12-1).

    >>> timecode(1800, Fraction(30000, 1001), drop=True), timecode(1800, Fraction(30000, 1001))
    ('00:01:00;02', '00:01:00:00')
    """
    if frame < 0:
        raise UsageError(f"frame {frame} is before the first one; a time code counts from 0")
    base = nominal(rate)
    if drop:
        frame += _dropped_before(frame, rate)
    seconds, number = divmod(frame, base)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    digits = len(str(base - 1))
    return f"{hour:02d}:{minute:02d}:{second:02d}{';' if drop else ':'}{number:0{max(2, digits)}d}"


def _dropped_before(frame: int, rate: Fraction) -> int:
    """How many numbers drop-frame has skipped before a frame."""
    if not can_drop(rate):
        raise UsageError(
            f"drop-frame exists at 29.97, 59.94 and 119.88 frames a second, not at {float(rate):g}"
        )
    base = nominal(rate)
    left_out = base // 15
    a_minute = 60 * base - left_out
    ten_minutes = 10 * a_minute + left_out
    tens, within = divmod(frame, ten_minutes)
    # The first minute of ten is complete; the others are short.
    shorter = max(0, within - left_out) // a_minute
    return left_out * (9 * tens + shorter)


@dataclass(frozen=True, slots=True, eq=False)
class FrameTimes:
    """The time of each frame of a video.

    `ticks` (n,) int64 increase, in units of `time_base` seconds since the start of the file; `end_tick` is
    the end of the last frame. Frames are numbered from 0 in display order.
    """

    ticks: NDArray[np.int64]
    time_base: Fraction
    end_tick: int

    def __len__(self) -> int:
        return len(self.ticks)

    def time(self, frame: int) -> Fraction:
        """The time of a frame in seconds; for the number after the last one, its end."""
        return (int(self.ticks[frame]) if frame < len(self.ticks) else self.end_tick) * self.time_base

    @property
    def end(self) -> Fraction:
        return self.end_tick * self.time_base

    def first_at(self, seconds: float | Fraction) -> int:
        """The first frame at or after an instant; the number of frames if there is none."""
        least = border(seconds) / self.time_base
        return int(np.searchsorted(self.ticks, -(-least.numerator // least.denominator), side="left"))

    def span(self, start: float | Fraction, end: float | Fraction) -> tuple[int, int]:
        """First frame and one past the last of those in [start, end); equal without frames."""
        return self.first_at(start), self.first_at(end)

    def rate(self, stated: Fraction | None = None) -> tuple[Fraction, bool]:
        """Frames a second, and whether it is constant: each frame within about a tick of its even place.

        `stated` is the container's rate; the standard rate nearest to it is tried first. An irregular rate
        becomes the standard rate nearest to the usual one.
        """
        measured = self._usual_rate()
        tried = [nearest_rate(rate_given) for rate_given in (stated, measured) if rate_given]
        for rate in [*tried, *filter(None, [stated])]:
            if self._is_even(rate):
                return rate, True
        return snapped_rate(measured or stated or Fraction(25)), False

    def _usual_rate(self) -> Fraction | None:
        """The rate from the mean of the frame distances near their median."""
        if len(self.ticks) < 2:
            return None
        steps = np.diff(self.ticks)
        middle = float(np.median(steps))
        usual = steps[np.abs(steps - middle) <= max(1.0, middle / 4)]
        return 1 / (Fraction(int(usual.sum()), len(usual)) * self.time_base)

    def _is_even(self, rate: Fraction) -> bool:
        step = 1 / (rate * self.time_base)
        places = np.arange(len(self.ticks), dtype=np.float64) * (step.numerator / step.denominator)
        # Times are rounded to ticks; coarse ones (Matroska: 1 ms) may be rounded twice.
        slack = max(1.01, min(float(HALF_MILLISECOND / self.time_base), float(step) / 4))
        off = self.ticks - self.ticks[0] - places if len(self.ticks) else places
        return bool(np.all(np.abs(off) <= slack))
