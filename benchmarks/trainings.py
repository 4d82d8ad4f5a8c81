"""Trainings as processes of their own: what is finished is not done again, what was cut short goes on.

`studies` trains by this, and `seeds` has the mean and deviation of several.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whenabouts_systems.training.experiment import FOLDER

EXPERIMENTS = FOLDER


def is_finished(run: Path) -> bool:
    """Whether the training of this folder came to its end."""
    record = run / "run.json"
    return record.is_file() and bool(json.loads(record.read_text(encoding="utf-8")).get("ended"))


def train(command: Sequence[str], run: Path) -> None:
    """One training (a `train` command) on one thread, into `run`; its output goes to a file beside it."""
    if is_finished(run):
        return
    # One that was cut short before its first checkpoint begins again.
    resume = ["--resume"] if (run / "experiment.toml").exists() else []
    code = whenabouts([*command, *resume], run.with_name(f"{run.name}.log"))
    print(f"{run.name}: exit {code}", flush=True)


def whenabouts(command: Sequence[str], log: Path) -> int:
    """The exit code of a command of ours on one thread; its output is added to a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("a", encoding="utf-8") as output:
        return subprocess.run(
            [sys.executable, "-m", "whenabouts", *command],
            env=environment,
            stdout=output,
            stderr=output,
            check=False,
        ).returncode


def results(out: Path) -> list[dict[str, Any]]:
    """The lines of results that a folder holds."""
    path = out / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def add_result(out: Path, line: Mapping[str, Any]) -> None:
    """One more of these."""
    with (out / "results.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def seeds(values: Sequence[float], digits: int = 2) -> str:
    """Mean and deviation over seeds; one seed alone as it is."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.fmean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"
