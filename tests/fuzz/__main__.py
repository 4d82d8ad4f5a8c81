"""Run attacks until the time is over, two at a time, and print how many of each were tried.

    python -m tests.fuzz [--minutes 60] [--seed N] [--only media,damage]

Exits with 1 where something was found. A trial is repeated by its name and seed: `--only media --trial SEED`.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.trials import CORES, run_attacks, tried

ATTACKS = (
    *("media", "damage", "kills", "requests"),
    *("changes", "arrays", "strangers", "exports", "replies", "tools"),
)


def report(totals: dict[str, Counter[str]], found: int, minutes: float) -> None:
    """Print the counts."""
    print(f"\n{minutes:.1f} minutes")
    for name, counts in totals.items():
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        print(f"{name:10} {kinds}")
    print(f"findings   {found}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Attacks by chance.")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("ATTACK_MINUTES", "60")))
    parser.add_argument("--seed", type=int, default=int(time.time()) // 2 * 2)
    parser.add_argument("--only", default=",".join(ATTACKS), help="which attacks, with commas")
    parser.add_argument("--trial", type=int, help="the seed of one trial to be repeated")
    options = parser.parse_args()
    names = options.only.split(",")
    if options.trial is not None:
        with tempfile.TemporaryDirectory() as folder:
            attack = importlib.import_module(f"tests.fuzz.{names[0]}").Attack(Path(folder))
            done, findings = tried(attack, options.trial)
        print(dict(done), *findings, sep="\n")
        return 1 if findings else 0
    started = time.time()
    until = started + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    turns = [names[turn:] + names[:turn] for turn in range(CORES)]
    workers = [
        context.Process(target=run_attacks, args=(turn, options.seed + number, until, results))
        for number, turn in enumerate(turns)
    ]
    for worker in workers:
        worker.start()
    totals: dict[str, Counter[str]] = {name: Counter() for name in names}
    found = 0
    while any(worker.is_alive() for worker in workers) or not results.empty():
        try:
            name, seed, done, findings = results.get(timeout=1)
        except Exception:  # nothing came within the second
            continue
        totals[name] += Counter(trials=1) + done
        for finding in findings:
            found += 1
            print(f"FOUND by {name}, seed {seed}:\n{finding}", flush=True)
    report(totals, found, (time.time() - started) / 60)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
