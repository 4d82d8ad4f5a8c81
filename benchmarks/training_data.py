"""How soon a training on 20,000 videos begins, and how much of a batch is padding.

    python benchmarks/training_data.py [--folder DIR] [--videos 20000] [--charades FILE]
                                       [--out benchmarks/results/training_data.json]

Random features of 20,000 videos (20 to 79 clips of 512 float16) and as many queries (12 tokens of 384) are
written once; each way then opens them in a process of its own, checks every value, and makes the first
batch of 128. Files are in the page cache. Wall and processor seconds, imports left out; the machine's load
stands beside them. With `--charades` (the released annotations) examples of real durations are put into
batches of clips of 3 s, in random order and by length: clips with padding, divided by clips without.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, QUERY_WIDTH, TOKENS = 512, 384, 12
WAYS: dict[str, dict[str, Any]] = {
    "HDF5 in one piece": {"video": "video_cl-1.5.h5", "query": "query.h5"},
    "HDF5 packed (gzip)": {"video": "packed_cl-1.5.h5", "query": "query.h5"},
    "HDF5 packed, first time with a cache": {"video": "packed_cl-1.5.h5", "query": "query.h5", "cache": "c"},
    "HDF5 packed, next time with a cache": {"video": "packed_cl-1.5.h5", "query": "query.h5", "cache": "c"},
    "our own store": {"video": "video_store", "query": "query_store"},
}


def make_files(folder: Path, videos: int) -> None:
    """Annotations and features; what is there already stays."""
    if (folder / "query_store").exists():
        return
    import h5py

    from whenabouts_systems.features import open_features
    from whenabouts_systems.features.layouts.store import write_store

    random = np.random.default_rng(0)
    lengths = random.integers(20, 80, videos)
    block = random.normal(size=(100, WIDTH)).astype(np.float16)
    with (
        h5py.File(folder / "video_cl-1.5.h5", "w") as plain,
        h5py.File(folder / "packed_cl-1.5.h5", "w") as packed,
        h5py.File(folder / "query.h5", "w") as queries,
        (folder / "train.jsonl").open("w") as lines,
    ):
        for number, length in enumerate(lengths.tolist()):
            rows = np.roll(block, number)[:length]
            plain.create_dataset(f"v{number:05}", data=rows)
            packed.create_dataset(f"v{number:05}", data=rows, compression="gzip", compression_opts=1)
            queries.create_dataset(f"q{number}", data=rows[:TOKENS, :QUERY_WIDTH])
            seconds = length * 1.5 - 0.2
            row = {"desc_id": f"q{number}", "desc": f"sentence {number}", "vid_name": f"v{number:05}"}
            told = {"duration": seconds, "ts": [seconds / 3, seconds / 2], "type": "v"}
            lines.write(json.dumps({**row, **told}) + "\n")
    for name, store in (("video_cl-1.5.h5", "video_store"), ("query.h5", "query_store")):
        with open_features(folder / name) as source:
            told_of = source.fingerprint
            write_store(folder / store, ((item, source.get(item)) for item in source), told_of)


def measure(folder: Path, way: str) -> dict[str, float]:
    """Seconds until all is checked and until the first batch."""
    import h5py  # noqa: F401

    from whenabouts_systems.training.data import DataSettings, ExperimentData, FeatureSettings

    named = WAYS[way]
    features = FeatureSettings(
        query=named["query"],
        streams={"video": named["video"]},
        clip_seconds=1.5,
        cache=named.get("cache", ""),
    )
    wall, processor = time.perf_counter(), time.process_time()
    with ExperimentData.open(DataSettings(train="train.jsonl"), features, folder) as material:
        opened = time.perf_counter() - wall
        batches = iter(material.split("train").batches(size=128))
        next(batches)
        first, used = time.perf_counter() - wall, time.process_time() - processor
    return {
        "checked_seconds": round(opened, 2),
        "first_batch_seconds": round(first, 2),
        "processor_seconds": round(used, 2),
        "load_average": round(os.getloadavg()[0], 1),
    }


def padding(charades: Path) -> dict[str, dict[str, float]]:
    """Clips with padding for each real clip, by order and size of batch."""
    from whenabouts_bench.formats import read_annotations
    from whenabouts_systems.training.examples import epoch_batches

    found = read_annotations(charades)
    durations = np.array([video.duration or 0 for video in found.videos])
    lengths = np.ceil(durations / 3).astype(np.int64)[found.video]
    table: dict[str, dict[str, float]] = {}
    for order in ("random", "by-length"):
        for size in (32, 128, 512):
            plans = [epoch_batches(lengths, size, 0, epoch, order) for epoch in range(5)]
            padded = [sum(len(one) * int(lengths[one].max()) for one in plan) for plan in plans]
            table.setdefault(order, {})[str(size)] = round(float(np.mean(padded) / lengths.sum()), 3)
    return table


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--videos", type=int, default=20_000)
    parser.add_argument("--charades", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/training_data.json"))
    parser.add_argument("--way", choices=list(WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.folder, options.way)))
        return
    with tempfile.TemporaryDirectory() as aside:
        folder = options.folder or Path(aside)
        folder.mkdir(parents=True, exist_ok=True)
        make_files(folder, options.videos)
        ways = {}
        for way in WAYS:
            command = [sys.executable, __file__, "--folder", str(folder), "--way", way]
            ways[way] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            print(way, ways[way])
    result = {
        "date": str(date.today()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "videos": options.videos,
        "queries": options.videos,
        "ways": ways,
        "padding": padding(options.charades) if options.charades else None,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
