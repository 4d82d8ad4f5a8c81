"""Media and captions, mutated from the samples, read as `index` reads them."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.bytes import damaged

from whenabouts.index.reading import FileRead, FrameBatch, ReadTask, read_file
from whenabouts.index.sampling import FrameSettings, SoundSettings
from whenabouts.index.workers import Failed, Part, ReaderPool
from whenabouts.streams._passages import passages_of
from whenabouts.types import WhenaboutsError
from whenabouts.video.files import find_files
from whenabouts.video.shots import BUILT_IN
from whenabouts.video.time_limit import FREE_GAP_SECONDS, most_idle_seconds

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "videos"
_LARGEST = 700_000
_NAMES = (
    "a",
    "-rf",
    "a\nb",
    "a\x1b[31mb",
    "\u202egnp",
    "%03d",
    "a" * 240,
    "é\udcff",
    "concat:a|b",
    "file:x",
    "'; --",
)


def read_with_surprises(task: ReadTask) -> Iterator[Any]:
    """As `read_file`; an error that says nothing to people is handed over as a text (in a reader process)."""
    try:
        for content in read_file(task):
            yield content
            if isinstance(content, FileRead):
                for track in content.tracks or ():
                    passages_of(track.cues, content.end)
    except (WhenaboutsError, MemoryError):
        raise
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


class Attack:
    """Reads one mutated file a trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        samples = [path for path in sorted(SAMPLES.iterdir()) if path.stat().st_size < _LARGEST]
        self._samples = {path: path.read_bytes() for path in samples}

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Write a mutated sample under a name by chance, and read it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        path, way = self._written(rng)
        frames = (FrameSettings(rng.choice((0.25, 1.0, 10.0)), 64),) if rng.random() < 0.7 else ()
        done, findings = Counter({way: 1}), list[str]()
        found = find_files([self._folder]).files
        with ReaderPool(read_with_surprises, 1) as pool:
            tasks = [
                ReadTask(
                    number,
                    file.path,
                    file.kind,
                    file.size,
                    file.identity,
                    file.sidecars,
                    frames,
                    sound=(SoundSettings(rng.choice((8_000, 16_000, 48_000))),) if rng.random() < 0.5 else (),
                    shots=BUILT_IN,
                    threads=1,
                )
                for number, file in enumerate(found)
            ]
            clips = 0
            for message in pool.run(tasks):
                if isinstance(message, Failed):
                    done["given up" if "no progress" in message.error else "refused"] += 1
                    findings += [message.error] if "crashed" in message.error else []
                elif isinstance(message, Part):
                    content = message.content
                    clips += len(content.clips) if isinstance(content, FrameBatch) else 0
                    findings += [content] if isinstance(content, str) else []
                    if isinstance(content, FileRead):
                        done["read"] += 1
                        findings += too_long(path, content)
        return done, [f"{path.name!r}, {way}: {finding}" for finding in findings]

    def _written(self, rng: random.Random) -> tuple[Path, str]:
        original, other = rng.sample(sorted(self._samples), 2)
        data, way = damaged(self._samples[original], rng, self._samples[other])
        for _ in range(rng.choice((0, 0, 1, 3))):
            data, way = damaged(data, rng, self._samples[other])
        name = rng.choice(_NAMES) if rng.random() < 0.3 else original.stem
        path = self._folder / f"{name}{rng.choice((original.suffix, original.suffix, other.suffix))}"
        path.write_bytes(data)
        return path, way


def too_long(path: Path, content: FileRead) -> list[str]:
    """A finding where a file is longer than one of its size can be, whatever its frames."""
    size = path.stat().st_size
    most = most_idle_seconds(size) + FREE_GAP_SECONDS * size / 8 + 700
    return [f"{content.end:.0f} s in {size:,} bytes"] if content.end > most else []
