"""QV-M2: queries with one to many moments in the given video, in the form of QVHighlights.

`data/QV-M2/test.jsonl` of its repository: `{"qid", "query", "vid", "duration", "relevant_windows"}` a line.
"""

from __future__ import annotations

from pathlib import Path

from whenabouts_bench.formats import qvhighlights
from whenabouts_bench.harness.task import Material, Task, file_named

_HOW = "Zhuo-Cao/QV-M2 holds data/QV-M2/test.jsonl; keep its folder, as other data sets have a test.jsonl."


def _read(folder: Path) -> Material:
    file = file_named(folder, "QV-M2/test.jsonl", how=_HOW)
    return Material(qvhighlights.read_annotations(file), (file,))


TASKS = (
    Task(
        name="qv-m2",
        title="QV-M2",
        split="test",
        revision="data/QV-M2/test.jsonl of Zhuo-Cao/QV-M2",
        licence="As its repository says (LISCENSE); the videos are those of QVHighlights.",
        how=_HOW,
        read=_read,
        protocol="qvh",
        metrics=("mIoU",),
        headline=("mAP", "mAP,IoU=0.5", "R@1,IoU=0.5", "R@1,IoU=0.7", "mIoU"),
        is_given=True,
        notes=("The authors' G-mAP is the mean of the queries' mAP, which is mAP here.",),
    ),
)
