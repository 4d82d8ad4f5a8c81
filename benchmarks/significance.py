"""Whether the tests and intervals of `compare` keep what they promise, and how fast they are.

    python benchmarks/significance.py --out benchmarks/results/significance.json

All data are made here. Queries come in videos; systems have luck with videos, not only with queries.

* false alarms: two systems that are equally good. How often is p at most 0.05, by video and by query?
* power: one system is better. How often is it seen, by video?
* coverage: how often does an interval that should cover 95 % hold the truth, for several kinds of
  intervals (the package has `expanded`)?
* speed: 10,895 queries of 2,179 videos, 8 metrics, 10,000 resamples, against plain Python below.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from whenabouts_bench.evaluation.comparison import Settings, compare
from whenabouts_bench.evaluation.evaluate import Evaluation
from whenabouts_bench.evaluation.significance import bootstrap_intervals, sign_flip_test

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

ALPHA = 0.05
LAYOUTS = {"200 videos, 5 queries each": (200, 5), "25 videos, 160 queries each": (25, 160)}
LUCK = (0.0, 0.5, 1.0)
KINDS = ("hits", "rare hits", "graded")


# ------------------------------------------------------------------------------- data


def layout(rng: np.random.Generator, videos: int, queries: int | None = None) -> Indices:
    """The video of each query; without a number of queries they are 1 and more, 5 in the mean."""
    each = np.full(videos, queries) if queries else rng.geometric(0.2, videos)
    return np.repeat(np.arange(videos), each)


def systems(
    rng: np.random.Generator, clusters: Indices, trials: int, kind: str, luck: float, gain: float = 0.0
) -> tuple[Floats, Floats]:
    """(Q, trials) values of two systems; `luck` spreads how videos suit each, `gain` is the second's lead."""
    videos, queries = int(clusters.max()) + 1, len(clusters)
    shared = rng.normal(size=(videos, trials))[clusters]
    values = []
    for more in (0.0, gain):
        level = 0.8 * shared + luck * rng.normal(size=(videos, trials))[clusters] + more
        if kind == "graded":
            values.append(np.clip(0.35 + 0.2 * level + 0.3 * rng.normal(size=(queries, trials)), 0, 1))
        else:
            chance = 1 / (1 + np.exp((1.0 if kind == "hits" else 3.5) - level))
            values.append((rng.random((queries, trials)) < chance).astype(np.float64))
    return values[0], values[1]


# ------------------------------------------------------------------------------- promises


