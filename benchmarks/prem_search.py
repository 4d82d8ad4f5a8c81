"""How long a search with PREM takes, and its parts: two systems of the published size on an indexed corpus.

    python -m benchmarks.prem_search --folder /tmp/prem.corpus --out benchmarks/results/prem_search.json
    python -m benchmarks.prem_search --folder /tmp/small.corpus --videos 40 --queries 5      to try it

Generated corpus: videos of 100 clips of 1.5 seconds, each clip with a vector for its picture (512 wide) and
one for what is said (384 wide; of a fifth of the clips nothing is). Both systems are those of `models/` at
the published size (hidden 384, 4 heads, 100 clips), with random weights: what they find means nothing, what
they cost is what trained ones cost. The retriever's keys choose, the localizer looks into 10 videos.

The time of a query is that of `TrainedSearch.find`, without the encoder that makes word vectors of its words;
each query is asked twice, for videos that were read are remembered. Parts are measured in the same calls, by
clocks around the functions named in `PARTS`. A corpus that is in `folder` already is used as it is.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.machine import describe_machine, percentiles
from benchmarks.query_tokens import QueryTokens
from numpy.typing import NDArray

from whenabouts.models import config_of, new_model
from whenabouts.models.decoding import Decoding
from whenabouts.models.inputs import Inputs, StreamInput
from whenabouts.models.trained import Trained
from whenabouts.product.index.keys import Keys, known_systems
from whenabouts.product.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.product.index.store import Store
from whenabouts.product.systems import indexed_corpus
from whenabouts.product.systems import search as trained_search
from whenabouts.product.systems.opened import IndexedSystem, open_model
from whenabouts.product.systems.search import TrainedSearch

CLIPS, SECONDS, TOKENS = 100, 1.5, 15
WIDTHS = {"vision": 512, "subtitle": 384}
QUERY_WIDTH, SILENT = 384, 0.2
TOP_VIDEOS, K, BLOCK = 10, 10, 200
Matrix = NDArray[np.float32]


def words(queries: int) -> QueryTokens:
    """Random tokens for so many queries."""
    seeds = [np.random.default_rng(number) for number in range(queries)]
    return QueryTokens([rng.standard_normal((TOKENS, QUERY_WIDTH), dtype=np.float32) for rng in seeds])


def system(name: str, seed: int) -> Trained:
    """One of the two systems at the published size, with weights large enough that scores differ."""
    torch.manual_seed(seed)
    settings = {"streams": WIDTHS, "query_width": QUERY_WIDTH, "max_clips": CLIPS}
    told = {stream: StreamInput(width, True, "generated") for stream, width in WIDTHS.items()}
    inputs = Inputs(StreamInput(QUERY_WIDTH, True, "generated"), told, clip_seconds=SECONDS)
    decoding = Decoding(max_clips=24, top_videos=TOP_VIDEOS, nms=0.7)
    return Trained(name, new_model(name, config_of(name, settings)).eval(), inputs, decoding)


def write(store: Store, count: int) -> None:
    """Make the corpus."""
    for stream, width in WIDTHS.items():
        store.add_stream(StreamInfo(stream, "generated", "generated", width, {"clip_seconds": SECONDS}))
    start = np.arange(CLIPS, dtype=np.float64) * SECONDS
    for first in range(0, count, BLOCK):
        store.put_videos(video(number, start) for number in range(first, min(first + BLOCK, count)))


def video(number: int, start: NDArray[np.float64]) -> tuple[VideoRecord, dict[str, ClipColumns]]:
    """One video, its vectors drawn by its number."""
    rng = np.random.default_rng(number)
    columns = {}
    for stream, width in WIDTHS.items():
        rows = rng.standard_normal((CLIPS, width), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        kept = rng.random(CLIPS) >= SILENT if stream == "subtitle" else np.ones(CLIPS, bool)
        text = ["generated words"] * int(kept.sum()) if stream == "subtitle" else None
        columns[stream] = ClipColumns(start[kept], start[kept] + SECONDS, text, rows[kept])
    record = VideoRecord(
        f"{number:08d}", f"/{number}.mp4", duration=CLIPS * SECONDS, streams=dict.fromkeys(WIDTHS, "g")
    )
    return record, columns


PARTS: tuple[tuple[str, Any, str], ...] = (
    ("both queries encoded", IndexedSystem, "encode"),
    ("nearest keys", indexed_corpus, "nearest_units"),
    ("what is kept: read", Keys, "encodings"),
    ("what is kept: unpacked", indexed_corpus, "unpacked"),
    ("videos scored by the retriever", trained_search, "score_corpus"),
    ("moments: decoded and suppressed, with the localizer", trained_search, "rank"),
    ("evidence and words", trained_search, "with_evidence"),
    ("the retriever's whole part", TrainedSearch, "retrieved"),
)
"""What is measured within a search: its name, where the function is, and how it is called."""
LOCALIZER = "of it, the localizer on ten videos"


class Clocks:
    """Milliseconds of functions, by name, in the call of a search: on the clock, and of processors."""

    def __init__(self) -> None:
        self.now: defaultdict[str, float] = defaultdict(float)
        self.busy: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def around(self, places: Sequence[tuple[str, Any, str]]) -> Iterator[None]:
        """Measure some functions for a while."""
        before = [(place, name, getattr(place, name)) for _, place, name in places]
        for (label, _, _), (place, name, function) in zip(places, before, strict=True):
            setattr(place, name, self._timed(label, function))
        try:
            yield
        finally:
            for place, name, function in before:
                setattr(place, name, function)

    def _timed(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            began, worked = time.perf_counter(), time.process_time()
            found = function(*arguments, **named)
            self.now[label] += 1000 * (time.perf_counter() - began)
            self.busy[label] += 1000 * (time.process_time() - worked)
            return found

        return timed


def asked(finder: TrainedSearch, model: Any, queries: int) -> dict[str, Any]:
    """Times of queries and of their parts: medians, and of the whole also others."""
    clocks = Clocks()
    wall, busy = [], []
    parts: dict[str, defaultdict[str, list[float]]] = {
        kind: defaultdict(list) for kind in ("ms", "processor ms")
    }
    with clocks.around([*PARTS, (LOCALIZER, model, "score_spans")]):
        for number in range(queries):
            clocks.now.clear()
            clocks.busy.clear()
            began, worked = time.perf_counter(), time.process_time()
            finder.find(str(number), K, None)
            wall.append(1000 * (time.perf_counter() - began))
            busy.append(1000 * (time.process_time() - worked))
            for kind, spent in (("ms", clocks.now), ("processor ms", clocks.busy)):
                for label, milliseconds in spent.items():
                    parts[kind][label].append(milliseconds)
    medians = {
        f"parts, {kind} (medians)": {label: round(float(np.median(all_)), 1) for label, all_ in some.items()}
        for kind, some in parts.items()
    }
    return {"ms": percentiles(wall), "processor ms": percentiles(busy), **medians}


def threads_tried(model: Any, trained: Trained, queries: int) -> dict[str, Any]:
    """Medians of the localizer alone on ten videos in memory, by the number of threads."""
    clips = trained.inputs.clips(
        [{name: columns.vectors for name, columns in _whole(number).items()} for number in range(TOP_VIDEOS)]
    )
    before, found, tokens = torch.get_num_threads(), {}, words(queries)
    with torch.no_grad():
        videos = model.encode_videos(clips)
        for threads in sorted({1, before}):
            torch.set_num_threads(threads)
            spent = []
            for number in range(queries):
                encoded = model.encode_queries(trained.inputs.queries(tokens.encode_tokens([str(number)])))
                pairs = encoded.take(torch.zeros(TOP_VIDEOS, dtype=torch.int64))
                began = time.perf_counter()
                model.score_spans(pairs, videos)
                spent.append(1000 * (time.perf_counter() - began))
            found[f"{threads} threads"] = percentiles(spent)
    torch.set_num_threads(before)
    return found


def _whole(number: int) -> dict[str, Any]:
    """A video's vectors with a row for every clip."""
    _, columns = video(number, np.arange(CLIPS, dtype=np.float64) * SECONDS)
    said = columns["subtitle"]
    rows = np.zeros((CLIPS, WIDTHS["subtitle"]), np.float32)
    rows[np.rint(said.start / SECONDS).astype(int)] = said.vectors
    return columns | {"subtitle": ClipColumns(columns["vision"].start, columns["vision"].end, None, rows)}


