"""Upkeep while an index run goes on: what it costs, and what searches cost before it is done.

    python -m benchmarks.upkeep CORPUS [--copies 1 6]

CORPUS was indexed by its words. Its clips are written again into a new corpus, video by video, as an index
run writes them and without the upkeep at its end, once for each schedule; `--copies` writes them more than
once, under other ids. Noted are the processor seconds of the writes, upkeep included, the most clips that
were ever outside the word index, and the processor seconds of a search in the corpus as the last write left
it: what a search meets during a run, and after one that was stopped.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import lancedb
import numpy as np
from benchmarks.machine import describe_machine

from whenabouts import Corpus
from whenabouts.index.records import ClipColumns, VideoRecord
from whenabouts.index.upkeep import WHILE_WRITING, Schedule, state_of

RESULT = Path(__file__).with_name("results") / "upkeep.json"
SCHEDULES = {
    "as before": Schedule(fragments=256, rows=50_000, share=0.5),
    "half": Schedule(fragments=256, rows=1_000, share=0.5),
    "now": WHILE_WRITING,
}
QUERIES = ("batch normalization", "the violin", "history of rome", "neural network")
Video = tuple[VideoRecord, ClipColumns]


def videos_of(corpus: Corpus) -> list[Video]:
    """The videos of a corpus with their words."""
    table = lancedb.connect(corpus.location).open_table("clips_subtitle").to_arrow()
    clips: dict[str, list[dict[str, Any]]] = {}
    for row in table.sort_by("index").to_pylist():
        clips.setdefault(row["video_id"], []).append(row)

    def columns(rows: Sequence[dict[str, Any]]) -> ClipColumns:
        start, end, text, vectors, context = (
            [row[name] for row in rows] for name in ("start", "end", "text", "vector", "context")
        )
        return ClipColumns(np.array(start), np.array(end), text, np.array(vectors, np.float32), context)

    return [(record, columns(clips[record.video_id])) for record in corpus.store.videos([*clips])]


def written(place: Path, source: Corpus, videos: Sequence[Video], copies: int) -> dict[str, float]:
    """Write videos into a new corpus and search it; returns the numbers of one row."""
    corpus = Corpus(place, create=True)
    corpus.store.add_stream(source.store.stream("subtitle"))
    spent, outside = 0.0, 0
    for copy in range(copies):
        for record, clips in videos:
            as_copy = replace(record, video_id=f"{copy} {record.video_id}", path=f"/{copy}{record.path}")
            began = time.process_time()
            corpus.store.put_video(as_copy, {"subtitle": clips})
            spent += time.process_time() - began
            outside = max(outside, state_of(corpus.store._clips("subtitle")).unindexed)
    corpus.search(QUERIES[0])  # opens the encoder
    began = time.process_time()
    for query in QUERIES:
        corpus.search(query)
    each = (time.process_time() - began) / len(QUERIES)
    return {"writing_s": round(spent, 2), "most_outside": outside, "search_s": round(each, 3)}


def main() -> None:
    """Measure every schedule and keep the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 6])
    options = parser.parse_args()
    source = Corpus(options.corpus)
    videos = videos_of(source)
    count = sum(len(clips.start) for _, clips in videos)
    rows: dict[str, Any] = {}
    for copies in options.copies:
        for name, schedule in SCHEDULES.items():
            with (
                mock.patch("whenabouts.index.store.WHILE_WRITING", schedule),
                tempfile.TemporaryDirectory() as folder,
            ):
                row = written(Path(folder) / "a.corpus", source, videos, copies)
            rows[f"{copies * count:,} clips, {name}"] = row
            print(f"{copies * count:,} clips, {name}: {row}", flush=True)
    about = {"machine": describe_machine("lancedb"), "date": date.today().isoformat()}
    RESULT.write_text(json.dumps({"rows": rows, **about}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
