"""DiDeMo: moments of 5 seconds or a multiple in personal videos; a hit overlaps two annotators' spans."""

from whenabouts_bench.harness.task import Task, dataset_facts

TASKS = (
    Task(
        name="didemo",
        revision="test_data.json of LisaAnne/LocalizingMoments",
        protocol="didemo",
        metrics=("mIoU", "SVMR mIoU"),
        headline=("R@1,IoU=0.5", "R@1,IoU=0.7", "R@10,IoU=0.7", "SVMR R@1,IoU=0.7", "VR R@10"),
        **dataset_facts("didemo", "test"),
    ),
)
