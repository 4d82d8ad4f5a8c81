"""How long the evaluation of MVMR takes, from encoded videos and queries to recall, held against the release.

    python -m benchmarks.pools --out benchmarks/results/pools.json

Charades-STA's size: 3,716 queries, pools of 50 of 1,334 videos, 136 cells each (N = 16), vectors of the
widths that MMN has there (256 in both joint spaces). The released program reports 119.0 s for scoring and
542.3 s for suppression, merging and recall on its authors' server (its log). Each step here is a process of
its own, whose peak memory is told beside what its input alone takes. Seconds are those of a clock on a
machine that had other work; processor seconds are what the step itself used. The lists of some queries are
first held against plain loops over videos and cells.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.machine import describe_machine

from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding, span_mask
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, QueryEncoding, VideoEncoding
from whenabouts_systems.ranking.candidates import Candidates
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, evaluating
from whenabouts_systems.ranking.localize import scored_pairs
from whenabouts_systems.ranking.rank import rank
from whenabouts_systems.ranking.ranker import Ranker

QUERIES, VIDEOS, POOL, CELLS = 3_716, 1_334, 50, 16
RELEASED = {"scoring_seconds": 119.0, "suppression_and_recall_seconds": 542.3, "both_seconds": 661.3}
DECODING = Decoding(nms=0.5, spans_per_query=50, top_videos=POOL)
_TOKENS, _WIDTH = 5, 32
_CHECKED = 3


@dataclass
class Given:
    """A system, its corpus, and judgements with pools."""

    model: Any
    corpus: MemoryCorpus
    truth: Annotations
    tokens: torch.Tensor
    system: str = "mmn"
    decoding: Decoding = DECODING

    def queries(self, rows: Any) -> QueryBatch:
        """Some queries, as the model reads them."""
        tokens = self.tokens[torch.as_tensor(rows)]
        return QueryBatch(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    @property
    def names(self) -> list[str]:
        """The ids of the queries."""
        return [query.id for query in self.truth.queries]


def made(seed: int = 0) -> Given:
    """The system with random weights; encodings of its shapes, smooth over neighbouring cells."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    settings = {
        "streams": {"video": _WIDTH},
        "query_width": _WIDTH,
        "clips_per_cell": 2,
        "pooling_counts": (15,),
    }
    model = new_model("mmn", config_of("mmn", settings)).eval()
    clips = ClipBatch(
        {"video": torch.randn(4, 2 * CELLS, _WIDTH)}, torch.ones(4, 2 * CELLS, dtype=torch.bool)
    )
    with evaluating(model):
        few = model.encode_videos(clips)
    durations = rng.uniform(15, 60, VIDEOS)
    place = np.arange(VIDEOS)
    corpus = MemoryCorpus(
        tuple(f"v{number:04d}" for number in range(VIDEOS)),
        durations / CELLS,
        durations,
        [_widened(few, VIDEOS)],
        np.zeros(VIDEOS, np.int64),
        place,
    )
    return Given(model, corpus, _truth(rng, durations), torch.randn(QUERIES, _TOKENS, _WIDTH))


def _widened(few: VideoEncoding, count: int) -> VideoEncoding:
    """As many videos, each one of a few with noise of its own, unit vectors."""

    def more(one: torch.Tensor) -> torch.Tensor:
        rows = one[torch.arange(count) % len(one)]
        if one.is_floating_point():
            for low in range(0, count, 64):
                some = rows[low : low + 64]
                some += 0.5 * one.std() * torch.randn(some.shape)
                some /= some.norm(dim=-1, keepdim=True)
        return rows

    groups = (
        {name: more(one) for name, one in group.items()} for group in (few.keys, few.key_masks, few.parts)
    )
    return VideoEncoding(more(few.mask), *groups)


def _truth(rng: np.random.Generator, durations: Any) -> Annotations:
    """One to five positives a query, in its pool."""
    truth = AnnotationBuilder("pools")
    for number in range(QUERIES):
        name, pool = f"q{number}", rng.choice(VIDEOS, POOL, replace=False).tolist()
        truth.add_query(name)
        for video in pool[: int(rng.integers(1, 6))]:
            first, last = sorted(rng.integers(0, CELLS, 2).tolist())
            cell = float(durations[video]) / CELLS
            truth.judge(name, f"v{video:04d}", first * cell, (last + 1) * cell)
        truth.set_pool(name, [f"v{video:04d}" for video in pool])
    return truth.annotations()


def _encoded(given: Given) -> QueryEncoding:
    with evaluating(given.model):
        found: QueryEncoding = given.model.encode_queries(given.queries(np.arange(QUERIES)))
    return found


