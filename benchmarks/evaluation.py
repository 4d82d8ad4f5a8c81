"""How long numbers take, held against plain Python of the same definition in the same run.

    python -m benchmarks.evaluation --out benchmarks/results/evaluation.json

Three tasks at the size of the published benchmarks, on generated data: TVR's three lists, nDCG of ranked
moments, and suppression of a million moments. Plain Python
(`plain_evaluation.py`) does a share of the queries, and its time is scaled up to all; both must agree on
that share. `times_reading_once` is the distance from the least that can be: reading the input once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import plain_evaluation as plain
from benchmarks.machine import describe_machine
from numpy.typing import NDArray

from whenabouts.overlap import suppress
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunBlock, Task

REPEATS = 5


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[list[float], Any]:
    """Seconds of each repetition, and what the last one gave."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - begun)
    return seconds, result


def told(
    name: str, seconds: list[float], plain_seconds: float | None, work: str, bytes_read: int
) -> dict[str, Any]:
    """One row of the result. `bytes_read` is what the input columns weigh: they must be read once."""
    middle = sorted(seconds)[len(seconds) // 2]
    row = {
        "task": name,
        "work": work,
        "seconds_median": round(middle, 4),
        "seconds_all": [round(value, 4) for value in seconds],
        "plain_python_seconds": None if plain_seconds is None else round(plain_seconds, 1),
        "times_faster": None if plain_seconds is None else round(plain_seconds / middle, 1),
        "megabytes_read": round(bytes_read / 1e6, 1),
        "times_reading_once": round(middle / (bytes_read / read_rate()), 1),
    }
    print(row, flush=True)
    return row


@cache
def read_rate() -> float:
    """Bytes a second at which this machine sums a large array: the floor of any pass over the input."""
    numbers = np.ones(50_000_000)
    seconds, _ = timed(numbers.sum)
    return numbers.nbytes / min(seconds)


def spans(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Spans on TVR's 1.5 s grid in videos of 76 s, so that IoU at the threshold and ties come up."""
    start = rng.integers(0, 40, count).astype(np.float64) * 1.5
    return start, start + rng.integers(1, 12, count).astype(np.float64) * 1.5


def block(query: int, rows: int, video: NDArray[np.int64], videos: int, rng: np.random.Generator) -> RunBlock:
    """A list of `rows` moments for each query."""
    start, end = spans(rng, query * rows)
    return RunBlock(
        query_ids=tuple(f"q{n}" for n in range(query)),
        offsets=np.arange(query + 1) * rows,
        video_ids=tuple(f"v{n}" for n in range(videos)),
        video=video.astype(np.int32),
        start=start,
        end=end,
        score=-np.tile(np.arange(rows, dtype=np.float64), query),
    )


def as_plain(annotations: Annotations, block: RunBlock, queries: int) -> tuple[Any, Any]:
    """The first queries of truth and run as `plain_evaluation` takes them."""
    truth: dict[str, plain.Moments] = {query.id: [] for query in annotations.queries[:queries]}
    for q, v, s, e, r in zip(
        annotations.query,
        annotations.video,
        annotations.start,
        annotations.end,
        annotations.relevance,
        strict=True,
    ):
        if q < queries:
            truth[f"q{q}"].append((annotations.videos[v].id, float(s), float(e), float(r)))
    run = {}
    for q in range(queries):
        rows = range(block.offsets[q], block.offsets[q + 1])
        run[f"q{q}"] = [
            (
                block.video_ids[block.video[r]],
                float(block.start[r]),
                float(block.end[r]),
                float(block.score[r]),
            )
            for r in rows
        ]
    return truth, run


def tvr(rng: np.random.Generator) -> dict[str, Any]:
    """10,895 queries, 100 rows in each of three lists."""
    queries, rows, videos, share = 10_895, 100, 2_179, 400
    truth = AnnotationBuilder("tvr", cut=False)
    own = rng.integers(0, videos, queries)
    start, end = spans(rng, queries)
    for n in range(queries):
        truth.add_query(f"q{n}", "text", type="v")
        truth.judge(f"q{n}", f"v{own[n]}", float(start[n]), float(end[n]))
    annotations = truth.annotations()
    near = np.where(rng.random((queries, rows)) < 0.1, own[:, None], rng.integers(0, videos, (queries, rows)))
    lists: dict[Task, tuple[RunBlock, ...]] = {
        "VCMR": (block(queries, rows, near.reshape(-1), videos, rng),),
        "SVMR": (block(queries, rows, np.repeat(own, rows), videos, rng),),
        "VR": (
            block(
                queries, rows, np.argsort(rng.random((queries, videos)), 1)[:, :rows].reshape(-1), videos, rng
            ),
        ),
    }
    run = MemoryRun("tvr", lists)
    seconds, result = timed(lambda: evaluate(annotations, run, protocol="tvr"))
    begun = time.perf_counter()
    for task, told_by in lists.items():
        some, answers = as_plain(annotations, told_by[0], share)
        for k in (1, 5, 10, 100):
            for iou in (0.5, 0.7) if task != "VR" else (0.0,):
                values = plain.recall(some, answers, k, iou, task)
                name = f"VR R@{k}" if task == "VR" else f"{task} R@{k},IoU={iou}".removeprefix("VCMR ")
                # In float32 an IoU may fall the other way at the threshold; on this grid it never does.
                np.testing.assert_array_equal(
                    result.column(name)[:share], [values[f"q{n}"] for n in range(share)]
                )
    plain_seconds = (time.perf_counter() - begun) * queries / share
    return told(
        "tvr",
        seconds,
        plain_seconds,
        f"{queries} queries x {rows} rows x 3 lists, 20 metrics",
        28 * 3 * queries * rows,
    )


def ranked(rng: np.random.Generator) -> dict[str, Any]:
    """2,781 queries, 40 rows, 30 judged moments each, 3 K and 3 IoU."""
    queries, rows, videos, judged, share = 2_781, 40, 2_517, 30, 100
    truth = AnnotationBuilder("rvmr")
    near = rng.integers(0, videos, (queries, judged))
    for n in range(queries):
        truth.add_query(f"q{n}")
        start, end = spans(rng, judged)
        for v, s, e, g in zip(near[n], start, end, rng.integers(0, 5, judged), strict=True):
            truth.judge(f"q{n}", f"v{v}", float(s), float(e), float(g))
    annotations = truth.annotations()
    video = np.take_along_axis(near, rng.integers(0, judged, (queries, rows)), 1)
    answers = block(queries, rows, video.reshape(-1), videos, rng)
    run = MemoryRun("rvmr", {"VCMR": (answers,)})
    seconds, result = timed(lambda: evaluate(annotations, run, protocol="rvmr"))
    some, listed = as_plain(annotations, answers, share)
    begun = time.perf_counter()
    for k in (10, 20, 40):
        for iou in (0.3, 0.5, 0.7):
            values = plain.ndcg(some, listed, k, iou)
            column = result.column(f"nDCG@{k},IoU={iou}")[:share]
            np.testing.assert_allclose(column, [values[f"q{n}"] for n in range(share)], atol=1e-12)
    plain_seconds = (time.perf_counter() - begun) * queries / share
    return told(
        "rvmr",
        seconds,
        plain_seconds,
        f"{queries} queries x {rows} rows x {judged} judged, 9 metrics",
        28 * queries * rows,
    )


def suppression(rng: np.random.Generator, lists: int, share: int) -> dict[str, Any]:
    """A million moments in so many lists."""
    count = 1_000_000
    size = count // lists
    # One list of a million is a long archive: moments of 2 to 60 s along so many seconds.
    start = rng.uniform(0, 80.0 if lists > 1 else 4_000_000.0, count)
    end = start + rng.uniform(2, 60, count)
    score = rng.normal(size=count)
    group = np.repeat(np.arange(lists), size)
    seconds, kept = timed(lambda: suppress(group, start, end, score, 0.5), 3)
    begun = time.perf_counter()
    if lists > 1:
        survivors = 0
        for n in range(share):
            rows = range(n * size, (n + 1) * size)
            moments = [("v", float(start[r]), float(end[r]), float(score[r])) for r in rows]
            survivors += len(plain.suppressed(moments, 0.5))
        assert survivors == int((kept < share * size).sum())
        plain_seconds: float | None = (time.perf_counter() - begun) * lists / share
    else:
        plain_seconds = None  # quadratic: it would take days
    return told(
        f"nms, {lists} lists",
        seconds,
        plain_seconds,
        f"{count} moments in {lists} lists, {len(kept)} survive",
        32 * count,
    )


def main() -> None:
    """Run all and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = [tvr(rng), ranked(rng), suppression(rng, 10_000, 50), suppression(rng, 1, 0)]
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("numpy"),
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
