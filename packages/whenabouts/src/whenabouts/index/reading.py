"""Reads one file in a reader process: probes it, reads cues, samples frames and sound, finds shots.

One pass decodes the frames for all streams that need frames. The module imports nothing heavier than the
decoder, so that a process starts quickly and stays small; the parent, which has the models loaded, encodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack, read_cue_file, words_of
from whenabouts.video.files import content_hash, printable
from whenabouts.video.frames import Frame, sample_frames
from whenabouts.video.headers import joined_bytes
from whenabouts.video.objects import refusals
from whenabouts.video.packets import packet_damage
from whenabouts.video.probe import MediaError, Probe, probe, scanned_duration
from whenabouts.video.shots import BUILT_IN, finder_named
from whenabouts.video.sound import sound_pieces

if TYPE_CHECKING:
    from whenabouts.index.records import ClipColumns, VideoRecord
    from whenabouts.index.sampling import FrameSettings, SoundSettings

# Frames in a message to the parent: more make the pipe cheaper, fewer save memory.
_BATCH = 16
# Sound in a message to the parent: 2 MB of samples at 16 kHz.
_SOUND_SECONDS = 30.0
_SECONDS_BETWEEN_REPORTS = 1.0
_ANY_DURATION = 1e9
# A recording ends with its sound, if that lasts longer than its pictures by more than this.
_LATER_SOUND_SECONDS = 0.5
# A reader sends nothing while it hashes a file or looks for subtitles; 2 MB/s is a very slow disk.
_QUIET_SECONDS = 600.0
_SLOWEST_BYTES_PER_SECOND = 2e6


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A file, and the parts of it to read.

    `frames` and `sound` are the settings of the streams that need them; `shots` names the finder of shots (""
    for none). If no frames are decoded and `packets` is true, packets are checked for damage. `content_hash`
    is "" if it has to be computed. Cues in `language` come first; `sound_track` selects a sound track.
    `threads` decode (0: one per core). `identity` is (device, inode) of the planned file; (0, 0): any file.
    """

    number: int
    path: Path
    kind: Literal["media", "transcript"]
    size: int = 0
    identity: tuple[int, int] = (0, 0)
    sidecars: tuple[Path, ...] = ()
    frames: tuple[FrameSettings, ...] = ()
    sound: tuple[SoundSettings, ...] = ()
    shots: str = ""
    packets: bool = True
    cues: bool = True
    content_hash: str = ""
    language: str | None = None
    threads: int = 0
    sound_track: str = ""

    @property
    def quiet_seconds(self) -> float:
        return _QUIET_SECONDS + self.size / _SLOWEST_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True, eq=False)
class FrameBatch:
    """Frames sampled by some settings: `clips` are indices on their grid, `images` (H, W, 3) RGB."""

    settings: FrameSettings
    clips: tuple[int, ...]
    images: tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True, slots=True, eq=False)
class SoundBatch:
    """Consecutive samples: (N,) float32 in [-1, 1], mono, starting at `start` seconds of the file."""

    settings: SoundSettings
    start: float
    samples: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the reading of a file has come, from 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class FileRead:
    """Everything read of a file except its frames and sound.

    `tracks` is None if cues were not read, `shots` (starts in seconds, without the first) if not looked for.
    `end` (seconds) is that of decoded frames or longer sound, else the length that the file claims (or 0), or
    the end of a transcript's last cue. `damage` describes unreadable, missing and appended parts. `decoded`:
    frames were decoded, so `end` and `damage` come from them.
    """

    content_hash: str
    probe: Probe | None
    tracks: tuple[CueTrack, ...] | None
    shots: tuple[float, ...] | None
    end: float
    damage: str | None
    decoded: bool = False


@dataclass(frozen=True, slots=True)
class ReadVideo:
    """The input of `Stream.clips`: a video's record so far, its end in seconds, its cues.

    `clips` are those of the streams that this stream reads (`Stream.reads_clips_of`).
    """

    record: VideoRecord
    end: float
    cues: Sequence[Cue] = ()
    clips: Mapping[str, ClipColumns] = field(default_factory=dict)