def measure(store: Store, queries: int) -> dict[str, Any]:
    """Encode what is not yet encoded, then ask."""
    retriever, localizer = system("prem_retriever", 1), system("prem_localizer", 2)
    tokens = words(max(queries, 3))
    first = IndexedSystem(store, open_model(retriever), tokens)
    kept = IndexedSystem(store, open_model(localizer, retriever), tokens)
    finder = TrainedSearch(store, kept, first)
    results: dict[str, Any] = {}
    known = {one.system for one in known_systems(store)}
    if not {retriever.fingerprint, localizer.fingerprint} <= known:
        before, began, worked = store.stats().bytes or 0, time.perf_counter(), time.process_time()
        finder.prepare()
        results["encode_and_index_s"] = round(time.perf_counter() - began, 1)
        results["encode_and_index_processor_s"] = round(time.process_time() - worked, 1)
        results["keys_and_encodings_mb"] = round(((store.stats().bytes or 0) - before) / 1e6)
    asked(finder, localizer.model, 3)  # what is loaded and compiled once
    results["asked first"] = asked(finder, localizer.model, queries)
    results["asked again"] = asked(finder, localizer.model, queries)
    results["the localizer alone on ten videos in memory, ms"] = threads_tried(
        localizer.model, localizer, queries
    )
    results["peak memory, MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    store = Store.open(arguments.folder, create=True)
    if not store.streams:
        write(store, arguments.videos)
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "torch", "numpy"),
        "videos": arguments.videos,
        "clips a video": CLIPS,
        "queries": arguments.queries,
        "results": measure(store, arguments.queries),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
