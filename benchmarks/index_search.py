"""How fast and how exact the index answers: nearest clips, then all clips of their videos.

    python benchmarks/index_search.py --rows 1000000 --folder /tmp/corpus --out results.json

Generated corpus: `rows` / 50 videos of 50 clips, 384 dimensions; 500 topics, a video's own place in its
topic, a slow drift along the video, noise in each clip, and a spectrum that falls off as that of sentence
vectors does. Queries are clips with noise added. A corpus that is in `folder` already is used as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.product.index.records import ClipColumns, ClipHits, StreamInfo, VideoRecord
from whenabouts.product.index.store import Store

CLIPS = 50
DIMENSION = 384
STREAM = "subtitle"
K = 200
Matrix = NDArray[np.float32]


def describe_machine() -> dict[str, Any]:
    """Processor, memory and library versions; no names."""
    with Path("/proc/cpuinfo").open() as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    libraries = {name: version(name) for name in ("lancedb", "pyarrow", "numpy")}
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory),
        "python": platform.python_version(),
        **libraries,
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }


def unit(rows: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(rows, axis=-1, keepdims=True).astype(np.float32)
    return rows / lengths


def spectrum() -> Matrix:
    return (1 / np.sqrt(1 + np.arange(DIMENSION) / 16)).astype(np.float32)


def generate(videos: int, seed: int = 7, block: int = 1000) -> Iterator[Matrix]:
    """Clip vectors, `block` videos at a time: (videos, CLIPS, DIMENSION). Another block, another corpus."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Matrix:
        return rng.standard_normal((*shape, DIMENSION), dtype=np.float32) * spectrum()

    topics = normal(500)
    for first in range(0, videos, block):
        count = min(block, videos - first)
        place = topics[rng.integers(len(topics), size=count)] + 0.9 * normal(count)
        drift = np.cumsum(0.12 * normal(count, CLIPS), axis=1)
        yield unit(place[:, None] + drift + 0.7 * normal(count, CLIPS))


def video_name(number: int) -> str:
    return f"{number:016x}"


def write(store: Store, videos: int) -> float:
    """Write the corpus through the store's own way; seconds spent in it."""
    spent = 0.0
    first = 0
    for vectors in generate(videos):
        start = np.arange(CLIPS, dtype=np.float64) * 10.0
        text = [f"what is said in part {clip}" for clip in range(CLIPS)]
        entries = []
        for offset, video in enumerate(vectors):
            name = video_name(first + offset)
            record = VideoRecord(
                name, f"/videos/{name}.mp4", size=1, duration=500.0, streams={STREAM: "generated"}
            )
            entries.append((record, {STREAM: ClipColumns(start, start + 12.0, text, video)}))
        first += len(vectors)
        began = time.perf_counter()
        store.put_videos(entries)
        spent += time.perf_counter() - began
    began = time.perf_counter()
    store.optimize(force=True)
    print(f"optimize: {time.perf_counter() - began:.0f} s", flush=True)
    return spent + time.perf_counter() - began


def make_queries(videos: int, count: int) -> Matrix:
    """Clips of the first videos with noise of 0.8 of their own length added."""
    rng = np.random.default_rng(8)
    clips = next(generate(videos)).reshape(-1, DIMENSION)
    chosen = clips[rng.integers(len(clips), size=count)]
    noise = rng.standard_normal(chosen.shape, dtype=np.float32) / np.sqrt(DIMENSION)
    return unit(chosen + 0.8 * noise)


def truth_of(videos: int, queries: Matrix, keeps: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.int64]]:
    """The exact best K rows of each query, once for each set of videos that are kept: (queries, K)."""
    scores = np.concatenate(
        [
            queries @ block.reshape(-1, DIMENSION).astype(np.float16).astype(np.float32).T
            for block in generate(videos)
        ],
        axis=1,
    )
    best = []
    for keep in keeps:
        masked = np.where(np.repeat(keep, CLIPS)[None, :], scores, np.float32(-2))
        best.append(np.argpartition(-masked, K, axis=1)[:, :K])
    return best


def recall(hits: ClipHits, truth: NDArray[np.int64]) -> float:
    rows = {
        int(name, 16) * CLIPS + int(index) for name, index in zip(hits.video_ids, hits.index, strict=True)
    }
    return len(rows & set(truth.tolist())) / len(truth)


