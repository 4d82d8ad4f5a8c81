"""Small files of every format, and how runs and judgements are compared."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest

from whenabouts.types import Moment, ScoredMoment
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunSource, Task

Rows = dict[str, list[tuple[str, float, float, float]]]


def collected() -> Annotations:
    """Judgements that every format can say: one moment a query, in the video its id names."""
    collector = AnnotationBuilder("example")
    collector.add_video("a", 30.0)
    collector.add_video("b", 41.5)
    for query_id, text, start, end in (
        ("a#0", "a person opens a door", 1.0, 4.5),
        ("a#1", "a person closes a door – again", 20.0, 29.125),
        ("b#0", "the dog barks", 0.0, 41.5),
    ):
        collector.add_query(query_id, text)
        collector.judge(query_id, query_id[0], start, end)
    return collector.annotations()


def answered() -> MemoryRun:
    """A run that every format can say: moments of each query's own video, scores falling."""
    return MemoryRun.from_run(
        {
            "a#0": [ScoredMoment(Moment("a", 1.5, 4.0), 0.75), ScoredMoment(Moment("a", 0.0, 3.125), -2.0)],
            "b#0": [ScoredMoment(Moment("b", 7.25, 41.5), 12.5)],
        }
    )


_READ_ONLY = {
    "2d-tan": {
        "a": {"duration": 30.0, "timestamps": [[1.0, 4.5], [20, 29.125]], "sentences": ["one", "two"]},
        "b": {"duration": 41.5, "timestamps": [[0, 41.5]], "sentences": ["the dog barks"]},
    },
    "sentences": '{"video_id": "a", "sentences": [{"start": 1.0, "end": 4.5, "text": "one"}]}\n',
    "charades": "a 1.0 4.5##a person opens a door.\na 20.0 29.1##a person closes it.\n",
    "didemo": [
        {
            "annotation_id": 7,
            "description": "the dog barks",
            "video": "b.mov",
            "num_segments": 6,
            "times": [[0, 0], [0, 0], [0, 1], [2, 2]],
        }
    ],
}
"""Formats that are read but not written."""

_RESULTS = {
    "whenabouts_bench": 1,
    "task": {"task": "tiny@1"},
    "system": {"name": "mine", "revision": "1"},
    "answers": {
        "VCMR": {
            "a#0": [["a", 1.5, 4.0, 0.75], ["a", 0.0, 3.125, -2.0]],
            "b#0": [["b", 7.25, 41.5, 12.5]],
        }
    },
}
"""Results of `whenabouts bench`, with the answers of `answered`."""


_LINE = {
    "index": 0,
    "qid": "q1",
    "query": "a person opens a door",
    "gt_pos_doc_id": "a",
    "gt_start": 1.0,
    "gt_end": 4.5,
    "final_rank": 1,
    "final_top1_doc_id": "a",
    "final_answer": "matched",
    "final_pred_start": 1.5,
    "final_pred_end": 4.0,
    "turns": [],
}
_RUNS = {
    "bench-results": json.dumps(_RESULTS),
    "lmms-eval": json.dumps(
        {
            "a.mp4>>>a person opens a door>>>[1.0, 4.5]": "The event happens in 1.5 - 4.0 seconds.",
            "b.mp4>>>the dog barks>>>[0.0, 41.5]": "The video does not show a dog.",
            "b.mp4>>>the dog sleeps>>>[3.0, 4.0]": "00:03 to 00:04",
        },
        indent=4,
    ),
    "videosearch-r1": "".join(
        json.dumps(line) + "\n"
        for line in (
            _LINE,
            {**_LINE, "index": 1, "qid": "q2", "query": "the dog barks", "final_answer": "not_matched"},
        )
    ),
}
"""Runs in formats that are not written."""


@pytest.fixture(name="annotations")
def annotations_fixture() -> Annotations:
    return collected()


@pytest.fixture(name="run")
def run_fixture() -> MemoryRun:
    return answered()


@pytest.fixture()
def sample(tmp_path: Path) -> Callable[[str, str], Path]:
    """(format, way) -> a small file of that format that the way reads."""

    def make(name: str, way: str) -> Path:
        path = tmp_path / f"{name}.{way}"
        if name in _RUNS:
            path.write_text(_RUNS[name], encoding="utf-8")
        elif way == "open_run" and name == "hero":
            write_lists(path, {"a#0": [[4, 0.75], [9, -2.0]], "b#0": [[9, 12.5, "more"]]})
        elif way == "open_run":
            formats.write_run(answered(), path, name, collected())
        elif name in formats.format_names("write_annotations"):
            formats.write_annotations(collected(), path, name)
        else:
            content = _READ_ONLY[name]
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return make


def write_lists(path: Path, lists: Mapping[str, object], numbers: object = None) -> Path:
    """HERO's lists in one file, and beside it which videos their numbers are."""
    lmdb = pytest.importorskip("lmdb")
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 24) as environment,
        environment.begin(write=True) as writing,
    ):
        for query_id, entries in lists.items():
            data = entries if isinstance(entries, bytes) else msgspec.msgpack.encode(entries)
            writing.put(query_id.encode(), data)
    told = {"train": {"a": [30.0, 4]}, "val": {"b": [41.5, 9]}} if numbers is None else numbers
    (path.parent / "tvr_video2dur_idx.json").write_text(json.dumps(told))
    return path


@pytest.fixture()
def rows() -> Callable[..., Rows]:
    """A run as query id -> rows, with missing times as -1."""

    def collect(source: RunSource, task: Task = "VCMR") -> Rows:
        found: Rows = {}
        for block in source.blocks(task):
            assert block.offsets[0] == 0 and block.offsets[-1] == len(block.video) == len(block.score)
            start, end = np.nan_to_num(block.start, nan=-1.0), np.nan_to_num(block.end, nan=-1.0)
            names = [block.video_ids[code] for code in block.video.tolist()]
            lines = list(zip(names, start.tolist(), end.tolist(), block.score.tolist(), strict=True))
            for number, query_id in enumerate(block.query_ids):
                assert query_id not in found
                found[query_id] = lines[block.offsets[number] : block.offsets[number + 1]]
        return found

    return collect


@pytest.fixture()
def packed() -> Callable[[Path], Path]:
    """The same file as gzip."""

    def pack(path: Path) -> Path:
        target = path.with_name(path.name + ".gz")
        target.write_bytes(gzip.compress(path.read_bytes()))
        return target

    return pack
