"""What can be done about a corpus that grows, measured: segments before clips, and less of the index.

    python -m benchmarks.scale --folder /tmp/scale --sizes 1000000
    python -m benchmarks.scale_choices --folder /tmp/scale --out benchmarks/results/scale_choices.json

- *Segments*: the mean of ten clips in a row is a vector of its own, in a small corpus beside the large one.
  The nearest segments choose videos, and the clips of these are compared exactly: an index over a tenth of
  the vectors, none over the clips.
- *Partitions*: how much of the index is looked into, against what that finds and takes.
- *Disk*: what a clip without words takes by the width of its vector; the costs of the streams follow.

The corpus of `scale.py` is used as it is; a run that is stopped goes on at the next choice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from benchmarks import scale
from benchmarks.scale import CLIPS, DIMENSION, STREAM, K

from whenabouts.index import lookup
from whenabouts.index.records import ClipColumns, ClipHits, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.vector_index import Effort

SEGMENT_CLIPS = 10
SEGMENTS = (50, 100, 200, 400, 800)
PROBED_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
WIDTHS = (192, 384, 512, 768, 1280, 2048)
_WIDTH_CLIPS = 60_000
_BLOCKS_A_PUT = 10


def _record(name: str, stream: str) -> VideoRecord:
    return VideoRecord(name, f"/videos/{name}.mp4", size=1, duration=500.0, streams={stream: "generated"})


# Segments before clips ----------------------------------------------------------------------------


def write_segments(folder: Path, clips: int) -> dict[str, float]:
    """Write the corpus of segments; what that takes."""
    store = Store.open(folder / "segments", create=True)
    store.add_stream(StreamInfo("segments", "generated", "generated", DIMENSION))
    start = np.arange(0, CLIPS, SEGMENT_CLIPS, dtype=np.float64) * 10.0
    times, entries = [], []
    blocks = clips // (scale.BLOCK * CLIPS)
    for block in range(blocks):
        vectors = scale.vectors_of(block).reshape(scale.BLOCK, -1, SEGMENT_CLIPS, DIMENSION).mean(axis=2)
        for number, own in enumerate(scale.unit(vectors)):
            columns = ClipColumns(start, start + 10.0 * SEGMENT_CLIPS, vectors=own)
            name = scale.video_name(block * scale.BLOCK + number)
            entries.append((_record(name, "segments"), {"segments": columns}))
        if (block + 1) % _BLOCKS_A_PUT == 0 or block + 1 == blocks:
            times.append(scale.seconds_of(partial(store.put_videos, entries)))
            entries = []
    times.append(scale.seconds_of(partial(store.optimize, force=True)))
    return scale.summed(times) | scale.disk(folder / "segments")


def by_segments(segments: Store, clips: Store, count: int, query: scale.Matrix) -> ClipHits:
    """The K nearest clips of the videos of the nearest segments."""
    videos = list(dict.fromkeys(segments.nearest("segments", query, count).video_ids))
    return clips.nearest(STREAM, query, K, video_ids=videos)


def segments(folder: Path, clips: int, count: int) -> dict[str, Any]:
    """Search by segments; answers are held against the exact best clips."""
    asked, best, scores = truth_of(folder, count)
    written = write_segments(folder, clips)
    coarse, fine = Store.open(folder / "segments"), Store.open(folder / "corpus")
    found = {}
    for number in SEGMENTS:
        times, hits = scale.timed(partial(by_segments, coarse, fine, number), asked)
        found[str(number)] = times | scale.recall(hits, best, scores)
    shutil.rmtree(folder / "segments")
    return {"segment_clips": SEGMENT_CLIPS, "written": written, "found": found}


def truth_of(folder: Path, count: int) -> tuple[scale.Matrix, Any, Any]:
    """The queries, and their exact best clips over the whole corpus with their scores."""
    with np.load(folder / "truth.npz") as saved:
        best, scores = saved["best"][0], saved["scores"][0]
    count = min(count, len(best))
    return scale.queries(len(best))[:count], best[:count], scores[:count]


# More of the index, or less -----------------------------------------------------------------------


def partitions(folder: Path, clips: int, count: int) -> dict[str, Any]:
    """Search with other shares of the partitions than the product's own."""
    asked, best, scores = truth_of(folder, count)
    store = Store.open(folder / "corpus")
    found = {}
    for share in PROBED_SHARES:
        effort = Effort(share, K, lookup.CLIPS_EFFORT.refine)
        search = partial(lookup.nearest, effort=effort)
        with patch.object(lookup, "nearest", search), patch.object(lookup, "LEAST_PROBES", 1):
            times, hits = scale.timed(partial(scale.nearest_of, store, None), asked)
        found[str(share)] = times | scale.recall(hits, best, scores)
    return found


# What a clip takes on disk ------------------------------------------------------------------------


def disk_by_width(folder: Path, clips: int, count: int) -> dict[str, float]:
    """Bytes on disk of a clip without words, indices included, by the width of its vector."""
    rng, place = np.random.default_rng(5), folder / "widths"
    sizes = {}
    for width in WIDTHS:
        store = Store.open(place / "corpus", create=True)
        store.add_stream(StreamInfo("vision", "generated", "generated", width))
        start = np.arange(0, 600, dtype=np.float64)
        for first in range(0, _WIDTH_CLIPS // len(start), 10):
            entries = [
                (
                    _record(f"{first + number:06d}", "vision"),
                    {"vision": ClipColumns(start, start + 1, vectors=_noise(rng, len(start), width))},
                )
                for number in range(10)
            ]
            store.put_videos(entries)
        store.optimize(force=True)
        sizes[str(width)] = round(scale.disk(place / "corpus")["mb"] * 1e6 / _WIDTH_CLIPS, 1)
        shutil.rmtree(place)
    return sizes


def _noise(rng: np.random.Generator, count: int, width: int) -> scale.Matrix:
    return scale.unit(rng.standard_normal((count, width), dtype=np.float32))


CHOICES: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "partitions": partitions,
    "segments": segments,
    "bytes_a_clip_by_width": disk_by_width,
}


def main() -> None:
    """Measure each choice in a process of its own."""
    from benchmarks.machine import describe_machine

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="that of benchmarks.scale")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    clips = Store.open(options.folder / "corpus").stats().streams[STREAM].clips
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "pyarrow", "numpy"),
        "clips": clips,
        "queries": options.queries,
    }
    for name, choice in CHOICES.items():
        path = options.folder / f"choice-{name}-{clips}.json"
        if not path.exists():
            load = round(os.getloadavg()[0], 1)
            result = scale.alone(choice, options.folder, clips, options.queries)
            path.write_text(json.dumps({"load": load, **result}), encoding="utf-8")
        report[name] = json.loads(path.read_text("utf-8"))
        print(name, json.dumps(report[name]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
