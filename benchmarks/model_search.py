"""How fast and how exact a search with a trained system is, against all videos scored one by one.

    whenabouts train experiments/simulated_charades/xml.toml --features DIR --out RUN
    python -m benchmarks.model_search --model RUN --features DIR --folder /tmp/corpus --out results.json

Generated corpus: videos of 50 clips of 3 seconds and 256 dimensions, strung together from the simulated clip
features of Charades-STA that the system was trained on, each clip with noise of its own, so that no two are
alike. Queries are test captions, asked twice: videos that were read are remembered. The time of a query is
that of `TrainedSearch.find`, without the encoder of its words. Exact answers come from the same system in
full precision, over every video. A corpus that is in `folder` already is used as it is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine, percentiles
from benchmarks.query_tokens import QueryTokens
from numpy.typing import NDArray

from whenabouts.index.keys import open_keys
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.candidates import best_units, score_corpus
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, encode_corpus, evaluating
from whenabouts_systems.ranking.rank import NMS, rank
from whenabouts_systems.trained_search import search as trained_search
from whenabouts_systems.trained_search.even_grid import videos_on_grid
from whenabouts_systems.trained_search.indexed_corpus import unpacked
from whenabouts_systems.trained_search.opened import IndexedSystem, open_model
from whenabouts_systems.trained_search.search import TrainedSearch

CLIPS, SECONDS, NOISE = 50, 3.0, 0.5
STREAM, K, BLOCK = "vision", 10, 1000
CANDIDATES = (300,)
Matrix = NDArray[np.float32]


class World:
    """Clips to string videos together from, and queries."""

    def __init__(self, folder: Path) -> None:
        import h5py

        with h5py.File(folder / "charades_video_cl-3.h5") as file:
            self.pieces = [np.asarray(file[name], np.float32) for name in sorted(file)]
        with h5py.File(folder / "charades_query_tokens.h5") as file:
            lines = (folder / "charades_test.jsonl").read_text(encoding="utf-8").splitlines()
            names = [str(json.loads(line)["desc_id"]) for line in lines]
            chosen = np.random.default_rng(5).choice(len(names), 200, replace=False)
            self.tokens = [np.asarray(file[names[at]], np.float32) for at in chosen]
        self.width, self.spread = self.pieces[0].shape[1], float(self.pieces[0].std())

    def videos(self, count: int, seed: int) -> Matrix:
        """(count, CLIPS, width) rows of unit length in half precision, as the index holds them."""
        rng = np.random.default_rng(seed)
        flat = np.zeros((count * CLIPS, self.width), np.float32)
        filled = 0
        while filled < len(flat):
            piece = self.pieces[rng.integers(len(self.pieces))][: len(flat) - filled]
            flat[filled : filled + len(piece)] = piece
            filled += len(piece)
        flat += NOISE * self.spread * rng.standard_normal(flat.shape, dtype=np.float32)
        flat /= np.linalg.norm(flat, axis=1, keepdims=True)
        rounded: Matrix = flat.astype(np.float16).astype(np.float32)
        return rounded.reshape(count, CLIPS, self.width)


def opened(folder: Path) -> Trained:
    """The system, with its one stream under the name that the corpus has for it."""
    trained = Trained.from_pretrained(folder)
    (name,) = trained.inputs.streams
    if name != STREAM or trained.inputs.clip_seconds != SECONDS:
        raise SystemExit(f"{folder} reads {name} in clips of {trained.inputs.clip_seconds} s, not {STREAM}")
    return trained


def blocks(world: World, count: int) -> Iterator[tuple[int, Matrix]]:
    """The corpus, some videos at a time, with the number of the first."""
    for first in range(0, count, BLOCK):
        yield first, world.videos(min(BLOCK, count - first), seed=first)


def write(store: Store, world: World, count: int) -> float:
    """Seconds that writing the corpus took."""
    started = time.perf_counter()
    start = np.arange(CLIPS, dtype=np.float64) * SECONDS
    end = np.arange(1, CLIPS + 1, dtype=np.float64) * SECONDS
    for first, made in blocks(world, count):
        store.put_videos(
            (
                VideoRecord(
                    f"{first + at:08d}", f"/{first + at}.mp4", duration=CLIPS * SECONDS, streams={STREAM: "g"}
                ),
                {STREAM: ClipColumns(start, end, None, rows)},
            )
            for at, rows in enumerate(made)
        )
    return time.perf_counter() - started


def all_videos(world: World, trained: Trained, count: int) -> MemoryCorpus:
    """Every video, encoded in full precision, in memory."""
    clips = np.concatenate([made for _, made in blocks(world, count)])
    return encode_corpus(
        trained.model,
        lambda rows: trained.inputs.clips([{STREAM: clips[row]} for row in rows]),
        [f"{number:08d}" for number in range(count)],
        clips=np.full(count, CLIPS),
        clip_seconds=SECONDS,
        durations=np.full(count, CLIPS * SECONDS),
    )


def asked(finder: TrainedSearch, queries: int) -> tuple[list[list[Any]], dict[str, Any]]:
    """The ten moments of each query, and how long they took."""
    wall, busy, answers = [], [], []
    for number in [*range(5), *range(queries)]:
        began, worked = time.perf_counter(), time.process_time()
        found = finder.find(str(number), K, None).moments
        wall.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - worked))
        answers.append([(one.moment.video_id, one.moment.start, one.moment.end) for one in found])
    return answers[5:], {"ms": percentiles(wall[5:]), "processor ms": percentiles(busy[5:])}


def measure(store: Store, world: World, trained: Trained, count: int, queries: int) -> dict[str, Any]:
    """Times of queries, and how many of the exact best ten moments they hold."""
    finder = TrainedSearch(store, IndexedSystem(store, open_model(trained), QueryTokens(world.tokens)))
    results: dict[str, Any] = {}
    answers: dict[int, list[list[Any]]] = {}
    default = trained_search.CANDIDATE_VIDEOS
    for candidates in CANDIDATES:
        trained_search.CANDIDATE_VIDEOS = candidates
        answers[candidates], first = asked(finder, queries)
        answers[candidates], again = asked(finder, queries)
        results[f"{candidates} candidates"] = {"asked first": first, "asked again": again}
    trained_search.CANDIDATE_VIDEOS = default
    results["what is kept"] = kept_or_made(store, trained, count)
    corpus = all_videos(world, trained, count)
    exact, slow = [], []
    for number in range(queries):
        began = time.perf_counter()
        query = finder.localizer.encode(str(number))
        chosen = best_units(score_corpus(trained.model, query, corpus), len(corpus))
        decoding = replace(trained.decoding, spans_per_query=K, nms=NMS)
        best = rank(trained, corpus, query, chosen, decoding, exact=True, cut=True)
        slow.append(1000 * (time.perf_counter() - began))
        names = [corpus.ids[row] for row in best.video.tolist()]
        exact.append(list(zip(names, best.start.tolist(), best.end.tolist(), strict=True)))
    results["exact over all videos"] = {"ms": percentiles(slow)}
    for candidates, found in answers.items():
        shared = np.array([len(set(a) & set(b)) / len(b) for a, b in zip(found, exact, strict=True)])
        results[f"{candidates} candidates"] |= {
            "recall of the exact top 10": round(float(shared.mean()), 4),
            "lists with all of the exact top 10": round(float((shared == 1).mean()), 4),
            "same first moment": round(
                float(np.mean([a[0] == b[0] for a, b in zip(found, exact, strict=True)])), 4
            ),
        }
    return {"queries": queries, "default candidates": default, **results}


def kept_or_made(store: Store, trained: Trained, count: int) -> dict[str, Any]:
    """Times of reading what is kept of the candidates, and of making it from their clips instead."""
    rng = np.random.default_rng(11)
    keys = open_keys(store, trained.fingerprint)
    assert keys is not None
    read, made = [], []
    for _ in range(20):
        names = [f"{number:08d}" for number in rng.choice(count, 100, replace=False)]
        began = time.perf_counter()
        unpacked(keys.encodings(names))
        read.append(1000 * (time.perf_counter() - began))
        began = time.perf_counter()
        videos = videos_on_grid(store, [STREAM], SECONDS, store.videos(names))
        clips = trained.inputs.clips([video.streams for video in videos])
        with evaluating(trained.model):
            trained.model.encode_videos(clips)
        made.append(1000 * (time.perf_counter() - began))
    return {
        "reading it for 100 videos, ms": percentiles(read),
        "encoding 100 videos from their clips, ms": percentiles(made),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "torch", "numpy"),
        "videos": arguments.videos,
        "clips a video": CLIPS,
    }
    world, trained = World(arguments.features), opened(arguments.model)
    store = Store.open(arguments.folder, create=True)
    if STREAM not in store.streams:
        store.add_stream(StreamInfo(STREAM, "generated", "generated", world.width, {"clip_seconds": SECONDS}))
        report["write_s"] = round(write(store, world, arguments.videos), 1)
    if open_keys(store, trained.fingerprint) is None:
        before = store.stats().bytes or 0
        started, worked = time.perf_counter(), time.process_time()
        TrainedSearch(store, IndexedSystem(store, open_model(trained), QueryTokens(world.tokens))).prepare()
        report["encode_and_index_s"] = round(time.perf_counter() - started, 1)
        report["encode_and_index_processor_s"] = round(time.process_time() - worked, 1)
        report["disk_mb"] = {
            "corpus": round(before / 1e6),
            "keys and encodings": round(((store.stats().bytes or 0) - before) / 1e6),
        }
    report["results"] = measure(store, world, trained, arguments.videos, arguments.queries)
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
