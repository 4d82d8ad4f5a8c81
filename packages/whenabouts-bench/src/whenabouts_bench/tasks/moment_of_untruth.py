"""Moment of Untruth: queries that the given video does not answer, beside those that it does.

Lines as QVHighlights has them; a query without an answer has `"relevant_windows": [[0, 0]]`. The same `qid`
stands for a query that is answered in one video and not in another, so ids here are qid@vid.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from whenabouts_bench.formats.json_records import Id, NotNegative, Times, Words, read_records
from whenabouts_bench.harness.task import Row, Task, reader_of

_HOW = "keflanagan/MomentofUntruth, folder dataset, holds the files (*_pos_neg_*.jsonl)."


class _Line(msgspec.Struct):
    qid: Id
    query: Words
    vid: Words
    duration: NotNegative
    relevant_windows: list[Times]


def _rows(file: Path) -> Iterator[Row]:
    for origin, fields in read_records(file, "lines with qid, query, vid, relevant_windows"):
        line = origin.convert(fields, _Line)
        windows = [window for window in line.relevant_windows if window != (0, 0)]
        query_id = f"{line.qid}@{line.vid}"
        yield Row(query_id, line.query, windows, line.vid, (line.vid,), duration=line.duration)


TASKS = tuple(
    Task(
        name=f"untruth-{data}-{domain}",
        title=f"Moment of Untruth ({title}, {where} domain)",
        split=split,
        revision=f"{short}_{domain}_pos_neg_{split}.jsonl of keflanagan/MomentofUntruth",
        licence="No licence is stated with the files; sentences and times are those of the data set.",
        how=_HOW,
        read=reader_of(_rows, f"{short}_{domain}_pos_neg_{split}.jsonl", how=_HOW),
        metrics=("SVMR R@1,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7", "SVMR mIoU"),
        is_given=True,
    )
    for data, short, title, split in (
        ("charades", "charades", "Charades-STA", "test"),
        ("qvhighlights", "qvhl", "QVHighlights", "val"),
    )
    for domain, where in (("id", "in"), ("ood", "out of"))
)
