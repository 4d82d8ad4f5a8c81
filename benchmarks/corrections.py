"""What each fault of a released program costs on the same checkpoints: each is put back alone, then all.

    python -m benchmarks.corrections FEATURES RUN [RUN ...] [--split test]

RUN are folders of trainings of one system with several seeds, on features that FEATURES holds. Nothing is
trained: the checkpoints answer the split's queries anew under each row. Prints Markdown, percent, mean and
deviation.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.trainings import seeds

SHOWN = ("SVMR R@1,IoU=0.5", "SVMR R@1,IoU=0.7", "R@1,IoU=0.5", "R@1,IoU=0.7", "R@100,IoU=0.7")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--split", default="test")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for run in options.runs:
        for row, means in measured(options.features, run, options.split):
            found[row].append(means)
    print("\n".join(table(found)))


def measured(features: Path, run: Path, split: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Name and means of each row of one checkpoint."""
    from whenabouts_bench.evaluation.evaluate import evaluate
    from whenabouts_systems.models.trained import Trained
    from whenabouts_systems.ranking import rank_split
    from whenabouts_systems.training.data import ExperimentData
    from whenabouts_systems.training.experiment import load_experiment

    trained = Trained.from_pretrained(run)
    experiment = load_experiment(run / "experiment.toml")
    data = replace(experiment.data, pairs="")
    with ExperimentData.open(
        data, experiment.features, features, inputs=trained.inputs, splits=(split,)
    ) as opened:
        examples = opened.split(split)
        for row, system in put_back(trained):
            yield row, evaluate(examples.annotations, rank_split(system, examples)).means()


def put_back(trained: Any) -> Iterator[tuple[str, Any]]:
    """Name of a row, and the system that answers in it; the weights are the same in all."""
    right = trained.decoding
    padded = type(trained.model)(replace(trained.model.config, as_released=True))
    padded.load_state_dict(trained.model.state_dict())
    yield "nothing", trained
    yield (
        "the end a clip too late, past the video's end",
        replace(trained, decoding=replace(right, ends="as-released")),
    )
    yield "no moment of one clip", replace(trained, decoding=replace(right, min_clips=2))
    yield "padding reaches the borders", replace(trained, model=padded.eval())
    worst = replace(right, ends="as-released", min_clips=1)  # a length of `last - first` of 1 and more
    yield "all three", replace(trained, model=padded.eval(), decoding=worst)


def table(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """Markdown lines."""
    yield f"| what is put back | {' | '.join(SHOWN)} |"
    yield "|" + "---|" * (len(SHOWN) + 1)
    for row, means in found.items():
        yield f"| {row} | {' | '.join(_columns(means))} |"


def _columns(means: Sequence[dict[str, float]]) -> Iterator[str]:
    for name in SHOWN:
        yield seeds([100 * one[name] for one in means])


if __name__ == "__main__":
    main()
