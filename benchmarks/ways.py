"""Through how many files each of the four ways goes: a profile of real runs.

    python -m benchmarks.ways [--out benchmarks/results/ways.json]

The ways of ARCHITECTURE.md: a query and a query with a trained system (`Corpus.search` on an open corpus), a
video (`index` of one file), a training step (`train`: one epoch with its validation and its start), a number
(`evaluate`). A file counts where one of its functions or methods is called; importing it does not.
`rooms` are the folders of these files, `changes` how often the run goes from one file to another. `command`
counts the files of the same run from the command line on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

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

    place, talk = folder / "my.corpus", folder / "talk.mp4"
    shutil.copy(SAMPLES / "friday.mp4", talk)
    shutil.copy(SAMPLES / "friday.vtt", folder / "talk.vtt")
    command("index", SAMPLES, "--corpus", place)
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
    }
    commands: dict[str, tuple[object, ...]] = {
        "query": search, "trained query": with_system, "number": evaluate,
        "video": ("index", talk, "--corpus", place), "training step": (*train, folder / "AGAIN"),
    }  # fmt: skip
    # Twice: what a trained system keeps on first use changes the corpus, which the next query looks at.
    for call in (*calls.values(), *calls.values()):
        call()
    ways: dict[str, dict[str, Any]] = {name: files_entered(source, call) for name, call in calls.items()}
    for name, arguments in commands.items():
        counted = files_entered(source, lambda arguments=arguments: command(*arguments))  # type: ignore[misc]
        ways.setdefault(name, counted)["command"] = counted["files"]
    return {name: {"aim": AIMS[name], **ways[name]} for name in AIMS}


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
