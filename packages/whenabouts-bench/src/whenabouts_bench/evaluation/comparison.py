"""Compare runs over the same queries, and test the differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError, number_of
from whenabouts_bench.evaluation.compared import (
    Comparison,
    Difference,
    Estimate,
    Limits,
    PooledComparison,
    Settings,
    System,
    Verdict,
)
from whenabouts_bench.evaluation.evaluate import NO_MOMENT_OF_GRADE, Evaluation, annotations_of, evaluate
from whenabouts_bench.evaluation.metrics import means_of
from whenabouts_bench.evaluation.protocols import find_protocol, protocol_for
from whenabouts_bench.evaluation.several_trainings import ENOUGH, Pooled, over_trainings, pooled_variance
from whenabouts_bench.evaluation.significance import (
    FEW_CLUSTERS,
    Floats,
    Indices,
    bootstrap_intervals,
    corrected,
    sign_flip_test,
)
from whenabouts_bench.formats import open_run
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import rows_of

__all__ = ["Comparison", "Settings", "clusters_of", "compare", "compare_files", "estimates_of", "names_of"]

Pairs = tuple[tuple[int, int], ...]

_MOST_RESAMPLES = 10_000_000


def clusters_of(annotations: Annotations) -> dict[str, int]:
    """Query id -> index of its video; queries of one video form a cluster.

    A query with moments in several videos belongs to that of its most relevant judgement (ties: the first).
    Merging all queries that share any video would be more conservative, but leaves too few clusters: of the
    3,720 queries of MVMR's Charades pools, 3,388 would form one. A query without judgement is its own
    cluster.
    """
    order = np.lexsort((np.arange(len(annotations.query)), -annotations.relevance, annotations.query))
    queries, first = np.unique(annotations.query[order], return_index=True)
    labels = len(annotations.videos) + np.arange(len(annotations.queries))
    labels[queries] = annotations.video[order][first]
    return dict(zip((query.id for query in annotations.queries), labels.tolist(), strict=True))


def estimates_of(evaluation: Evaluation, clusters: Mapping[str, int]) -> dict[str, Estimate]:
    """Metric -> mean with its 95 % interval, over the queries that it applies to.

    Metrics that apply to no query are left out; those that apply to the same queries are resampled together.
    """
    labels = np.array([clusters[query_id] for query_id in evaluation.query_ids], np.int64)
    applies = ~np.isnan(evaluation.values)
    estimates: dict[str, Estimate] = {}
    for pattern in np.unique(applies, axis=1).T:
        columns = np.flatnonzero((applies == pattern[:, None]).all(axis=0))
        values = evaluation.values[pattern][:, columns]
        if len(values):
            drawn = {"resamples": Settings.resamples, "seed": Settings.seed}
            ends = bootstrap_intervals(values, labels[pattern], **drawn).tolist()
            means = values.mean(axis=0).tolist()
            for column, mean, (low, high) in zip(columns.tolist(), means, ends, strict=True):
                estimates[evaluation.metrics[column]] = Estimate(mean, low, high)
    return {name: estimates[name] for name in evaluation.metrics if name in estimates}


def queries_in_several_videos(annotations: Annotations, least: float | None = None) -> int:
    """The number of queries with right moments (grade `least` or more, else above 0) in several videos."""
    right = annotations.relevance > 0 if least is None else annotations.relevance >= least
    pairs = np.unique(np.stack([annotations.query, annotations.video])[:, right], axis=1)
    return int((np.bincount(pairs[0]) > 1).sum()) if pairs.size else 0


def names_of(runs: Iterable[str | PurePath]) -> tuple[str, ...]:
    """Short unique names of runs: file stems, with parent folders where needed.

    >>> names_of(["a/run.jsonl", "b/run.jsonl.gz", "c/best.json"])
    ('a/run', 'b/run', 'best')
    """
    parts = [_parts(PurePath(run)) for run in runs]
    depths = [1] * len(parts)
    while True:
        names = [str(PurePath(*path[-depth:])) for path, depth in zip(parts, depths, strict=True)]
        longer = [
            depth + 1 if names.count(name) > 1 and depth < len(path) else depth
            for name, path, depth in zip(names, parts, depths, strict=True)
        ]
        if longer == depths:
            break
        depths = longer
    used: set[str] = set()
    for number, name in enumerate(names):
        numbered = (f"{name} #{count}" for count in itertools.count(2))
        names[number] = next(n for n in itertools.chain([name], numbered) if n not in used)
        used.add(names[number])
    return tuple(names)


def _parts(path: PurePath) -> tuple[str, ...]:
    name = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
    return (*path.parts[:-1], PurePath(name).stem) if path.name else ("run",)


def compare_files(
    truth: str | Path,
    runs: Sequence[str | Path],
    protocol: str | None = None,
    metrics: Sequence[str] = (),
    *,
    truth_format: str | None = None,
    run_format: str | None = None,
    settings: Settings | None = None,
    judged_iou: float | None = None,
    relevant_from: float | None = None,
) -> Comparison:
    """Compare runs by one file of judgements; called by the command line.

    By default the judgements choose the protocol; `judged_iou` and `relevant_from` as in `evaluate`. Raises
    FormatError for files, UsageError for inputs that do not fit.
    """
    settings = settings or Settings()
    _check_settings(settings, len(runs))
    if settings.trainings > 1:
        _refuse_twice(runs)
    chosen = find_protocol(protocol) if protocol else None
    annotations = annotations_of(truth, chosen, truth_format)
    chosen = protocol_for(annotations, chosen, relevant_from)
    evaluations = [
        evaluate(annotations, run, metrics, protocol=chosen, run_format=run_format, judged_iou=judged_iou)
        for run in runs
    ]
    if settings.trainings > 1:
        _refuse_copies(runs, evaluations, settings.trainings, run_format)
    several = queries_in_several_videos(annotations, relevant_from)
    notes = [
        f"Queries with right moments in several videos: {several:,}. Each counts for the video of its most "
        "relevant judgement (of equal ones, the first)."
    ]
    levels = [note for note in evaluations[0].notes if note.startswith(NO_MOMENT_OF_GRADE)]
    return compare(
        evaluations,
        clusters_of(annotations),
        names=_names_of_systems(names_of(runs), settings.trainings),
        settings=settings,
        notes=[*(notes if several else ()), *levels],
    )


def compare(
    evaluations: Sequence[Evaluation],
    clusters: Mapping[str, int] | None,
    *,
    names: Sequence[str] | None = None,
    settings: Settings | None = None,
    notes: Sequence[str] = (),
) -> Comparison:
    """Means, differences and verdicts of evaluations over the same queries.

    `clusters` maps queries to clusters (`clusters_of`); None treats queries as independent, which is right
    only if no two share a video. `names` default to those of the files. Metrics that not every evaluation
    has, or that apply to no query, are left out, with a note. All compared pairs of runs by one metric are
    corrected together. With pooled judgements, condensed lists are compared as well (`Comparison.unjudged`).

    Raises UsageError for fewer than two evaluations, or if protocols or queries differ.
    """
    settings = settings or Settings()
    _check_settings(settings, len(evaluations))
    if names is None:
        names = _names_of_systems(names_of(each.run for each in evaluations), settings.trainings)
    system_names = tuple(names)
    _check_same(evaluations)
    metrics, not_answered, left_out = _shared_metrics(evaluations)
    values, labels = _lined_up(evaluations, metrics, clusters)
    evaluations = _averaged(evaluations, settings.trainings)
    if len(system_names) != len(evaluations) or len(set(system_names)) < len(system_names):
        raise UsageError(
            f"names {', '.join(system_names)}: give one name for each of {len(evaluations)} runs, all "
            "different"
        )
    pairs = _pairs(len(evaluations), settings)
    measured = _measured(values, labels, metrics, pairs, settings)
    differences = tuple(_differences(evaluations, system_names, pairs, measured, settings))
    return Comparison(
        protocol=evaluations[0].protocol,
        metrics=metrics,
        not_answered=not_answered,
        counts={name: measured[name].counts for name in metrics},
        queries=len(labels),
        videos=len(np.unique(labels)),
        clustered_by="query" if clusters is None else "video",
        systems=_systems(evaluations, system_names, measured),
        differences=differences,
        settings=settings,
        missing_as_zero=all(set(e.missing) <= set(e.query_ids) for e in evaluations),
        notes=(*notes, *left_out, *_warnings(differences, measured, settings)),
        unjudged=_pooled(evaluations, clusters, system_names, settings),
    )


def _pooled(
    evaluations: Sequence[Evaluation],
    clusters: Mapping[str, int] | None,
    names: tuple[str, ...],
    settings: Settings,
) -> PooledComparison | None:
    """The comparison on condensed lists; None without pools."""
    numbers = [(e.unjudged, e.metrics) for e in evaluations]
    if not all(unjudged for unjudged, _ in numbers):
        return None
    thresholds = {unjudged.judged_iou for unjudged, _ in numbers if unjudged}
    if len(thresholds) > 1:
        raise UsageError(
            f"runs were evaluated with judged IoUs {', '.join(map(str, sorted(thresholds)))}; use one for all"
        )
    condensed = compare(
        [e.on_condensed_lists() for e in evaluations], clusters, names=names, settings=settings
    )
    means = (unjudged.means(metrics) for unjudged, metrics in numbers if unjudged)
    limits = {
        (metric, names[a], names[b]): possible_difference(evaluations[a], evaluations[b], metric)
        for a, b in _pairs(len(evaluations), settings)
        for metric in condensed.metrics
    }
    return PooledComparison(thresholds.pop(), condensed, dict(zip(names, means, strict=True)), limits)


def possible_difference(system: Evaluation, baseline: Evaluation, metric: str) -> Limits:
    """Bounds of the difference of two runs' means by a metric, over all grades of unjudged answers.

    For measures of hits (R@K, mIoU) exact under the assumptions of `bounds`: an answer of both runs with the
    same borders (VR: the same video) is right in both or in neither. For other measures each run is bounded
    separately, so the bounds are valid but may be loose.
    """
    first, second = system.unjudged, baseline.unjudged
    assert first is not None and second is not None
    column, opposite = system.metrics.index(metric), baseline.metrics.index(metric)
    place = {query_id: number for number, query_id in enumerate(baseline.query_ids)}
    order = [place[query_id] for query_id in system.query_ids]
    least = first.lower[:, column] - second.upper[order, opposite]
    greatest = first.upper[:, column] - second.lower[order, opposite]
    mine, theirs = first.open.get(column, {}), second.open.get(opposite, {})
    for row, query_id in enumerate(system.query_ids):
        given, answered = mine.get(query_id, set()), theirs.get(query_id, set())
        if given & answered:
            value, other = system.values[row, column], baseline.values[order[row], opposite]
            # All wrong, a shared one right, or one right that only one run gives.
            greatest[row] = max(value - other, 0.0, 1 - other if given - answered else 0.0)
            least[row] = min(value - other, 0.0, value - 1 if answered - given else 0.0)
    low, high = means_of(np.stack([least, greatest], axis=1)).tolist()
    return low, high


def _names_of_systems(runs: Sequence[str], trainings: int) -> tuple[str, ...]:
    """The common prefix of each system's trainings, or else the first one's name.

    >>> _names_of_systems(["xml-1/run", "xml-2/run", "new-1/run", "new-2/run"], 2)
    ('xml', 'new')
    """
    groups = [runs[first : first + trainings] for first in range(0, len(runs), trainings)]
    if trainings == 1:
        return tuple(runs)
    names = [_common_prefix(group).rstrip("-_./ ") or group[0] for group in groups]
    return tuple(
        name if names.count(name) == 1 else group[0] for name, group in zip(names, groups, strict=True)
    )


def _common_prefix(names: Sequence[str]) -> str:
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return "".join(letters[0] for letters in alike)


def _averaged(evaluations: Sequence[Evaluation], trainings: int) -> list[Evaluation]:
    """One evaluation per system: each query's mean over its trainings, without unjudged answers."""
    if trainings == 1:
        return list(evaluations)
    averages = []
    for first in range(0, len(evaluations), trainings):
        group = evaluations[first : first + trainings]
        values, _ = _lined_up(group, group[0].metrics, None)
        averages.append(
            replace(
                group[0],
                run=", ".join(evaluation.run for evaluation in group),
                query_ids=tuple(sorted(group[0].query_ids)),
                values=values.mean(axis=0),
                missing=tuple(sorted({query for evaluation in group for query in evaluation.missing})),
                groups={},
                unjudged=None,
            )
        )
    return averages


