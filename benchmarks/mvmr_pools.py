"""MVMR pools of real annotations: time, memory, and how they compare with the released pools.

    python benchmarks/mvmr_pools.py --charades DIR --released DIR --activitynet DIR --tacos DIR [--threads 1]
        [--parts compare charades activitynet visual evidence] [--out benchmarks/results/mvmr_pools.json]

The folders hold the annotation files of the data sets. `compare` holds the similarities of the bundled
sentence encoder against the released Charades-STA pools, which SimCSE and EMScore made. The others build
pools without the visual check, and `visual` those of ActivityNet Captions with made-up frame and word vectors
of CLIP's size (512 wide, a frame a second, pooled to 128). `evidence` tells what random pools would hold and
how cohesive positives are in words (paper 002, figure 2; paper 001, figure 4). Parts that are not asked for
stay as the result has them. Each part runs in a process of its own, for its
own peak memory. On a busy machine CPU seconds are the fair number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

DATE = "2026-11-23"
PARTS = ("compare", "charades", "activitynet", "visual", "evidence")
STEPS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.95)
_WIDTH = 512


def opened(name: str, folder: str, split: str) -> Any:
    """A split of a data set."""
    from whenabouts_bench.datasets import open_dataset

    return open_dataset(name, folder).annotations(split)


def similarity_of(annotations: Any) -> Any:
    """Vectors of the bundled encoder."""
    from whenabouts.encoders import open_text_encoder
    from whenabouts_bench.relevance.similarity import VectorSimilarity

    return VectorSimilarity.of(annotations.queries, open_text_encoder())


def spent_since(start: tuple[float, float]) -> dict[str, float]:
    """Seconds by the clock and of CPU."""
    return {
        "wall_s": round(time.perf_counter() - start[0], 1),
        "cpu_s": round(time.process_time() - start[1], 1),
    }


def now() -> tuple[float, float]:
    """Where `spent_since` starts."""
    return time.perf_counter(), time.process_time()


def built(annotations: Any, scorer: Any = None, start: tuple[float, float] | None = None) -> dict[str, Any]:
    """Pools with the paper's settings, and what they took."""
    from whenabouts_bench.relevance.pool_report import count_pools
    from whenabouts_bench.relevance.pools import build_pools

    begin = start or now()
    similarity = similarity_of(annotations)
    encoded = spent_since(begin)
    pools = build_pools(annotations, similarity, None, scorer)
    return {
        "encoding": encoded,
        "all": spent_since(begin),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "load": os.getloadavg()[0],
        "about": pools.about(),
        "counts": asdict(count_pools(pools.annotations)),
    }


def charades(options: argparse.Namespace) -> dict[str, Any]:
    """Charades-STA's test split without the visual check."""
    return built(opened("charades_sta", options.charades, "test"))


def activitynet(options: argparse.Namespace) -> dict[str, Any]:
    """ActivityNet Captions' val_2 without the visual check."""
    return built(opened("activitynet_captions", options.activitynet, "val_2"))


def visual(options: argparse.Namespace) -> dict[str, Any]:
    """ActivityNet Captions' val_2 with made-up vectors; how many pairs were scored."""
    import numpy as np

    from whenabouts_bench.relevance.emscore import EMScore, Frames, words_of
    from whenabouts_bench.relevance.units import distinct_captions

    annotations = opened("activitynet_captions", options.activitynet, "val_2")
    draw, begin = np.random.default_rng(0), now()
    common = draw.normal(size=_WIDTH).astype(np.float32)
    captions, caption_of = distinct_captions(annotations.queries)

    def noise(rows: int) -> Any:
        return draw.normal(size=(rows, _WIDTH)).astype(np.float32) + common

    def encode(texts: Any) -> Iterator[Any]:
        for text in texts:
            count = len(text.split()) + 3
            yield draw.integers(0, 20_000, count), noise(count)

    words = words_of(captions, encode, "made up", np.bincount(caption_of))
    frames = Frames.of((noise(max(1, round(video.duration))) for video in annotations.videos), 128, "made up")
    made = spent_since(begin)
    scorer = Counting(EMScore.of(words, frames, caption_of.astype(np.int64)))
    result = built(annotations, scorer)
    return {
        "making_vectors": made,
        "pairs_scored": scorer.pairs,
        "scoring_cpu_s": round(scorer.cpu, 1),
        **result,
    }


