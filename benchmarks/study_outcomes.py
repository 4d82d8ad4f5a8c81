"""What each training of a study answered to each query, as a small file, and the differences it shows.

    python -m benchmarks.study_outcomes gather STUDY OUT --truth POOLS [--beside FILE] --to FILE
    python -m benchmarks.study_outcomes table STUDY FILE

`gather` reads the answers that `benchmarks.studies` wrote below OUT. The file (.csv.gz) has a line for each
query: its id, the video it is filed under, and for each training two digits: how many of IoU 0.3, 0.5 and 0.7
its first answer reaches in the pool, and in the given video. Trainings whose answers are no longer below OUT
are taken from the file that `--beside` names, gathered before. `table` needs nothing else: means over
trainings with their deviation, and the study's `differences` with 95 % intervals over trainings and videos
together (`whenabouts.research.evaluation.several_trainings`), p corrected by Holm over all of them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks import trainings
from benchmarks.studies import Study, load_studies
from numpy.typing import NDArray

from whenabouts.formats import read_annotations
from whenabouts.research.evaluation.comparison import clusters_of
from whenabouts.research.evaluation.evaluate import Evaluation, evaluate
from whenabouts.research.evaluation.several_trainings import over_trainings
from whenabouts.research.evaluation.significance import corrected

Digits = NDArray[np.int8]

METRICS = ("R@1,IoU=0.3", "R@1,IoU=0.5", "R@1,IoU=0.7")
ANSWERS = {"in pools": "mvmr.jsonl", "in the given video": "vmr.jsonl"}


@dataclass(frozen=True)
class Outcomes:
    """`reached` (Q, 2): of each training (system, seed) how many IoUs its first answers reach."""

    queries: tuple[str, ...]
    videos: tuple[str, ...]
    reached: Mapping[tuple[str, str], Digits]

    def hits(self, system: str, place: int, iou: int) -> NDArray[np.float64]:
        """(S, Q) of a system's trainings: 1 where the first answer reaches so many IoUs."""
        own = [digits[:, place] for (name, _), digits in self.reached.items() if name == system]
        return (np.stack(own) >= iou).astype(np.float64)

    def seeds(self, system: str) -> tuple[str, ...]:
        """Those of a system's trainings, in their order."""
        return tuple(seed for name, seed in self.reached if name == system)


def gathered(study: Study, out: Path, seeds: Sequence[str], truth: Path) -> Outcomes:
    """Read what the trainings of a study answered; those that are not finished are left out, and told."""
    annotations = read_annotations(truth)
    filed = clusters_of(annotations)
    reached: dict[tuple[str, str], Digits] = {}
    queries: tuple[str, ...] = ()
    for system in study.systems:
        for seed in seeds:
            files = [out / f"{system.name}-{seed}" / name for name in ANSWERS.values()]
            if not all(file.exists() for file in files):
                print(f"{system.name}-{seed}: has no answers")
                continue
            found = [evaluate(annotations, file, METRICS, protocol="mvmr") for file in files]
            queries = queries or tuple(sorted(found[0].query_ids))
            reached[system.name, seed] = np.stack([_digits(each, queries) for each in found], axis=1)
    videos = tuple(annotations.videos[filed[query]].id for query in queries)
    return Outcomes(queries, videos, reached)


def joined(study: Study, before: Outcomes, more: Outcomes) -> Outcomes:
    """The trainings of both, in the study's order.

    Ends the program where they answer other queries, or where a training that both have differs.
    """
    if (before.queries, before.videos) != (more.queries, more.videos):
        raise SystemExit("the outcomes gathered before are of other queries or videos")
    for system, seed in before.reached.keys() & more.reached.keys():
        if not np.array_equal(before.reached[system, seed], more.reached[system, seed]):
            raise SystemExit(f"{system}-{seed}: answers otherwise than what was gathered before")
    reached = {**before.reached, **more.reached}
    order = [system.name for system in study.systems]
    trainings_in_order = sorted(reached, key=lambda training: (order.index(training[0]), training[1]))
    return Outcomes(
        before.queries, before.videos, {training: reached[training] for training in trainings_in_order}
    )


