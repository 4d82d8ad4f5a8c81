"""Commands that write, killed by chance, then run again to their end: as if nothing had been."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path

from tests.fuzz.commands import Command, after_work, kill, run, start, timed
from tests.training.conftest import make_tiny

from whenabouts.index.store import Store

_TALKS = 30


class Attack:
    """Kills one command a trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._videos = folder / "videos"
        self._videos.mkdir()
        for talk in range(_TALKS):
            cues = [
                f"00:{line:02d}.000 --> 00:{line:02d}.900\nTalk {talk} says {line}.\n" for line in range(9)
            ]
            (self._videos / f"talk{talk:03d}.vtt").write_text("\n".join(["WEBVTT\n", *cues]))
        self._tiny = make_tiny(folder / "tiny")
        self._whole, self._place, self._run_folder = (
            folder / name for name in ("whole.corpus", "killed.corpus", "killed.run")
        )
        self._seconds: dict[str, float] = {}
        self._timed("index", self._whole)
        shutil.copytree(self._whole, self._place)
        self._timed("calibrate", self._place)
        self._right, self._calibrated = held(self._whole), calibration(self._place)
        self._timed("remove", self._place)
        self._timed("train", self._place)
        self._trained = weights(self._run_folder)

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Kill a command once or more, run it again to its end, and compare."""
        name = rng.choice(("index", "index", "remove", "calibrate", "train"))
        findings, kills = self._kill_training(rng) if name == "train" else self._kill_writer(name, rng)
        return Counter({f"{name} tried": 1, f"{name} killed": kills}), findings

    def _kill_writer(self, name: str, rng: random.Random) -> tuple[list[str], int]:
        place, kills = self._place, 0
        shutil.rmtree(place, ignore_errors=True)
        if name != "index":
            shutil.copytree(self._whole, place)
        for _ in range(rng.choice((1, 1, 2))):
            kills += self._kill(name, rng)
        if (place / "corpus.lance").exists():
            Store.open(place).videos()
        if name == "calibrate":
            run(*self._command(name, place))
            if calibration(place) != self._calibrated:
                return ["calibrate: another calibration than without a kill"], kills
        # An index run puts back what is missing; what was removed is taken again by --again.
        run(*self._command("index", place), "--again")
        return [] if held(place) == self._right else [f"{name}: another corpus than without a kill"], kills

    def _kill_training(self, rng: random.Random) -> tuple[list[str], int]:
        folder, command = self._run_folder, self._command("train", self._place)
        shutil.rmtree(folder, ignore_errors=True)
        kills = self._kill("train", rng)
        again = ["--resume"] if folder.exists() and any(folder.iterdir()) else []
        done = run(*command, *again, fails=True)
        if done.returncode and again:  # killed before there was anything to go on with
            shutil.rmtree(folder)
            run(*command)
        return [] if weights(folder) == self._trained else ["train: other weights than without a kill"], kills

    def _command(self, name: str, place: Path) -> Command:
        taken = [self._videos / f"talk{number:03d}.vtt" for number in (3, 7, 8, 21, 29)]
        train = ("train", self._tiny.experiment, "--features", self._tiny.folder)
        commands: dict[str, Command] = {
            "index": ("index", self._videos, "--corpus", place),
            "remove": ("remove", *taken, "--corpus", place),
            "calibrate": ("calibrate", "--corpus", place),
            "train": (*train, "--out", self._run_folder, "--device", "cpu"),
        }
        return commands[name]

    def _timed(self, name: str, place: Path) -> None:
        self._seconds[name] = timed(*self._command(name, place))

    def _kill(self, name: str, rng: random.Random) -> int:
        process = start(*self._command(name, self._place))
        return kill(process, after_work(process, self._seconds[name], rng))


def held(place: Path) -> str:
    """What a corpus holds, but for times."""
    store = Store.open(place)
    records = store.videos()
    rows = [(row.video_id, row.path, row.content_hash, dict(row.streams), row.state) for row in records]
    block = store.clips_of("subtitle", [row.video_id for row in records])
    return json.dumps([rows, block.video_ids, block.text, block.start.tolist(), block.vectors.tolist()])


def calibration(place: Path) -> str:
    """What was measured of a corpus, but for times."""
    fact = dict(Store.open(place).fact("calibration:subtitle") or {})
    return json.dumps(fact, sort_keys=True)


def weights(run: Path) -> list[bytes]:
    """The weights of a training."""
    return [path.read_bytes() for path in sorted(run.rglob("model.safetensors"))]