class Counting:
    """A scorer that says how much it did."""

    def __init__(self, scorer: Any) -> None:
        self._scorer, self.pairs, self.cpu = scorer, 0, 0.0

    def score(self, queries: Any, videos: Any, *, idf: bool = True) -> Any:
        """As the scorer does."""
        begin = time.process_time()
        found = self._scorer.score(queries, videos, idf=idf)
        self.pairs += len(queries)
        self.cpu += time.process_time() - begin
        return found


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """The bundled encoder's s_te of the pairs that the released pools call positive and negative."""
    import numpy as np

    from whenabouts_bench.relevance.pools import described_by
    from whenabouts_bench.relevance.similarity import nearest_of

    annotations = opened("charades_sta", options.charades, "test")
    released = opened("mvmr_charades_sta", options.released, "test")
    assert [q.text for q in annotations.queries] == [q.text for q in released.queries]
    count, described = len(annotations.queries), described_by(annotations)
    blocks = nearest_of(similarity_of(annotations), described, np.arange(count))
    nearest = np.concatenate([values for _, values in blocks])
    number = {video.id: place for place, video in enumerate(annotations.videos)}
    other = np.ones(nearest.shape, bool)
    other[annotations.query, annotations.video] = False
    positive, pooled = np.zeros_like(other), np.zeros_like(other)
    videos = np.array([number[video.id] for video in released.videos])
    positive[released.query, videos[released.video]] = True
    for row, query in enumerate(released.queries):
        pooled[row, [number[video] for video in released.pools[query.id]]] = True
    positive, negative = positive & other, pooled & ~positive & other
    full = pooled.sum(1) == 50
    return {
        "positive_pairs": int(positive.sum()),
        "negative_pairs": int(negative.sum()),
        "positives_at": quantiles(nearest[positive]),
        "negatives_at": quantiles(nearest[negative]),
        "all_at": quantiles(nearest[other]),
        "positives_word_for_word": float((nearest[positive] > 0.99999).mean()),
        "by_threshold": [at_threshold(step, nearest, positive, negative, other, full) for step in STEPS],
    }


def quantiles(values: Any) -> dict[str, float]:
    """Some quantiles, by name."""
    import numpy as np

    steps = (0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99)
    return {
        f"{step:g}": round(float(value), 3)
        for step, value in zip(steps, np.quantile(values, steps), strict=True)
    }


def at_threshold(
    step: float, nearest: Any, positive: Any, negative: Any, other: Any, full: Any
) -> dict[str, Any]:
    """What a threshold of the bundled encoder keeps, beside what the released pools hold.

    Candidate sets are compared over the queries whose released pool is full and has fewer than 5 positives:
    of these, the released positives are all that passed both checks.
    """
    import numpy as np

    near = (nearest >= step - 1e-6) & other
    capped = np.minimum(near.sum(1), 4) + 1
    whole = full & (positive.sum(1) < 4)
    both = int((near & positive)[whole].sum())
    return {
        "threshold": step,
        "near_videos_per_query": round(float(near.sum(1).mean()), 2),
        "positives_per_query_with_k_5": round(float(capped.mean()), 3),
        "queries_by_positives": {str(n): int((capped == n).sum()) for n in range(1, 6)},
        "released_positives_reached": round(float(near[positive].mean()), 4),
        "released_negatives_above": int(near[negative].sum()),
        "pairs_below": round(float((~near)[other].mean()), 4),
        "released_negatives_below": round(float((~near)[negative].mean()), 4),
        "whole_sets": {
            "queries": int(whole.sum()),
            "ours": int(near[whole].sum()),
            "released": int(positive[whole].sum()),
            "both": both,
            "jaccard": round(both / max(1, int((near | positive)[whole].sum())), 3),
        },
    }


def evidence(options: argparse.Namespace) -> dict[str, Any]:
    """What random pools would hold of each data set, and how cohesive the words of positives are."""
    from whenabouts_bench.relevance.pool_evidence import cohesiveness, random_pools_of
    from whenabouts_bench.relevance.pool_report import count_pools
    from whenabouts_bench.relevance.pools import PoolSettings, build_pools

    result: dict[str, Any] = {}
    for name, folder, split, size in (
        ("tacos", options.tacos, "test", 5),
        ("charades_sta", options.charades, "test", 50),
        ("activitynet_captions", options.activitynet, "val_2", 50),
    ):
        annotations = opened(name, folder, split)
        similarity = similarity_of(annotations)
        pools = build_pools(annotations, similarity, PoolSettings(size=size))
        words, counts = cohesiveness(pools, similarity), count_pools(pools.annotations)
        result[name] = {
            "random_pools": asdict(random_pools_of(pools, similarity)),
            "words": {"positives": words.positives.mean(), "negatives": words.negatives.mean()},
            "moments": counts.moments,
            "own_moments_beyond_the_most": pools.about()["own moments beyond the most positives"],
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("charades", "released", "activitynet", "tacos"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--alone", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mvmr_pools.json")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(globals()[options.alone](options)))
        return 0
    result: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "threads": options.threads,
    }
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    for part in options.parts:
        command = [sys.executable, *sys.argv, "--alone", part]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        result[part] = {"date": DATE, **json.loads(done.stdout)}
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
