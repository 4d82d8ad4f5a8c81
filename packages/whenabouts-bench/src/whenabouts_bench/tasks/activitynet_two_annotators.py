"""ActivityNet, two annotators: one person's sentences find videos and moments by what another wrote."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="activitynet-two-annotators",
        revision="val_1 and val_2 of ActivityNet Captions, as benchmarks.two_annotators writes them",
        metrics=("SVMR mIoU",),
        headline=("R@1,IoU=0.5", "R@10,IoU=0.5", "SVMR R@1,IoU=0.5", "VR R@1", "VR R@10"),
        **dataset_facts("activitynet-two-annotators", "test"),
    ),
)
