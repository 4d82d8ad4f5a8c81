"""What each training of a study answered to each query, as a small file, and the differences it shows.

    python -m benchmarks.study_outcomes gather STUDY FEATURES OUT [--pools POOLS] [--beside FILE] --to FILE
        [--answers FILE]
    python -m benchmarks.study_outcomes table STUDY FILE

`gather` reads the answers that `benchmarks.studies` wrote below OUT. The file (.csv.xz) names the study's
`tested` metrics in its first line, and then has a line for each query: its id, the video it is filed under,
and for each training the values of these metrics, 0 to 1. Trainings whose answers are no longer below OUT are
taken from the file that `--beside` names, gathered before. `--answers` keeps each query's first moments, too,
for other metrics: a line for each training, list and query. `table` needs nothing else: means over trainings
with their deviation, and the study's `differences` with 95 % intervals over trainings and videos together
(`whenabouts_bench.evaluation.several_trainings`), p corrected by Holm over all differences of a metric.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import trainings
from benchmarks.packed import packed_text, write_packed
from benchmarks.studies import MEASURES, Study, load_studies
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.comparison import clusters_of
from whenabouts_bench.evaluation.evaluate import annotations_of, evaluate
from whenabouts_bench.evaluation.protocols import find_protocol
from whenabouts_bench.evaluation.several_trainings import over_trainings, pooled_variance
from whenabouts_bench.evaluation.significance import bootstrap_intervals, corrected
from whenabouts_bench.formats import open_run
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunSource, moments_of

Values = NDArray[np.float64]
_DECIMALS = 4


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of trainings: `values` maps (system, seed) to (Q, M), the M metrics of Q queries.

    Raises SystemExit if two trainings of a system have equal values: a copy would hide how trainings vary.
    """

    metrics: tuple[str, ...]
    queries: tuple[str, ...]
    videos: tuple[str, ...]
    values: Mapping[tuple[str, str], Values]

    def __post_init__(self) -> None:
        for (system, seed), (other, copy) in combinations(self.values, 2):
            values, others = self.values[system, seed], self.values[other, copy]
            if system == other and np.array_equal(values, others, equal_nan=True):
                raise SystemExit(
                    f"{system}-{copy}: every query has the values of {system}-{seed}; a copy is no second "
                    "training: train it with its own seed"
                )

    def of(self, system: str, seeds: Sequence[str] | None = None) -> Values:
        """(S, Q, M) of a system's trainings, or of those with certain seeds."""
        return np.stack([self.values[system, seed] for seed in seeds or self.seeds(system)])

    @property
    def systems(self) -> tuple[str, ...]:
        """The names of the systems, in order, without repetitions."""
        return tuple(dict.fromkeys(system for system, _ in self.values))

    @property
    def trained_again(self) -> list[str]:
        """The systems with two or more trainings."""
        return [system for system in self.systems if len(self.seeds(system)) > 1]

    def seeds(self, system: str) -> tuple[str, ...]:
        """The seeds of a system's trainings, in order."""
        return tuple(seed for name, seed in self.values if name == system)


def gathered(
    study: Study, features: Path, out: Path, seeds: Sequence[str], pools: Path | None = None
) -> Outcomes:
    """Read what the trainings of a study answered; others are left out, and told: those that are not
    finished, and those that cannot tell what is tested. Ends the program for a study that tests nothing.
    """
    if study.measure not in MEASURES or not study.tested:
        raise SystemExit(
            f"{study.name}: tests no metric; its means: benchmarks.studies {study.name} ... --table"
        )
    runs = {(system.name, seed): out / f"{system.name}-{seed}" for system in study.systems for seed in seeds}
    files = [name for name, _ in MEASURES[study.measure].values()]
    finished = {
        training: run
        for training, run in runs.items()
        if all(study.answers(run, name).exists() for name in files)
    }
    for system, seed in runs.keys() - finished.keys():
        print(f"{system}-{seed}: has no answers")
    if not finished:
        raise SystemExit(f"{out}: no training of {study.name} has answers")
    protocol = find_protocol(next(iter(MEASURES[study.measure].values()))[1])
    truth = annotations_of(pools or study.judgements(next(iter(finished.values())), features), protocol)
    values: dict[tuple[str, str], Values] = {}
    queries: tuple[str, ...] = ()
    for training, run in finished.items():
        try:
            queries, values[training] = _of_run(study, truth, run, queries)
        except UsageError as error:  # a retriever tells nothing of moments
            print(f"{'-'.join(training)} is left out: {error}")
    if not values:
        raise SystemExit(f"{out}: no training of {study.name} answers what is tested")
    filed = clusters_of(truth)
    videos = tuple(truth.videos[filed[query]].id for query in queries)
    return Outcomes(study.tested, queries, videos, values)


