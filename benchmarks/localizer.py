"""How well and how fast the zero-shot localizer finds moments, beside simpler ways.

    python benchmarks/localizer.py --simulated FOLDER=CLIP_SECONDS --out benchmarks/results/localizer.json

Two kinds of curves with known moments:

* planted: noise with boxes added, at several ratios of signal to noise, lengths, numbers of moments
  and slow drifts (made here; no files needed);
* simulated: clip features simulated on the real annotations of Charades-STA, sentences encoded by
  MiniLM. FOLDER holds `charades_video_cl-L.h5`, `charades_query_sent.h5` and `charades_{train,test}.jsonl`;
  reading them needs h5py. A ridge regression from sentences to clips, fitted on the train split, makes
  the scores.

Settings are tried on one half (other seeds, other videos) and everything is reported on the other.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.moments.zero_shot import (
    Config,
    Curves,
    ZeroShotLocalizer,
    _blocks,
    _lined_up,
)

Floats = NDArray[np.float64]
Spans = Floats  # (V, 2): start and end in seconds of each video's best moment
Finder = Callable[[Curves], Spans]

SNRS, LENGTHS, CLIPS, COUNTS, DRIFTS = (
    (2.0, 3.0, 5.0),
    (2.0, 8.0, 20.0, 60.0, 180.0),
    (90, 600),
    (1, 2, 3),
    (0.0, 1.0),
)
CLIP_SECONDS = 2.0


@dataclass(frozen=True)
class Task:
    """Curves with the true moments of each video, and what kind of video each is."""

    curves: Curves
    truths: list[list[tuple[float, float]]]
    kinds: list[dict[str, float]]


# ------------------------------------------------------------------------------- planted curves


def plant(rng: np.random.Generator, kind: dict[str, float]) -> tuple[Floats, list[tuple[float, float]]]:
    """One curve: correlated noise of spread 1, boxes that begin and end inside clips, a slow wave."""
    count = int(kind["clips"])
    edges = np.arange(count + 1) * CLIP_SECONDS
    noise = rng.standard_normal(count + 1)
    score = (noise[1:] + 0.35 * noise[:-1]) / np.hypot(1, 0.35)
    truths: list[tuple[float, float]] = []
    for _ in range(200):
        if len(truths) == kind["moments"]:
            break
        length = min(kind["length"] * np.exp(0.3 * rng.standard_normal()), 0.9 * edges[-1])
        start = rng.uniform(0, edges[-1] - length)
        if any(start < end + CLIP_SECONDS and begin < start + length + CLIP_SECONDS for begin, end in truths):
            continue
        truths.append((start, start + length))
        covered = np.minimum(edges[1:], start + length) - np.maximum(edges[:-1], start)
        score += kind["snr"] * rng.uniform(0.8, 1.2) * np.clip(covered, 0, None) / CLIP_SECONDS
    waves = rng.uniform(0.5, 2) * np.arange(count) / count + rng.uniform()
    return score + kind["drift"] * np.sin(2 * np.pi * waves), truths


def planted_task(seed: int, repeats: int) -> Task:
    """`repeats` curves of every combination that leaves at least half of the video empty."""
    rng = np.random.default_rng(seed)
    names = ("snr", "length", "clips", "moments", "drift")
    kinds = [
        dict(zip(names, row, strict=True)) for row in itertools.product(SNRS, LENGTHS, CLIPS, COUNTS, DRIFTS)
    ]
    kinds = [kind for kind in kinds if kind["length"] * kind["moments"] <= kind["clips"] * CLIP_SECONDS / 2]
    kinds = [kind for kind in kinds for _ in range(repeats)]
    made = [plant(rng, kind) for kind in kinds]
    counts = [len(score) for score, _ in made]
    start = np.concatenate([np.arange(count) * CLIP_SECONDS for count in counts])
    curves = Curves(
        np.concatenate([score for score, _ in made]), start, start + CLIP_SECONDS, np.cumsum([0, *counts])
    )
    return Task(curves, [truths for _, truths in made], kinds)


# ----------------------------------------------------------------------- simulated Charades-STA


@dataclass(frozen=True)
class Charades:
    """Test videos and queries: unit clip vectors, predicted clip vector of each sentence, truths."""

    clips: Floats
    offsets: NDArray[np.int64]
    start: Floats
    end: Floats
    predicted: Floats
    video: NDArray[np.int64]
    truth: Floats


def unit(rows: Floats) -> Floats:
    """Every row at length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def read_charades(folder: Path, clip_seconds: float) -> Charades:
    """The test split, with clip vectors that sentences are predicted to have (ridge on the train split)."""
    h5py: Any = importlib.import_module("h5py")
    rows = {
        split: [json.loads(line) for line in (folder / f"charades_{split}.jsonl").open()]
        for split in ("train", "test")
    }
    with (
        h5py.File(folder / f"charades_video_cl-{clip_seconds:g}.h5") as videos,
        h5py.File(folder / "charades_query_sent.h5") as sentences,
    ):

        def texts(split: str) -> Floats:
            return np.stack(
                [np.asarray(sentences[str(row["desc_id"])], dtype=np.float64) for row in rows[split]]
            )

        known = {
            row["vid_name"]: np.asarray(videos[row["vid_name"]], dtype=np.float64) for row in rows["train"]
        }
        inside = [
            known[row["vid_name"]][
                int(row["ts"][0] / clip_seconds) : int(row["ts"][1] / clip_seconds) + 1
            ].mean(0)
            for row in rows["train"]
        ]
        train = texts("train")
        mean = train.mean(0)
        normal = (train - mean).T @ (train - mean) + 10.0 * np.eye(train.shape[1])
        weights = np.linalg.solve(normal, (train - mean).T @ np.stack(inside))
        durations = {row["vid_name"]: float(row["duration"]) for row in rows["test"]}
        names = sorted(durations)
        clips = [unit(np.asarray(videos[name], dtype=np.float64)) for name in names]
        predicted = (texts("test") - mean) @ weights
    counts = [len(part) for part in clips]
    start = np.concatenate([np.arange(count) * clip_seconds for count in counts])
    stop = np.repeat([durations[name] for name in names], counts)
    return Charades(
        np.concatenate(clips),
        np.cumsum([0, *counts]),
        start,
        np.maximum(np.minimum(start + clip_seconds, stop), start + 0.01),
        unit(predicted),
        np.array([names.index(row["vid_name"]) for row in rows["test"]]),
        np.array([row["ts"] for row in rows["test"]], dtype=np.float64),
    )


