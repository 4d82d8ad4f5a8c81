"""What training with potentially relevant pairs does to scores: where positives, pairs and negatives end up.

    python -m benchmarks.relevant_pairs FEATURES RUN [RUN ...] [--study simulated-charades]

RUNs are folders that `benchmarks.studies` trained for the study. Each encodes the same 20 batches of
128 training queries with the pairs of the row `xml_pr`. Printed as Markdown: the mean cosine of a query
with its own video, with those of relevant pairs and with all others; how often equation 12 holds (a
relevant pair stays below C times its positive) and equation 11 (C times a relevant pair lies a margin above
the mean negative); and in how many pairs the video of the relevant caption outranks the query's own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from benchmarks.studies import load_studies
from torch import Tensor

from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.encoded_corpus import evaluating
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment

BATCHES, MARGIN = 20, 0.1
COLUMNS = ("own", "relevant", "others", "eq. 12 holds", "eq. 11 holds", "relevant above own")


def batches(folder: Path, study: str) -> Iterator[Batch]:
    """The same batches for every system."""
    systems = load_studies()[study].systems
    xml_pr = next(system for system in systems if system.name == "xml_pr")
    experiment = load_experiment(xml_pr.experiment, xml_pr.settings)
    with ExperimentData.open(experiment.data, experiment.features, folder, splits=("train",)) as data:
        made = data.split("train").batches(size=128, seed=1)
        for _, batch in zip(range(BATCHES), made, strict=False):
            yield batch


def measured(trained: Trained, batch: Batch) -> Tensor:
    """The numbers of `COLUMNS` for one batch."""
    with evaluating(trained.model):
        queries = trained.model.encode_queries(batch.queries)
        videos = trained.model.encode_videos(batch.videos)
        scores = trained.model.score_videos(queries, videos)
    own, confidence = batch.video_of, batch.confidence
    assert confidence is not None
    square = scores[:, own]
    positive = square.diagonal()
    apart = ~batch.positives[:, own]
    query, moment = ((confidence > 0) & apart).nonzero().unbind(1)
    relevant, sure = square[query, moment], confidence[query, moment]
    others = apart & (confidence == 0)
    negative = (square * others).sum(1) / others.sum(1).clamp(min=1)
    return torch.stack(
        [
            positive.mean(),
            relevant.mean(),
            square[others].mean(),
            (relevant <= sure * positive[query]).float().mean(),
            (sure * relevant >= negative[query] + MARGIN).float().mean(),
            (relevant > positive[query]).float().mean(),
        ]
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--study", default="simulated-charades", help="whose row `xml_pr` names the pairs")
    options = parser.parse_args()
    systems = {run.name: Trained.from_pretrained(run) for run in options.runs}
    found: dict[str, list[Tensor]] = {name: [] for name in systems}
    for batch in batches(options.features, options.study):
        for name, trained in systems.items():
            found[name].append(measured(trained, batch))
    print(f"| run | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for name, numbers in found.items():
        means = torch.stack(numbers).mean(0).tolist()
        cells = [f"{value:.3f}" for value in means[:3]] + [f"{100 * value:.0f} %" for value in means[3:]]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
