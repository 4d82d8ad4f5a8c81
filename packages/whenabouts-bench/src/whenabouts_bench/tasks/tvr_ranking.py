"""TVR-Ranking: imprecise queries, each with graded moments of 19,614 clips."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="tvr-ranking",
        revision="test.json of axgroup/TVR-Ranking",
        protocol="rvmr",
        metrics=("R@1,IoU=0.5", "VR R@1", "VR R@10"),
        headline=("nDCG@20,IoU=0.5", "nDCG@20,IoU=0.7", "nDCG@40,IoU=0.5", "nDCG@40,IoU=0.7"),
        judged_iou=0.5,
        **dataset_facts("tvr-ranking", "test"),
    ),
)