def charades_backgrounds(data: Charades) -> Floats:
    """Level and spread of every query over 2,000 clips of the corpus, (Q, 2)."""
    sample = np.random.default_rng(0).choice(len(data.clips), min(2000, len(data.clips)), replace=False)
    return np.array([_background(row) for row in data.predicted @ data.clips[sample].T])


def _background(scores: Floats) -> tuple[float, float]:
    """Median of one query's scores and their spread (1.4826 times the median absolute deviation)."""
    level = float(np.median(scores))
    spread = 1.4826 * float(np.median(np.abs(scores - level)))
    # Equal numbers may differ by rounding.
    least = 1e-12 * max(1.0, float(np.abs(scores).max()))
    if spread <= least:
        spread = float(np.std(scores))
    return level, spread if spread > least else 1.0


def charades_task(data: Charades, half: int) -> Task:
    """Every query of the even (0) or odd (1) test videos with its own video."""
    queries = np.flatnonzero(data.video % 2 == half)
    background = charades_backgrounds(data)[queries]
    spans = [slice(data.offsets[video], data.offsets[video + 1]) for video in data.video[queries]]
    counts = [span.stop - span.start for span in spans]
    curves = Curves(
        np.concatenate(
            [data.clips[span] @ data.predicted[query] for span, query in zip(spans, queries, strict=True)]
        ),
        np.concatenate([data.start[span] for span in spans]),
        np.concatenate([data.end[span] for span in spans]),
        np.cumsum([0, *counts]),
        background[:, 0],
        background[:, 1],
    )
    return Task(curves, [[(s, e)] for s, e in data.truth[queries]], [{}] * len(queries))