def _of_run(
    study: Study, truth: Annotations, run: Path, queries: tuple[str, ...]
) -> tuple[tuple[str, ...], Values]:
    """The queries (those of the first training), and (Q, M) of one training."""
    columns: dict[str, Any] = {}
    for prefix, (name, protocol) in MEASURES[study.measure].items():
        metrics = [metric for metric in study.tested if _prefix(study, metric) == prefix]
        if not metrics:
            continue
        asked = [metric.removeprefix(prefix) for metric in metrics]
        evaluation = evaluate(truth, study.answers(run, name), asked, protocol=protocol)
        queries = queries or tuple(sorted(evaluation.query_ids))
        row = {query: number for number, query in enumerate(evaluation.query_ids)}
        if set(row) != set(queries):
            raise SystemExit(f"{run}: answers other queries than the first of the trainings")
        order = [row[query] for query in queries]
        columns |= {metric: evaluation.column(metric.removeprefix(prefix))[order] for metric in metrics}
    return queries, np.stack([columns[metric] for metric in study.tested], axis=1).round(_DECIMALS)


def _prefix(study: Study, metric: str) -> str:
    """The longest of the measure's prefixes that a metric begins with."""
    return max((prefix for prefix in MEASURES[study.measure] if metric.startswith(prefix)), key=len)


def joined(study: Study, before: Outcomes, more: Outcomes) -> Outcomes:
    """The trainings of both, in the study's order.

    Ends the program where they answer other queries, or where a training that both have differs.
    """
    for system, seed in before.values.keys() & more.values.keys():
        if not np.array_equal(before.values[system, seed], more.values[system, seed]):
            raise SystemExit(f"{system}-{seed}: answers otherwise than what was gathered before")
    return updated(before, more, [system.name for system in study.systems])


def updated(before: Outcomes, more: Outcomes, systems: Sequence[str]) -> Outcomes:
    """The trainings of both, in the order of `systems`; `more` wins where both have a training.

    Ends the program if they answer other queries.
    """
    if (before.metrics, before.queries, before.videos) != (more.metrics, more.queries, more.videos):
        raise SystemExit("the outcomes gathered before are of other metrics, queries or videos")
    values = {**before.values, **more.values}
    in_order = sorted(values, key=lambda training: (systems.index(training[0]), training[1]))
    return Outcomes(
        before.metrics, before.queries, before.videos, {training: values[training] for training in in_order}
    )


def written(outcomes: Outcomes, path: Path) -> None:
    """The file; the same outcomes give the same bytes."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["metrics", *outcomes.metrics])
    rows.writerow(["query", "video", *(f"{system}-{seed}" for system, seed in outcomes.values)])
    for number, (query, video) in enumerate(zip(outcomes.queries, outcomes.videos, strict=True)):
        cells = [
            " ".join(f"{value:.{_DECIMALS}g}" for value in own[number]) for own in outcomes.values.values()
        ]
        rows.writerow([query, video, *cells])
    write_packed(path, text.getvalue())


def write_answers(runs: Iterable[tuple[str, str, RunSource]], path: Path) -> None:
    """The first moment of each query in each list of moments of runs (system, seed, run), as CSV in xz.

    What different runs answer to a query is written together, which packs best.
    """
    rows: list[list[str]] = []
    for system, seed, run in runs:
        for task in run.tasks:
            for query, moments in moments_of(run, task) if task != "VR" else ():
                for first in moments[:1]:
                    times = (f"{at:.2f}" for at in (first.moment.start, first.moment.end))
                    rows.append([system, seed, task, query, first.moment.video_id, *times])
    rows.sort(key=lambda row: row[2:4])
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["system", "seed", "list", "query", "video", "start", "end"])
    lines.writerows(rows)
    write_packed(path, text.getvalue())


def opened(path: Path) -> Outcomes:
    """Return the outcomes that a file holds. Ends the program if the file is damaged or of another kind."""
    try:
        metrics, head, *rows = csv.reader(io.StringIO(packed_text(path), newline=""))
        if (metrics[:1], head[:2]) != (["metrics"], ["query", "video"]):
            raise ValueError("its first lines are not those of outcomes")
        if len({*head}) < len(head) or len({row[0] for row in rows}) < len(rows):
            raise ValueError("a training or a query is there twice")
        cells = [[[float(value) for value in cell.split()] for cell in row[2:]] for row in rows]
        values = np.array(cells).reshape(len(rows), len(head) - 2, len(metrics) - 1)
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise SystemExit(f"{path}: no file of outcomes, as `gather` writes them: {error}") from None
    named = [tuple(name.rpartition("-")[::2]) for name in head[2:]]
    by_training = {(system, seed): values[:, at] for at, (system, seed) in enumerate(named)}
    queries, videos = (tuple(row[at] for row in rows) for at in (0, 1))
    return Outcomes(tuple(metrics[1:]), queries, videos, by_training)


def tables(study: Study, outcomes: Outcomes) -> Iterator[str]:
    """Means of the systems and the study's differences, in percent, as Markdown."""
    yield f"| system | trainings | {' | '.join(outcomes.metrics)} |"
    yield "|" + "---|" * (len(outcomes.metrics) + 2)
    for system in study.systems:
        if seeds := outcomes.seeds(system.name):
            means = 100 * outcomes.of(system.name).mean(axis=1)
            cells = " | ".join(trainings.seeds(own.tolist(), 1) for own in means.T)
            yield f"| {system.name} | {len(seeds)} | {cells} |"
    yield ""
    yield from differences(study.differences, outcomes, [system.name for system in study.systems])


