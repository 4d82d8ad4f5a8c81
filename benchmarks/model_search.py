"""How fast and how exact a search with a trained system is, against all videos scored one by one.

    python benchmarks/model_search.py --videos 20000 --folder /tmp/corpus --out results.json

Generated corpus: videos of 50 clips of 2 seconds, 256 dimensions: a scene of their own, and three to six
stretches each with a content drawn around one of 2,000 topics. A query's tokens are a fixed random map of a
stretch's content, with noise. XML (hidden 256, one stream) is trained on such videos for a few hundred steps,
so that its keys are spread as a trained system's are. The time of a query is that of `TrainedSearch.find`,
without the encoder of its words. Exact answers come from the same system in full precision, over every video.
A corpus that is in `folder` already is used as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuepoint.index.even_grid import videos_on_grid
from cuepoint.index.keys import open_keys
from cuepoint.index.records import ClipColumns, StreamInfo, VideoRecord
from cuepoint.index.store import Store
from cuepoint.model_keys import unpacked
from cuepoint.models import config_of, new_model
from cuepoint.models.decoding import Decoding
from cuepoint.models.inputs import Inputs, StreamInput
from cuepoint.models.protocol import Batch, joined
from cuepoint.models.trained import Trained
from cuepoint.ranking.corpus import CorpusEncoding, encode_corpus, evaluating
from cuepoint.search import Searcher
from cuepoint.trained_search import CANDIDATE_VIDEOS, CandidateRanking, TrainedSearch, load_model

CLIPS, WIDTH, TOKENS, TOKEN_WIDTH, SECONDS = 50, 256, 8, 384, 2.0
STREAM, K, BATCH, BLOCK = "vision", 10, 64, 1000
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Videos:
    """Generated videos: clips (V, CLIPS, WIDTH), and of one stretch of each its content and its clips."""

    clips: Matrix
    content: Matrix
    spans: NDArray[np.int64]


class World:
    """What all generated videos share: topics, and the map from a content to a query's tokens."""

    def __init__(self, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self.topics = rng.standard_normal((2000, WIDTH)).astype(np.float32)
        self.maps = rng.standard_normal((TOKENS, WIDTH, TOKEN_WIDTH)).astype(np.float32) / 16

    def videos(self, count: int, seed: int) -> Videos:
        """Some videos; another seed, other videos."""
        rng = np.random.default_rng(seed)
        clips = 0.7 * rng.standard_normal((count, 1, WIDTH)) + rng.standard_normal((count, CLIPS, WIDTH))
        contents, spans = np.zeros((count, WIDTH)), np.zeros((count, 2), np.int64)
        for video in range(count):
            borders = np.sort(rng.choice(np.arange(1, CLIPS), rng.integers(3, 7), replace=False))
            for number, (low, high) in enumerate(zip(borders, [*borders[1:], CLIPS], strict=True)):
                topic = self.topics[rng.integers(len(self.topics))]
                content = topic + 0.6 * rng.standard_normal(WIDTH)
                clips[video, low:high] += content
                if number == 0:
                    contents[video], spans[video] = content, (low, high - 1)
        return Videos(clips.astype(np.float32), contents.astype(np.float32), spans)

    def tokens(self, content: Matrix, seed: int) -> Matrix:
        """(Q, TOKENS, TOKEN_WIDTH): the words of queries for some contents."""
        rng = np.random.default_rng(seed)
        mapped = np.einsum("qd,tde->qte", content, self.maps)
        tokens: Matrix = (mapped + 0.5 * rng.standard_normal(mapped.shape)).astype(np.float32)
        return tokens


class Words:
    """Stands for the encoder of queries: gives the tokens that were made for a query's number."""

    name, fingerprint, dimension = "generated", "generated:1", TOKEN_WIDTH

    def __init__(self, tokens: Matrix) -> None:
        self._tokens = tokens

    def encode_text(self, texts: Sequence[str]) -> Matrix:
        """Never asked."""
        raise NotImplementedError("queries are searched by their tokens")

    def encode_tokens(self, texts: Sequence[str]) -> list[Matrix]:
        """(L, D) for each number."""
        return [self._tokens[int(text)] for text in texts]


def trained_system(world: World, steps: int) -> Trained:
    """XML after some steps on generated videos."""
    torch.manual_seed(0)
    settings = {"streams": {STREAM: WIDTH}, "query_width": TOKEN_WIDTH, "pool_from_epoch": 0}
    model = new_model("xml", config_of("xml", settings))
    inputs = Inputs(
        StreamInput(TOKEN_WIDTH, encoder="generated"),
        {STREAM: StreamInput(WIDTH, encoder="generated")},
        clip_seconds=SECONDS,
    )
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    model.train()
    for step in range(steps):
        videos = world.videos(BATCH, seed=1_000_000 + step)
        batch = Batch(
            inputs.queries(list(world.tokens(videos.content, seed=step))),
            inputs.clips([{STREAM: rows} for rows in videos.clips]),
            torch.arange(BATCH),
            torch.from_numpy(videos.spans),
            torch.eye(BATCH, dtype=torch.bool),
        )
        loss = sum(model.loss(batch).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print("step", step, float(loss.detach()), flush=True)
    return Trained("xml", model.eval(), inputs, Decoding(max_clips=16))


def blocks(world: World, count: int) -> Iterator[tuple[int, Videos]]:
    """The corpus, block by block, as the index holds it: rows of unit length, half precision."""
    for first in range(0, count, BLOCK):
        made = world.videos(min(BLOCK, count - first), seed=first)
        clips = made.clips / np.linalg.norm(made.clips, axis=-1, keepdims=True)
        yield first, Videos(clips.astype(np.float16).astype(np.float32), made.content, made.spans)


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
            for at, rows in enumerate(made.clips)
        )
    store.optimize()
    return time.perf_counter() - started


def all_videos(world: World, trained: Trained, count: int) -> CorpusEncoding:
    """Every video, encoded in full precision, in memory."""
    clips = np.concatenate([made.clips for _, made in blocks(world, count)])
    return encode_corpus(
        trained.model,
        lambda rows: trained.inputs.clips([{STREAM: clips[row]} for row in rows]),
        [f"{number:08d}" for number in range(count)],
        clips=np.full(count, CLIPS),
        clip_seconds=SECONDS,
        durations=np.full(count, CLIPS * SECONDS),
    )


def queries_of(world: World, count: int, queries: int) -> tuple[Matrix, NDArray[np.int64]]:
    """Tokens of queries and the videos they were made for."""
    chosen = np.sort(np.random.default_rng(5).choice(count, queries, replace=False))
    contents = [
        made.content[chosen[(chosen >= first) & (chosen < first + len(made.content))] - first]
        for first, made in blocks(world, count)
    ]
    return world.tokens(np.concatenate(contents), seed=99), chosen


def measure(store: Store, world: World, trained: Trained, count: int, queries: int) -> dict[str, Any]:
    """Times of queries, and how many of the exact best ten moments they hold."""
    tokens, chosen = queries_of(world, count, queries)
    finder = TrainedSearch(store, load_model(trained), Words(tokens))
    searcher = Searcher(store, {})
    for number in range(5):
        finder.find(str(number), K, None, searcher)
    wall, busy, answers = [], [], []
    for number in range(queries):
        began, worked = time.perf_counter(), time.process_time()
        found = finder.find(str(number), K, None, searcher).moments
        wall.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - worked))
        answers.append([(one.moment.video_id, one.moment.start, one.moment.end) for one in found])
    stored = kept_or_made(store, finder, trained, count)
    corpus = all_videos(world, trained, count)
    exact, slow = [], []
    for number in range(queries):
        began = time.perf_counter()
        best = CandidateRanking(trained, corpus, finder.asked(str(number)), K).moments()
        slow.append(1000 * (time.perf_counter() - began))
        names = [corpus.video_ids[row] for row in best.row.tolist()]
        exact.append(list(zip(names, best.start.tolist(), best.end.tolist(), strict=True)))
    shared = [len(set(a) & set(b)) / len(b) for a, b in zip(answers, exact, strict=True)]
    first = [a[0] == b[0] for a, b in zip(answers, exact, strict=True)]
    right = [a[0][0] == f"{video:08d}" for a, video in zip(answers, chosen, strict=True)]
    return {
        "queries": queries,
        "recall of the exact top 10": round(float(np.mean(shared)), 4),
        "lists that hold all of the exact top 10": round(float(np.mean(np.array(shared) == 1)), 4),
        "same first moment": round(float(np.mean(first)), 4),
        "the query's own video is first": round(float(np.mean(right)), 4),
        "candidate videos": CANDIDATE_VIDEOS,
        "ms": _percentiles(wall),
        "processor ms": _percentiles(busy),
        "exact over all videos, ms": _percentiles(slow),
        **stored,
    }


