"""How well sentences find pictures in a growing corpus, with a constant effort and with a measured one.

    python -m benchmarks.scale --pictures --folder /tmp/pictures --sizes 100000,300000,1000000 \
        --out benchmarks/results/scale_pictures.json

Generated vectors (512 dimensions, as CLIP ViT-B/32 has). **Pictures** lie in a cone: a direction that all
share, plus a rest of the same length. The rest is a topic (500 of them), the video's place in it, a drift
along the video and noise in each clip, in a spectrum that falls off; two pictures of different topics have a
cosine of about a half. **Sentences** lie in another cone, at a cosine of 0.33 to that of the pictures (the
modality gap), and a quarter of their square is about something. In geometry

- `gap` that part has a cosine of 0.3 with the rest of one clip of the corpus, and is otherwise as the rest of
  any picture is: a sentence scores about 0.3 with its picture and 0.2 with others, as with CLIP;
- `topics` it has a cosine of 0.3 with a topic, whose thousands of clips are about equally near.

**Examples** are clips with noise of 0.8 of their length, inside the cone of the pictures.

The effort is measured as an index run does, with as many sentences as the product has in English, which are
about a clip or a topic that the corpus lacks. Each kind of query is then asked 200 nearest clips, with the
constant effort and with the one that was measured for the sentences of that geometry (examples: of `gap`; the
product asks them with the constant one). Recall is against an exact search.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import scale
from benchmarks.scale import BLOCK, CLIPS, K, Matrix, normal, topics, unit

from whenabouts.confidence.background import SENTENCES
from whenabouts.index.memory import ROWS_A_SEARCH
from whenabouts.index.records import ClipColumns, ClipHits, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.resident import peak_bytes, resident_bytes

DIMENSION = 512
STREAM = "vision"
SIZES = (100_000, 300_000, 1_000_000)
DEPTHS = (1, 20, K)

SEED = 17
_COSINE, _CONES, _ABOUT = 0.3, 0.33, 0.5


@cache
def _cones() -> tuple[Matrix, Matrix]:
    """The shared directions (DIMENSION,) of pictures and of sentences."""
    ours, other = unit(np.random.default_rng([SEED, 1]).standard_normal((2, DIMENSION), dtype=np.float32))
    other = unit(other - (other @ ours) * ours)
    return ours, _CONES * ours + math.sqrt(1 - _CONES**2) * other


def _rest_of(block: int) -> Matrix:
    """What the clips of a block show: (BLOCK * CLIPS, DIMENSION), of length one."""
    rest = scale.contents(np.random.default_rng([SEED, 2, block]), topics(SEED, DIMENSION))
    return unit(rest.reshape(-1, DIMENSION))


def vectors_of(block: int) -> Matrix:
    """The clips of a block: (BLOCK * CLIPS, DIMENSION), the same each time."""
    return unit(_cones()[0] + _rest_of(block))


def _about(rng: np.random.Generator, what: Matrix) -> Matrix:
    """Sentences whose content has a cosine of `_COSINE` with `what` (N, DIMENSION)."""
    noise = normal(rng, *what.shape)
    noise = unit(noise - np.einsum("ij,ij->i", noise, what)[:, None] * what)
    content = _COSINE * what + math.sqrt(1 - _COSINE**2) * noise
    both = math.sqrt(1 - _ABOUT**2) * _cones()[1] + _ABOUT * content
    return unit(both.astype(np.float32))


def _some_rest(rng: np.random.Generator, count: int) -> Matrix:
    rest = _rest_of(0)
    return rest[rng.integers(len(rest), size=count)]


def _examples(rng: np.random.Generator, count: int) -> Matrix:
    clips = unit(_cones()[0] + _some_rest(rng, count))
    noise = rng.standard_normal(clips.shape, dtype=np.float32) / np.sqrt(DIMENSION)
    return unit(clips + np.float32(0.8) * noise)


KINDS: dict[str, Callable[[np.random.Generator, int], Matrix]] = {
    "gap": lambda rng, count: _about(rng, _some_rest(rng, count)),
    "topics": lambda rng, count: _about(rng, unit(rng.choice(topics(SEED, DIMENSION), count))),
    "examples": _examples,
}
"""The kinds of query by name: (generator, count) -> (count, DIMENSION)."""


def queries(kind: str, count: int) -> Matrix:
    """Queries of a kind: (count, DIMENSION), the same each time."""
    return KINDS[kind](np.random.default_rng([SEED, 3, *kind.encode()]), count)


def unrelated(kind: str) -> Matrix:
    """Sentences about clips (`gap`) or topics that the corpus lacks: (count, DIMENSION)."""
    rng, count = np.random.default_rng([SEED, 4, *kind.encode()]), len(SENTENCES)
    topic = normal(rng, count, DIMENSION)
    return _about(rng, unit(topic if kind == "topics" else topic + 1.2 * normal(rng, count, DIMENSION)))


# The steps of a size, each in a process of its own -------------------------------------------------


def build(folder: Path, rows: int) -> dict[str, Any]:
    """Let the corpus grow to `rows` clips. Returns what the growth cost."""
    store = Store.open(folder / "corpus", create=True)
    store.add_stream(StreamInfo(STREAM, "generated", "generated", DIMENSION))
    done, start = store.stats().streams[STREAM].clips // (CLIPS * BLOCK), np.arange(CLIPS, dtype=np.float64)
    if done * CLIPS * BLOCK > rows:
        raise SystemExit(f"{folder} has more than {rows} clips; name another --folder")
    times = []
    for block in range(done, rows // (CLIPS * BLOCK)):
        vectors = vectors_of(block).reshape(BLOCK, CLIPS, DIMENSION)
        entries = []
        for number, own in enumerate(vectors, start=block * BLOCK):
            name = scale.video_name(number)
            record = VideoRecord(name, f"/{name}.mp4", size=1, duration=50.0, streams={STREAM: "generated"})
            entries.append((record, {STREAM: ClipColumns(start, start + 1.0, vectors=own)}))
        times.append(scale.seconds_of(partial(store.put_videos, entries)))
    times.append(scale.seconds_of(partial(store.optimize, force=True)))
    return {"from_clips": done * CLIPS * BLOCK, **_rounded(scale.summed(times)), "peak_mb": _mb(peak_bytes())}


def truth(folder: Path, rows: int, count: int) -> None:
    """Save the scores of the K nearest clips of each query: `KIND` (count, K), best first."""
    path = _truth(folder, rows, count)
    if path.exists():
        return
    asked = np.concatenate([queries(kind, count) for kind in KINDS])
    best = np.full((len(asked), K), -2, np.float32)
    for block in range(rows // (CLIPS * BLOCK)):
        # The store keeps half precision.
        vectors = vectors_of(block).astype(np.float16).astype(np.float32)
        both = np.hstack([best, asked @ unit(vectors).T])
        best = np.partition(both, -K, axis=1)[:, -K:]
    best = -np.sort(-best, axis=1)
    by_kind: dict[str, Any] = dict(zip(KINDS, np.split(best, len(KINDS)), strict=True))
    np.savez(path, **by_kind)


def _truth(folder: Path, rows: int, count: int) -> Path:
    return folder / f"truth-{rows}-{count}.npz"


def measure_effort(folder: Path, kind: str) -> dict[str, Any]:
    """Measure the effort with the unrelated sentences of a geometry. Returns the cost and the effort."""
    store = Store.open(folder / "corpus")
    took = scale.seconds_of(partial(store.measure_effort, STREAM, unrelated(kind)))
    index = store._indices[STREAM]
    chosen = None if index.effort is None else asdict(index.effort)
    return {**_rounded(scale.summed([took])), "effort": chosen, "recall": index.recall}


def search(folder: Path, rows: int, count: int, kind: str, measured: bool) -> dict[str, Any]:
    """Latency, recall and memory of a server that has been running for a while."""
    asked = queries(kind, count)
    with np.load(_truth(folder, rows, count)) as saved:
        exact = saved[kind]
    store = Store.open(folder / "corpus")
    if not measured:
        store._indices[STREAM] = replace(store._indices[STREAM], effort=None)
    for query in np.resize(asked, (rows // ROWS_A_SEARCH + 2, DIMENSION)):  # then it is in memory
        store.nearest(STREAM, query, K)
    times, hits = scale.timed(lambda query: store.nearest(STREAM, query, K), asked)
    return times | recall(hits, exact) | {"resident_mb": _mb(resident_bytes())}


def recall(hits: list[ClipHits], exact: Matrix) -> dict[str, float]:
    """Share of the nearest clips that were found, by depth; equal scores count as one another.

    `exact` (N, K) are the scores of the nearest clips, best first.
    """
    return {
        f"recall_at_{depth}": round(
            float(
                np.mean(
                    [
                        (hit.score[:depth] >= scores[depth - 1] - 1e-5).sum() / depth
                        for hit, scores in zip(hits, exact, strict=True)
                    ]
                )
            ),
            4,
        )
        for depth in DEPTHS
    }


def _rounded(times: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in times.items()}


def _mb(count: int) -> int:
    return round(count / 1e6)


def measure(folder: Path, clips: int, count: int) -> dict[str, Any]:
    """One size: build, then each kind of query with the constant effort and with the measured one."""
    load = os.getloadavg()[0]
    row: dict[str, Any] = {
        "clips": clips,
        "date": datetime.now(UTC).date().isoformat(),
        "build": scale.alone(build, folder, clips),
        "disk": scale.disk(folder / "corpus"),
        "efforts": {},
        "kinds": {},
    }
    scale.alone(truth, folder, clips, count)
    for geometry, kinds in (("topics", ["topics"]), ("gap", ["gap", "examples"])):
        row["efforts"][geometry] = scale.alone(measure_effort, folder, geometry)
        for kind in kinds:
            row["kinds"][kind] = {
                name: scale.alone(search, folder, clips, count, kind, measured)
                for name, measured in (("constant", False), ("measured", True))
            }
            print(clips, kind, json.dumps(row["kinds"][kind]), flush=True)
    return row | {"load": [round(load, 1), round(os.getloadavg()[0], 1)]}
