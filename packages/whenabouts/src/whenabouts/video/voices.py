"""Voices: what every model that tells speakers apart promises (see `encoders`).

A `VoiceEncoder` makes vectors of windows of speech; Silero, which comes with faster-whisper, says where
somebody speaks. A `Diarizer` says itself who speaks when. Nothing leaves this machine.
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
"""How much speech a vector is made of, and how far apart these are; as usual in diarization."""

LEAST_SECONDS = 0.4
"""Speech that is shorter makes no vector."""

# Windows that a model sees at a time.
_BATCH = 32


class Voices(NamedTuple):
    """Windows of speech of a recording: (n,) start and end in seconds, (n, D) unit vectors."""

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    vectors: Floats


class VoiceEncoder(ABC):
    """Tells voices apart.

    `name` opens it again, `fingerprint` says what made its vectors, of width `dimension`. `same_voice` is the
    mean cosine from which windows are one speaker's.
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
        """(n, D) vectors of pieces, one by one where they differ in length."""
        if len({len(piece) for piece in pieces}) > 1:
            return np.concatenate([self.embed([piece]) for piece in pieces])
        return self.embed(pieces)


class Diarized(NamedTuple):
    """Who speaks in a stretch of a recording that begins at `start` seconds.

    `speaks` is (T, S): whether each of S speakers speaks in each frame. `state` is what the next stretch
    goes on from.
    """

    start: float
    speaks: NDArray[np.bool_]
    state: Any = None


class Diarizer(ABC):
    """Tells the speakers of one recording apart, several at once too; it makes no vectors of them.

    `name` opens it again, `fingerprint` says what it is, a frame of it lasts `frame_seconds`.
    """

    name: str
    fingerprint: str
    frame_seconds: float

    @abstractmethod
    def follow(self, samples: Floats, start: float, before: Diarized | None) -> Diarized:
        """Go on with sound (N,) at 16 kHz from `start` seconds; `before` is what it followed, if anything.

        The last frames may have to wait for the sound after them.
        """

    @abstractmethod
    def rest(self, last: Diarized) -> NDArray[np.bool_]:
        """(T, S) of the frames that still waited when the recording ended."""


def _windows(first: int, last: int) -> list[tuple[int, int]]:
    """Windows of samples over a stretch of speech; the last one ends with it. None of what is too short."""
    length, step = int(WINDOW_SECONDS * RATE), int(STEP_SECONDS * RATE)
    if last - first < LEAST_SECONDS * RATE:
        return []
    starts = range(first, max(first + 1, last - length + 1), step)
    windows = [(start, min(start + length, last)) for start in starts]
    if last - windows[-1][1] > step // 2:
        windows.append((last - length, last))
    return windows
