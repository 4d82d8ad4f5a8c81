"""ActivityNet Captions (val_2, which papers call test): moments in the given video, and in 4,885 videos."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="activitynet-captions",
        revision="test.json of MCG-NJU/MMN, or val_2.json of the first release",
        metrics=("mIoU", "SVMR R@1,IoU=0.3", "SVMR R@5,IoU=0.3", "SVMR mIoU"),
        headline=("SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7", "SVMR mIoU", "R@1,IoU=0.5", "VR R@10"),
        **dataset_facts("activitynet-captions", "val_2"),
    ),
)