def alarms(trials: int, gain: float) -> list[dict[str, Any]]:
    """How often p is at most 0.05, by video and by query."""
    rows = []
    for name, (videos, queries) in LAYOUTS.items():
        for luck in LUCK:
            rng = np.random.default_rng(1)
            seen = np.zeros(2)
            for number in range(trials // 100):
                clusters = layout(rng, videos, queries)
                one, other = systems(rng, clusters, 100, "hits", luck, gain)
                for way, labels in enumerate((clusters, np.arange(len(clusters)))):
                    p = sign_flip_test(other - one, labels, resamples=1000, seed=number).p
                    seen[way] += (p <= ALPHA).sum()
            by_video, by_query = (seen / trials).round(4).tolist()
            told = {"layout": name, "luck with videos": luck, "by video": by_video}
            # What is seen by a test that sees too much is no power.
            rows.append(told if gain else told | {"by query": by_query})
    return rows


def coverage(trials: int) -> list[dict[str, Any]]:
    """How often the intervals hold the truth, by number of videos, kind of values and kind of interval."""
    rows = []
    for kind in KINDS:
        rng = np.random.default_rng(2)
        truth = float(systems(rng, np.arange(2_000_000), 1, kind, 0.5)[0].mean())
        for videos in (5, 8, 10, 15, 25, 50, 100, 300):
            held: dict[str, dict[str, list[float]]] = {
                "mean": defaultdict(list),
                "difference": defaultdict(list),
            }
            for number in range(trials // 20):
                clusters = layout(rng, videos)
                clusters = np.unique(clusters, return_inverse=True)[1]
                one, other = systems(rng, clusters, 20, kind, 0.5)
                for what, values, right in (("mean", one, truth), ("difference", other - one, 0.0)):
                    for interval, ends in intervals(values, clusters, number).items():
                        held[what][interval] += ((ends[:, 0] <= right) & (right <= ends[:, 1])).tolist()
            rows += [
                {"values": kind, "videos": videos, "of": what}
                | {interval: round(float(np.mean(hits)), 4) for interval, hits in by_interval.items()}
                for what, by_interval in held.items()
            ]
    return rows


def intervals(values: Floats, clusters: Indices, seed: int, resamples: int = 1000) -> dict[str, Floats]:
    """(K, 2) ends by each kind of interval."""
    counts = np.bincount(clusters).astype(np.float64)
    videos = len(counts)
    sums: Floats = np.stack([np.bincount(clusters, own) for own in values.T], axis=1)
    mean = sums.sum(axis=0) / counts.sum()
    drawn = np.random.default_rng(seed).multinomial(videos, np.full(videos, 1 / videos), resamples)
    times = drawn.astype(np.float64)
    means: Floats = (times @ sums) / (times @ counts)[:, None]
    spread = (
        np.sqrt(((sums - mean * counts[:, None]) ** 2).sum(axis=0) * videos / (videos - 1)) / counts.sum()
    )
    wide = stdtrit(videos - 1, 1 - ALPHA / 2) * spread
    return {
        "expanded": bootstrap_intervals(
            values, clusters, resamples=resamples, seed=seed, confidence=1 - ALPHA
        ),
        "percentile": np.quantile(means, (ALPHA / 2, 1 - ALPHA / 2), axis=0).T,
        "BCa": accelerated(means, mean, sums, counts),
        "Student": np.stack([mean - wide, mean + wide], axis=1),
    }


def accelerated(means: Floats, mean: Floats, sums: Floats, counts: Floats) -> Floats:
    """Bias-corrected and accelerated percentiles (Efron, 1987)."""
    normal = NormalDist()
    without = (sums.sum(axis=0) - sums) / (counts.sum() - counts)[:, None]
    off = without.mean(axis=0) - without
    cubes, squares = (off**3).sum(axis=0), (off**2).sum(axis=0)
    bent = np.divide(cubes, 6 * squares**1.5, out=np.zeros_like(cubes), where=squares > 0)
    below = ((means < mean).mean(axis=0) + (means <= mean).mean(axis=0)) / 2
    ends = np.empty((len(mean), 2))
    for column in range(len(mean)):
        bias = normal.inv_cdf(float(np.clip(below[column], 1e-3, 1 - 1e-3)))
        for side, share in enumerate((ALPHA / 2, 1 - ALPHA / 2)):
            at = bias + normal.inv_cdf(share)
            moved = normal.cdf(bias + at / (1 - float(bent[column]) * at))
            ends[column, side] = np.quantile(means[:, column], moved)
    return ends


# ------------------------------------------------------------------------------- speed


def plain_sign_flips(
    differences: Sequence[Sequence[float]], clusters: Sequence[int], resamples: int
) -> list[float]:
    """p-values of the metrics; `differences` are lists of values, one list a metric."""
    coin = random.Random(0)
    by_video: dict[int, list[float]] = {}
    for number, video in enumerate(clusters):
        sums = by_video.setdefault(video, [0.0] * len(differences))
        for metric, values in enumerate(differences):
            sums[metric] += values[number]
    observed = [abs(sum(column)) for column in zip(*by_video.values(), strict=True)]
    far = [0] * len(differences)
    for _ in range(resamples):
        totals = [0.0] * len(differences)
        for sums in by_video.values():
            if coin.getrandbits(1):
                for metric, value in enumerate(sums):
                    totals[metric] += value
            else:
                for metric, value in enumerate(sums):
                    totals[metric] -= value
        for metric, total in enumerate(totals):
            far[metric] += abs(total) >= observed[metric] - 1e-9
    return [(1 + count) / (1 + resamples) for count in far]


def plain_bootstrap(
    columns: Sequence[Sequence[float]], clusters: Sequence[int], resamples: int
) -> list[tuple[float, float]]:
    """Percentile intervals of the means of columns."""
    draw = random.Random(0)
    by_video: dict[int, list[float]] = {}
    counts: dict[int, int] = {}
    for number, video in enumerate(clusters):
        sums = by_video.setdefault(video, [0.0] * len(columns))
        counts[video] = counts.get(video, 0) + 1
        for column, values in enumerate(columns):
            sums[column] += values[number]
    videos = list(by_video)
    means: list[list[float]] = [[] for _ in columns]
    for _ in range(resamples):
        totals, queries = [0.0] * len(columns), 0
        for video in draw.choices(videos, k=len(videos)):
            queries += counts[video]
            for column, value in enumerate(by_video[video]):
                totals[column] += value
        for column, total in enumerate(totals):
            means[column].append(total / queries)
    cut = int(resamples * ALPHA / 2)
    return [(sorted(own)[cut], sorted(own)[-1 - cut]) for own in means]


def speed(plain_resamples: int) -> dict[str, Any]:
    """Seconds of `compare` and of plain Python, which is run with fewer resamples and scaled up."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(2179), 5)
    one, other = systems(rng, clusters, 8, "hits", 0.5, 0.05)
    ids = tuple(f"q{number}" for number in range(len(clusters)))
    metrics = tuple(f"R@{number}" for number in range(8))
    runs = [Evaluation("speed@1", name, metrics, ids, values) for name, values in (("a", one), ("b", other))]
    video_of = dict(zip(ids, clusters.tolist(), strict=True))
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        comparison = compare(runs, video_of, settings=Settings(resamples=10_000))
        seconds.append(time.perf_counter() - begin)
    columns = np.concatenate([one, other, other - one], axis=1)
    begin = time.perf_counter()
    p = plain_sign_flips((other - one).T.tolist(), clusters.tolist(), plain_resamples)
    flips = time.perf_counter() - begin
    begin = time.perf_counter()
    plain_bootstrap(columns.T.tolist(), clusters.tolist(), plain_resamples)
    draws = time.perf_counter() - begin
    plain = (flips + draws) * 10_000 / plain_resamples
    apart = max(abs(d.p - own) for d, own in zip(comparison.differences, p, strict=True))
    return {
        "queries": len(ids),
        "videos": 2179,
        "metrics": 8,
        "resamples": 10_000,
        "compare, seconds, best of 5": round(min(seconds), 3),
        "plain Python, seconds": round(plain, 1),
        "plain Python was run with resamples": plain_resamples,
        "ratio": round(plain / min(seconds)),
        "largest difference of p": round(apart, 4),
    }


def report(trials: int, plain_resamples: int) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "load at the start": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "trials": trials,
        "speed": speed(plain_resamples),
        "false alarms at 0.05": alarms(trials, 0.0),
        "power at 0.05, second system better by 0.3 logits": alarms(trials, 0.3),
        "coverage of 0.95": coverage(trials),
    }


def processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="data sets of every kind")
    parser.add_argument("--plain-resamples", type=int, default=500)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    arguments = parser.parse_args()
    text = json.dumps(report(arguments.trials, arguments.plain_resamples), indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