def _refuse_twice(runs: Sequence[str | Path]) -> None:
    """Raise UsageError if a file is used for two trainings, which would hide their variance."""
    seen: dict[Path, str | Path] = {}
    for run in runs:
        if (file := Path(run).resolve()) in seen:
            raise UsageError(
                f"{run}: is named twice{'' if run == seen[file] else f' (also as {seen[file]})'}; give the "
                "answers of each training in a file of their own"
            )
        seen[file] = run


def _refuse_copies(
    runs: Sequence[str | Path], evaluations: Sequence[Evaluation], trainings: int, run_format: str | None
) -> None:
    """Raise UsageError if two trainings of a system answer alike, in whatever format, order or scores."""
    for start in range(0, len(runs), trainings):
        for earlier, later in itertools.combinations(range(start, start + trainings), 2):
            first, second = evaluations[earlier], evaluations[later]
            if (
                (first.metrics, first.query_ids) == (second.metrics, second.query_ids)
                and np.array_equal(first.values, second.values, equal_nan=True)
                # Runs are read again only if all their numbers are equal.
                and _answers(runs[earlier], run_format) == _answers(runs[later], run_format)
            ):
                raise UsageError(
                    f"{runs[later]}: is a copy of {runs[earlier]}: every query has the same moments; give "
                    "the answers of another training"
                )