def kept_or_made(store: Store, finder: TrainedSearch, trained: Trained, count: int) -> dict[str, Any]:
    """Times of reading what is kept of the candidates, and of making it from their clips instead."""
    rng = np.random.default_rng(11)
    keys = open_keys(store, trained.fingerprint)
    assert keys is not None
    read, made = [], []
    for _ in range(20):
        names = [f"{number:08d}" for number in rng.choice(count, CANDIDATE_VIDEOS, replace=False)]
        began = time.perf_counter()
        joined([unpacked(video) for video in keys.encodings(names)])
        read.append(1000 * (time.perf_counter() - began))
        began = time.perf_counter()
        videos = videos_on_grid(store, [STREAM], SECONDS, store.videos(names))
        clips = trained.inputs.clips([video.streams for video in videos])
        with evaluating(trained.model):
            trained.model.encode_videos(clips)
        made.append(1000 * (time.perf_counter() - began))
    return {
        "reading what is kept of 100 videos, ms": _percentiles(read),
        "encoding 100 videos from their clips, ms": _percentiles(made),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{p}": round(float(np.percentile(values, p)), 1) for p in (50, 90, 99)}


def describe_machine() -> dict[str, Any]:
    """Processor, memory and library versions; no names."""
    with Path("/proc/cpuinfo").open() as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "python": platform.python_version(),
        **{name: version(name) for name in ("lancedb", "torch", "numpy")},
        "threads": torch.get_num_threads(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine(),
        "videos": arguments.videos,
        "clips a video": CLIPS,
        "width of keys": 256,
    }
    world = World()
    kept = arguments.folder.with_name(arguments.folder.name + ".model")
    trained = Trained.from_pretrained(kept) if kept.is_dir() else trained_system(world, arguments.steps)
    trained.save_pretrained(kept)
    store = Store.open(arguments.folder, create=True)
    if STREAM not in store.streams:
        store.add_stream(StreamInfo(STREAM, "generated", "generated", WIDTH, {"clip_seconds": SECONDS}))
        report["write_s"] = round(write(store, world, arguments.videos), 1)
        before = store.stats().bytes or 0
        started = time.perf_counter()
        tokens = np.zeros((1, TOKENS, TOKEN_WIDTH), np.float32)
        TrainedSearch(store, load_model(trained), Words(tokens)).prepare()
        report["encode_and_index_s"] = round(time.perf_counter() - started, 1)
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
