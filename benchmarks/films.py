"""Films of an hour, searched as whole videos and by segments: what is found, how fast, and how exactly.

    python -m benchmarks.films --retriever RUN --model RUN --features DIR --folder /tmp/films.corpus \
        --out benchmarks/results/films.json
    python -m benchmarks.films ... --films 3 --queries 10        to try it

The films are strung together from the simulated clip features of Charades-STA
(`benchmarks/results/simulated_studies.md`), videos of the test split among those of the training split, so
that a query's moment lies somewhere in an hour of others.
The systems were trained on the single videos of the training split. Queries are test captions, and
the one right answer is the moment of their own video in its film: other films show the like, as Charades-
STA does.

Ways: whole films (100 or so clips that stand for an hour each) and segments of `LENGTHS` seconds. The time of
a query is that of `find`, without the encoder of its words, where the films' rows have been read before. What
the nearest keys miss is told by the same search with every segment scored.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.machine import describe_machine, percentiles
from benchmarks.query_tokens import QueryTokens
from numpy.typing import NDArray

from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.overlap import temporal_iou
from whenabouts_systems.ranking.proposals import SegmentSettings
from whenabouts_systems.ranking.units import segment_clips
from whenabouts_systems.trained_search import search as trained_search
from whenabouts_systems.trained_search.opened import IndexedSystem, OpenedModel, open_model
from whenabouts_systems.trained_search.search import TrainedSearch

SECONDS, HOUR, K = 3.0, 3600.0, 10
STREAMS = {"vision": "charades_video_cl-3.h5", "sub": "charades_sub_cl-3.h5"}
LENGTHS = (3.0, 12.0, 30.0)
Matrix = NDArray[np.float32]
Answers = list[list[tuple[str, float, float]]]


@dataclass(frozen=True)
class Asked:
    """A query's words as vectors, and where its moment is."""

    tokens: Matrix
    film: str
    start: float
    end: float


class Films:
    """Videos strung together to films of about an hour."""

    def __init__(self, features: Path, films: int, queries: int) -> None:
        import h5py

        self._features = features
        test = _lines(features / "charades_test.jsonl")
        names = {
            str(line["vid_name"]) for part in ("train", "test") for line in _lines(_part(features, part))
        }
        order = sorted(names)
        np.random.default_rng(0).shuffle(order)
        with h5py.File(features / STREAMS["vision"]) as file:
            rows = np.array([len(file[name]) for name in order])
        film = ((rows.cumsum() - rows) * SECONDS // HOUR).astype(int)
        chosen = np.flatnonzero(film < films)
        self.members: dict[str, list[str]] = {}
        self._place: dict[str, tuple[str, float]] = {}
        filled: dict[str, int] = {}
        for at in chosen.tolist():
            name = f"film{film[at]:03d}"
            self.members.setdefault(name, []).append(order[at])
            self._place[order[at]] = name, filled.get(name, 0) * SECONDS
            filled[name] = filled.get(name, 0) + int(rows[at])
        known = [line for line in test if str(line["vid_name"]) in self._place]
        some = np.random.default_rng(1).permutation(len(known))[:queries]
        with h5py.File(features / "charades_query_tokens.h5") as file:
            self.asked = [self._asked(file, known[at]) for at in some.tolist()]

    def _asked(self, file: Any, line: Any) -> Asked:
        film, begin = self._place[str(line["vid_name"])]
        start, end = line["ts"]
        return Asked(np.asarray(file[str(line["desc_id"])], np.float32), film, begin + start, begin + end)

    def videos(self) -> Iterator[tuple[VideoRecord, dict[str, ClipColumns]]]:
        """The films as an index takes them; a row of zeros (nobody speaks) is no clip."""
        import h5py

        for film, members in self.members.items():
            columns = {}
            for name, place in STREAMS.items():
                with h5py.File(self._features / place) as file:
                    rows = np.concatenate([np.asarray(file[one], np.float32) for one in members])
                there = np.flatnonzero(np.abs(rows).sum(1) > 0)
                start = np.asarray(there * SECONDS, np.float64)
                text = ["generated words"] * len(there) if name == "sub" else None
                columns[name] = ClipColumns(start, start + SECONDS, text, rows[there])
                duration = len(rows) * SECONDS
            told = dict.fromkeys(STREAMS, "generated")
            yield VideoRecord(film, f"/{film}.mp4", duration=duration, streams=told), columns

    def write(self, store: Store) -> None:
        """Make the corpus."""
        import h5py

        for name, place in STREAMS.items():
            with h5py.File(self._features / place) as file:
                width = next(iter(file.values())).shape[1]
            settings = {"clip_seconds": SECONDS} if name == "vision" else {}
            store.add_stream(StreamInfo(name, "generated", "generated", width, settings))
        store.put_videos(self.videos())


def _part(features: Path, part: str) -> Path:
    return features / f"charades_{part}.jsonl"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def finders(store: Store, loaded: OpenedModel, tokens: QueryTokens) -> Iterator[tuple[str, TrainedSearch]]:
    """The ways to search."""
    first = loaded.retriever or loaded
    chooser = IndexedSystem(store, first, tokens)
    yield (
        "whole films",
        TrainedSearch(store, IndexedSystem(store, loaded, tokens), chooser)
        if first is not loaded
        else TrainedSearch(store, chooser),
    )
    for seconds in LENGTHS:
        clips = segment_clips(first.trained.inputs, seconds, first.name)
        pieces = IndexedSystem(store, first, tokens, segment_clips=clips)
        own = pieces if first is loaded else IndexedSystem(store, loaded, tokens)
        settings = SegmentSettings(clips * SECONDS)
        yield f"segments of {seconds:g} s", TrainedSearch(store, own, pieces, settings)


def answers(finder: TrainedSearch, store: Store, count: int) -> tuple[Answers, dict[str, Any]]:
    """The moments of each query, and how long they took."""
    found, wall, busy = [], [], []
    for number in range(count):
        began, worked = time.perf_counter(), time.process_time()
        moments = finder.find(str(number), K, None).moments
        wall.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - worked))
        found.append([(one.moment.video_id, one.moment.start, one.moment.end) for one in moments])
    return found, {"ms": percentiles(wall), "processor ms": percentiles(busy)}