def _answers(
    run: str | Path, run_format: str | None
) -> dict[tuple[str, str], list[tuple[str, float, float]]]:
    """(task, query id) -> its moments, best first, without scores."""
    source = open_run(run, run_format)
    return {
        (task, query_id): [(video, start, end) for video, start, end, _ in rows]
        for task in source.tasks
        for block in source.blocks(task)
        for query_id, rows in rows_of(block, no_time=-1.0)
    }


def _check_settings(settings: Settings, runs: int) -> None:
    if settings.trainings < 1 or runs % settings.trainings:
        raise UsageError(
            f"{runs} runs cannot be divided into systems with {settings.trainings} trainings each; list the "
            "trainings of each system together, and equally many of each"
        )
    runs //= settings.trainings
    if runs < 2:
        noun = "run" if settings.trainings == 1 else "system"
        raise UsageError(f"{runs} {noun}: a comparison needs two or more")
    if not 0 < settings.alpha < 1:
        raise UsageError(f"alpha {settings.alpha!r}: give a probability between 0 and 1, such as 0.05")
    if settings.seed < 0:
        raise UsageError(f"seed {settings.seed!r}: give 0 or more")
    family = 1 if settings.correction == "none" else len(_pairs(runs, settings))
    least = math.ceil(family / settings.alpha)
    if not least <= settings.resamples <= _MOST_RESAMPLES:
        raise UsageError(
            f"{settings.resamples} resamples: give {least} (fewer could not show a difference at alpha "
            f"{settings.alpha:g} with {family} comparisons) to {_MOST_RESAMPLES}"
        )