def corpus_recall(data: Charades, half: int, config: Config, queries: int = 400) -> dict[str, float]:
    """Share of queries whose moment (IoU >= 0.5) is among the first k of ALL test videos."""
    background = charades_backgrounds(data)
    localizer = ZeroShotLocalizer(config)
    chosen = np.random.default_rng(3).permutation(np.flatnonzero(data.video % 2 == half))[:queries]
    ranks = []
    for query in chosen:
        level, spread = background[query]
        score = data.clips @ data.predicted[query]
        moments = localizer.localize(Curves(score, data.start, data.end, data.offsets, level, spread))
        shared = iou(np.stack([moments.start, moments.end], axis=1), data.truth[query][None])
        right = np.flatnonzero((moments.video == data.video[query]) & (shared >= 0.5))
        ranks.append(right[0] if len(right) else np.inf)
    return {f"R@{k},IoU=0.5": round(float(np.mean(np.array(ranks) < k)), 4) for k in (1, 5, 10, 100)}


# ------------------------------------------------------------------------------ ways to find


def localizer_finder(config: Config) -> Finder:
    """The first moment of every video."""

    def find(curves: Curves) -> Spans:
        moments = ZeroShotLocalizer(config).localize(curves)
        _, first = np.unique(moments.video, return_index=True)
        return np.stack([moments.start[first], moments.end[first]], axis=1)

    return find


