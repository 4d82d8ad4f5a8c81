"""A small synthetic release of every data set, in the files and layouts of the real ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.datasets.activitynet_two_annotators import write_two_annotators
from whenabouts_bench.datasets.titled_transcripts import write_titled_transcripts

Release = Callable[[str], Path]


def write(path: Path, text: str) -> None:
    """Write text into a file, compressed if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_json(path: Path, value: Any) -> None:
    """One JSON value in a file."""
    write(path, json.dumps(value))


def write_lines(path: Path, records: list[Any]) -> None:
    """JSON lines in a file."""
    write(path, "".join(json.dumps(record) + "\n" for record in records))


def seconds(*spans: tuple[float, float], duration: float = 30.0, about: str = "a") -> dict[str, Any]:
    """A video of the 2D-TAN layout, with a sentence for each span."""
    sentences = [f" {about} person does thing {i} " for i in range(len(spans))]
    return {"duration": duration, "timestamps": [list(span) for span in spans], "sentences": sentences}


def frames(*spans: tuple[int, int], num_frames: int = 2940, about: str = "the") -> dict[str, Any]:
    """A video of the TACoS layout."""
    record = seconds(*spans, about=about)
    del record["duration"]
    return {**record, "fps": 29.4, "num_frames": num_frames}


def _tvr(folder: Path) -> None:
    corpus: dict[str, dict[str, list[float]]] = {}
    for split, base in (("train", 0), ("val", 100), ("test_public", 200)):
        names = [f"{split}_s01e0{i}_seg02_clip_01" for i in range(3)]
        corpus[split] = {name: [60.5 + i, i] for i, name in enumerate(names)}
        rows = [
            {"vid_name": names[i % 2], "duration": 60.5 + i % 2, "ts": [3.0 * i, 3.0 * i + 4.5]}
            | {"desc": f"{split} says thing {i}. ", "type": ("v", "t", "vt")[i % 3], "desc_id": base + i}
            for i in range(12)
        ]
        if split == "test_public":
            rows = [{"desc": row["desc"], "desc_id": row["desc_id"]} for row in rows]
        write_lines(folder / "data" / f"tvr_{split}_release.jsonl", rows)
    write_json(folder / "data" / "tvr_video2dur_idx.json", corpus)


def _tvr_ranking(folder: Path) -> None:
    def pairs(first: int, count: int, top: int) -> list[dict[str, Any]]:
        return [
            {"pair_id": 10 * query + k, "query_id": query, "query": f"Someone does thing {query}."}
            | {"video_name": f"show_clip_0{k}", "timestamp": [2.0 * k, 2.0 * k + 3], "duration": 60.0}
            | {"caption": "…", "similarity": 0.9, "relevance": k % 5}
            for query in range(first, first + count)
            for k in range(top)
        ]

    write_json(folder / "val.json", pairs(0, 3, 5))
    write_json(folder / "test.json", pairs(100, 4, 5))
    for top in (1, 20, 40):
        entries: dict[int, dict[str, Any]] = {}
        for pair in pairs(500, 2, min(top, 6)):
            del pair["relevance"]  # training pairs are unjudged
            query = {key: pair.pop(key) for key in ("query_id", "query")}
            entries.setdefault(query["query_id"], query | {"relevant_moment": []})["relevant_moment"].append(
                pair
            )
        write_json(folder / f"train_top{top:02d}.json", list(entries.values()))
    write_json(folder / "video_corpus.json", {f"show_clip_0{k}": 60.0 for k in range(9)})


def _charades(folder: Path) -> None:
    write_json(
        folder / "charades_train.json",
        {f"TRN{i:02d}": seconds((0.0, 5.5), (2.0, 31.0), about="some") for i in range(6)},
    )
    lines = [f"TST{i % 4:02d} {i}.0 {i + 4}.5##person does thing {i}.\n" for i in range(12)]
    write(folder / "charades_sta_test.txt", "".join(lines))
    rows = "".join(f'TST{i:02d},"a, b",{20.5 + i}\n' for i in range(4))
    write(folder / "Charades_v1_test.csv", "id,script,length\n" + rows)


def _activitynet(folder: Path) -> None:
    train = {f"v_train_{i:05d}": seconds((0, 4.14), (4.14, 33.36), duration=33.36) for i in range(6)}
    train["v_train_00000"]["timestamps"] = [[3.0, 3.0], [9.0, 5.0]]
    write_json(folder / "train.json", train)
    for name, about in (("val_1.json.gz", "one"), ("val_2.json", "two")):
        videos = {f"v_valid_{i:05d}": seconds((0, 5), (1, 99.9), about=about) for i in range(6)}
        write_json(folder / name, videos)


def _tacos(folder: Path) -> None:
    for split, first in (("train", 13), ("val", 20), ("test", 30)):
        videos = {f"s{first}-d{i}.avi": frames((141, 354), (2000, 2946), (2950, 2960)) for i in range(21, 25)}
        write_json(folder / f"{split}.json", videos)


def _didemo(folder: Path) -> None:
    for split, base in (("train", 0), ("val", 100), ("test", 200)):
        rows = [
            {
                "annotation_id": base + i,
                "description": f"thing {i} happens in {split}",
                "video": f"7@N0{i % 5}_{split}.{'mov' if i < 9 else 'mp4'}",
                "num_segments": 6,
                "times": [[1, 1], [0, 2], [1, 1], [0, 2]] if i == 9 else [[4, 5], [4, 5], [4, 5], [i % 6, 5]],
                "dl_link": "",
            }
            for i in range(12)
        ]
        write_json(folder / f"{split}_data.json", rows)


