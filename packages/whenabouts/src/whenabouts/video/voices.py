"""Interfaces of models that distinguish voices (see `encoders`).

A `VoiceEncoder` makes vectors of windows of speech; Silero, which comes with faster-whisper, finds the
speech. A `Diarizer` itself decides who speaks when. Nothing leaves this machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RATE = 16_000
WINDOW_SECONDS, STEP_SECONDS = 1.5, 0.75
"""Length and step of the windows of speech, as usual in diarization."""

LEAST_SECONDS = 0.4
"""Shorter speech gets no vector."""

# Windows per batch.
_BATCH = 32


class Voices(NamedTuple):
    """Windows of speech of a recording: (n,) start and end in seconds, (n, D) unit vectors."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    vectors: Floats


class VoiceEncoder(ABC):
    """Makes vectors that distinguish voices.

    `name` opens it again, `fingerprint` identifies it, `dimension` is the width of vectors. Windows with a
    mean cosine of at least `same_voice` are one speaker's.
    """

    name: str
    fingerprint: str
    dimension: int
    same_voice: float

    @abstractmethod
    def embed(self, pieces: Sequence[Floats]) -> Floats:
        """(n, D) unit vectors of pieces of sound at 16 kHz, all of one length."""

    def voices(self, samples: Floats, start: float = 0.0) -> Voices:
        """The voices in some sound (N,) at 16 kHz, which begins at `start` seconds of the recording."""
        from faster_whisper.vad import VadOptions, get_speech_timestamps

        options = VadOptions(min_silence_duration_ms=300, speech_pad_ms=50)
        spoken = get_speech_timestamps(samples, options, sampling_rate=RATE)
        windows = [window for part in spoken for window in _windows(part["start"], part["end"])]
        if not windows:
            return Voices(np.zeros(0), np.zeros(0), np.zeros((0, self.dimension), np.float32))
        vectors = np.concatenate(
            [
                self._vectors([samples[first:last] for first, last in windows[at : at + _BATCH]])
                for at in range(0, len(windows), _BATCH)
            ]
        )
        borders = np.array(windows, np.float64) / RATE + start
        return Voices(borders[:, 0], borders[:, 1], vectors)

    def _vectors(self, pieces: Sequence[Floats]) -> Floats:
        """(n, D) vectors of pieces, one by one if their lengths differ."""
        if len({len(piece) for piece in pieces}) > 1:
            return np.concatenate([self.embed([piece]) for piece in pieces])
        return self.embed(pieces)


class Diarized(NamedTuple):
    """Who speaks in a stretch of a recording that begins at `start` seconds.

    `speaks` (T, S): whether each of S speakers speaks in each frame. `state` is for the next call.
    """

    start: float
    speaks: NDArray[np.bool_]
    state: Any = None


class Diarizer(ABC):
    """Distinguishes the speakers of one recording, also overlapping ones; it makes no vectors.

    `name` opens it again, `fingerprint` identifies it, a frame lasts `frame_seconds`.
    """

    name: str
    fingerprint: str
    frame_seconds: float

    @abstractmethod
    def follow(self, samples: Floats, start: float, before: Diarized | None) -> Diarized:
        """Continue with sound (N,) at 16 kHz from `start` seconds; `before` is the result for earlier sound.

        A gap between the two has frames as well. The last frames may be delayed until the sound after them.
        """

    @abstractmethod
    def rest(self, last: Diarized) -> NDArray[np.bool_]:
        """(T, S) of the frames still delayed at the end of the recording."""


def _windows(first: int, last: int) -> list[tuple[int, int]]:
    """Windows of samples over a stretch of speech; the last one ends with it. Empty for short speech."""
    length, step = int(WINDOW_SECONDS * RATE), int(STEP_SECONDS * RATE)
    if last - first < LEAST_SECONDS * RATE:
        return []
    starts = range(first, max(first + 1, last - length + 1), step)
    windows = [(start, min(start + length, last)) for start in starts]
    if last - windows[-1][1] > step // 2:
        windows.append((last - length, last))
    return windows
