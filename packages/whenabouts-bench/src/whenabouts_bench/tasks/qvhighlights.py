"""QVHighlights (val; the answers of test are not public): moments and highlights in the given video."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="qvhighlights",
        revision="highlight_val_release.jsonl of jayleicn/moment_detr",
        protocol="qvh",
        metrics=("mIoU",),
        headline=("mAP", "R@1,IoU=0.5", "R@1,IoU=0.7", "HL mAP,saliency=4", "HL Hit@1,saliency=4"),
        is_given=True,
        **dataset_facts("qvhighlights", "val"),
    ),
)
