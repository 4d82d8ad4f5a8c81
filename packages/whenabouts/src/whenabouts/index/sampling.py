"""Which frames and which sound a stream reads of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """The frames that a stream reads: one per clip of `clip_seconds`, short side of `size` pixels.

    It is the one nearest to the share `at` of the clip: 0 is its beginning, 0.5 its middle.
    """

    clip_seconds: float
    size: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SoundSettings:
    """The sound that a stream reads: mono, `rate` samples a second."""

    rate: int = 16_000