def _digits(evaluation: Evaluation, queries: Sequence[str]) -> Digits:
    row = {query: number for number, query in enumerate(evaluation.query_ids)}
    if set(row) != set(queries):
        raise SystemExit(f"{evaluation.run}: answers other queries than the first of the trainings")
    total = np.sum([evaluation.column(metric) for metric in METRICS], axis=0)
    digits: Digits = total[[row[query] for query in queries]].astype(np.int8)
    return digits


def written(outcomes: Outcomes, path: Path) -> None:
    """The file; the same outcomes give the same bytes."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["query", "video", *(f"{system}-{seed}" for system, seed in outcomes.reached)])
    for number, (query, video) in enumerate(zip(outcomes.queries, outcomes.videos, strict=True)):
        cells = ["".join(map(str, digits[number])) for digits in outcomes.reached.values()]
        rows.writerow([query, video, *cells])
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def opened(path: Path) -> Outcomes:
    """Read such a file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        head, *rows = list(csv.reader(stream))
    columns = [[[int(digit) for digit in row[at]] for row in rows] for at in range(2, len(head))]
    named = (tuple(name.rpartition("-")[::2]) for name in head[2:])
    reached = {
        (system, seed): np.array(own, np.int8) for (system, seed), own in zip(named, columns, strict=True)
    }
    return Outcomes(tuple(row[0] for row in rows), tuple(row[1] for row in rows), reached)


def tables(study: Study, outcomes: Outcomes) -> Iterator[str]:
    """Means of the systems and the study's differences, in percent, as Markdown."""
    for place, name in enumerate(ANSWERS):
        yield from (f"First answers {name}, R@1 at IoU 0.3, 0.5, 0.7", "")
        yield f"| system | trainings | {' | '.join(METRICS)} |"
        yield "|---|---|---|---|---|"
        for system in study.systems:
            if seeds := outcomes.seeds(system.name):
                means = (100 * outcomes.hits(system.name, place, iou).mean(axis=1) for iou in (1, 2, 3))
                cells = " | ".join(trainings.seeds(own.tolist()) for own in means)
                yield f"| {system.name} | {len(seeds)} | {cells} |"
        yield ""
        yield from differences(study, outcomes, place)
        yield ""


def differences(study: Study, outcomes: Outcomes, place: int) -> Iterator[str]:
    """A line for each of the study's differences whose systems have the same trainings, two or more."""
    _, clusters = np.unique(outcomes.videos, return_inverse=True)
    pairs = [
        pair
        for pair in study.differences
        if outcomes.seeds(pair[0]) == outcomes.seeds(pair[1]) and len(outcomes.seeds(pair[0])) > 1
    ]
    if not pairs:
        return
    found = []
    for system, baseline in pairs:
        values = [
            outcomes.hits(system, place, iou) - outcomes.hits(baseline, place, iou) for iou in (1, 2, 3)
        ]
        stacked = np.stack(values, axis=-1)
        found.append((stacked.mean(axis=(0, 1)), over_trainings(stacked, clusters)))
    p = corrected(np.stack([told.p for _, told in found]))
    yield "| difference | IoU 0.3 | IoU 0.5 | IoU 0.7 |"
    yield "|---|---|---|---|"
    for (system, baseline), (means, told), own in zip(pairs, found, p, strict=True):
        cells = (
            f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p = {value:.2g})"
            for mean, (low, high), value in zip(means, told.ends, own, strict=True)
        )
        yield f"| {system} - {baseline} | {' | '.join(cells)} |"


def main() -> None:
    """Gather outcomes, or print what they show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    gather = actions.add_parser("gather")
    gather.add_argument("study")
    gather.add_argument("out", type=Path)
    gather.add_argument("--truth", type=Path, required=True)
    gather.add_argument("--seeds", default="1,2,3")
    gather.add_argument("--beside", type=Path, help="outcomes gathered before, to be kept")
    gather.add_argument("--to", type=Path, required=True)
    table = actions.add_parser("table")
    table.add_argument("study")
    table.add_argument("file", type=Path)
    options = parser.parse_args()
    study = load_studies()[options.study]
    if options.action == "gather":
        outcomes = gathered(study, options.out, options.seeds.split(","), options.truth)
        if options.beside:
            outcomes = joined(study, opened(options.beside), outcomes)
        written(outcomes, options.to)
    else:
        print("\n".join(tables(study, opened(options.file))))


if __name__ == "__main__":
    main()
