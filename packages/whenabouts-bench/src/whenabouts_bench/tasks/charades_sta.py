"""Charades-STA: household activities, a moment in the given video, and in 1,334 videos."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="charades-sta",
        revision="charades_test.json of MCG-NJU/MMN",
        metrics=("mIoU", "SVMR R@1,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7", "SVMR mIoU", "R@1,IoU=0.5", "VR R@10"),
        **dataset_facts("charades-sta", "test"),
    ),
)
