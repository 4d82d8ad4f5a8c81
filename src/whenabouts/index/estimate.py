"""How long a run will take and how much disk it needs: only for what is shown, so it may be rough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whenabouts.index.workers import Part, ReaderPool
from whenabouts.video.probe import probe

# Files probed to say how many hours there are; more are estimated by their bytes.
_PROBED_FILES = 200
_FILES_WORTH_A_PROCESS = 50
# Measured on two cores (benchmarks/ingest.py, benchmarks/encoders.py).
_READ_BYTES_PER_SECOND = 150e6
_DECODE_SPEED = 30.0
_PICTURES_PER_SECOND = 12.0
_WORDS_SPEED = 4000.0
_BYTES_PER_HOUR_OF_WORDS = 0.6e6
_BYTES_PER_PICTURE = 1300.0


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """A file whose length is asked for."""

    number: int
    path: Path
    # A file without a length is read through; for an estimate that is not worth waiting long.
    quiet_seconds: float = 20.0


def length_of(task: ProbeTask) -> Iterator[float]:
    """The length of a file in seconds, 0 where it does not tell (run in a reader process)."""
    yield probe(task.path).duration or 0.0


def estimate_hours(files: Sequence[tuple[Path, int]]) -> float:
    """Hours of media files (path, bytes): of a sample by their headers, of the rest by their bytes.

    Headers are read in reader processes: a file that crashes the decoder must not stop a run at its plan.
    """
    step = max(1, -(-len(files) // _PROBED_FILES))
    sample = files[::step]
    probed_bytes = sum(size for _, size in sample)
    if not probed_bytes:
        return 0.0
    tasks = [ProbeTask(number, path) for number, (path, _) in enumerate(sample)]
    with ReaderPool(length_of, 1 + len(tasks) // _FILES_WORTH_A_PROCESS) as pool:
        seconds = sum(message.content for message in pool.run(tasks) if isinstance(message, Part))
    return float(seconds) / 3600 * sum(size for _, size in files) / probed_bytes


def estimate_seconds(hours: float, read_bytes: int, *, decoded: bool, clip_seconds: float | None) -> float:
    """Seconds a run takes: reading, words, and where asked for decoding and one picture in each clip."""
    media = hours * 3600
    seconds = read_bytes / _READ_BYTES_PER_SECOND + media / _WORDS_SPEED
    if decoded:
        seconds += media / _DECODE_SPEED
    if clip_seconds:
        seconds += media / clip_seconds / _PICTURES_PER_SECOND
    return seconds


def estimate_bytes(hours: float, *, clip_seconds: float | None) -> float:
    """Bytes by which a corpus grows."""
    pictures = 3600 / clip_seconds * _BYTES_PER_PICTURE if clip_seconds else 0.0
    return hours * (_BYTES_PER_HOUR_OF_WORDS + pictures)