def _pairs(runs: int, settings: Settings) -> Pairs:
    """(system, baseline) indices."""
    if settings.baseline == "first":
        return tuple((number, 0) for number in range(1, runs))
    return tuple((later, earlier) for earlier, later in itertools.combinations(range(runs), 2))


def _check_same(evaluations: Sequence[Evaluation]) -> None:
    names = names_of(evaluation.run for evaluation in evaluations)
    first = evaluations[0]
    ids = set(first.query_ids)
    for name, other in zip(names[1:], evaluations[1:], strict=True):
        if other.protocol != first.protocol:
            raise UsageError(
                f"{names[0]} was evaluated under {first.protocol}, {name} under {other.protocol}; "
                "only numbers of one protocol can be compared"
            )
        if first.is_given != other.is_given:
            given, pooled = (names[0], name) if first.is_given else (name, names[0])
            raise UsageError(
                f"{given} answers in each query's own video, {pooled} in its pool: only answers to one "
                "task can be compared (`evaluate --given` shows the drop from one to the other)"
            )
        others = set(other.query_ids)
        if others != ids:
            example = sorted(ids ^ others)[0]
            raise UsageError(
                f"{names[0]} and {name} have numbers for different queries ({len(ids - others)} only in the "
                f"first, {len(others - ids)} only in the second, such as {example!r}); {first.protocol} "
                "leaves out what a run does not answer: choose a protocol that counts it as 0"
            )
    if not ids:
        raise UsageError("no query counts, so there is nothing to compare")


def _shared_metrics(evaluations: Sequence[Evaluation]) -> tuple[tuple[str, ...], tuple[str, ...], list[str]]:
    """(metrics of all runs that apply to a query, metrics of tasks that some run does not answer, notes)."""
    every = dict.fromkeys(name for e in evaluations for name in e.metrics)
    not_answered = tuple(name for name in every if any(name in e.not_answered for e in evaluations))
    some = [
        name for name in every if name not in not_answered and any(name not in e.metrics for e in evaluations)
    ]
    both = [name for name in every if name not in (*not_answered, *some)]
    empty = [name for name in both if np.isnan(evaluations[0].column(name)).all()]
    shared = tuple(name for name in both if name not in empty)
    if not shared:
        why = f" ({', '.join(not_answered)}: a run does not answer this task)" if not_answered else ""
        raise UsageError(f"the runs have no metric in common that applies to a query{why}")
    reasons = {"not every run has them": some, "they apply to no query": empty}
    notes = [f"Left out because {why}: {', '.join(which)}." for why, which in reasons.items() if which]
    if not_answered:
        notes.append(f"No value (-), because not every run answers this task: {', '.join(not_answered)}.")
    return shared, not_answered, notes