def right(asked: Sequence[Asked], found: Answers) -> dict[str, float]:
    """Percent of the queries whose moment is among the first; `film`: whose film is the first."""
    share: dict[str, float] = {
        "film first": float(np.mean([a.film == f[0][0] for a, f in _both(asked, found)]))
    }
    for least in (0.5, 0.7):
        best = [_overlaps(one, moments) for one, moments in zip(asked, found, strict=True)]
        for count in (1, 10):
            hits = [bool(len(iou)) and iou[:count].max() >= least for iou in best]
            share[f"R@{count}, IoU {least}"] = float(np.mean(hits))
    return {name: round(100 * value, 1) for name, value in share.items()}


def _both(asked: Sequence[Asked], found: Answers) -> Iterator[tuple[Asked, list[tuple[str, float, float]]]]:
    nothing = ("", 0.0, 0.0)
    return ((one, moments or [nothing]) for one, moments in zip(asked, found, strict=True))


def _overlaps(one: Asked, moments: list[tuple[str, float, float]]) -> NDArray[np.float64]:
    same = np.array([film == one.film for film, _, _ in moments], bool)
    starts, ends = (np.array([moment[at] for moment in moments], np.float64) for at in (1, 2))
    return np.where(same, temporal_iou(starts, ends, one.start, one.end), 0.0)


def exactness(finder: TrainedSearch, store: Store, found: Answers) -> dict[str, Any]:
    """How much of the answers with every segment scored the nearest keys give."""
    before = trained_search.SCORED_SEGMENTS
    trained_search.SCORED_SEGMENTS = 1 << 40
    try:
        exact, spent = answers(finder, store, len(found))
    finally:
        trained_search.SCORED_SEGMENTS = before
    pairs = [(a, b) for a, b in zip(found, exact, strict=True) if b]
    return {
        "queries": len(pairs),
        "recall of the ten best": round(float(np.mean([len({*a} & {*b}) / len(b) for a, b in pairs])), 4),
        "same first moment": round(float(np.mean([a[:1] == b[:1] for a, b in pairs])), 4),
        "ms with every segment scored": spent["ms"],
    }


def measure(store: Store, films: Films, loaded: OpenedModel, exact: int) -> dict[str, Any]:
    """All ways."""
    results: dict[str, Any] = {}
    tokens = QueryTokens([one.tokens for one in films.asked])
    for name, finder in finders(store, loaded, tokens):
        began, worked = time.perf_counter(), time.process_time()
        finder.prepare()
        made = {"s": time.perf_counter() - began, "processor s": time.process_time() - worked}
        answers(finder, store, min(10, len(films.asked)))  # what is read once
        found, spent = answers(finder, store, len(films.asked))
        results[name] = {
            "encoded and indexed": {unit: round(value, 1) for unit, value in made.items()},
            **right(films.asked, found),
            "a query": spent,
        }
        if finder.segments is not None:
            results[name]["exactness"] = exactness(finder, store, found[:exact])
        print(name, json.dumps(results[name]), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="what finds the moments")
    parser.add_argument("--retriever", type=Path, help="what chooses the films or segments; default: --model")
    parser.add_argument("--features", type=Path, required=True, help="simulated with --subtitles")
    parser.add_argument("--films", type=int, default=10_000, help="at most so many; default: all")
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--exact", type=int, default=20, help="so many also with every segment scored")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, required=True, help="of the corpus, made where it is not there"
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    films = Films(arguments.features, arguments.films, arguments.queries)
    store = Store.open(arguments.folder, create=True)
    if not store.streams:
        films.write(store)
    loaded = open_model(arguments.model, arguments.retriever)
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "torch", "numpy"),
        "films": len(films.members),
        "hours": round(sum(record.duration or 0 for record in store.videos()) / 3600, 1),
        "queries": len(films.asked),
        "systems": [one.trained.system for one in (loaded.retriever, loaded) if one is not None],
        "results": measure(store, films, loaded, arguments.exact),
        "peak memory, MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    text = json.dumps(report, indent=1)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
