"""A library that changes, and commands that take in the changes, killed: the same corpus as without a kill.

Files are new, changed, renamed, swapped, copied and deleted; `index` and `watch` are killed while they take
that in, and run again. Collections are created, renamed and reordered by processes that are killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.collecting import kill_collections
from tests.fuzz.commands import MOST_SECONDS, after_files, after_work, kill, run, start, timed
from tests.fuzz.media import SAMPLES

from whenabouts.corpus import Corpus
from whenabouts.index.absent import removed_files
from whenabouts.index.store import Store

_TALKS = 8
_QUESTIONS = ("what does talk 3 say", "somebody speaks of ships", "line 2 of the new words")
_MOST_CHANGES = 5


def write_talk(path: Path, words: str) -> None:
    """A transcript of four lines."""
    path.parent.mkdir(exist_ok=True)
    cues = [
        f"00:{5 * line:02d}.000 --> 00:{5 * line + 3:02d}.000\nLine {line} of {words}.\n" for line in range(4)
    ]
    path.write_text("\n".join(["WEBVTT\n", *cues]), encoding="utf-8")


def make_library(folder: Path) -> None:
    """Talks in two folders, and recordings with and without subtitles."""
    for talk in range(_TALKS):
        write_talk(folder / "ab"[talk % 2] / f"talk{talk}.vtt", f"what talk {talk} says about ships")
    for name in ("friday.mp4", "friday.vtt", "nasa_audio_only.mp3"):
        shutil.copy(SAMPLES / name, folder / name)


def change(folder: Path, rng: random.Random) -> str:
    """Change a file or a folder of a library; gives the kind of the change."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, number = rng.choice(files), rng.randrange(1000)
    kind = rng.choice(tuple(_CHANGES))
    _CHANGES[kind](folder, path, rng.choice(files), number)
    return kind


def _renamed(folder: Path, path: Path, _: Path, number: int) -> None:
    path.rename(folder / _one_folder(number) / f"{path.stem}-{number}{path.suffix}")


def _one_folder(number: int) -> str:
    return "ab"[number % 2]


def _folder_renamed(folder: Path, _path: Path, _other: Path, number: int) -> None:
    (folder / "b").rename(folder / f"b{number}")
    (folder / "b").mkdir()


def _swapped(folder: Path, path: Path, other: Path, _: int) -> None:
    if path.suffix == other.suffix and path != other:
        path.rename(folder / "aside")
        other.rename(path)
        (folder / "aside").rename(other)


def _changed(_: Path, path: Path, other: Path, number: int) -> None:
    if path.suffix == ".vtt":
        write_talk(path, f"the new words {number}")
    elif path.suffix == ".mp4":
        shutil.copy(SAMPLES / "bottle-detection.mp4", path)
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


_CHANGES: dict[str, Callable[[Path, Path, Path, int], object]] = {
    "new": lambda folder, _path, _other, number: write_talk(
        folder / _one_folder(number) / f"new{number}.vtt", f"new talk {number}"
    ),
    "renamed": _renamed,
    "swapped": _swapped,
    "changed": _changed,
    "copied": lambda folder, path, _, number: shutil.copy(path, folder / f"copy-{number}{path.suffix}"),
    "touched": lambda _folder, path, _other, number: os.utime(path, (number, number)),
    "deleted": lambda _folder, path, _other, _number: path.unlink(),
    "folder renamed": _folder_renamed,
}


def held(place: Path) -> dict[str, Any]:
    """What a corpus holds and answers, but for times."""
    store = Store.open(place)
    skipped = ("indexed_at", "stream_times")
    held: dict[str, Any] = {
        f"row {record.video_id}": {
            name: _plain(getattr(record, name)) for name in record.__slots__ if name not in skipped
        }
        for record in store.videos()
    }
    ids = [record.video_id for record in store.videos()]
    for stream in store.streams:
        block = store.clips_of(stream, ids)
        for position, video_id in enumerate(block.video_ids):
            rows = block.rows(position)
            columns = (block.start[rows].tolist(), block.end[rows].tolist(), block.text[rows])
            held[f"{stream} {video_id}"] = (*columns, block.vectors[rows].tolist())
    held["removed"] = sorted(map(str, removed_files(store)))
    corpus = Corpus(place, create=False)
    for question in _QUESTIONS:
        moments = [each.moment for each in corpus.search(question, k=50).moments]
        held[question] = sorted((each.video_id, each.start, each.end) for each in moments)
    return held


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else value


