"""MVMR: a pool of videos per query, several of which answer it; on Charades-STA, ActivityNet and TACoS."""

from whenabouts_bench.harness.task import Task, dataset_facts

_HEADLINE = ("R@1,IoU=0.5", "R@1,IoU=0.7", "R@5,IoU=0.5", "R@5,IoU=0.7", "VR R@1")

TASKS = tuple(
    Task(
        name=name,
        revision=f"{file} of yny0506/Massive-Videos-Moment-Retrieval",
        protocol="mvmr",
        metrics=("VR R@1", "VR R@5", "mIoU"),
        headline=_HEADLINE,
        **dataset_facts(name, "test"),
    )
    for name, file in (
        ("mvmr-charades-sta", "charades_test_mvmr.json"),
        ("mvmr-activitynet", "activitynet_test_mvmr.json"),
        ("mvmr-tacos", "tacos_test_mvmr.json"),
    )
)
