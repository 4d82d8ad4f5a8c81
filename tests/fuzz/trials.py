"""One attack after another in a process, until the time is over."""

from __future__ import annotations

import importlib
import os
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CORES = 2
_SHORT = 20
Did = tuple[Counter[str], list[str]]
"""What a trial did, by kind, and what it found."""


def run_attacks(names: Sequence[str], seed: int, until: float, results: Any) -> None:
    """Try attacks in turn until a time; each result is (attack, seed, what it did, findings)."""
    trials = {}
    with tempfile.TemporaryDirectory(prefix="whenabouts-attack-") as folder:
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        while time.time() < until:
            for name in names:
                if name not in trials:
                    place = Path(folder) / name
                    place.mkdir()
                    trials[name] = importlib.import_module(f"tests.fuzz.{name}").Attack(place)
                seed += CORES
                results.put((name, seed, *tried(trials[name], seed)))
                if time.time() >= until:
                    break


def many(once: Callable[[random.Random], Did], rng: random.Random) -> Did:
    """As many short trials as take about as long as one of another attack."""
    trials = [once(rng) for _ in range(_SHORT)]
    return sum((done for done, _ in trials), Counter[str]()), [line for _, found in trials for line in found]


def tried(attack: Any, seed: int) -> Did:
    """The result of a trial; an error of the trial itself is a finding."""
    try:
        done, findings = attack.try_once(random.Random(seed))
    except Exception:
        return Counter(), [traceback.format_exc()]
    return done, findings
