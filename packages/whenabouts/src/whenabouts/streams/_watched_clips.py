"""Encodes overlapping clips of frames as video, each clip as soon as its last frame has been read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.encoders.protocol import VideoClip
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns
from whenabouts.streams._frame_clips import SHORTEST_SECONDS


@dataclass(frozen=True, slots=True)
class Window:
    """A clip every `step` seconds, which shows `frames` frames of the `seconds` around it."""

    step: float
    seconds: float
    frames: int

    @property
    def frame_seconds(self) -> float:
        """The seconds from frame to frame."""
        return self.seconds / self.frames

    def first_frame(self, clip: int) -> int:
        """The number of a clip's first frame; negative before the start of the video."""
        return round((clip * self.step - (self.seconds - self.step) / 2) / self.frame_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """The vectors of clips from number `first` on, and the frames that later clips need.

    `numbers` (of `frames`) count frames of the video. `next` is the number of the first clip to encode.
    """

    first: int
    vectors: NDArray[np.float32]
    numbers: tuple[int, ...]
    frames: tuple[NDArray[np.uint8], ...]
    next: int

    def settled(self) -> Watched:
        """The same without the frames, which the next batch has taken over."""
        return replace(self, numbers=(), frames=())


def watched(batch: FrameBatch | SoundBatch, window: Window, encoder: Any, last: Watched | None) -> Watched:
    """Encode the clips whose frames are complete; `last` is the result for the batch before."""
    assert isinstance(batch, FrameBatch)
    numbers, frames = batch.clips, batch.images
    if last is None:
        seconds = numbers[0] * window.frame_seconds
        following = ClipGrid(window.step, seconds + window.step).index_at(seconds)
    else:
        numbers, frames, following = last.numbers + numbers, last.frames + frames, last.next
    end = following
    while window.first_frame(end) + window.frames - 1 <= numbers[-1]:
        end += 1
    vectors = _vectors(range(following, end), numbers, frames, window, encoder)
    # Keep the frame that is shown when the next clip begins, and later ones.
    kept = max(0, sum(number <= window.first_frame(end) for number in numbers) - 1)
    return Watched(following, vectors, numbers[kept:], frames[kept:], end)


def watched_clips(video: ReadVideo, batches: Sequence[Watched], window: Window, encoder: Any) -> ClipColumns:
    """One row per clip of `window.step` seconds; the last clips repeat the last frame until the end."""
    if not batches:
        return ClipColumns(np.zeros(0), np.zeros(0), [], None)
    last = batches[-1]
    end = max(video.end, last.numbers[-1] * window.frame_seconds + SHORTEST_SECONDS)
    grid = ClipGrid(window.step, end)
    remaining = _vectors(range(last.next, len(grid)), last.numbers, last.frames, window, encoder)
    vectors = np.concatenate([*(batch.vectors for batch in batches), remaining])
    # Drop clips after the real end, which is known only now.
    clips = np.arange(batches[0].first, min(batches[0].first + len(vectors), len(grid)))
    starts = clips.astype(np.float64) * window.step
    ends = np.minimum(starts + window.step, end)
    return ClipColumns(starts, ends, [""] * len(clips), vectors[: len(clips)])


def _vectors(
    clips: range, numbers: Sequence[int], frames: Sequence[NDArray[np.uint8]], window: Window, encoder: Any
) -> NDArray[np.float32]:
    if not clips:
        return np.zeros((0, encoder.dimension), np.float32)

    def clip_of(number: int) -> VideoClip:
        numbers_shown = window.first_frame(number) + np.arange(window.frames)
        shown = np.clip(np.searchsorted(numbers, numbers_shown, side="right") - 1, 0, None)
        times = [float(each) * window.frame_seconds for each in numbers_shown]
        return VideoClip([frames[place] for place in shown], times)

    vectors: NDArray[np.float32] = encoder.encode_clips([clip_of(number) for number in clips])
    return vectors
