"""One attack after another in a process, until the time is over."""

from __future__ import annotations

import importlib
import os
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CORES = 2


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


def tried(attack: Any, seed: int) -> tuple[Counter[str], list[str]]:
    """What a trial did, by kind, and what it found. An error of the trial itself is a finding."""
    try:
        done, findings = attack.try_once(random.Random(seed))
    except Exception:
        return Counter(), [traceback.format_exc()]
    return done, findings
