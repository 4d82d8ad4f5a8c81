"""How long a user waits for a command, from the start of its process to its end.

    python -m benchmarks.cold_start CORPUS [--times 15] [--out benchmarks/results/cold_start.json]

CORPUS is a corpus of words, such as `make demo` leaves (demo.corpus). Each command runs in a process of its
own, in turn with the others, once more than `--times`: the first round fills the caches of the system and is
not counted. `floor` starts Python and imports NumPy, which no search can do without. Wall time and processor
time of the process are medians, with the least and the most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from benchmarks.machine import describe_machine


def commands(corpus: Path) -> dict[str, list[str]]:
    """The commands that are timed, by name."""
    program = [sys.executable, "-m", "whenabouts"]
    return {
        "floor": [sys.executable, "-c", "import numpy"],
        "--help": [*program, "--help"],
        "stats": [*program, "stats", "--corpus", str(corpus)],
        "search": [*program, "search", "the space telescope in the cleanroom", "--corpus", str(corpus)],
    }


def timed(command: Sequence[str]) -> tuple[float, float]:
    """(seconds, processor seconds) of a command. Raises CalledProcessError if it fails."""
    before, began = os.times(), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds, after = time.monotonic() - began, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, spent


def main() -> None:
    """Time the commands, print them, and write them to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rounds = [
        {name: timed(command) for name, command in commands(options.corpus).items()}
        for _ in range(options.times + 1)
    ][1:]
    found: dict[str, object] = {
        name: {
            kind: [round(of(each[name][place] for each in rounds), 2) for of in (statistics.median, min, max)]
            for place, kind in enumerate(("seconds", "processor seconds"))
        }
        for name in rounds[0]
    }
    print(json.dumps(found, indent=1))
    if options.out is not None:
        found |= {"times": options.times, "date": date.today().isoformat()}
        found |= {"machine": describe_machine("numpy", "onnxruntime")}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
