"""The stream of sounds: encodes each clip with the sound around it by a CLAP model; silence has no clips.

`streams/__init__.py` imports every module of this folder and takes its `STREAM`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.encoders import open_sound_encoder
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipBlock, ClipColumns, StreamInfo
from whenabouts.index.sampling import SoundSettings
from whenabouts.index.stream import (
    Cost,
    Option,
    Reads,
    Setup,
    ShotBorders,
    Stream,
    StreamRun,
    moments_on_segments,
)
from whenabouts.moments.zero_shot import Moments
from whenabouts.streams._choices import frame_seconds, made_by, own_encoder
from whenabouts.types import UsageError

DEFAULT_CLIP_SECONDS = 2.0
# A clip is encoded with half its length on either side, so that a sound at a border is whole in one window.
_CLIPS_PER_WINDOW = 2.0
# A clip that never rises above -60 dB of full scale is silent.
_SILENT_PEAK = 1e-3
# Longest gap between consecutive pieces of sound; a longer one is silence that was not stored.
_JOINT_SECONDS = 0.01
# Measured on one core (benchmarks/watching.py).
_SECONDS_PER_CLIP = 0.3
_BYTES_PER_CLIP = 1300.0


@dataclass(frozen=True, slots=True, eq=False)
class _SoundState:
    """The encoded clips with their vectors, and the samples that the next clips need.

    `samples` begins at `start` seconds; `next` is the number of the first clip still to encode.
    """

    clips: tuple[int, ...]
    vectors: NDArray[np.float32]
    samples: NDArray[np.float32]
    start: float
    next: int
    rate: int

    @property
    def end(self) -> float:
        """Where the sound read so far ends, in seconds."""
        return self.start + len(self.samples) / self.rate


class SoundStream(Stream):
    """Sounds other than words: applause, breaking glass, an engine."""

    name = "sound"
    title = "sounds"
    order = 30
    encoder_kind = "sound"
    has_words = False
    options = (
        Option("--sound", "MODEL", "search sounds, such as applause, with this CLAP model (name or folder)"),
        Option(
            "--sound-seconds",
            "S",
            "clips of sound are S seconds (default 2; fixed once the corpus has sounds)",
            float,
        ),
    )
    remedy = "index with --sound MODEL for sounds"
    absent = "its sound is not indexed, or it is silent there"
    evidence_label = "the sound"

    def setup(self, setup: Setup) -> StreamRun | None:
        seconds = frame_seconds(
            setup,
            "--sound-seconds",
            default=DEFAULT_CLIP_SECONDS,
            least=0.25,
            done="clips of sound were made",
            switch="--sound MODEL",
        )
        if (encoder := own_encoder(setup, "sound", open_sound_encoder)) is None:
            return None
        if seconds > encoder.longest_seconds:
            raise UsageError(
                f"--sound-seconds {seconds:g}: {encoder.name} takes at most "
                f"{encoder.longest_seconds:g} s of sound"
            )
        window = min(_CLIPS_PER_WINDOW * seconds, float(encoder.longest_seconds))
        settings = {"clip_seconds": seconds, "window_seconds": window}
        clips = 3600 / seconds
        return StreamRun(
            self,
            StreamInfo(self.name, *made_by(encoder), settings),
            encoder,
            Reads(sound=SoundSettings(encoder.sampling_rate)),
            Cost(seconds=clips * _SECONDS_PER_CLIP, bytes=clips * _BYTES_PER_CLIP),
            made_with=f"clips={seconds:g} s heard={window:g} s",
        )

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> _SoundState:
        """Encode the clips whose window is complete."""
        assert isinstance(batch, SoundBatch)
        rate = batch.settings.rate
        last: _SoundState | None = kept[-1] if kept else None
        if last is not None and abs(batch.start - last.end) <= _JOINT_SECONDS:
            samples = np.concatenate([last.samples, batch.samples])
            return _advanced(replace(last, samples=samples, clips=()), run, is_last=False)
        before = _advanced(last, run, is_last=True) if last is not None else None
        number = before.next if before else 0
        first = _SoundState((), _no_vectors(run), batch.samples, batch.start, number, rate)
        now = _advanced(first, run, is_last=False)
        if before is None:
            return now
        vectors = np.concatenate([before.vectors, now.vectors])
        return replace(now, clips=before.clips + now.clips, vectors=vectors)

    def settled(self, kept: _SoundState) -> _SoundState:
        """The state without the samples, which the next batch has taken over."""
        # A slice would keep the whole array alive.
        return replace(kept, samples=np.zeros(0, np.float32))

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """One row per clip that is not silent."""
        if not batches:
            return ClipColumns(np.zeros(0), np.zeros(0), [], None)
        states = [*batches, _advanced(batches[-1], run, is_last=True)]
        clips = np.array([clip for each in states for clip in each.clips], np.float64)
        seconds = float(run.info.settings["clip_seconds"])
        start = clips * seconds
        end = np.minimum(start + seconds, max(states[-1].end, video.end))
        return ClipColumns(start, end, [""] * len(clips), np.concatenate([each.vectors for each in states]))

    def moments(self, block: ClipBlock, scores: NDArray[np.float64], shots: ShotBorders) -> Moments:
        """Segments that end where silence begins; shot borders are ignored, because sounds cross them."""
        return moments_on_segments(block, scores, None, max_gap_seconds=0.0)


def _no_vectors(run: StreamRun) -> NDArray[np.float32]:
    return np.zeros((0, run.encoder.dimension), np.float32)


def _advanced(state: _SoundState, run: StreamRun, *, is_last: bool) -> _SoundState:
    """Encode the complete clips of `state`; `is_last`: no samples follow, so the rest is encoded too."""
    seconds = float(run.info.settings["clip_seconds"])
    beside = (float(run.info.settings["window_seconds"]) - seconds) / 2
    grid = ClipGrid(seconds, max(state.end, seconds))
    first = max(state.next, grid.index_at(state.start))
    clips: list[int] = []
    windows: list[NDArray[np.float32]] = []
    clip = first
    while clip < len(grid) and grid.bounds(clip)[0] < state.end:
        start = grid.bounds(clip)[0]
        if not is_last and start + seconds + beside > state.end:
            break
        if len(samples := _cut(state, start, start + seconds)) and np.abs(samples).max() > _SILENT_PEAK:
            clips.append(clip)
            windows.append(_cut(state, start - beside, start + seconds + beside))
        clip += 1
    vectors = run.encoder.encode_sounds(windows) if windows else _no_vectors(run)
    kept = _cut(state, clip * seconds - beside, state.end)
    return _SoundState(
        tuple(clips), vectors, kept.copy(), state.end - len(kept) / state.rate, clip, state.rate
    )


def _cut(state: _SoundState, start: float, end: float) -> NDArray[np.float32]:
    """The available samples between two times."""
    first, last = (round((seconds - state.start) * state.rate) for seconds in (start, end))
    return state.samples[max(0, first) : max(0, last)]


STREAM = SoundStream()
