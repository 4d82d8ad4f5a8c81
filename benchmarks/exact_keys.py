"""All keys compared with a query, or an index: how long, and how many of the truly nearest are found.

    python -m benchmarks.exact_keys --folder /tmp/keys --out benchmarks/results/exact_keys.json
    python -m benchmarks.exact_keys --folder /tmp/keys --keys 20000 --queries 5       to try it

Generated keys (50 a video, 256 wide) lie around one direction a video, and a query near one key: cosines of
0.7 within a video, 0.8 between a query and the key it is near. Compared with products in full precision of
the keys as they were made: the 800 nearest, of which videos are chosen, and the first. "here" is the device
that PyTorch finds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.machine import describe_machine, percentiles
from numpy.typing import NDArray

from whenabouts.index.keys import EncodedVideo, Keys, SystemKeys, add_keys, open_keys
from whenabouts.index.records import ClipHits
from whenabouts.index.store import Store
from whenabouts_systems.trained_search.exact_keys import ExactKeys

WIDTH, OF_VIDEO, K, BLOCK, STREAM = 256, 50, 800, 2_000, "vision"
SYSTEM = SystemKeys("e" * 16, "generated", "", {STREAM: WIDTH})
WITHIN, NEAR = 0.65, 0.75
"""How far keys of a video are from its direction, and queries from their key, in lengths of it."""
Matrix = NDArray[np.float32]
Place = tuple[str, int]


def unit(rows: Any) -> Matrix:
    """Rows of length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


def video(number: int) -> EncodedVideo:
    """One video, drawn by its number."""
    rng = np.random.default_rng(number)
    way = unit(rng.standard_normal(WIDTH))
    rows = unit(way + WITHIN * unit(rng.standard_normal((OF_VIDEO, WIDTH))))
    at = np.arange(OF_VIDEO, dtype=np.float64)
    keys, start, end = {STREAM: rows}, {STREAM: at}, {STREAM: at + 1}
    return EncodedVideo(f"{number:08d}", "m", OF_VIDEO, float(OF_VIDEO), keys, start, end, b"all")


def written(folder: Path, count: int) -> Keys:
    """The keys of so many videos, with their index."""
    store = Store.open(folder / f"{count}.corpus", create=True)
    keys = open_keys(store, SYSTEM.system)
    if keys is None or keys.count() < count:
        keys = add_keys(store, SYSTEM)
        for first in range(0, count, BLOCK):
            keys.put([video(number) for number in range(first, min(first + BLOCK, count))])
        store.optimize()
    return keys


def queries(videos: int, count: int) -> Iterator[Matrix]:
    """Vectors, each near a key."""
    rng = np.random.default_rng(0)
    for number in rng.integers(0, videos, count).tolist():
        key = video(number).keys[STREAM][0]
        yield unit(key + NEAR * unit(rng.standard_normal(WIDTH)))


def places(hits: ClipHits) -> list[Place]:
    """Video and number of each key."""
    return list(zip(hits.video_ids, hits.index.tolist(), strict=True))


def asked(keys: Keys | ExactKeys, vectors: list[Matrix], truth: list[list[Place]]) -> dict[str, Any]:
    """How long, and the shares of the nearest that were found."""
    keys.nearest(STREAM, vectors[0], K)  # the first one reads
    spent, busy, all_, ten = [], [], [], []
    for vector, nearest in zip(vectors, truth, strict=True):
        began, worked = time.perf_counter(), time.process_time()
        hits = keys.nearest(STREAM, vector, K)
        spent.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - worked))
        found = places(hits)
        all_.append(len(set(found) & set(nearest)) / len(nearest))
        ten.append(len(set(found[:10]) & set(nearest[:10])) / 10)
    shares = {"recall@800": round(float(np.mean(all_)), 4), "recall@10": round(float(np.mean(ten)), 4)}
    return {"ms": percentiles(spent), "processor ms": percentiles(busy), **shares}


def truth_of(vectors: list[Matrix], videos: int) -> list[list[Place]]:
    """The nearest keys of each query, by products in full precision of the keys as they were made."""
    asked = torch.from_numpy(np.stack(vectors))
    best, at = torch.full((len(vectors), K), -torch.inf), torch.zeros((len(vectors), K), dtype=torch.int64)
    for first in range(0, videos, BLOCK):
        some = range(first, min(first + BLOCK, videos))
        rows = torch.from_numpy(np.concatenate([video(number).keys[STREAM] for number in some]))
        numbers = torch.arange(len(rows)).expand(len(vectors), -1) + first * OF_VIDEO
        both = torch.cat([best, asked @ rows.T], 1)
        best, kept = both.topk(K, 1)
        at = torch.cat([at, numbers], 1).gather(1, kept)
    return [[(f"{row // OF_VIDEO:08d}", row % OF_VIDEO) for row in rows] for rows in at.tolist()]


def measure(folder: Path, count: int, number: int) -> dict[str, Any]:
    """The index, and all keys in three precisions."""
    videos = count // OF_VIDEO
    keys = written(folder, videos)
    vectors = list(queries(videos, number))
    truth = truth_of(vectors, videos)
    found: dict[str, Any] = {"index": asked(keys, vectors, truth)}
    here = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        found[f"all, {dtype}".replace("torch.", "")] = asked(ExactKeys(keys, here, dtype), vectors, truth)
    return {"keys": videos * OF_VIDEO, "device": str(here), **found}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where corpora are made, or lie already")
    parser.add_argument("--keys", type=int, nargs="+", default=[20_000, 100_000, 500_000])
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("torch", "lancedb"),
        "sizes": [measure(options.folder, count, options.queries) for count in options.keys],
    }
    text = json.dumps(found, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
