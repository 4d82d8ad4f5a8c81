"""What an added hour of video costs as a corpus grows: seconds to write it, bytes on disk.

    python benchmarks/index_growth.py --hours 1000 --folder /tmp/growing --out results.json

Each hour is one video of `--clips-per-hour` clips (384 dimensions, generated around 500 topics) with a line
of words each, written by itself as `whenabouts index` would write it, upkeep included. Encoding is no part
of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.product.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.product.index.store import Store

DIMENSION = 384
STREAM = "subtitle"
Matrix = NDArray[np.float32]
REPORTED = (1, 3, 10, 30, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 2000, 3000)


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


def hour_of_clips(rng: np.random.Generator, topics: Matrix, clips: int) -> ClipColumns:
    walk = np.repeat(topics[rng.integers(len(topics), size=clips // 30 + 1)], 30, axis=0)[:clips]
    vectors = unit(walk + 0.9 * rng.standard_normal((clips, DIMENSION), dtype=np.float32))
    start = np.arange(clips, dtype=np.float64) * (3600 / clips)
    words = rng.integers(20_000, size=(clips, 12))
    text = [" ".join(f"word{word}" for word in line) for line in words]
    return ClipColumns(start, start + 3600 / clips, text, vectors)


def grow(store: Store, hours: int, clips: int) -> list[dict[str, float]]:
    """Write hour after hour; one row for each stretch that ends at a reported hour."""
    rng = np.random.default_rng(1)
    topics = rng.standard_normal((500, DIMENSION), dtype=np.float32)
    rows: list[dict[str, float]] = []
    spent: list[float] = []
    total = 0.0
    for hour in range(1, hours + 1):
        columns = hour_of_clips(rng, topics, clips)
        record = VideoRecord(
            f"hour{hour:06d}", f"/videos/{hour}.mp4", duration=3600.0, streams={STREAM: "generated"}
        )
        began = time.perf_counter()
        store.put_video(record, {STREAM: columns})
        if hour == hours:
            store.optimize()
        spent.append(time.perf_counter() - began)
        if hour in REPORTED or hour == hours:
            total += sum(spent)
            rows.append(stretch(store, hour, spent, total))
            print(rows[-1], flush=True)
            spent = []
    return rows


def stretch(store: Store, hour: int, spent: list[float], total: float) -> dict[str, float]:
    stats = store.stats()
    return {
        "hours": hour,
        "seconds_per_hour_median": round(float(np.median(spent)), 4),
        "seconds_per_hour_mean": round(float(np.mean(spent)), 4),
        "seconds_per_hour_since_the_start": round(total / hour, 4),
        "clips": stats.streams[STREAM].clips,
        "fragments": stats.streams[STREAM].fragments,
        "megabytes_per_hour": round((stats.bytes or 0) / 1e6 / hour, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=int, default=1000)
    parser.add_argument("--clips-per-hour", type=int, default=240, help="240: passages of 15 s")
    parser.add_argument("--folder", type=Path, required=True, help="a new corpus; it is removed at the end")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "machine": describe_machine()}
    report["clips_per_hour"] = arguments.clips_per_hour
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} is there already; name a folder that is not")
    store = Store.open(arguments.folder, create=True)
    store.add_stream(StreamInfo(STREAM, "generated", "generated", DIMENSION))
    report["rows"] = grow(store, arguments.hours, arguments.clips_per_hour)
    shutil.rmtree(arguments.folder)
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