def mean_rows(outcomes: Outcomes) -> Iterator[str]:
    """Each system in percent with 95 % intervals over videos, and over trainings if it has several."""
    clusters = np.unique(outcomes.videos, return_inverse=True)[1]
    trained = outcomes.trained_again
    pooled = pooled_variance([outcomes.of(system) for system in trained]) if trained else None
    yield f"| system | trainings | {' | '.join(outcomes.metrics)} |"
    yield "|" + "---|" * (len(outcomes.metrics) + 2)
    for system in outcomes.systems:
        values, several = outcomes.of(system), system in trained
        ends = (
            over_trainings(values, clusters, pooled).ends
            if several
            else bootstrap_intervals(values[0], clusters)
        )
        cells = (
            f"{100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f})"
            for mean, (low, high) in zip(values.mean(axis=(0, 1)), ends, strict=True)
        )
        yield f"| {system} | {len(values) if several else ''} | {' | '.join(cells)} |"


def differences(
    pairs: Sequence[tuple[str, str]], outcomes: Outcomes, systems: Sequence[str]
) -> Iterator[str]:
    """A line for each pair of systems, by the trainings that both have, two or more.

    How much trainings vary is pooled over `systems`; a file may have more, of other studies.
    """
    _, clusters = np.unique(outcomes.videos, return_inverse=True)
    shared = {
        (system, baseline): [seed for seed in outcomes.seeds(system) if seed in outcomes.seeds(baseline)]
        for system, baseline in pairs
    }
    told = {pair: seeds for pair, seeds in shared.items() if len(seeds) > 1}
    if not told:
        return
    pooled = pooled_variance([outcomes.of(system) for system in systems if outcomes.seeds(system)])
    found = []
    for (system, baseline), seeds in told.items():
        values = outcomes.of(system, seeds) - outcomes.of(baseline, seeds)
        found.append((values.mean(axis=(0, 1)), over_trainings(values, clusters, pooled.of_difference)))
    p = corrected(np.stack([result.p for _, result in found]))
    yield f"| difference | trainings | {' | '.join(outcomes.metrics)} |"
    yield "|" + "---|" * (len(outcomes.metrics) + 2)
    for ((system, baseline), seeds), (means, result), own in zip(told.items(), found, p, strict=True):
        cells = (
            f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p = {value:.2g})"
            for mean, (low, high), value in zip(means, result.ends, own, strict=True)
        )
        yield f"| {system} - {baseline} | {len(seeds)} | {' | '.join(cells)} |"


def main() -> None:
    """Gather outcomes, or print what they show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    gather = actions.add_parser("gather")
    gather.add_argument("study")
    gather.add_argument("features", type=Path)
    gather.add_argument("out", type=Path)
    gather.add_argument("--pools", type=Path, help='the pools of a study with the measure "pools"')
    gather.add_argument("--seeds", default="1,2,3")
    gather.add_argument("--beside", type=Path, help="outcomes gathered before, to be kept")
    gather.add_argument("--to", type=Path, required=True)
    gather.add_argument("--answers", type=Path, help="also the first moments of each query")
    table = actions.add_parser("table")
    table.add_argument("study")
    table.add_argument("file", type=Path)
    options = parser.parse_args()
    studies = load_studies()
    if options.study not in studies:
        raise SystemExit(f"{options.study}: no such study; there are {', '.join(studies)}")
    study = studies[options.study]
    if options.action == "gather":
        for file in (options.to, options.answers or options.to):
            if not file.parent.is_dir() or file.is_dir():
                raise SystemExit(f"{file}: cannot be written there; name a file in a folder that exists")
        seeds = options.seeds.split(",")
        outcomes = gathered(study, options.features, options.out, seeds, options.pools)
        if options.beside:
            outcomes = joined(study, opened(options.beside), outcomes)
        written(outcomes, options.to)
        if options.answers:
            files = (
                (system, seed, study.answers(options.out / f"{system}-{seed}", name))
                for system, seed in outcomes.values
                for name, _ in MEASURES[study.measure].values()
            )
            runs = ((system, seed, open_run(file)) for system, seed, file in files if file.exists())
            write_answers(runs, options.answers)
    else:
        outcomes = opened(options.file)
        if not any(outcomes.seeds(system.name) for system in study.systems):
            raise SystemExit(f"{options.file}: has no row of {study.name}; is it another study's?")
        print("\n".join(tables(study, outcomes)))


if __name__ == "__main__":
    main()