def differences(right: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for each entry that differs."""
    names = sorted(right.keys() | now.keys())
    return [
        f"{name}: {now.get(name)!r:.300}, without a kill {right.get(name)!r:.300}"
        for name in names
        if right.get(name) != now.get(name)
    ]


class Attack:
    """Changes the library and kills what takes the changes in, or kills a writer of collections, a trial."""

    def __init__(self, folder: Path) -> None:
        self._first, self._library = folder / "first", folder / "library"
        self._whole, self._right, self._place = (
            folder / f"{name}.corpus" for name in ("whole", "right", "killed")
        )
        self._first.mkdir()
        make_library(self._first)
        self._restore()
        self._seconds = timed("index", self._library, "--likeness", "--corpus", self._whole)
        self.kinds = {
            "index": self._kill_index,
            "watch": self._kill_watch,
            "collection": self._kill_collection,
        }

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Choose a command."""
        name = rng.choice(("index", "index", "watch", "collection"))
        kills, findings = self.kinds[name](rng)
        return Counter({f"{name} tried": 1, f"{name} killed": kills}), [f"{name}: {one}" for one in findings]

    def _restore(self) -> None:
        """The library as it was first, with the times that its files had."""
        shutil.rmtree(self._library, ignore_errors=True)
        shutil.copytree(self._first, self._library)

    def _copied(self) -> None:
        for place in (self._right, self._place):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self._whole, place)
        self._restore()

    def _kill_index(self, rng: random.Random) -> tuple[int, list[str]]:
        self._copied()
        kinds = [change(self._library, rng) for _ in range(rng.randint(1, _MOST_CHANGES))]
        given = rng.choice(((), ("--prune",), ("--meta", "year=1999")))
        run("index", self._library, *given, "--corpus", self._right)
        command, kills = ("index", self._library, *given, "--corpus", self._place), 0
        for _ in range(rng.choice((1, 1, 2, 3))):
            process = start(*command)
            kills += kill(process, self._moment(process, rng))
            Corpus(self._place, create=False).search(_QUESTIONS[0])
        run(*command)
        found = differences(held(self._right), held(self._place))
        return kills, [f"{kinds} {given}: {line}" for line in found]

    def _kill_watch(self, rng: random.Random) -> tuple[int, list[str]]:
        self._copied()
        process = start("watch", self._library, "--corpus", self._place, "--json")
        assert process.stdout is not None
        process.stdout.readline()
        kinds = [change(self._library, rng) for _ in range(rng.randint(1, _MOST_CHANGES))]
        until = time.monotonic() + rng.uniform(2, 10)
        moment = self._moment(process, rng)
        kills = kill(process, lambda: moment() or time.monotonic() > until)
        again = start("watch", self._library, "--corpus", self._place, "--json")
        assert again.stdout is not None
        again.stdout.readline()
        again.send_signal(signal.SIGINT)
        _, said = again.communicate(timeout=MOST_SECONDS)
        run("index", self._library, "--prune", "--corpus", self._right)
        found = differences(held(self._right), held(self._place))
        found += [said] if again.returncode not in (0, 130) or "Traceback" in said else []
        return kills, [f"{kinds}: {line}" for line in found]

    def _moment(self, process: Any, rng: random.Random) -> Callable[[], bool]:
        if rng.random() < 0.5:
            return after_files(self._place, rng)
        return after_work(process, self._seconds, rng)

    def _kill_collection(self, rng: random.Random) -> tuple[int, list[str]]:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        kills, findings = 0, list[str]()
        for _ in range(8):
            kills += 1
            findings += kill_collections(self._place, rng)
        return kills, findings
