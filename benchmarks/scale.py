"""How the cost of a corpus grows with its clips: writing, disk, memory, search, recall; the law of each.

    python -m benchmarks.scale --folder /tmp/scale --out benchmarks/results/scale.json
    python -m benchmarks.scale --folder /tmp/scale --out results.json --sizes 10000,100000,1000000,5000000
    python -m benchmarks.scale --pictures --folder /tmp/pictures --out benchmarks/results/scale_pictures.json

One corpus grows from size to size through the product's own store, as an archive does; at each size it is
searched, and the answers are held against an exact search. A run that is stopped goes on where it was. Each
step has a process of its own, so that memory is that of the step; vectors are made and compared in blocks.

Generated vectors (384 dimensions, as in `../shared/DEPENDENCIES.md`): videos of 50 clips; 500 topics, a
video's own place in its topic, a slow drift along the video, noise in each clip, and a spectrum that falls
off as that of sentence vectors does. Queries are clips with noise. Clips have twelve words by Zipf's law.

With --pictures the clips are pictures and the queries sentences, which lie elsewhere (`scale_pictures.py`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whenabouts.confidence.background import SENTENCES
from whenabouts.index.records import ClipColumns, ClipHits, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.upkeep import INDEX_ROWS
from whenabouts.resident import peak_bytes, resident_bytes

CLIPS = 50
DIMENSION = 384
STREAM = "subtitle"
K = 200
SIZES = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000)
SHARES = (1.0, 0.5, 0.1, 0.01)
"""Parts of the videos that a filter leaves; the filtered ones are searched up to `MOST_FILTERED` clips."""
MOST_FILTERED = 1_000_000

BLOCK = 200
_ONE_AT_A_TIME = 10
_SEED, _QUERY_SEED, _FILTER_SEED = 7, 8, 3
_VOCABULARY, _WORDS = 20_000, 12
Matrix = NDArray[np.float32]
Result = TypeVar("Result")


# What is written ---------------------------------------------------------------------------------


def unit(rows: Matrix) -> Matrix:
    """Rows of length one."""
    lengths: Matrix = np.linalg.norm(rows, axis=-1, keepdims=True).astype(np.float32)
    return rows / lengths


def normal(rng: np.random.Generator, *shape: int) -> Matrix:
    """Random rows in a spectrum that falls off, as those of encoders; `shape` ends in their width."""
    spectrum = (1 / np.sqrt(1 + np.arange(shape[-1]) / 16)).astype(np.float32)
    return rng.standard_normal(shape, dtype=np.float32) * spectrum


@cache
def topics(seed: int, width: int) -> Matrix:
    """The topics of a corpus: (500, width)."""
    return normal(np.random.default_rng(seed), 500, width)


def contents(rng: np.random.Generator, topics: Matrix) -> Matrix:
    """The contents of the clips of a block of videos: (BLOCK, CLIPS, width).

    A clip has its video's topic, the video's place in that topic, a drift along the video, and noise.
    """
    width = topics.shape[1]
    place = topics[rng.integers(len(topics), size=BLOCK)] + 0.9 * normal(rng, BLOCK, width)
    drift: Matrix = np.cumsum(0.12 * normal(rng, BLOCK, CLIPS, width), axis=1)
    clips: Matrix = place[:, None] + drift + np.float32(0.7) * normal(rng, BLOCK, CLIPS, width)
    return clips


def vectors_of(block: int) -> Matrix:
    """The clip vectors of a block of videos: (BLOCK, CLIPS, DIMENSION), the same each time."""
    return unit(contents(np.random.default_rng([_SEED, block]), topics(_SEED, DIMENSION)))


@cache
def _vocabulary() -> tuple[list[str], NDArray[np.float64]]:
    """Words, the most frequent first, and their shares summed up: Zipf's law with Mandelbrot's constant."""
    said = " ".join(SENTENCES).lower().split()
    real = sorted({word for word in said if word.isalpha()}, key=lambda word: (-said.count(word), word))
    words = [*real, *(f"word{number}" for number in range(_VOCABULARY - len(real)))]
    shares = np.cumsum(1 / (np.arange(_VOCABULARY) + 2.7))
    return words, shares / shares[-1]


def texts(rng: np.random.Generator, count: int) -> list[str]:
    """So many lines of `_WORDS` words."""
    words, shares = _vocabulary()
    drawn = np.searchsorted(shares, rng.random((count, _WORDS)))
    return [" ".join([words[word] for word in line]) for line in drawn.tolist()]


def video_name(number: int) -> str:
    """The id of a video."""
    return f"{number:016x}"


def entries_of(block: int) -> list[tuple[VideoRecord, dict[str, ClipColumns]]]:
    """A block of videos as the store takes them."""
    said = texts(np.random.default_rng([_SEED, block, 1]), BLOCK * CLIPS)
    start = np.arange(CLIPS, dtype=np.float64) * 10.0
    entries = []
    for number, vectors in enumerate(vectors_of(block)):
        name = video_name(block * BLOCK + number)
        streams = {STREAM: "generated"}
        record = VideoRecord(name, f"/videos/{name}.mp4", size=1, duration=500.0, streams=streams)
        spoken = said[number * CLIPS : (number + 1) * CLIPS]
        entries.append((record, {STREAM: ClipColumns(start, start + 12.0, spoken, vectors)}))
    return entries


def write(store: Store, rows: int, say: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Write the corpus up to so many clips, from where it stands; `say` is told what each block took."""
    done = store.stats().streams[STREAM].clips // (CLIPS * BLOCK)
    blocks = range(done, rows // (CLIPS * BLOCK))
    for block in blocks:
        entries = entries_of(block)
        # The first videos of a size come by themselves, as those that a folder is watched for do.
        alone = _ONE_AT_A_TIME if block == blocks[0] else 0
        single = [seconds_of(partial(store.put_videos, [entry])) for entry in entries[:alone]]
        rest = seconds_of(partial(store.put_videos, entries[alone:]))
        say({"block": block, "single": [took for took, _ in single], **summed([*single, rest])})
    say({"block": None, "single": [], **summed([seconds_of(partial(store.optimize, force=True))])})


def seconds_of(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock and of the processors."""
    began, used = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began, time.process_time() - used


def summed(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Such times, added up."""
    return {"seconds": sum(time[0] for time in times), "processor_seconds": sum(time[1] for time in times)}


# The steps of a size, each in a process of its own -------------------------------------------------


def build(folder: Path, rows: int) -> dict[str, Any]:
    """Let the corpus grow to so many clips; what it has taken since its first."""
    store = Store.open(folder / "corpus", create=True)
    store.add_stream(StreamInfo(STREAM, "generated", "generated", DIMENSION))
    there = store.stats().streams[STREAM].clips
    if there > rows:
        raise SystemExit(f"{folder} has {there} clips; for a corpus of {rows} name another --folder")
    journal = folder / "journal.jsonl"
    with journal.open("a", encoding="utf-8") as file:
        write(store, rows, lambda line: print(json.dumps(line), file=file, flush=True))
    lines = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
    single = [line["single"] for line in lines if line["single"]][-1]
    return {
        "seconds": round(sum(line["seconds"] for line in lines), 2),
        "processor_seconds": round(sum(line["processor_seconds"] for line in lines), 2),
        "one_more_video_ms": round(float(np.median(single)) * 1e3, 1),
        "peak_mb": round(peak_bytes() / 1e6),
    }


def disk(folder: Path) -> dict[str, float]:
    """Megabytes of the corpus: all, and the indices of its clips."""
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    indices = sum(size for path, size in sizes.items() if "_indices" in path.parts)
    return {"mb": round(sum(sizes.values()) / 1e6, 1), "indices_mb": round(indices / 1e6, 1)}


def queries(count: int) -> Matrix:
    """Clips of the first block with noise of 0.8 of their own length added: (count, DIMENSION)."""
    rng = np.random.default_rng(_QUERY_SEED)
    clips = vectors_of(0).reshape(-1, DIMENSION)
    chosen = clips[rng.integers(len(clips), size=count)]
    noise = rng.standard_normal(chosen.shape, dtype=np.float32) / np.sqrt(DIMENSION)
    return unit(chosen + 0.8 * noise)


def kept(block: int, share: float) -> NDArray[np.bool_]:
    """Which videos of a block a filter leaves: (BLOCK,)."""
    return np.random.default_rng([_FILTER_SEED, block]).random(BLOCK) < share


def truth(folder: Path, rows: int, count: int) -> None:
    """Find the exact K best clips of each query under each filter, going on from a smaller size.

    Saves `best` (shares, count, K), the numbers of the clips, and their scores.
    """
    asked, clips = queries(count), BLOCK * CLIPS
    state = (0, np.full((len(SHARES), count, K), -1), np.full((len(SHARES), count, K), -2, np.float32))
    path = folder / "truth.npz"
    if path.exists():
        with np.load(path) as saved:
            if saved["best"].shape == state[1].shape and saved["blocks"] <= rows // clips:
                state = int(saved["blocks"]), saved["best"], saved["scores"]
    done, best, scores = state
    for block in range(done, rows // clips):
        # The store keeps half precision.
        vectors = vectors_of(block).reshape(-1, DIMENSION).astype(np.float16).astype(np.float32)
        products, numbers = asked @ vectors.T, np.arange(block * clips, (block + 1) * clips)
        for place, share in enumerate(SHARES):
            allowed = np.repeat(kept(block, share), CLIPS)
            both = np.hstack([scores[place], products[:, allowed]])
            names = np.hstack([best[place], np.broadcast_to(numbers[allowed], (count, allowed.sum()))])
            first = np.argpartition(-both, K - 1, axis=1)[:, :K]
            scores[place] = np.take_along_axis(both, first, 1)
            best[place] = np.take_along_axis(names, first, 1)
    np.savez(path, blocks=max(done, rows // clips), best=best, scores=scores)


def search(folder: Path, rows: int, count: int) -> dict[str, Any]:
    """Ask the corpus: latency, recall and memory."""
    asked = queries(count)
    with np.load(folder / "truth.npz") as saved:
        best, scores = saved["best"], saved["scores"]
    began = time.perf_counter()
    store = Store.open(folder / "corpus")
    nearest_of(store, None, asked[0])
    report: dict[str, Any] = {"open_and_first_answer_ms": round((time.perf_counter() - began) * 1e3)}
    for place, share in enumerate(SHARES if rows <= MOST_FILTERED else SHARES[:1]):
        ids = None if share == 1.0 else allowed_names(rows, share)
        times, hits = timed(partial(nearest_of, store, ids), asked[: count if ids is None else 100])
        times |= recall(hits, best[place], scores[place])
        report[f"nearest_{share:.0%}_of_videos"] = times
    report["nearest_and_clips_of_their_videos"] = timed(partial(whole_way, store), asked[:100])[0]
    said = texts(np.random.default_rng(_QUERY_SEED), 100)
    report["words"] = timed(lambda words: store.match_text(STREAM, words, K), said)[0]
    report["resident_mb"] = round(resident_bytes() / 1e6)
    report["peak_mb"] = round(peak_bytes() / 1e6)
    report["exact"] = timed(lambda vector: store.nearest(STREAM, vector, K, exact=True), asked[:5], warm=1)[0]
    return report


def allowed_names(rows: int, share: float) -> list[str]:
    """The ids of the videos that a filter leaves."""
    keep = np.concatenate([kept(block, share) for block in range(rows // (CLIPS * BLOCK))])
    return [video_name(int(number)) for number in np.flatnonzero(keep)]


def nearest_of(store: Store, ids: Sequence[str] | None, query: Matrix) -> ClipHits:
    """The K nearest clips of the videos `ids`; None: of all."""
    return store.nearest(STREAM, query, K, video_ids=ids)


def whole_way(store: Store, query: Matrix) -> list[tuple[str, float]]:
    """Nearest clips, all clips of their videos, and each video's best clip."""
    hits = store.nearest(STREAM, query, K)
    videos = list(dict.fromkeys(hits.video_ids))
    block = store.clips_of(STREAM, videos)
    best = np.maximum.reduceat(block.vectors @ query, block.offsets[:-1])
    return sorted(zip(videos, best.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))


def timed(
    run: Callable[[Any], Any], asked: Sequence[Any] | Matrix, warm: int = 20
) -> tuple[dict[str, float], list[Any]]:
    """p50 and p99 in milliseconds and the processors' mean, after some to warm up; and the answers."""
    for query in asked[:warm]:
        run(query)
    answers: list[Any] = []
    times = [seconds_of(partial(lambda given: answers.append(run(given)), query)) for query in asked]
    clock = [time[0] * 1e3 for time in times]
    return {
        "p50_ms": round(float(np.percentile(clock, 50)), 2),
        "p99_ms": round(float(np.percentile(clock, 99)), 2),
        "processor_ms": round(float(np.mean([time[1] for time in times])) * 1e3, 2),
    }, answers


def recall(hits: Sequence[ClipHits], best: NDArray[np.int64], scores: Matrix) -> dict[str, float]:
    """Share of the exact best clips that were found: of the first ten, and of all K."""
    shares: dict[str, list[float]] = {"10": [], str(K): []}
    for hit, names, own in zip(hits, best, scores, strict=False):
        order = [name for name in names[np.argsort(-own, kind="stable")].tolist() if name >= 0]
        rows = [int(n, 16) * CLIPS + int(i) for n, i in zip(hit.video_ids, hit.index, strict=True)]
        for k, values in shares.items():
            true = set(order[: int(k)])
            values.append(len(true & set(rows[: int(k)])) / len(true))
    return {f"recall_at_{k}": round(float(np.mean(values)), 4) for k, values in shares.items()}


# The law --------------------------------------------------------------------------------------------


def growth(sizes: Sequence[int], values: Sequence[float]) -> dict[str, Any]:
    """The exponent of a power law through measured values (least squares of logarithms), with its interval.

    `residual` is the standard deviation of the logarithms about the line, `scale` the value at one clip. The
    interval is that of Student's t at 95 %, None for two points.

    >>> growth([10, 100, 1000], [2, 20, 200])["exponent"]
    1.0
    """
    from scipy import stats

    x, y = np.log(sizes), np.log(values)
    line = stats.linregress(x, y)
    free = len(sizes) - 2
    half = float(stats.t.ppf(0.975, free) * line.stderr) if free > 0 else None
    rest = y - (line.intercept + line.slope * x)
    return {
        "exponent": round(float(line.slope), 3),
        "interval": None if half is None else [round(float(line.slope) + sign * half, 3) for sign in (-1, 1)],
        "scale": float(f"{np.exp(line.intercept):.4g}"),
        "residual": round(float(np.sqrt((rest @ rest) / max(1, free))), 4),
        "from_clips": int(min(sizes)),
        "points": len(sizes),
    }


GROWING = {
    "build_seconds": ("build", "seconds"),
    "build_processor_seconds": ("build", "processor_seconds"),
    "build_peak_mb": ("build", "peak_mb"),
    "one_more_video_ms": ("build", "one_more_video_ms"),
    "disk_mb": ("disk", "mb"),
    "search_p50_ms": ("search", "nearest_100%_of_videos", "p50_ms"),
    "search_processor_ms": ("search", "nearest_100%_of_videos", "processor_ms"),
    "words_processor_ms": ("search", "words", "processor_ms"),
    "exact_p50_ms": ("search", "exact", "p50_ms"),
    "resident_mb": ("search", "resident_mb"),
}
"""What is fitted, and where it stands in a row."""

FITTED_FROM = 100_000
"""Smaller corpora have no vector index: another law holds."""


def laws(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The growth of each quantity over the sizes that have a vector index."""
    large = [row for row in rows if row["clips"] >= FITTED_FROM]
    if len(large) < 2:
        return {}
    sizes = [row["clips"] for row in large]
    return {name: growth(sizes, [_at(row, path) for row in large]) for name, path in GROWING.items()}


def _at(row: dict[str, Any], path: Sequence[str]) -> float:
    value: Any = row
    for key in path:
        value = value[key]
    return float(value)


# A run ----------------------------------------------------------------------------------------------


def alone(run: Callable[..., Result], *arguments: Any) -> Result:
    """Run in a new process, whose memory is then that of the step."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, *arguments).result()


def measure(folder: Path, clips: int, count: int) -> dict[str, Any]:
    """One size."""
    load = os.getloadavg()[0]
    built = alone(build, folder, clips)
    alone(truth, folder, clips, count)
    searched = alone(search, folder, clips, count)
    return {
        "clips": clips,
        "date": datetime.now(UTC).date().isoformat(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "build": built,
        "disk": disk(folder / "corpus"),
        "search": searched,
    }


def run(
    folder: Path,
    sizes: Sequence[int],
    count: int,
    measure: Callable[[Path, int, int], dict[str, Any]] = measure,
) -> Iterator[dict[str, Any]]:
    """The rows of all sizes; those that the folder has from before are not measured again."""
    for clips in sorted(sizes):
        path = folder / f"{clips}.json"
        if not path.exists():
            path.write_text(json.dumps(measure(folder, clips, count)), encoding="utf-8")
        yield json.loads(path.read_text("utf-8"))


def _sizes(text: str) -> list[int]:
    sizes = [int(float(size)) for size in text.split(",")]
    if any(size % (BLOCK * CLIPS) or size <= 0 for size in sizes):
        raise argparse.ArgumentTypeError(f"{text}: sizes are multiples of {BLOCK * CLIPS}")
    return sizes


def main() -> None:
    """Measure, and write what came of it after each size."""
    from benchmarks import scale_pictures
    from benchmarks.machine import describe_machine  # has PyTorch, which the steps shall not carry

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=_sizes, help="numbers of clips")
    parser.add_argument("--pictures", action="store_true", help="sentences among pictures")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--folder", type=Path, required=True, help="the corpus and what is done so far")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes = options.sizes or (scale_pictures.SIZES if options.pictures else SIZES)
    if options.pictures and min(sizes) < INDEX_ROWS:
        parser.error(f"--sizes: {min(sizes)} pictures get no vector index; from {INDEX_ROWS} on they do")
    options.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    machine = describe_machine("lancedb", "pyarrow", "numpy")
    rows: list[dict[str, Any]] = []
    for row in run(
        options.folder, sizes, options.queries, scale_pictures.measure if options.pictures else measure
    ):
        rows.append(row)
        report = {"machine": machine, "queries": options.queries, "rows": rows}
        report |= {} if options.pictures else {"growth": laws(rows)}
        print(f"{time.perf_counter() - began:.0f} s: {json.dumps(row)}", flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
