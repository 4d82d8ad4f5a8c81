"""TimeLens-Bench: Charades-STA, ActivityNet Captions and QVHighlights annotated again, one moment a query.

Each of its three files is an object, video id -> {"duration", "spans": [[start, end], …], "queries": […]}.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from whenabouts.intake.files import read_json
from whenabouts_bench.formats.json_records import Origin, Positive, Times, Words, check_length
from whenabouts_bench.harness.task import Row, Task, reader_of

_HOW = "TencentARC/TimeLens-Bench on the Hugging Face hub holds the three files."


class _Video(msgspec.Struct):
    duration: Positive
    spans: list[Times]
    queries: list[Words]


def _rows(file: Path) -> Iterator[Row]:
    whole = Origin(file)
    for video_id, fields in whole.object(read_json(file)).items():
        video = whole.at(video_id).convert(fields, _Video)
        check_length(whole.at(video_id), "spans", video.spans, "queries", len(video.queries))
        for number, (span, text) in enumerate(zip(video.spans, video.queries, strict=True)):
            words = " ".join(text.split()).strip(". ")
            yield Row(f"{video_id}#{number}", words, [span], video_id, duration=video.duration)


TASKS = tuple(
    Task(
        name=f"timelens-{short}",
        title=f"TimeLens-Bench ({long})",
        split="test",
        revision=f"{short}-timelens.json of TencentARC/TimeLens-Bench",
        licence="As the card of its data set says; the videos are those of the three data sets.",
        how=_HOW,
        read=reader_of(_rows, f"{short}-timelens.json", how=_HOW),
        metrics=("SVMR R@1,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.3", "SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7", "SVMR mIoU"),
    )
    for short, long in (
        ("charades", "Charades-STA"),
        ("activitynet", "ActivityNet Captions"),
        ("qvhighlights", "QVHighlights"),
    )
)
