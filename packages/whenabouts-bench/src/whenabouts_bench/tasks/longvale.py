"""LongVALE (evaluation set): events in picture, sound and speech, in the given video and among all videos.

`longvale-annotations-eval.json` is an object, video id -> {"duration", "timestamps", "sentences"} in seconds.
"""

from __future__ import annotations

from pathlib import Path

from whenabouts_bench.datasets.declaration import Statistics
from whenabouts_bench.formats import timestamps_json
from whenabouts_bench.harness.task import Material, Task, file_named

_HOW = "ttgeng233/LongVALE on the Hugging Face hub holds longvale-annotations-eval.json."


def _read(folder: Path) -> Material:
    file = file_named(folder, "longvale-annotations-eval.json", how=_HOW)
    return Material(timestamps_json.read_annotations(file), (file,))


TASKS = (
    Task(
        name="longvale",
        title="LongVALE",
        split="eval",
        revision="longvale-annotations-eval.json of ttgeng233/LongVALE",
        licence="See the card on the Hugging Face hub; the videos are on YouTube, under their owners' terms.",
        how=_HOW,
        read=_read,
        metrics=("SVMR R@1,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7", "SVMR mIoU", "R@1,IoU=0.5", "VR R@10"),
        holds=Statistics(videos=1_171, queries=13_867, judgements=13_867),
        notes=(
            "The authors' program rounds times to hundredths of the video's length; here they are exact.",
        ),
    ),
)