def chunk_finder(seconds: float) -> Finder:
    """The chunk of fixed length with the best mean; 0 seconds: the best clip."""

    def one(score: Floats, start: Floats, end: Floats) -> tuple[float, float]:
        chunk = (start // seconds).astype(np.int64) if seconds else np.arange(len(score))
        mean = np.bincount(chunk, score) / np.maximum(np.bincount(chunk), 1)
        mean[np.bincount(chunk) == 0] = -np.inf
        inside = chunk == int(np.argmax(mean))
        return float(start[inside].min()), float(end[inside].max())

    return per_video(one, relative=False)


def per_video(one: Callable[[Floats, Floats, Floats], tuple[float, float]], relative: bool) -> Finder:
    """A finder from a function of one video's curve; `relative` takes the localizer's curve of step 2."""

    def find(curves: Curves) -> Spans:
        score = curves.score
        if relative:
            localizer = ZeroShotLocalizer()
            lines = [_lined_up(curves, *videos, np.inf) for videos in _blocks(curves)]
            score = np.concatenate([localizer._relative(line) for line in lines])
        parts = [slice(*pair) for pair in itertools.pairwise(curves.offsets.tolist())]
        return np.array([one(score[part], curves.start[part], curves.end[part]) for part in parts])

    return find


def hysteresis(score: Floats, start: Floats, end: Floats) -> tuple[float, float]:
    """Runs above 0.35 of the peak that somewhere exceed 0.7 of it; the one with the largest sum."""
    low, high = 0.35 * score.max(), 0.7 * score.max()
    cuts = np.flatnonzero(np.diff(np.concatenate([[False], score > low, [False]]).astype(np.int8)))
    runs = [(a, b) for a, b in cuts.reshape(-1, 2) if score[a:b].max() >= high] or [(0, 1)]
    first, stop = max(runs, key=lambda run: float(score[run[0] : run[1]].sum()))
    return float(start[first]), float(end[stop - 1])


def watershed(score: Floats, start: Floats, end: Floats) -> tuple[float, float]:
    """Peaks at five smoothing scales, each as wide as it stays above half its height without rising again."""
    best, span = -np.inf, (0, 0)
    for scale in (0, 1, 2, 4, 8):
        width = np.exp(-0.5 * (np.arange(-3 * scale, 3 * scale + 1) / max(scale, 1)) ** 2)
        smooth = np.convolve(np.pad(score, 3 * scale, mode="edge"), width / width.sum(), mode="valid")
        first = last = int(np.argmax(smooth))
        half = 0.5 * smooth[first]
        while first > 0 and half < smooth[first - 1] <= smooth[first]:
            first -= 1
        while last < len(smooth) - 1 and half < smooth[last + 1] <= smooth[last]:
            last += 1
        weight = score[first : last + 1].mean() * (last - first + 1) ** Config().evidence_exponent
        if weight > best:
            best, span = weight, (first, last)
    return float(start[span[0]]), float(end[span[1]])


# ------------------------------------------------------------------------------- measuring


def iou(found: Spans, truth: Spans) -> Floats:
    """Intersection over union of spans, row by row."""
    shared = np.minimum(found[:, 1], truth[:, 1]) - np.maximum(found[:, 0], truth[:, 0])
    shared = np.maximum(shared, 0)
    union = (found[:, 1] - found[:, 0]) + (truth[:, 1] - truth[:, 0]) - shared
    return np.asarray(shared / np.maximum(union, 1e-9), dtype=np.float64)


def overlaps(task: Task, find: Finder) -> Floats:
    """IoU of each video's best moment with the true moment it fits best."""
    found = find(task.curves)
    return np.array(
        [
            iou(np.repeat(found[row : row + 1], len(truths), 0), np.array(truths)).max()
            for row, truths in enumerate(task.truths)
        ]
    )


def summary(values: Floats) -> dict[str, float]:
    """Recall at three thresholds, and the mean IoU."""
    shares = {f"R@1,IoU={threshold}": float((values >= threshold).mean()) for threshold in (0.3, 0.5, 0.7)}
    return {name: round(value, 4) for name, value in (shares | {"mean IoU": float(values.mean())}).items()}


def by_kind(task: Task, values: Floats) -> dict[str, dict[str, float]]:
    """Mean IoU for every value of every factor of the planted curves."""
    return {
        name: {
            f"{value:g}": round(float(values[[kind[name] == value for kind in task.kinds]].mean()), 4)
            for value in sorted({kind[name] for kind in task.kinds})
        }
        for name in task.kinds[0]
    }


def settings() -> list[Config]:
    """What is tried on the first half."""
    return [
        Config(
            height_shares=shares,
            evidence_exponent=evidence,
            smoothing=smoothing,
            own_level=own,
            extent_exponent=extent,
        )
        for shares, evidence, smoothing, own, extent in itertools.product(
            [(0.5,), (0.3, 0.5), (0.25, 0.4, 0.6), (0.2, 0.3, 0.45, 0.65)],
            (0.35, 0.45, 0.5),
            (0.0, 0.1, 0.2, 0.3),
            (0.0, 0.5, 1.0),
            (0.2, 0.3, 0.4),
        )
    ]


def tried(tasks: dict[str, Task]) -> list[dict[str, Any]]:
    """Every setting with its mean IoU per task, best mean first."""
    rows = []
    for config in settings():
        values = {
            name: round(float(overlaps(task, localizer_finder(config)).mean()), 4)
            for name, task in tasks.items()
        }
        rows.append(
            {"config": varied(config), **values, "mean": round(float(np.mean(list(values.values()))), 4)}
        )
    return sorted(rows, key=lambda row: -row["mean"])


def varied(config: Config) -> dict[str, Any]:
    """The settings that `settings` varies."""
    names = ("height_shares", "evidence_exponent", "smoothing", "own_level", "extent_exponent")
    return {name: getattr(config, name) for name in names}


def compared(task: Task) -> dict[str, dict[str, float]]:
    """All ways on one task."""
    default = Config()
    finders = {
        "localizer": localizer_finder(default),
        "localizer, hard borders": localizer_finder(replace(default, soft_borders=False)),
        "localizer, no drift removal": localizer_finder(replace(default, drift_seconds=0.0)),
        "localizer, no own level": localizer_finder(replace(default, own_level=0.0)),
        "one height (0.5)": localizer_finder(replace(default, height_shares=(0.5,))),
        "hysteresis": per_video(hysteresis, relative=True),
        "watershed": per_video(watershed, relative=True),
        "best clip": chunk_finder(0.0),
        "5 s chunks": chunk_finder(5.0),
        "10 s chunks": chunk_finder(10.0),
        "30 s chunks": chunk_finder(30.0),
    }
    return {name: summary(overlaps(task, find)) for name, find in finders.items()}


def speed(videos: int, clips: int, repeats: int) -> dict[str, float]:
    """Milliseconds for `videos` curves of `clips` clips: noise, one moment in each."""
    rng = np.random.default_rng(0)
    score = rng.standard_normal((videos, clips))
    for row in score:
        first = rng.integers(0, clips - 12)
        row[first : first + 10] += 3
    start = np.tile(np.arange(clips) * 2.0, videos)
    curves = Curves(score.ravel(), start, start + 2.0, np.arange(videos + 1) * clips)
    plain = np.sort(rng.standard_normal(videos * clips))
    localizer, took, busy, yardstick = ZeroShotLocalizer(), [], [], []
    for _ in range(repeats):
        begun, begun_busy = time.perf_counter(), time.process_time()
        localizer.localize(curves)
        took.append(time.perf_counter() - begun)
        busy.append(time.process_time() - begun_busy)
        begun = time.perf_counter()
        np.sort(rng.permutation(plain))
        yardstick.append(time.perf_counter() - begun)
    return {
        "videos": videos,
        "clips each": clips,
        "best ms": round(min(took) * 1e3, 3),
        "median ms": round(float(np.median(took)) * 1e3, 3),
        "median ms of processor time": round(float(np.median(busy)) * 1e3, 3),
        "load": round(os.getloadavg()[0], 1),
        "median, in shuffles and sorts of as many numbers": round(
            float(np.median(took) / np.median(yardstick)), 3
        ),
    }


def machine() -> dict[str, Any]:
    """What ran this: no names of hosts."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "load at the start": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def report(simulated: Sequence[tuple[Path, float]], repeats: int) -> dict[str, Any]:
    """All results, ready to be written."""
    result: dict[str, Any] = {"date": datetime.date.today().isoformat(), "machine": machine()}
    result["speed"] = [speed(22, 50, 200), speed(200, 1800, 20)]
    charades = {
        f"simulated, {seconds:g} s clips": read_charades(folder, seconds) for folder, seconds in simulated
    }
    first = {"planted": planted_task(1, repeats)} | {
        name: charades_task(data, 0) for name, data in charades.items()
    }
    second = {"planted": planted_task(2, repeats)} | {
        name: charades_task(data, 1) for name, data in charades.items()
    }
    rows = tried(first)
    default = next(row for row in rows if row["config"] == varied(Config()))
    result["defaults"] = asdict(Config())
    result["first half (settings are chosen here)"] = {
        "settings tried": len(rows),
        "best": rows[:10],
        "defaults": default | {"place": rows.index(default) + 1},
        "worst": rows[-1],
    }
    result["second half"] = {
        name: {"videos": len(task.truths), **compared(task)} for name, task in second.items()
    }
    finders = {"localizer": localizer_finder(Config()), "10 s chunks": chunk_finder(10.0)}
    result["planted, mean IoU by kind"] = {
        name: by_kind(second["planted"], overlaps(second["planted"], find)) for name, find in finders.items()
    }
    exponents = (0.0, 0.15, 0.3, 0.4, 0.5)
    for half, title in enumerate(("first half", "second half")):
        result[f"moments among all test videos, by extent_exponent, {title}"] = {
            name: {
                f"{exponent:g}": corpus_recall(data, half, Config(extent_exponent=exponent))
                for exponent in exponents
            }
            for name, data in charades.items()
        }
    return result


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulated", nargs="*", default=[], metavar="FOLDER=CLIP_SECONDS")
    parser.add_argument("--repeats", type=int, default=10, help="planted curves of every kind")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    arguments = parser.parse_args()
    simulated = [
        (Path(text.rpartition("=")[0]), float(text.rpartition("=")[2])) for text in arguments.simulated
    ]
    text = json.dumps(report(simulated, arguments.repeats), indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