def _qvhighlights(folder: Path) -> None:
    for split, base in (("train", 0), ("val", 100), ("test", 200)):
        rows = [
            {"qid": base + i, "query": f"Vlogger does {i} in {split}", "duration": 150}
            | {"vid": f"{split}_yt_{i % 5}.0_150.0", "relevant_windows": [[2 * i, 2 * i + 10], [100, 110]]}
            | {"relevant_clip_ids": [i], "saliency_scores": [[1, 2, 3]]}
            for i in range(12)
        ]
        if split == "test":
            rows = [{key: row[key] for key in ("qid", "query", "duration", "vid")} for row in rows]
        write_lines(folder / f"highlight_{split}_release.jsonl", rows)


def _pooled(videos: dict[str, dict[str, Any]], size: int) -> dict[str, dict[str, Any]]:
    """The videos with pools of `size` (the last sentence's is one short) and one positive elsewhere."""
    ids = list(videos)
    for number, (video_id, record) in enumerate(videos.items()):
        other = ids[(number + 1) % len(ids)]
        entry = [other, videos[other]["sentences"][0].strip(), videos[other]["timestamps"][0]]
        count = len(record["sentences"])
        pool = [video_id, *(name for name in ids if name != video_id)]
        record["pos_moments"] = [[entry]] + [[] for _ in range(count - 1)]
        record["retrieval_pool"] = [pool[: size - (i == count - 1)] for i in range(count)]
    return videos


def _mvmr_charades(folder: Path) -> None:
    videos = {f"MV{i:03d}": seconds((1.0, 5.0), (2.0, 9.0)) for i in range(50)}
    write_json(folder / "charades_test_mvmr.json", _pooled(videos, 50))


def _mvmr_activitynet(folder: Path) -> None:
    videos = {f"v_pooled{i:04d}": seconds((1.0, 5.0), (2.0, 9.0)) for i in range(50)}
    write_json(folder / "activitynet_test_mvmr.json", _pooled(videos, 50))


def _mvmr_tacos(folder: Path) -> None:
    videos = {f"s30-d{i}.avi": frames((294, 588), (588, 882)) for i in range(21, 27)}
    write_json(folder / "tacos_test_mvmr.json", _pooled(videos, 5))


def _two_annotators(folder: Path) -> None:
    source = folder / "source"
    for file, about in (("val_1.json", "first"), ("val_2.json", "second")):
        spans = ((0.0, 9.0), (8.0, 20.0))
        write_json(source / file, {f"v_both{i:07d}": seconds(*spans, about=about) for i in range(60)})
    both = open_dataset("activitynet-captions", source)
    write_two_annotators(both.annotations("val_2"), both.annotations("val_1"), folder)


def transcripts_with_titles(folder: Path, recordings: int = 30) -> None:
    """Recordings of 20 minutes in two sets, one a day long; all but each tenth have two titled parts."""
    facts, titles = [], []
    for number in range(recordings):
        name = f"talk{number:02}"
        seconds = 86_400.0 if number == 4 else 1_200.0
        facts.append({"recording": name, "set": "ab"[number % 2], "seconds": seconds})
        cues = "".join(
            f"00:{minute:02}:00.000 --> 00:{minute:02}:50.000\nhost says {number} {minute}\n\n"
            for minute in range(20)
        )
        if number == 4:
            cues += "12:00:00.000 --> 12:00:30.000\nlong after\n"
        write(folder / f"{name}.vtt", f"WEBVTT\n\n{cues}")
        if number % 10 != 9:
            spans = ((0.0, 300.0), (300.0, 1_000.0)) if number != 4 else ((8_600.0, 43_250.0), (0.0, 60.0))
            titles += [
                {"query": f" On {number}, part {place} ", "recording": name, "start": start, "end": end}
                for place, (start, end) in enumerate(spans)
            ]
    write_lines(folder / "recordings.jsonl", facts)
    write_lines(folder / "queries.jsonl", titles)


def _titled_transcripts(folder: Path) -> None:
    transcripts_with_titles(folder / "source")
    write_titled_transcripts(folder / "source", folder)


RELEASES: dict[str, Callable[[Path], None]] = {
    "activitynet-captions": _activitynet,
    "activitynet-two-annotators": _two_annotators,
    "charades-sta": _charades,
    "didemo": _didemo,
    "mvmr-activitynet": _mvmr_activitynet,
    "mvmr-charades-sta": _mvmr_charades,
    "mvmr-tacos": _mvmr_tacos,
    "qvhighlights": _qvhighlights,
    "tacos": _tacos,
    "titled-transcripts": _titled_transcripts,
    "tvr": _tvr,
    "tvr-ranking": _tvr_ranking,
}


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each data set's synthetic release."""
    root = tmp_path_factory.mktemp("releases")
    for name, make in RELEASES.items():
        make(root / name)
    return root


@pytest.fixture(scope="session")
def release(releases: Path) -> Release:
    """The folder of a data set's synthetic release."""
    return lambda name: releases / name
