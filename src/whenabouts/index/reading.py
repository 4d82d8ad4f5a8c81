"""What a reader process does with one file: probe it, read its words, take its pictures, find its shots.

It imports nothing heavier than the decoder, so that a process starts quickly and stays small; encoding is
done by the parent, which has the models loaded once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.clips import ClipGrid
from whenabouts.video.cues import CueTrack, read_cue_file, words_of
from whenabouts.video.files import content_hash, printable
from whenabouts.video.frames import Frame, sample_frames
from whenabouts.video.probe import MediaError, Probe, probe
from whenabouts.video.shots import ShotFinder

# Pictures a message carries: enough to keep the pipe cheap, few enough to keep memory small.
_BATCH = 16
# Shots are placed to a quarter of a second; more frames cost more than the precision is worth.
SHOT_RATE = 4.0
_SHOT_SIZE = 64
_SECONDS_BETWEEN_REPORTS = 1.0
_ANY_DURATION = 1e9
# A reader says nothing while it hashes a file or looks through it for subtitles: 2 MB/s is a very slow disk.
_QUIET_SECONDS = 600.0
_SLOWEST_BYTES_PER_SECOND = 2e6


@dataclass(frozen=True, slots=True)
class PictureSettings:
    """How pictures are taken: one in each clip of `clip_seconds`, short side of `size` pixels."""

    clip_seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What to read of one file.

    `content_hash` is empty where it has yet to be worked out; `threads` decode (0: one for each core).
    """

    number: int
    path: Path
    kind: Literal["media", "transcript"]
    size: int = 0
    sidecars: tuple[Path, ...] = ()
    pictures: PictureSettings | None = None
    shots: bool = False
    words: bool = True
    content_hash: str = ""
    threads: int = 0

    @property
    def quiet_seconds(self) -> float:
        """How long the reader may be silent before the file is given up."""
        return _QUIET_SECONDS + self.size / _SLOWEST_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures of some clips: `clips` are indices on the grid, `images` (H, W, 3) RGB."""

    clips: tuple[int, ...]
    images: tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the reading of a file has come, from 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class FileRead:
    """All that was found in a file beside its pictures.

    `tracks` is None where words were not asked for; `shots` (seconds at which a new shot starts) is None
    where they were not looked for. `end` is where the pictures really end, or else what the file claims.
    `damage` says what could not be read; `looked` is whether pictures were decoded to find that out.
    """

    content_hash: str
    probe: Probe | None
    tracks: tuple[CueTrack, ...] | None
    shots: tuple[float, ...] | None
    end: float
    damage: str | None
    looked: bool = False


Content = Pictures | Reached | FileRead


def read_file(task: ReadTask) -> Iterator[Content]:
    """Read one file as its task says; the last thing yielded is a FileRead.

    Raises MediaError for what cannot be read at all. What is damaged inside is read as far as it goes.
    """
    yield Reached(0.0)
    digest = task.content_hash or _hash(task.path)
    if task.kind == "transcript":
        track = read_cue_file(task.path)
        yield FileRead(digest, None, (track,), None, max((cue.end for cue in track.cues), default=0.0), None)
        return
    probed = probe(task.path)
    tracks = tuple(words_of(task.path, task.sidecars, probed)) if task.words else None
    end = probed.duration or 0.0
    if probed.picture is None or not (task.pictures or task.shots):
        yield FileRead(digest, probed, tracks, None, end, _missing(probed))
        return
    looker = _Looker(task, probed.duration)
    yield from looker.look()
    yield FileRead(digest, probed, tracks, looker.shots, looker.end or end, looker.damage, looked=True)


def _missing(probed: Probe) -> str | None:
    """What a header alone tells of a file that was broken off."""
    if not probed.missing_bytes:
        return None
    return f"cut off: its last {probed.missing_bytes:,} bytes are missing; copy or download it again"


def _hash(path: Path) -> str:
    try:
        return content_hash(path)
    except OSError as error:
        raise MediaError(
            f"{printable(path)}: cannot be read ({error.strerror}); check its permissions and its disk"
        ) from None


class _Looker:
    """One pass over the pictures of a video, for its clips and its shots together."""

    def __init__(self, task: ReadTask, duration: float | None) -> None:
        self._task = task
        self._duration = duration
        self.shots: tuple[float, ...] = ()
        self.damage: str | None = None
        self.end = 0.0

    def look(self) -> Iterator[Content]:
        """Pictures in batches, with a report now and then."""
        settings, finder = self._task.pictures, ShotFinder()
        rate, size = _sampling(settings)
        taker = _Taker(settings) if settings else None
        reported = time.monotonic()
        with sample_frames(self._task.path, rate, size=size, threads=self._task.threads) as reader:
            for frame in reader:
                finder.add(frame)
                if taker is not None and taker.take(frame):
                    yield taker.batch()
                if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                    reported = time.monotonic()
                    yield Reached(min(1.0, frame.seconds / self._duration) if self._duration else 0.0)
            self.damage, self.end = reader.damage, reader.last_time
        if taker is not None and taker.clips:
            yield taker.batch()
        self.shots = tuple(finder.borders())


def _sampling(settings: PictureSettings | None) -> tuple[float, int]:
    """Frames a second and their size: often enough for shots, and a whole number of times a clip."""
    if settings is None:
        return SHOT_RATE, _SHOT_SIZE
    return max(1, math.ceil(SHOT_RATE * settings.clip_seconds)) / settings.clip_seconds, settings.size


class _Taker:
    """Takes the first frame of each clip."""

    def __init__(self, settings: PictureSettings) -> None:
        # A file may run on behind the end that it claims, so the grid has room for any.
        self._grid = ClipGrid(settings.clip_seconds, _ANY_DURATION)
        self.clips: list[int] = []
        self._images: list[NDArray[np.uint8]] = []
        self._last = -1

    def take(self, frame: Frame) -> bool:
        """Take a frame if its clip has none yet; true when a batch is full."""
        clip = self._grid.index_at(frame.seconds)
        if clip > self._last:
            self._last = clip
            self.clips.append(clip)
            self._images.append(frame.image)
        return len(self.clips) >= _BATCH

    def batch(self) -> Pictures:
        """What has been taken since the last batch."""
        pictures = Pictures(tuple(self.clips), tuple(self._images))
        self.clips, self._images = [], []
        return pictures
