"""TVR: moments in the corpus (2,179 clips of TV series) and in the given clip, and the clips themselves."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="tvr",
        revision="tvr_val_release.jsonl of jayleicn/TVRetrieval",
        protocol="tvr",
        metrics=("mIoU", "SVMR mIoU"),
        headline=("R@1,IoU=0.5", "R@1,IoU=0.7", "R@10,IoU=0.7", "SVMR R@1,IoU=0.7", "VR R@10"),
        **dataset_facts("tvr", "val"),
    ),
)
