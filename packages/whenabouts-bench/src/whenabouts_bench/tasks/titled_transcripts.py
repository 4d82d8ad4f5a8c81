"""Titled transcripts: the title of a part finds the part in long recordings, by what is said."""

from whenabouts_bench.datasets.titled_transcripts import ALL
from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="titled-transcripts",
        revision="as benchmarks.titled_transcripts writes it",
        metrics=("SVMR R@1,IoU=0.3", "R@1,IoU=0.3", "R@10,IoU=0.3"),
        headline=("VR R@1", "VR R@10", "R@1,IoU=0.3", "SVMR R@1,IoU=0.3", "SVMR R@1,IoU=0.5"),
        **dataset_facts("titled-transcripts", ALL),
    ),
)
