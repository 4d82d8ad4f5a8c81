"""Through how many files each of the four ways goes: a profile of real runs.

    python -m benchmarks.ways [--out benchmarks/results/ways.json]

The ways of ARCHITECTURE.md: a query and a query with a trained system (`Corpus.search` on an open corpus), a
video (`Corpus.add` of one new file with subtitles), a training step (`launch`: one epoch with its validation
and its start), a number (`evaluate`). A file counts where one of its functions or methods is called;
importing it does not. `rooms` are the folders of these files, `changes` how often the run goes from one file
to another. `command` counts the files of the same run from the command line on. Files are read in this
process, because a profile does not reach reader processes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import itertools
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any, Self
from unittest.mock import patch

from whenabouts.index.workers import Finished, Part

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples" / "videos"
AIMS = {"query": 15, "trained query": 25, "video": 35, "training step": 50, "number": 15}
QUERY = "the space telescope"
EXPERIMENT = """\
title = "ways"
[data]
train = "train.jsonl"
validation = "val.jsonl"
[features]
query = "tokens"
clip_seconds = 2.0
streams = { subtitle = "subtitle" }
[model]
system = "xml"
hidden = 16
heads = 2
[training]
epochs = 1
batch_size = 4
"""


def files_entered(source: Path, run: Callable[[], Any]) -> dict[str, Any]:
    """Files of a package whose functions a call enters, their folders, and the changes between them."""
    prefix, files, changes = f"{source}/", [""], 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes
        name = frame.f_code.co_filename
        # A module's or a class's body runs when it is imported: that is not the way of the data.
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if event == "call" and is_function and name.startswith(prefix) and files[-1] != name:
            changes += 1
            files.append(name)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    entered = sorted({name.removeprefix(prefix) for name in files} - {""})
    return {
        "files": len(entered),
        "rooms": len({name.rpartition("/")[0] or name for name in entered}),
        "changes": changes,
        "names": entered,
    }


def write_moments(folder: Path, corpus: Any) -> None:
    """Judgements of what the sample videos say, as somebody would write them for a training."""
    talks = [video.id for video in corpus.videos() if video.id.startswith(("friday", "nasa"))]
    for name, offset in (("train", 0), ("val", 8)):
        lines = [
            {
                "vid_name": talks[number % len(talks)],
                "duration": 10.0,
                "desc": f"{QUERY} number {number}",
                "desc_id": offset + number,
                "ts": [1.0, 4.0],
            }
            for number in range(8)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "my.toml").write_text(EXPERIMENT)


def new_talks(folder: Path) -> Iterator[Path]:
    """Copies of a talk with one subtitle; each ends in another empty box, because a corpus skips copies.

    With more subtitles the corpus would grow by a tenth, and its calibration would be measured again.
    """
    for number in itertools.count(1):
        talk = folder / f"talk{number}.mp4"
        empty_box = (8 + number).to_bytes(4, "big") + b"free" + bytes(number)
        talk.write_bytes((SAMPLES / "friday.mp4").read_bytes() + empty_box)
        talk.with_suffix(".vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nIt is Friday again\n")
        yield talk


def trained(folder: Path) -> None:
    """Train by the experiment of `write_moments`."""
    from whenabouts_systems.training.devices import open_device
    from whenabouts_systems.training.experiment import load_experiment
    from whenabouts_systems.training.launch import launch

    launch(load_experiment(folder / "my.toml"), folder, folder / "BY_CALL", open_device("cpu"))


class ReaderHere:
    """The readers of an index run, in this process."""

    def __init__(self, reader: Callable[[Any], Iterable[Any]], processes: int) -> None:
        self._reader = reader

    def run(self, tasks: Sequence[Any]) -> Iterator[Any]:
        """The messages of all tasks."""
        for task in tasks:
            yield from (Part(task.number, content) for content in self._reader(task))
            yield Finished(task.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It holds nothing."""


def walk_all(package: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Every way, walked once before it is looked at (so that what is made on first use is there)."""
    root = importlib.import_module(package)
    source = ROOT / "packages"
    main = importlib.import_module(f"{package}.__main__").main

    def command(*arguments: object) -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main([str(argument) for argument in arguments])
        if code > 1:
            raise SystemExit(f"{arguments}: {errors.getvalue()}")

    place, talks = folder / "my.corpus", new_talks(folder)
    command("index", SAMPLES, "--corpus", place)
    by_command = shutil.copytree(place, folder / "by_command.corpus")
    corpus = root.Corpus(place)
    write_moments(folder, corpus)
    command(
        "features",
        "export",
        "--corpus",
        place,
        "--stream",
        "subtitle",
        "--clip-seconds",
        2,
        "--out",
        folder / "subtitle",
    )
    command(
        "features",
        "tokens",
        "--queries",
        folder / "train.jsonl",
        "--queries",
        folder / "val.jsonl",
        "--out",
        folder / "tokens",
    )
    train = ("train", folder / "my.toml", "--features", folder, "--out")
    answer = ("--features", folder, "--split", "validation", "--out", folder / "run.jsonl")
    command(*train, folder / "RUN")
    command("run", "--checkpoint", folder / "RUN", *answer)
    search = ("search", QUERY, "--corpus", place)
    evaluate = ("evaluate", "vcmr", "--truth", folder / "val.jsonl", "--run", folder / "run.jsonl")
    with_system = (*search, "--model", folder / "RUN")
    calls: dict[str, Callable[[], Any]] = {
        "query": lambda: corpus.search(QUERY),
        "trained query": lambda: corpus.search(QUERY, model=str(folder / "RUN")),
        "number": lambda: root.evaluate(folder / "val.jsonl", folder / "run.jsonl", protocol="vcmr"),
        "video": lambda: corpus.add(next(talks)),
        "training step": lambda: trained(folder),
    }
    commands: dict[str, tuple[object, ...]] = {
        "query": search, "trained query": with_system, "number": evaluate,
        "video": ("index", next(talks), "--corpus", by_command), "training step": (*train, folder / "AGAIN"),
    }  # fmt: skip
    # Twice: what a trained system keeps on first use changes the corpus, which the next query looks at.
    for name in ("query", "trained query", "number") * 2:
        calls[name]()
    ways: dict[str, dict[str, Any]] = {}
    with patch("whenabouts.index.executor.ReaderPool", ReaderHere):
        for name in AIMS:
            counted = files_entered(source, lambda name=name: command(*commands[name]))  # type: ignore[misc]
            ways[name] = {
                "aim": AIMS[name],
                **files_entered(source, calls[name]),
                "command": counted["files"],
            }
    return ways


def main() -> None:
    """Walk the ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", default="whenabouts", help="the package that is walked")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ways = walk_all(options.package, Path(folder))
    for name, way in ways.items():
        counts = f"{way['files']:3} files (aim {way['aim']}), {way['rooms']} rooms, {way['changes']} changes"
        print(f"{name:15} {counts}; by command {way['command']} files")
    if options.out:
        earlier = json.loads(options.out.read_text()) if options.out.exists() else {}
        measured = {**earlier, "date": str(date.today()), "ways": ways}  # "before" stays as it was measured
        options.out.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
