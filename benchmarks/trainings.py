"""Trainings as processes of their own: what is finished is not done again, what was cut short goes on.

`simulated_charades` and `studies` train by this, and `seeds` says what several seeds came to.
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

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"


def is_finished(run: Path) -> bool:
    """Whether the training of this folder came to its end."""
    facts = run / "run.json"
    return facts.is_file() and bool(json.loads(facts.read_text(encoding="utf-8")).get("ended"))


def train(experiment: Path, features: Path, run: Path, settings: Sequence[str]) -> None:
    """One training on one thread, into `run`; what it says goes to a file beside that folder."""
    if is_finished(run):
        return
    command = ["train", str(experiment), "--features", str(features), "--out", str(run)]
    command += [part for setting in settings for part in ("--set", setting)]
    command += ["--resume"] if (run / "state.safetensors").exists() else []
    code = whenabouts(command, run.with_name(f"{run.name}.log"))
    print(f"{run.name}: exit {code}", flush=True)


def whenabouts(command: Sequence[str], log: Path) -> int:
    """The exit code of a command of ours on one thread; what it says is added to a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("a", encoding="utf-8") as said:
        return subprocess.run(
            [sys.executable, "-m", "whenabouts", *command],
            env=environment,
            stdout=said,
            stderr=said,
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
