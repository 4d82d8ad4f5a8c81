"""The task TACoS: find a moment in one given, long video of cooking; all videos are of one kitchen."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="tacos",
        revision="test.json of MCG-NJU/MMN and microsoft/2D-TAN",
        metrics=("SVMR R@1,IoU=0.1", "SVMR R@1,IoU=0.3", "SVMR R@5,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.3", "SVMR R@1,IoU=0.5", "SVMR R@5,IoU=0.5", "SVMR mIoU"),
        is_given=True,
        **dataset_facts("tacos", "test"),
    ),
)
