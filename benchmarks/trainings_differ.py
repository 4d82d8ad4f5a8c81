"""How often `compare --trainings` finds a difference where there is none, beside two other ways.

    python -m benchmarks.trainings_differ --out benchmarks/results/trainings_differ.json

Two systems that are equally good, trained three, five and ten times, asked about 200 videos. Their difference
has a part of the training, a part of the video, and one of both together; the first is so many times as large
as the error that the videos alone leave. Ways: videos alone (the mean over trainings, as if nothing depended
on them), a bootstrap that draws trainings and videos, Student's t with the degrees that Satterthwaite
estimates from them alone, and ours, which pools the variance of trainings over two systems and over six; over
six of which the other four vary half as much, too. Shares are listed by the p up to which a difference
counts: a test that keeps its promise errs no more often than that.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from whenabouts_bench.evaluation.several_trainings import over_trainings, pooled_variance
from whenabouts_bench.evaluation.significance import Floats

VIDEOS, OF_VIDEO, OF_BOTH = 200, 0.1, 0.07
ALPHA = 0.05
PROMISED = (0.05, 0.01, 0.0017, 0.001)
BLOCK, BOOTED = 500, 1000
"""Trials at once; trials of the bootstrap."""


def alarms(trainings: int, ratio: float, trials: int) -> dict[str, dict[str, float]]:
    """The share of trials with a false alarm, by way and promise; of the bootstrap by the first alone."""
    random = np.random.default_rng([trainings, round(10 * ratio)])
    found: defaultdict[str, list[Floats]] = defaultdict(list)
    booted = []
    for block in range(0, trials, BLOCK):
        of_training = (
            ratio * OF_VIDEO / math.sqrt(2 * VIDEOS) * random.standard_normal((6, trainings, 1, BLOCK))
        )
        both = OF_BOTH / math.sqrt(2) * random.standard_normal((2, trainings, VIDEOS, BLOCK))
        systems = of_training[:2] + both
        values = systems[0] - systems[1] + OF_VIDEO * random.standard_normal((VIDEOS, BLOCK))
        # Of other systems the means of trainings are enough, the interaction with videos among them.
        noise = OF_BOTH / math.sqrt(2 * VIDEOS) * random.standard_normal((4, trainings, 1, BLOCK))
        others = of_training[2:] + noise
        clusters = np.arange(VIDEOS)
        found["Student's t, these trainings alone"].append(over_trainings(values, clusters).p)
        for way, rows in (
            ("ours, two systems", [*systems]),
            ("ours, six systems", [*systems, *others]),
            ("ours, six systems, four vary half as much", [*systems, *(others / 2)]),
        ):
            pooled = pooled_variance(rows).of_difference
            found[way].append(over_trainings(values, clusters, pooled).p)
        mean, by_training = values.mean(axis=0), values.mean(axis=1)
        of_videos = mean.var(axis=0, ddof=1) / VIDEOS
        of_trainings = by_training.var(axis=0, ddof=1) / trainings
        variance = of_videos + of_trainings
        degrees = variance**2 / (of_trainings**2 / (trainings - 1) + of_videos**2 / (VIDEOS - 1))
        centre = np.abs(mean.mean(axis=0))
        found["Satterthwaite"].append(2 * stdtr(degrees, -centre / np.sqrt(variance)))
        found["videos alone"].append(2 * stdtr(VIDEOS - 1, -centre / np.sqrt(of_videos)))
        if block < BOOTED:
            booted += [_bootstrap_alarms(values[..., trial], random) for trial in range(BLOCK)]
    p = {way: np.concatenate(parts) for way, parts in found.items()}
    shares = {way: {f"{a:g}": round(float((one <= a).mean()), 5) for a in PROMISED} for way, one in p.items()}
    return {**shares, "bootstrap of trainings and videos": {f"{ALPHA:g}": round(float(np.mean(booted)), 3)}}


def _bootstrap_alarms(values: Floats, random: np.random.Generator, draws: int = 500) -> int:
    """1 where the percentile interval of drawn trainings and videos does not hold 0."""
    trainings, videos = values.shape
    which = random.multinomial(trainings, np.full(trainings, 1 / trainings), draws) / trainings
    asked = random.multinomial(videos, np.full(videos, 1 / videos), draws) / videos
    low, high = np.quantile((which * (asked @ values.T)).sum(axis=1), (ALPHA / 2, 1 - ALPHA / 2))
    return int(not low <= 0 <= high)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [
        {"trainings": trainings, "of trainings": ratio} | alarms(trainings, ratio, options.trials)
        for trainings in (3, 5, 10)
        for ratio in (0.0, 1.0, 2.0, 5.0)
    ]
    told = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "trials": options.trials,
        "what": "shares of false alarms; numbers are simulated, so that no machine matters",
        "rows": rows,
    }
    text = json.dumps(told, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
