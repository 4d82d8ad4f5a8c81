"""The settings by which a stream samples frames and sound of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrameSettings:
    """The frames that a stream reads: one per clip of `clip_seconds`, with a short side of `size` pixels.

    The frame nearest to the position `at` of the clip is taken: 0 is the clip's beginning, 0.5 its middle.
    """

    clip_seconds: float
    size: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SoundSettings:
    """The sound that a stream reads: mono, `rate` samples a second."""

    rate: int = 16_000