Content = FrameBatch | SoundBatch | Reached | FileRead


def read_file(task: ReadTask) -> Iterator[Content]:
    """Read one file; the last item is a FileRead.

    Raises MediaError if nothing can be read or another file took its place, StoreAway if its store or disk
    refused a read. Damaged files are read as far as possible.
    """
    yield Reached(0.0)
    before = refusals.count
    try:
        for content in _contents(task):
            if isinstance(content, FileRead):
                _check_identity(task)
                refusals.check(before, task.path)
            yield content
    except (MediaError, OSError):
        refusals.check(before, task.path)
        raise


def _check_identity(task: ReadTask) -> None:
    """Raise MediaError if the planned file is gone, or its name now leads to another one (say by a link)."""
    try:
        status = task.path.stat()
    except OSError as error:
        raise MediaError(f"{printable(task.path)}: gone while it was read ({error.strerror})") from None
    if any(task.identity) and task.identity != (status.st_dev, status.st_ino):
        raise MediaError(
            f"{printable(task.path)}: another file was put in its place after the run was planned; "
            "run the same command again"
        )


def _contents(task: ReadTask) -> Iterator[Content]:
    _check_identity(task)
    digest = task.content_hash or _hash(task.path)
    if task.kind == "transcript":
        track = read_cue_file(task.path)
        yield FileRead(digest, None, (track,), None, max((cue.end for cue in track.cues), default=0.0), None)
        return
    probed = probe(task.path)
    tracks = tuple(words_of(task.path, task.sidecars, probed, language=task.language)) if task.cues else None
    for settings in task.sound if probed.has_audio else ():
        for piece in sound_pieces(task.path, _SOUND_SECONDS, rate=settings.rate, track=task.sound_track):
            yield SoundBatch(settings, piece.start, piece.samples)
    if probed.picture is None or not (task.frames or task.shots):
        damage = _missing(probed) or (packet_damage(task.path) if task.packets else None)
        yield FileRead(digest, probed, tracks, None, probed.duration or 0.0, _joined(task.path) or damage)
        return
    shots, damage, pictures_end = yield from _frames(task, probed.duration)
    end = _end(task.path, probed, pictures_end)
    yield FileRead(digest, probed, tracks, shots, end, _joined(task.path) or damage, decoded=True)


def _end(path: Path, probed: Probe, pictures_end: float) -> float:
    """The end of a recording in seconds: that of its pictures, or of sound that lasts longer."""
    claimed = probed.duration or 0.0
    if not pictures_end or not probed.has_audio or claimed - pictures_end <= _LATER_SOUND_SECONDS:
        return pictures_end or claimed
    # A file that was cut off claims more than it has.
    return max(pictures_end, min(claimed, scanned_duration(path) or 0.0))


def _missing(probed: Probe) -> str | None:
    """The damage that the header alone shows (a truncated file), or None."""
    if not probed.missing_bytes:
        return None
    return f"cut off: its last {probed.missing_bytes:,} bytes are missing; copy or download it again"


def _joined(path: Path) -> str | None:
    """The damage of a file to which another recording was appended, or None."""
    if not (unread := joined_bytes(path)):
        return None
    return (
        f"another recording was appended to this file; players skip its {unread:,} bytes or show them at "
        "wrong times; store each recording as a file of its own, or join them with ffmpeg -f concat"
    )


def _hash(path: Path) -> str:
    try:
        return content_hash(path)
    except OSError as error:
        raise MediaError(
            f"{printable(path)}: cannot be read ({error.strerror}); check its permissions and its disk"
        ) from None


