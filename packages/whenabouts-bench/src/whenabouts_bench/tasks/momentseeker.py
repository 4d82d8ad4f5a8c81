"""MomentSeeker, its text-only queries: moments in the given long video, and among all videos.

`t2v.json` is a list of `{"qry_text", "src_video_path", "answering_time_interval": [[start, end], …]}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from whenabouts_bench.formats.json_records import Times, Words, read_list
from whenabouts_bench.harness.task import Row, Task, reader_of

_HOW = "avery00/MomentSeeker on the Hugging Face hub holds t2v.json."


class _Query(msgspec.Struct):
    qry_text: Words
    src_video_path: Words
    answering_time_interval: list[Times]


def _rows(file: Path) -> Iterator[Row]:
    for number, (origin, fields) in enumerate(read_list(file)):
        query = origin.convert(fields, _Query)
        if not query.answering_time_interval:
            raise origin.at("answering_time_interval").error("is empty:", [], "at least one [start, end]")
        video = PurePosixPath(query.src_video_path).stem
        yield Row(f"t2v#{number}", query.qry_text, query.answering_time_interval, video)


TASKS = (
    Task(
        name="momentseeker",
        title="MomentSeeker (text)",
        split="t2v",
        revision="t2v.json of avery00/MomentSeeker",
        licence="CC BY-NC-SA 4.0, for research.",
        how=_HOW,
        read=reader_of(_rows, "t2v.json", how=_HOW),
        metrics=("SVMR R@1,IoU=0.3", "SVMR R@5,IoU=0.3", "SVMR mAP@5,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.3", "SVMR mAP@5,IoU=0.3", "SVMR R@5,IoU=0.3", "SVMR mIoU"),
        notes=(
            "The authors rank chunks of 10 s. Their paper defines mAP@5 by one-to-one matching at IoU "
            "0.3, as measured here. Their program sums the answers' IoUs with the hull of all right moments.",
        ),
    ),
)