def _candidates(given: Given, count: int) -> Candidates:
    """The videos of the first pools."""
    pools = list(given.truth.pools.values())[:count]
    return Candidates.ragged([np.sort(given.corpus.rows_of(pool)) for pool in pools])


def step_scoring(given: Given) -> dict[str, Any]:
    """All spans of all pools scored, a block at a time, and let go again."""
    begun = time.perf_counter()
    queries, candidates, cells = _encoded(given), _candidates(given, QUERIES), 0
    allowed = span_mask(CELLS, given.decoding)
    with evaluating(given.model):
        for scores, _ in scored_pairs(given.model, queries, given.corpus, candidates, given.decoding):
            assert scores.spans is not None
            cells += int(((scores.spans > -torch.inf) & allowed).sum())
    return {"seconds": time.perf_counter() - begun, "cells": cells}


def step_whole(given: Given) -> dict[str, Any]:
    """Scoring, suppression, merging and recall: what `run --pools` and `evaluate` do between their files."""
    begun = time.perf_counter()
    ranker = Ranker(given, given.corpus)
    blocks = tuple(ranker.rank(given.names, given.queries, pools=given.truth.pools))
    ranked = time.perf_counter() - begun
    result = evaluate(given.truth, MemoryRun("pools", {"VCMR": blocks}), protocol="mvmr")
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "evaluate_seconds": seconds - ranked,
        "R@50,IoU=0.5": result.means()["R@50,IoU=0.5"],
    }


def check(given: Given) -> None:
    """The lists of some queries are those of plain loops over videos and cells."""
    queries, candidates = _encoded(given).take(torch.arange(_CHECKED)), _candidates(given, _CHECKED)
    decoding = replace(given.decoding, nms=0.5 + 1e-9, spans_per_query=50)
    moments = rank(given, given.corpus, queries, candidates, decoding, exact=True)
    for query in range(_CHECKED):
        kept: list[tuple[float, int, float, float]] = []
        for row in candidates.rows[query].tolist():
            with evaluating(given.model):
                scores = given.model.score_spans(
                    queries.take(torch.tensor([query])), given.corpus.blocks[0].take(torch.tensor([row]))
                )
            kept += _suppressed(scores.spans[0].numpy(), row, float(given.corpus.clip_seconds[row]))
        kept.sort(key=lambda one: (-one[0], *one[1:]))
        np.testing.assert_allclose(
            moments.score[moments.query == query], [one[0] for one in kept[:50]], atol=1e-5
        )
        np.testing.assert_allclose(
            moments.start[moments.query == query], [one[2] for one in kept[:50]], atol=1e-9
        )


def _suppressed(spans: Any, row: int, cell: float) -> list[tuple[float, int, float, float]]:
    """The survivors of one video, one after the other."""
    rows = [
        (float(spans[i, j]), row, i * cell, (j + 1) * cell) for i in range(CELLS) for j in range(i, CELLS)
    ]
    kept: list[tuple[float, int, float, float]] = []
    for one in sorted(rows, key=lambda one: (-one[0], one[2], one[3])):
        shared = [
            max(0.0, min(one[3], other[3]) - max(one[2], other[2]))
            / (max(one[3], other[3]) - min(one[2], other[2]))
            for other in kept
        ]
        if all(share <= 0.5 + 1e-9 for share in shared):
            kept.append(one)
    return kept


STEPS = {"scoring": step_scoring, "whole": step_whole}


def _alone(step: str, threads: int) -> dict[str, Any]:
    """A step in a process of its own, with its peak memory."""
    command = [sys.executable, "-m", "benchmarks.pools", "--step", step, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> None:
    """Measure one step, or all of them in processes of their own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--step", choices=tuple(STEPS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.step:
        given = made()
        before, used = _peak(), os.times()
        told = STEPS[options.step](given)
        spent = os.times()
        processor = spent.user + spent.system - used.user - used.system
        print(
            json.dumps({**told, "processor_seconds": processor, "peak_mb": _peak(), "input_peak_mb": before})
        )
        return
    check(made())
    rows = {}
    for step in STEPS:
        runs = [_alone(step, options.threads) for _ in range(options.repeats)]
        rows[step] = sorted(runs, key=lambda one: float(one["seconds"]))[len(runs) // 2]
        print(step, rows[step], flush=True)
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**describe_machine("numpy"), "threads": options.threads, "torch": torch.__version__},
        "work": f"{QUERIES} queries x {POOL} of {VIDEOS} videos x {CELLS * (CELLS + 1) // 2} cells",
        "steps": rows,
        "released": RELEASED,
        "times_faster_than_released": {
            name: round(RELEASED["both_seconds"] / rows["whole"][name], 1)
            for name in ("seconds", "processor_seconds")
        },
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def _peak() -> int:
    """MB that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