def _frames(
    task: ReadTask, duration: float | None
) -> Generator[FrameBatch | Reached, None, tuple[tuple[float, ...] | None, str | None, float]]:
    """One pass over the frames of a video: batches for each of the settings, with reports of progress.

    Returns the shots (None if not looked for), the damage, and the end in seconds.
    """
    finder = finder_named(task.shots).open_finder(task.threads) if task.shots else None
    rate, size = _sampling(task.frames, task.shots)
    samplers = [_ClipSampler(settings, size) for settings in task.frames]
    reported = time.monotonic()
    with sample_frames(task.path, rate, size=size, threads=task.threads) as reader:
        for frame in reader:
            if finder is not None:
                finder.add(frame)
            for sampler in samplers:
                if sampler.add(frame):
                    yield sampler.batch()
            if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                yield Reached(min(1.0, frame.seconds / duration) if duration else 0.0)
        damage, end = reader.damage, reader.last_time
    for sampler in samplers:
        sampler.settle()
    yield from (sampler.batch() for sampler in samplers if sampler.clips)
    return None if finder is None else tuple(finder.borders()), damage, end


def _sampling(frames: Sequence[FrameSettings], shots: str = "") -> tuple[float, int]:
    """Frames a second and short side in pixels: what the finder of shots needs if no stream reads frames.

    Else enough for all streams and for the finder's rate (`shots` "": the built-in one's, so that streams get
    the same frames with and without shots); for one stream a whole number of frames per clip.
    """
    finder = finder_named(shots or BUILT_IN)
    if not frames:
        return finder.FRAMES_A_SECOND, finder.SIZE
    rates = (
        max(2 if settings.at else 1, math.ceil(finder.FRAMES_A_SECOND * settings.clip_seconds))
        / settings.clip_seconds
        for settings in frames
    )
    return max(rates), max(settings.size for settings in frames)


class _ClipSampler:
    """Takes for each clip the frame nearest to the position `FrameSettings.at`."""

    def __init__(self, settings: FrameSettings, size: int) -> None:
        # A file may be longer than it claims.
        self._grid = ClipGrid(settings.clip_seconds, _ANY_DURATION)
        self._settings = settings
        self._is_larger = size > settings.size
        self.clips: list[int] = []
        self._images: list[NDArray[np.uint8]] = []
        self._clip, self._distance = -1, math.inf
        self._nearest: Frame | None = None

    def add(self, frame: Frame) -> bool:
        """Take a frame if it is the nearest of its clip so far; true when a batch is full."""
        clip = self._grid.index_at(frame.seconds)
        if clip > self._clip:
            self.settle()
            self._clip, self._distance = clip, math.inf
        sought = self._grid.bounds(clip)[0] + self._settings.at * self._settings.clip_seconds
        if clip == self._clip and abs(frame.seconds - sought) < self._distance:
            self._nearest, self._distance = frame, abs(frame.seconds - sought)
        return len(self.clips) >= _BATCH

    def settle(self) -> None:
        """Finish the current clip."""
        if self._nearest is None:
            return
        image = self._nearest.image
        self.clips.append(self._clip)
        self._images.append(shrunk(image, self._settings.size) if self._is_larger else image)
        self._nearest = None

    def batch(self) -> FrameBatch:
        """The frames since the last batch."""
        batch = FrameBatch(self._settings, tuple(self.clips), tuple(self._images))
        self.clips, self._images = [], []
        return batch


def clip_frames(path: Path, frames: Sequence[FrameSettings], start: float, end: float) -> list[FrameBatch]:
    """The frames of a time range (seconds) that reading the whole video samples; one batch per settings."""
    rate, size = _sampling(frames)
    samplers = [_ClipSampler(settings, size) for settings in frames]
    with sample_frames(path, rate, size=size, start=start, end=end) as reader:
        for frame in reader:
            for sampler in samplers:
                sampler.add(frame)
    for sampler in samplers:
        sampler.settle()
    return [sampler.batch() for sampler in samplers if sampler.clips]


def shrunk(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """An image (H, W, 3) with a short side of at most `size`, aspect ratio kept to within a pixel."""
    short = min(image.shape[:2])
    if short <= size:
        return image
    from av import VideoFrame
    from av.video.reformatter import Interpolation

    height, width = (max(1, round(side * size / short)) for side in image.shape[:2])
    smaller = VideoFrame.from_ndarray(np.ascontiguousarray(image), "rgb24").reformat(
        width, height, interpolation=Interpolation.AREA
    )
    return np.asarray(smaller.to_ndarray(), np.uint8)
