"""A small fabricated folder for every task, in the form of the released files; nothing of them is copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.datasets.conftest import RELEASES, seconds, write, write_json, write_lines


def _longvale(folder: Path) -> None:
    videos = {f"yt_{i:08d}": seconds((0.0, 12.5), (12.5, 60.0), duration=60.0) for i in range(4)}
    write_json(folder / "longvale-annotations-eval.json", videos)


def _timelens(folder: Path) -> None:
    video = {"duration": 30.5, "spans": [[0.0, 4.0], [10.0, 21.5]]}
    video["queries"] = ["A  person\nopens a door.", "A person closes it"]
    for name in ("charades", "activitynet", "qvhighlights"):
        write_json(folder / f"{name}-timelens.json", {f"{name}{i}": video for i in range(3)})


def _extreme_when_bench(folder: Path) -> None:
    rows = [
        {"qid": f"v{i % 2}_q{i:03d}", "video_id": f"v{i % 2}", "source_corpus": "MLVU"}
        | {"question": f"When does number {i} ring?", "correct_interval": [1800 + i, 1809 + i]}
        | {"duration_s": 9, "video_duration_s": 4271 + i % 2, "category": "reaction"}
        for i in range(5)
    ]
    write_lines(folder / "extreme-when-bench.jsonl", rows)


def _momentseeker(folder: Path) -> None:
    rows = [
        {"qry_text": f"the dog jumps {i} times", "qry_img_path": "", "qry_video_path": "", "task": "OCR"}
        | {"src_video_path": f"videos/movie{i % 2}.mp4"}
        | {"answering_time_interval": [[10.0, 19.0], [40.0, 55.5]]}
        for i in range(3)
    ]
    write_json(folder / "t2v.json", rows)


def _qv_m2(folder: Path) -> None:
    rows = [
        {"qid": 900 + i, "vid": f"made_{i % 2}.0_150.0", "query": f"A cat does {i}.", "duration": 150}
        | {"relevant_windows": [[0.0, 8.0], [20.0, 26.0 + 2 * i]], "relevant_clip_ids": [0, 1, 2, 3]}
        for i in range(4)
    ]
    write_lines(folder / "data" / "QV-M2" / "test.jsonl", rows)
    write_lines(folder / "test.jsonl", [{"of": "another data set"}])


def _multivent(folder: Path) -> None:
    queries = 'Query_id,query\nq_base_0,"a flood, seen from a bridge"\nq_1,fire\n'
    write(folder / "multivent_2_train_queries.csv", queries)
    judged = [("q_base_0", "v1", 3), ("q_base_0", "v2", 1), ("q_base_0", "v3", 0), ("q_1", "v4", 1)]
    lines = [{"query_id": query, "doc_id": doc, "relevance": grade} for query, doc, grade in judged]
    write_lines(folder / "multivent_2_train_judgments.jsonl", lines)
    write(folder / "multivent_2_ids.csv", "video_id\n" + "".join(f"v{i}\n" for i in range(1, 8)))


def _untruth(folder: Path) -> None:
    for short, split in (("charades", "test"), ("qvhl", "val")):
        for domain in ("id", "ood"):
            there = [
                {"qid": f"{split}{i}", "query": f"person does {i}.", "duration": 30.0, "vid": f"V{i}"}
                | {"relevant_windows": [[2.0, 9.5]]}
                for i in range(4)
            ]
            absent = [
                row
                | {"vid": f"V{(i + 1) % 4}", "relevant_windows": [[0, 0]]}
                | {"relevant_clip_ids": [], "saliency_scores": [[]]}
                for i, row in enumerate(there)
            ]
            write_lines(folder / "dataset" / f"{short}_{domain}_pos_neg_{split}.jsonl", there + absent)


FORMS: dict[str, Callable[[Path], None]] = {
    **RELEASES,
    "longvale": _longvale,
    **dict.fromkeys(("timelens-charades", "timelens-activitynet", "timelens-qvhighlights"), _timelens),
    "extreme-when-bench": _extreme_when_bench,
    "momentseeker": _momentseeker,
    "qv-m2": _qv_m2,
    "multivent-2": _multivent,
    **dict.fromkeys(("untruth-charades-id", "untruth-charades-ood"), _untruth),
    **dict.fromkeys(("untruth-qvhighlights-id", "untruth-qvhighlights-ood"), _untruth),
}
"""Task -> what fills its folder."""


def vtt(path: Path, *lines: tuple[float, float, str]) -> None:
    """A transcript."""

    def stamp(at: float) -> str:
        return f"00:{int(at) // 60:02d}:{int(at) % 60:02d}.{round(at * 1000) % 1000:03d}"

    cues = [f"{stamp(start)} --> {stamp(end)}\n{text}\n" for start, end, text in lines]
    write(path, "WEBVTT\n\n" + "\n".join(cues))


SAID = (
    "a red kettle boils over",
    "somebody plays the violin",
    "two dogs bark loudly",
    "the train departs now",
)


def spoken_task(folder: Path) -> Path:
    """Charades-STA's form, its videos with transcripts in which each query's words are said in its moment."""
    videos = {}
    for i, text in enumerate(SAID):
        videos[f"TLK{i:02d}"] = {"duration": 60.0, "timestamps": [[20.0, 34.0]], "sentences": [f"{text}."]}
        vtt(
            folder / "transcripts" / f"TLK{i:02d}.vtt",
            (0.0, 14.0, "nothing of interest so far"),
            (20.0, 34.0, f"listen, {text}"),
            (40.0, 54.0, "and that was all for today"),
        )
    write_json(folder / "charades_test.json", videos)
    return folder