def timed(run: Callable[[Matrix], Any], queries: Matrix) -> tuple[dict[str, float], list[Any]]:
    """p50, p99 and mean in milliseconds after a warm-up of 20 queries, and the answers."""
    for query in queries[:20]:
        run(query)
    times, answers = [], []
    for query in queries:
        began = time.perf_counter()
        answers.append(run(query))
        times.append((time.perf_counter() - began) * 1e3)
    return {
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
        "mean_ms": round(float(np.mean(times)), 2),
        "load": round(os.getloadavg()[0], 1),
    }, answers


def nearest_of(store: Store, ids: Sequence[str] | None, query: Matrix) -> ClipHits:
    return store.nearest(STREAM, query, K, video_ids=ids)


def whole_way(store: Store, query: Matrix) -> list[tuple[str, float]]:
    """Nearest clips, all clips of their videos, and each video's best clip."""
    hits = store.nearest(STREAM, query, K)
    videos = list(dict.fromkeys(hits.video_ids))
    block = store.clips_of(STREAM, videos)
    best = np.maximum.reduceat(block.vectors @ query, block.offsets[:-1])
    return sorted(zip(videos, best.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))


def bandwidth(gigabytes: float = 0.768) -> float:
    """Milliseconds to read as many bytes as all half-precision vectors have: the floor of an exact search."""
    block = np.ones(int(gigabytes * 1e9 / 8))
    return min(_seconds(block.sum) for _ in range(5)) * 1e3


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


_FRESH = """
import sys, time, json
import numpy as np
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
began = time.perf_counter()
from whenabouts.product.index.lance import import_lancedb
import_lancedb()
imported = time.perf_counter()
from whenabouts.product.index.store import Store
store = Store.open(sys.argv[1])
opened = time.perf_counter()
query = np.load(sys.argv[2])
hits = store.nearest("subtitle", query, 200)
store.clips_of("subtitle", list(dict.fromkeys(hits.video_ids)))
first = time.perf_counter()
print(json.dumps({"import_s": imported - began, "open_s": opened - imported, "first_answer_s": first - opened,
                  "resident_mb": resident()}))
"""


def fresh_process(folder: Path, query: Matrix) -> dict[str, float]:
    """A process that imports, opens, answers one query and says how large it is; the best of three."""
    path = folder.parent / "query.npy"
    np.save(path, query)
    runs = []
    for _ in range(3):
        command = [sys.executable, "-c", _FRESH, str(folder), str(path)]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    best: dict[str, float] = min(runs, key=lambda run: float(run["open_s"]))
    return {key: round(value, 3) for key, value in best.items()}


def measure(store: Store, videos: int, count: int) -> dict[str, Any]:
    queries = make_queries(videos, count)
    rng = np.random.default_rng(3)
    shares = (1.0, 0.5, 0.1, 0.01)
    keeps = [rng.permutation(videos) < max(1, int(videos * share)) for share in shares]
    truths = truth_of(videos, queries, keeps)
    results: dict[str, Any] = {}
    for share, keep, truth in zip(shares, keeps, truths, strict=True):
        ids = None if share == 1.0 else [video_name(int(number)) for number in np.flatnonzero(keep)]
        some = count if share == 1.0 else min(count, 100)
        times, answers = timed(partial(nearest_of, store, ids), queries[:some])
        times["recall_at_200"] = round(
            float(np.mean([recall(*pair) for pair in zip(answers, truth, strict=False)])), 4
        )
        results[f"nearest, {share:.0%} of the videos"] = times
        print(share, times, flush=True)
    times, answers = timed(lambda query: whole_way(store, query), queries)
    times["videos_per_query"] = round(float(np.mean([len(answer) for answer in answers])), 1)
    results["nearest + clips of their videos + best clip of each"] = times
    results["exact nearest, from disk"] = timed(
        lambda query: store.nearest(STREAM, query, K, exact=True), queries[:10]
    )[0]
    results["match_text"] = timed(
        lambda query: store.match_text(STREAM, "what was said in part 7", K), queries[:50]
    )[0]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    videos = arguments.rows // CLIPS
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "rows": arguments.rows,
    }
    store = Store.open(arguments.folder, create=True)
    if STREAM not in store.streams:
        store.add_stream(StreamInfo(STREAM, "generated", "generated", DIMENSION))
        report["write_s"] = round(write(store, videos), 1)
    stats = store.stats()
    report["disk_mb"] = round((stats.bytes or 0) / 1e6)
    report["stream"] = {"clips": stats.streams[STREAM].clips, "unindexed": stats.streams[STREAM].unindexed}
    report["fresh process"] = fresh_process(arguments.folder, make_queries(videos, 1)[0])
    report["floor_ms: reading all vectors from memory once"] = round(bandwidth(arguments.rows * 768e-9), 1)
    report["results"] = measure(store, videos, arguments.queries)
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
