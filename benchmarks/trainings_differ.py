"""How often `compare --trainings` finds a difference where there is none, beside two other ways.

    python -m benchmarks.trainings_differ --out benchmarks/results/trainings_differ.json

Two systems that are equally good, trained three times (and five), asked about 200 videos. Their difference
has a part of the training, a part of the video, and one of both together; the first is so many times as large
as the error that the videos alone leave. Ways: videos alone (the mean over trainings, as if nothing depended
on them), a bootstrap that draws trainings and videos, and ours. 5 % is promised.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from whenabouts_bench.evaluation.several_trainings import over_trainings
from whenabouts_bench.evaluation.significance import Floats

VIDEOS, OF_VIDEO, OF_BOTH, ALPHA = 200, 0.1, 0.07, 0.05


def alarms(trainings: int, ratio: float, trials: int) -> dict[str, float]:
    """The share of trials with a false alarm, by way."""
    random = np.random.default_rng([trainings, round(10 * ratio)])
    found = {"videos alone": 0, "bootstrap of trainings and videos": 0, "ours": 0}
    for _ in range(trials):
        of_training = ratio * OF_VIDEO / math.sqrt(VIDEOS) * random.standard_normal((trainings, 1))
        both = OF_BOTH * random.standard_normal((trainings, VIDEOS))
        values = of_training + OF_VIDEO * random.standard_normal(VIDEOS) + both
        found["ours"] += int(over_trainings(values[..., None], np.arange(VIDEOS)).p[0] <= ALPHA)
        found["bootstrap of trainings and videos"] += _bootstrap_alarms(values, random)
        mean = values.mean(axis=0)
        error = mean.std(ddof=1) / math.sqrt(VIDEOS)
        found["videos alone"] += abs(mean.mean()) > stdtrit(VIDEOS - 1, 1 - ALPHA / 2) * error
    return {way: round(int(count) / trials, 3) for way, count in found.items()}


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
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [
        {"trainings": trainings, "of trainings": ratio} | alarms(trainings, ratio, options.trials)
        for trainings in (3, 5)
        for ratio in (0.0, 1.0, 2.0, 5.0)
    ]
    told = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "trials": options.trials,
        "what": "share of false alarms at p = 0.05; numbers are simulated, so that no machine matters",
        "rows": rows,
    }
    text = json.dumps(told, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