def _lined_up(
    evaluations: Sequence[Evaluation], metrics: tuple[str, ...], clusters: Mapping[str, int] | None
) -> tuple[Floats, Indices]:
    """Values (S, Q, M) with a common order of queries, and the queries' clusters (Q,)."""
    ids = sorted(evaluations[0].query_ids)
    rows = []
    for evaluation in evaluations:
        place = {query_id: number for number, query_id in enumerate(evaluation.query_ids)}
        columns = [evaluation.metrics.index(name) for name in metrics]
        rows.append(evaluation.values[[place[query_id] for query_id in ids]][:, columns])
    values = np.stack(rows)
    unlike = (np.isnan(values) != np.isnan(values[0])).any(axis=(0, 1))
    if unlike.any():
        name = metrics[int(unlike.argmax())]
        raise UsageError(f"{name!r} applies to some queries in one run and not in another")
    if clusters is None:
        return values, np.arange(len(ids))
    missing = next((query_id for query_id in ids if query_id not in clusters), None)
    if missing is not None:
        raise UsageError(f"query {missing!r} has no cluster")
    return values, np.array([clusters[query_id] for query_id in ids], np.int64)


@dataclass(frozen=True)
class _Measured:
    """The numbers of a metric: intervals of S means and P differences, and P tests."""

    counts: tuple[int, int]
    means: Floats
    differences: Floats
    p: Floats
    p_corrected: Floats
    exact: NDArray[np.bool_]
    moved: Indices


def _measured(
    values: Floats, labels: Indices, metrics: tuple[str, ...], pairs: Pairs, settings: Settings
) -> dict[str, _Measured]:
    """Map each metric to its numbers; metrics that apply to the same queries are computed together."""
    applies = ~np.isnan(values[0])
    kinds, kind_of = np.unique(applies, axis=1, return_inverse=True)
    measured: dict[str, _Measured] = {}
    for kind in range(kinds.shape[1]):
        queries, columns = np.flatnonzero(kinds[:, kind]), np.flatnonzero(kind_of == kind)
        some = values[:, queries][:, :, columns]
        numbers = _measured_together(some, labels[queries], pairs, settings)
        measured.update(zip((metrics[column] for column in columns.tolist()), numbers, strict=True))
    return {name: measured[name] for name in metrics}


def _measured_together(
    values: Floats, labels: Indices, pairs: Pairs, settings: Settings
) -> Iterator[_Measured]:
    if settings.trainings > 1:
        yield from _measured_over_trainings(values, labels, pairs, settings)
        return
    runs, queries, metrics = values.shape
    drawn = {"resamples": settings.resamples, "seed": settings.seed}
    systems, baselines = (list(side) for side in zip(*pairs, strict=True))
    by_query = np.moveaxis(np.concatenate([values, values[systems] - values[baselines]]), 0, 1)
    flips = sign_flip_test(by_query[:, runs:].reshape(queries, -1), labels, **drawn)
    ends = bootstrap_intervals(
        by_query.reshape(queries, -1), labels, confidence=1 - settings.alpha, **drawn
    ).reshape(-1, metrics, 2)
    tests: list[NDArray[Any]] = [c.reshape(-1, metrics) for c in (flips.p, flips.exact, flips.moved)]
    yield from _by_metric(labels, ends, runs, tests, settings)


def _by_metric(
    labels: Indices, ends: Floats, systems: int, tests: Sequence[NDArray[Any]], settings: Settings
) -> Iterator[_Measured]:
    """The numbers of each metric, from ends (S + P, M, 2) and p, exact and moved, (P, M) each."""
    counts, p_corrected = (len(labels), len(np.unique(labels))), corrected(tests[0], settings.correction)
    for number in range(ends.shape[1]):
        p, exact, moved = (column[:, number] for column in tests)
        means, differences = ends[:systems, number], ends[systems:, number]
        yield _Measured(counts, means, differences, p, p_corrected[:, number], exact, moved)


