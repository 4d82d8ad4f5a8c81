"""The sound of a file as mono samples, in pieces: memory does not grow with its length."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import number_of
from whenabouts.video.files import printable
from whenabouts.video.opened import discard_others, packets_of
from whenabouts.video.probe import BrokenMedia, chosen_sound, open_media, sounds_of

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.audio.stream import AudioStream

_log = logging.getLogger(__name__)

SAMPLE_RATE = 16_000
"""Samples a second for speech recognisers."""

_MICROSECONDS = 1_000_000
# A gap of this length is silence that was not stored; a new piece begins after it.
_GAP_SECONDS = 0.5
# A jump of more than a day is a damaged time, not silence.
_LEAP_SECONDS = 86_400.0
# A jump back is a joint: another recording was appended, as radio programs and recorders of television do.
_LEAP_BACK_SECONDS = 1.0
# A piece ends at the quietest place within its last seconds, so that no word is cut.
_SEARCH_SECONDS, _QUIET_SECONDS = 30.0, 0.4


@dataclass(frozen=True, slots=True)
class SoundPiece:
    """Consecutive samples: (N,) float32 in [-1, 1], from `start` seconds of the file on."""

    start: float
    samples: NDArray[np.float32]


def sound_pieces(
    path: Path,
    piece_seconds: float = 600.0,
    *,
    rate: int = SAMPLE_RATE,
    notes: list[str] | None = None,
    track: str = "",
) -> Iterator[SoundPiece]:
    """A sound track of a file in pieces of up to about `piece_seconds` (38 MB for ten minutes), mono.

    `track` is the number (from 1) or the language of the sound track, "" for the first; `rate` is in samples
    a second. Times count from the start of the file, as for frames and cues. Undecodable packets are dropped,
    with a log entry and at the end a line in `notes`. Raises MediaError for a file without sound.
    """
    with open_media(path) as container:
        sounds = sounds_of(container)
        if not sounds:
            raise BrokenMedia(f"{printable(path)}: holds no sound, so there is nothing to hear")
        stream = sounds[chosen_sound([language for _, language in sounds], track)][0]
        discard_others(container, stream.index)
        origin = Fraction(container.start_time or 0, _MICROSECONDS)
        yield from _pieces(_blocks(path, container, stream, origin, rate, notes), piece_seconds, rate)


def _blocks(
    path: Path, container: Any, stream: AudioStream, origin: Fraction, rate: int, notes: list[str] | None
) -> Iterator[tuple[float | None, NDArray[np.float32]]]:
    """Decoded sound as (seconds of the first sample or None, samples)."""
    import av

    resampler = Resampler("flt", "mono", rate)
    lost = 0
    try:
        for packet in packets_of(container, stream):
            try:
                frames = packet.decode()
            except av.error.EOFError:
                break
            except av.error.FFmpegError as error:
                _log.info("%s: sound damaged, a packet left out (%s)", printable(path), error.strerror)
                lost += 1
                continue
            for frame in frames:
                at = None if frame.pts is None else float(frame.pts * frame.time_base - origin)
                for samples in resampler.resampled(frame):
                    yield at, samples.reshape(-1)
                    at = None
    except av.error.FFmpegError as error:
        _log.info("%s: sound cannot be read to its end (%s)", printable(path), error.strerror)
        if notes is not None:
            notes.append(f"its sound cannot be read to its end ({error.strerror})")
    lost += resampler.lost
    if lost and notes is not None:
        notes.append(f"its sound is damaged: {number_of(lost, 'packet')} could not be decoded")
    for samples in resampler.rest():
        yield None, samples.reshape(-1)


class Resampler:
    """Converts sound to one format (FFmpeg's name), layout and rate, also if the recording changes its own.

    Damage can give a frame a form that no filter takes. It is left out; `lost` counts such frames.
    """

    def __init__(self, sample_format: str, layout: str, rate: int) -> None:
        self._target: dict[str, Any] = {"format": sample_format, "layout": layout, "rate": rate}
        self.lost = 0
        self._kind: tuple[Any, ...] | None = None
        self._resampler: AudioResampler | None = None

    def resampled(self, frame: AudioFrame, *, restart: bool = False) -> Iterator[NDArray[np.float32]]:
        """(channels, N) samples of a frame, after those left in the filter of another kind or place."""
        import av

        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if restart or kind != self._kind or self._resampler is None:
            yield from self.rest()
            self._kind = kind
            self._resampler = av.AudioResampler(**self._target)
        yield from self._through(frame)

    def rest(self) -> Iterator[NDArray[np.float32]]:
        """The samples left in the filter."""
        yield from self._through(None)

    def _through(self, frame: AudioFrame | None) -> Iterator[NDArray[np.float32]]:
        """Finite samples of the filter for a frame; None ends it. A filter that fails is not used again."""
        import av

        resampler, self._resampler = self._resampler, None
        if resampler is None:
            return
        try:
            converted = resampler.resample(frame)
        except av.error.FFmpegError as error:
            _log.info("sound damaged, a frame left out (%s)", error.strerror)
            self.lost += 1
            return
        self._resampler = resampler if frame is not None else None
        for made in converted:
            samples = np.asarray(made.to_ndarray(), np.float32)
            # Floating-point sound may hold NaN, which encoders refuse.
            yield np.where(np.isfinite(samples), samples, np.float32(0))


def _pieces(
    blocks: Iterator[tuple[float | None, NDArray[np.float32]]], piece_seconds: float, rate: int
) -> Iterator[SoundPiece]:
    start, held, count = 0.0, list[NDArray[np.float32]](), 0
    for at, samples in blocks:
        ends = start + count / rate
        if at is not None and (abs(at - ends) > _LEAP_SECONDS or at < ends - _LEAP_BACK_SECONDS):
            at = None
        if at is not None and (count == 0 or abs(at - ends) > _GAP_SECONDS):
            if count:
                yield SoundPiece(start, np.concatenate(held))
            start, held, count = max(0.0, at), [], 0
        held.append(samples)
        count += len(samples)
        if count >= piece_seconds * rate:
            whole = np.concatenate(held)
            cut = _quietest(whole, rate)
            yield SoundPiece(start, whole[:cut])
            start, held, count = start + cut / rate, [whole[cut:].copy()], len(whole) - cut
    if count:
        yield SoundPiece(start, np.concatenate(held))


def _quietest(samples: NDArray[np.float32], rate: int) -> int:
    """The middle of the quietest place in the last seconds, as a sample number above 0."""
    width = int(_QUIET_SECONDS * rate)
    first = max(len(samples) // 2, len(samples) - int(_SEARCH_SECONDS * rate))
    windows = (len(samples) - first) // width
    if windows < 2:
        return len(samples)
    loudness = np.square(samples[first : first + windows * width].reshape(windows, width)).mean(axis=1)
    return first + int(np.argmin(loudness)) * width + width // 2
