"""ExtremeWhenBench: questions about moments of seconds in videos of an hour and more.

Rows of `{"qid", "video_id", "question", "correct_interval": [start, end], "video_duration_s", "category"}`,
as JSON lines, as a JSON list, or as a list under "questions".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from whenabouts.intake.files import read_json
from whenabouts_bench.datasets.declaration import Statistics
from whenabouts_bench.formats.json_records import Id, Origin, Positive, Times, Words, read_records
from whenabouts_bench.harness.task import Row, Task, reader_of

_HOW = (
    "min1321/extreme-when-bench on the Hugging Face hub, saved as extreme-when-bench.jsonl (one row a line): "
    'datasets.load_dataset("min1321/extreme-when-bench", split="test").to_json("extreme-when-bench.jsonl").'
)


class _Question(msgspec.Struct):
    qid: Id
    video_id: Id
    question: Words
    correct_interval: Times
    video_duration_s: Positive | None = None


def _rows(file: Path) -> Iterator[Row]:
    for origin, fields in _records(file):
        question = origin.convert(fields, _Question)
        video, seconds = str(question.video_id), question.video_duration_s
        yield Row(str(question.qid), question.question, [question.correct_interval], video, duration=seconds)


def _records(file: Path) -> Iterator[tuple[Origin, object]]:
    if ".jsonl" in file.name:
        yield from read_records(file, "lines with qid, video_id, question, correct_interval")
        return
    whole, value = Origin(file), read_json(file)
    if isinstance(value, dict):
        whole, value = whole.at("questions"), value.get("questions")
    for number, fields in enumerate(whole.array(value)):
        yield whole.at(number), fields


TASKS = (
    Task(
        name="extreme-when-bench",
        title="ExtremeWhenBench",
        split="test",
        revision="min1321/extreme-when-bench",
        licence="CC BY 4.0 (the annotations); the videos are those of LVBench, MLVU and Video-MME.",
        how=_HOW,
        read=reader_of(_rows, "extreme-when-bench.jsonl", "extreme-when-bench.json", how=_HOW),
        metrics=("SVMR R@1,IoU=0.3", "SVMR mIoU", "R@1,IoU=0.3", "mIoU"),
        headline=("SVMR mIoU", "SVMR R@1,IoU=0.3", "SVMR R@1,IoU=0.5", "mIoU", "VR R@1"),
        holds=Statistics(videos=194, queries=2_273, judgements=2_273),
    ),
)