def _measured_over_trainings(
    values: Floats, labels: Indices, pairs: Pairs, settings: Settings
) -> Iterator[_Measured]:
    """As `_measured_together`, for systems with several consecutive runs (S, Q, M)."""
    _, queries, metrics = values.shape
    grouped = values.reshape(-1, settings.trainings, queries, metrics)
    systems, baselines = (list(side) for side in zip(*pairs, strict=True))
    both = np.concatenate([grouped, grouped[systems] - grouped[baselines]])
    by_training = np.moveaxis(both, 0, 2).reshape(settings.trainings, queries, -1)
    shared = pooled_variance([*grouped])
    variances = [np.tile(shared.variance, len(grouped)), np.tile(shared.of_difference.variance, len(pairs))]
    pooled = Pooled(np.concatenate(variances), shared.degrees)
    measured = over_trainings(by_training, labels, pooled, confidence=1 - settings.alpha)
    ends, p = measured.ends.reshape(-1, metrics, 2), measured.p.reshape(-1, metrics)[len(grouped) :]
    # Means of systems are shares; only differences may be negative.
    ends[: len(grouped)] = ends[: len(grouped)].clip(0, 1)
    differ = (both[len(grouped) :] != 0).any(axis=1)
    moved = [[len(np.unique(labels[row])) for row in pair.T] for pair in differ]
    tests: list[NDArray[Any]] = [p, np.zeros(p.shape, np.bool_), np.array(moved, np.int64)]
    yield from _by_metric(labels, ends, len(grouped), tests, settings)


def _systems(
    evaluations: Sequence[Evaluation], names: tuple[str, ...], measured: Mapping[str, _Measured]
) -> tuple[System, ...]:
    systems = []
    for number, (name, evaluation) in enumerate(zip(names, evaluations, strict=True)):
        means = evaluation.means()
        estimates = {m: Estimate(means[m], *each.means[number].tolist()) for m, each in measured.items()}
        systems.append(System(name, evaluation.run, len(evaluation.missing), estimates))
    return tuple(systems)


def _differences(
    evaluations: Sequence[Evaluation],
    names: tuple[str, ...],
    pairs: Pairs,
    measured: Mapping[str, _Measured],
    settings: Settings,
) -> Iterator[Difference]:
    means = [evaluation.means() for evaluation in evaluations]
    for metric, numbers in measured.items():
        for pair, (system, baseline) in enumerate(pairs):
            value = means[system][metric] - means[baseline][metric]
            p_corrected = float(numbers.p_corrected[pair])
            verdict: Verdict = "no difference shown"
            if p_corrected <= settings.alpha:
                verdict = "better" if value > 0 else "worse"
            yield Difference(
                metric=metric,
                system=names[system],
                baseline=names[baseline],
                difference=Estimate(value, *numbers.differences[pair].tolist()),
                p=float(numbers.p[pair]),
                p_corrected=p_corrected,
                exact=bool(numbers.exact[pair]),
                differing_videos=int(numbers.moved[pair]),
                verdict=verdict,
            )


def few_videos(videos: Mapping[str, int]) -> list[str]:
    """The warning about metrics of few videos; `videos` maps each metric to the number with a value."""
    few = {name: count for name, count in videos.items() if 0 < count < FEW_CLUSTERS}
    if not few:
        return []
    which = "" if len(few) == len(videos) else f" ({', '.join(few)})"
    return [
        f"{number_of(min(few.values()), 'video is', 'videos are')} too few{which}: with fewer than "
        f"{FEW_CLUSTERS} the intervals may be too short, and only large differences can be shown. Do not "
        "base claims on them."
    ]


def _warnings(
    differences: Sequence[Difference], measured: Mapping[str, _Measured], settings: Settings
) -> Iterator[str]:
    yield from few_videos({name: each.counts[1] for name, each in measured.items()})
    systems = {name for d in differences for name in (d.system, d.baseline)}
    degrees = (settings.trainings - 1) * len(systems)
    if 0 < degrees < ENOUGH:
        yield (
            f"All trainings together leave {degrees} degrees of freedom, so only large differences can be "
            "shown. More trainings, or more systems in one comparison, show smaller ones."
        )
    moved = [d.differing_videos for d in differences] if settings.trainings == 1 else []
    undecidable = sum(videos > 0 and 2.0 ** (1 - videos) > settings.alpha for videos in moved)
    if undecidable:
        yield (
            f"In {undecidable} of the {len(moved)} comparisons the runs differ in so few videos that p could "
            f"not reach {settings.alpha:g}, whatever the difference."
        )
