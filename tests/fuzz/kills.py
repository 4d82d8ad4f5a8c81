"""Commands that write, killed by chance, then run again to their end: as if nothing had been."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.research.training.conftest import make_tiny

from whenabouts.product.index.store import Store

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
        self._whole = folder / "whole.corpus"
        self._run("index", self._videos, "--corpus", self._whole)
        self._right = self._held(self._whole)
        self._run(*self._train(folder / "whole.run"))
        self._trained = self._weights(folder / "whole.run")

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Kill a command once or more, run it again to its end, and compare."""
        name = rng.choice(("index", "index", "remove", "calibrate", "train"))
        if name == "train":
            findings = self._kill_training(rng)
        else:
            findings = self._kill_writer(name, rng)
        return Counter({f"{name} killed": 1}), findings

    def _kill_writer(self, name: str, rng: random.Random) -> list[str]:
        place = self._folder / "killed.corpus"
        shutil.rmtree(place, ignore_errors=True)
        if name != "index":
            shutil.copytree(self._whole, place)
        taken = [self._videos / f"talk{number:03d}.vtt" for number in rng.sample(range(_TALKS), 5)]
        commands: dict[str, tuple[str | Path, ...]] = {
            "index": ("index", self._videos, "--corpus", place),
            "remove": ("remove", *taken, "--corpus", place, "--yes"),
            "calibrate": ("calibrate", "--corpus", place),
        }
        for _ in range(rng.choice((1, 1, 2))):
            self._kill(commands[name], rng.uniform(0.3, 6.0))
        if place.exists():
            Store.open(place).videos() if (place / "corpus.lance").exists() else None
        # An index run puts back what is missing; what was removed is taken again by --again.
        self._run("index", self._videos, "--again", "--corpus", place)
        return [] if self._held(place) == self._right else [f"{name}: another corpus than without a kill"]

    def _kill_training(self, rng: random.Random) -> list[str]:
        run = self._folder / "killed.run"
        shutil.rmtree(run, ignore_errors=True)
        self._kill(self._train(run), rng.uniform(1.0, 12.0))
        again = ["--resume"] if run.exists() and any(run.iterdir()) else []
        done = self._run(*self._train(run), *again, fails=True)
        if done.returncode and again:  # killed before there was anything to go on with
            shutil.rmtree(run)
            if "Traceback" in done.stderr:
                return [done.stderr]
            self._run(*self._train(run))
        return [] if self._weights(run) == self._trained else ["train: other weights than without a kill"]

    def _train(self, run: Path) -> tuple[str | Path, ...]:
        return (
            "train",
            self._tiny.experiment,
            "--features",
            self._tiny.folder,
            "--out",
            run,
            "--device",
            "cpu",
        )

    def _kill(self, arguments: tuple[str | Path, ...], seconds: float) -> None:
        process = self._start(arguments)
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _run(self, *arguments: str | Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
        process = self._start(arguments)
        out, err = process.communicate(timeout=300)
        if process.returncode and not fails:
            raise RuntimeError(f"{arguments}: {process.returncode}\n{err[-3000:]}")
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def _start(self, arguments: tuple[str | Path, ...]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "whenabouts", "--no-config", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _held(self, place: Path) -> str:
        """What a corpus holds, but for times."""
        store = Store.open(place)
        records = store.videos()
        rows = [(row.video_id, row.path, row.content_hash, dict(row.streams), row.state) for row in records]
        block = store.clips_of("subtitle", [row.video_id for row in records])
        return json.dumps([rows, block.video_ids, block.text, block.start.tolist(), block.vectors.tolist()])

    def _weights(self, run: Path) -> list[bytes]:
        return [path.read_bytes() for path in sorted(run.rglob("model.safetensors"))]
