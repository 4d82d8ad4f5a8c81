"""All pairs of 72,842 captions with their phrases: time, memory, and what a batch's block costs.

    python benchmarks/relevance.py ANNOTATIONS... [--captions 72842] [--threads 2]
        [--runs np-vp:0.7 vp:0.7 vp:0.5 sent:0.5] [--out benchmarks/results/relevance.json]

ANNOTATIONS are files of judgements with texts, taken in turn until there are enough different captions.
Phrases come from `chunks`, vectors from the bundled encoder. For each of --runs (detector:threshold) all
pairs are listed, and a batch of 128 queries is looked up in the list and computed from vectors; where there
are more pairs than are listed, the result says so. CPU seconds stand beside the clock's: on a busy machine
they are the fair number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

DATE = "2026-11-21"
RUNS = ("np-vp:0.7", "vp:0.7", "vp:0.5", "sent:0.5")


def captions_of(files: Sequence[str], count: int) -> list[Any]:
    """Queries of `count` different captions."""
    from whenabouts.types import Query
    from whenabouts_bench.formats import read_annotations

    texts: dict[str, None] = {}
    for file in files:
        for query in read_annotations(file).queries:
            texts.setdefault(query.text.strip())
    return [Query(str(number), text) for number, text in enumerate(list(texts)[:count]) if text]


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call gives, and its seconds by the clock and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, {
        "wall_s": round(time.perf_counter() - wall, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
    }


def block_cost(pairs: Any, batch: int = 128, times: int = 40) -> dict[str, float]:
    """Milliseconds of a batch's block, rows by chance."""
    import numpy as np

    draw = np.random.default_rng(0)
    batches = [draw.integers(0, len(pairs.query_ids), batch) for _ in range(times)]
    pairs.block(batches[0])
    cpu, wall = [], []
    for rows in batches:
        _, spent = _precise(partial(pairs.block, rows))
        wall.append(spent[0])
        cpu.append(spent[1])
    return {"median_ms": statistics.median(wall), "least_ms": min(wall), "cpu_ms": statistics.mean(cpu)}


def _precise(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, ((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)


def measure(detector: str, threshold: float, units: Any, settings: Any, folder: Path) -> dict[str, Any]:
    """One detector and threshold: the list, its file, and blocks from both ways of keeping pairs."""
    from whenabouts.types import UsageError
    from whenabouts_bench.relevance.finding import listed_pairs, vector_pairs
    from whenabouts_bench.relevance.pairs import RelevantPairs
    from whenabouts_bench.relevance.summary import summarise

    row: dict[str, Any] = {"detector": detector, "threshold": threshold}
    vectors = vector_pairs(units, settings)
    try:
        pairs, row["pairs"] = timed(lambda: listed_pairs(units, settings))
    except UsageError as error:
        row["refused"] = str(error)
    else:
        _, row["saving"] = timed(lambda: pairs.save(folder / "x.pairs"))
        row["file_mb"] = (folder / "x.pairs").stat().st_size / 1e6
        opened, row["opening"] = timed(lambda: RelevantPairs.open(folder / "x.pairs"))
        row["block_of_list"] = block_cost(opened)
    told = summarise(vectors, units, examples=0)
    row |= {"share": told.share, "pairs_estimated": told.pairs, "common": told.common}
    row["block_of_vectors"] = block_cost(vectors)
    row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("annotations", nargs="+")
    parser.add_argument("--captions", type=int, default=72_842)
    parser.add_argument("--runs", nargs="+", default=list(RUNS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "relevance.json")
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != str(options.threads):
        # Read when the libraries are loaded: they must not be, yet.
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    result = measured(options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All that is measured."""
    from whenabouts.encoders import EncoderSettings, open_text_encoder
    from whenabouts_bench.relevance.pairs import PairSettings
    from whenabouts_bench.relevance.phrases import open_phrases
    from whenabouts_bench.relevance.units import detector_of, parts_of, units_of

    queries = captions_of(options.annotations, options.captions)
    encoder = open_text_encoder(settings=EncoderSettings(threads=options.threads))
    extractor = open_phrases()
    _, phrases = timed(lambda: parts_of([query.text for query in queries], detector_of("vp"), extractor))
    runs: list[dict[str, Any]] = []
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for run in options.runs:
            name, _, threshold = run.partition(":")
            if name not in made:
                # Only the last detector's vectors are kept: each would be some hundred megabytes.
                made = {name: timed(partial(units_of, queries, detector_of(name), extractor, encoder))}
            units, spent = made[name]
            settings = PairSettings(
                name, float(threshold), encoder.name, encoder.fingerprint, extractor.fingerprint
            )
            row = measure(name, float(threshold), units, settings, Path(folder))
            row["phrases_and_vectors"] = spent
            row["parts"], row["parts_of_captions"] = len(units.texts), len(units.units)
            runs.append(row)
            print(json.dumps(row), flush=True)
    return {
        "date": DATE,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "threads": options.threads,
        "load_at_end": os.getloadavg()[0],
        "captions": len(queries),
        "from": [Path(file).name for file in options.annotations],
        "phrases_alone": phrases,
        "encoder": encoder.fingerprint,
        "runs": runs,
    }


if __name__ == "__main__":
    sys.exit(main())
