"""Gather the contents of the report page from judgements and one or two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from whenabouts.types import UsageError, number_of
from whenabouts_bench.evaluation.compared import Comparison, Difference, Estimate
from whenabouts_bench.evaluation.comparison import clusters_of, compare, estimates_of, names_of
from whenabouts_bench.evaluation.evaluate import Evaluation, evaluate
from whenabouts_bench.evaluation.matching import NEVER, Truth, truth_of
from whenabouts_bench.evaluation.protocols import Protocol, protocol_for
from whenabouts_bench.formats.annotations import Annotations, Floats, Indices
from whenabouts_bench.formats.runs import RunSource
from whenabouts_bench.report.charts import Drawn, RecallRow, curves_of, recall_rows
from whenabouts_bench.report.diagnosis import CLASSES, GOOD, GOOD_FIRST, Diagnosis, diagnose
from whenabouts_bench.report.examples import MOST_OF_A_SIDE, Example, examples_of, won_and_lost, worst
from whenabouts_bench.report.groups import Grouping, groupings, properties_of
from whenabouts_bench.report.runs import LETTERS, KeptRun, RunPart
from whenabouts_bench.report.sentences import Verdict, moved_by, summarize, verdict_of, weak_places


class MetricRow(NamedTuple):
    """A metric: an estimate per run (or None) and the difference of two runs."""

    name: str
    means: tuple[Estimate | None, ...]
    difference: Difference | None


class UnjudgedCell(NamedTuple):
    """Unjudged answers of a run by one metric: their number, the mean without them, and its bounds."""

    unjudged: int
    answers: int
    condensed: float
    lower: float
    upper: float


class GroupCell(NamedTuple):
    """One run in one group: queries per class, and shares."""

    counts: list[int]
    first: float
    ten: float
    video: float
    quality: float


class GroupRow(NamedTuple):
    """A group of queries with a cell per run."""

    label: str
    size: int
    cells: tuple[GroupCell, ...]


class GroupTable(NamedTuple):
    """All groups of one property."""

    title: str
    rows: tuple[GroupRow, ...]


class Part(NamedTuple):
    """Examples of one kind."""

    title: str
    explanation: str
    examples: list[Example]


@dataclass(frozen=True)
class Report:
    """The contents of the page."""

    truth: str
    protocol: Protocol
    runs: tuple[RunPart, ...]
    graded: str
    """The metric of answer quality if the truth is graded, else ""."""
    verdict: Verdict | None
    metrics: tuple[MetricRow, ...]
    unjudged: tuple[tuple[str, tuple[UnjudgedCell, ...]], ...]
    """(metric, a cell per run) if the judgements come from pools."""
    fit: tuple[tuple[str, tuple[int, ...]], ...]
    charts: tuple[Drawn, ...]
    recall: tuple[RecallRow, ...]
    groupings: tuple[GroupTable, ...]
    uniform: tuple[str, ...]
    """Sentences about properties shared by all queries."""
    moved: list[list[int]]
    """Number of queries by class in the first run (rows) and the second (columns); [] for one run."""
    moved_sentence: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]

    @property
    def two(self) -> bool:
        return len(self.runs) == 2

    @property
    def names_moments(self) -> bool:
        return any(run.diagnosis.names_moments for run in self.runs)


def gather(
    annotations: Annotations,
    sources: Sequence[RunSource],
    protocol: Protocol | None = None,
    names: Sequence[str] = (),
    relevant_from: float | None = None,
) -> Report:
    """The contents of the page for one or two runs; by default the judgements choose the protocol.

    `relevant_from` is the lowest grade of a right moment, as in `evaluate`.

    Raises UsageError for more runs, names that do not fit, or if no query counts.
    """
    if not 1 <= len(sources) <= len(LETTERS):
        raise UsageError(f"{len(sources)} runs: a report shows one run, or two side by side")
    run_names = _names(sources, names)
    chosen = protocol_for(annotations, protocol, relevant_from)
    truth = truth_of(annotations, chosen)
    if not truth.counts.any():
        reasons = "; ".join(f"{number:,} {why}" for why, number in truth.left_out.items()) or "there are none"
        raise UsageError(f"{annotations.name}: no query counts under {chosen.label}: {reasons}")
    kept = [KeptRun(source) for source in sources]
    evaluations = [evaluate(annotations, source, protocol=chosen) for source in kept]
    diagnoses = [diagnose(truth, source, chosen) for source in kept]
    groups = groupings(properties_of(annotations, truth, diagnoses[0].queries), _given(evaluations[0], truth))
    graded = next((name for name in evaluations[0].metrics if name.startswith("nDCG")), "")
    runs = []
    for letter, name, source, evaluation, diagnosis in zip(
        LETTERS, run_names, kept, evaluations, diagnoses, strict=False
    ):
        quality, weak = _quality(evaluation, diagnosis, truth, graded), tuple(weak_places(diagnosis, groups))
        summary = summarize(diagnosis)
        runs.append(RunPart(letter, name, source, evaluation, diagnosis, quality, summary, weak))
    return _report(annotations, truth, chosen, tuple(runs), groups, graded)


def _report(
    annotations: Annotations,
    truth: Truth,
    protocol: Protocol,
    runs: tuple[RunPart, ...],
    groups: Sequence[Grouping],
    graded: str,
) -> Report:
    comparison, why_not = _compared(annotations, runs)
    differences = {d.metric: d for d in comparison.differences} if comparison else {}
    moved, moved_sentence = _moved(runs)
    unknown = Verdict("Whether the two runs really differ cannot be said.", (why_not,))
    verdict = verdict_of(comparison) if comparison else unknown
    return Report(
        truth=PurePath(annotations.name).name,
        protocol=protocol,
        runs=runs,
        graded=graded,
        verdict=verdict if len(runs) == 2 else None,
        metrics=_metrics(annotations, runs, differences),
        unjudged=tuple(_unjudged(runs)),
        fit=_fit(runs),
        charts=tuple(curves_of(runs, graded)),
        recall=tuple(recall_rows(runs)),
        groupings=tuple(_group_table(grouping, runs) for grouping in groups if len(grouping.labels) > 1),
        uniform=tuple(
            f"{grouping.title}: the same for all queries ({grouping.labels[0]})."
            for grouping in groups
            if len(grouping.labels) == 1
        ),
        moved=moved,
        moved_sentence=moved_sentence,
        parts=tuple(_parts(annotations, truth, protocol, runs, graded)),
        notes=tuple(_notes(annotations, protocol, runs, comparison)),
    )


def _names(sources: Sequence[RunSource], names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return names_of([source.name for source in sources])
    if len(names) != len(sources) or len(set(names)) < len(names):
        raise UsageError(f"names {', '.join(map(repr, names))}: give one name for each run, all different")
    return tuple(names)


def _given(evaluation: Evaluation, truth: Truth) -> dict[str, list[str]]:
    """The data set's labels of each query that counts; "" without a label."""
    counted = [truth.query_ids[number] for number in np.flatnonzero(truth.counts).tolist()]
    given = {}
    for name, labels in evaluation.groups.items():
        of_query = dict(zip(evaluation.query_ids, labels.tolist(), strict=True))
        given[name] = [str(of_query.get(query_id, "")) for query_id in counted]
    return given


def _quality(evaluation: Evaluation, diagnosis: Diagnosis, truth: Truth, graded: str) -> Floats:
    if graded in evaluation.metrics:
        value = np.zeros(len(truth.query_ids))
        value[[truth.query_codes[query_id] for query_id in evaluation.query_ids]] = evaluation.column(graded)
        return value[diagnosis.queries]
    rank = diagnosis.good_rank
    return np.where(rank < NEVER, 1.0 / (np.minimum(rank, NEVER - 1) + 1.0), 0.0)


def _compared(annotations: Annotations, runs: Sequence[RunPart]) -> tuple[Comparison | None, str]:
    """The comparison of two runs, or why it is impossible."""
    if len(runs) < 2:
        return None, ""
    try:
        evaluations, names = [run.evaluation for run in runs], [run.name for run in runs]
        return compare(evaluations, clusters_of(annotations), names=names), ""
    except UsageError as error:
        return None, str(error)


def _metrics(
    annotations: Annotations, runs: Sequence[RunPart], differences: Mapping[str, Difference]
) -> tuple[MetricRow, ...]:
    clusters = clusters_of(annotations)
    means = [estimates_of(run.evaluation, clusters) for run in runs]
    names = dict.fromkeys(
        name
        for run, estimates in zip(runs, means, strict=True)
        for name in run.evaluation.metrics
        if name in estimates or name in run.evaluation.not_answered
    )
    return tuple(
        MetricRow(name, tuple(estimates.get(name) for estimates in means), differences.get(name))
        for name in names
    )


def _unjudged(runs: Sequence[RunPart]) -> Iterator[tuple[str, tuple[UnjudgedCell, ...]]]:
    """The unjudged answers of each run by metric; empty if the judgements do not come from pools."""
    evaluations = [run.evaluation for run in runs]
    counts = [each.unjudged.means(each.metrics) for each in evaluations if each.unjudged is not None]
    if len(counts) < len(evaluations):
        return
    for metric in evaluations[0].metrics:
        if all(metric in each and each[metric]["answers"] for each in counts):
            rows = ([each[metric][name] for name in UnjudgedCell._fields] for each in counts)
            yield metric, tuple(map(UnjudgedCell._make, rows))


def _fit(runs: Sequence[RunPart]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    evaluations = [run.evaluation for run in runs]
    rows = {
        "queries that count": [len(each.query_ids) for each in evaluations],
        "judged queries the run does not answer": [len(each.missing) for each in evaluations],
        "queries of the run that are not judged": [each.unknown_queries for each in evaluations],
        "moments in videos the judgements do not name": [each.unknown_videos for each in evaluations],
        "rows read of the longest list": [int(run.diagnosis.rows.max(initial=0)) for run in runs],
    }
    for reason in dict.fromkeys(reason for each in evaluations for reason in each.left_out):
        rows[f"left out: {reason}"] = [each.left_out.get(reason, 0) for each in evaluations]
    return tuple((what, tuple(numbers)) for what, numbers in rows.items())


def _group_table(grouping: Grouping, runs: Sequence[RunPart]) -> GroupTable:
    cells = []
    for run in runs:
        diagnosis = run.diagnosis
        shares = (
            diagnosis.classes == GOOD_FIRST,
            diagnosis.good_rank < 10,
            diagnosis.video_rank == 0,
            run.quality,
        )
        columns = [grouping.means(share).tolist() for share in shares]
        counts = grouping.table(diagnosis.classes, len(CLASSES)).tolist()
        cells.append([GroupCell(*row) for row in zip(counts, *columns, strict=True)])
    rows = zip(grouping.labels, grouping.counts().tolist(), *cells, strict=True)
    return GroupTable(
        grouping.title, tuple(GroupRow(label, size, tuple(of_runs)) for label, size, *of_runs in rows)
    )


def _moved(runs: Sequence[RunPart]) -> tuple[list[list[int]], str]:
    if len(runs) < 2:
        return [], ""
    before, after = (run.diagnosis for run in runs)
    width = len(CLASSES)
    cells = np.bincount(before.classes * width + after.classes, minlength=width * width)
    return cells.reshape(width, width).tolist(), moved_by(before, after)


def _parts(
    annotations: Annotations, truth: Truth, protocol: Protocol, runs: Sequence[RunPart], graded: str
) -> list[Part]:
    """The examples: queries that the second run wins and loses, or the worst of each class of one run."""
    chosen = _chosen(runs, graded)
    positions = np.concatenate([queries for _, _, queries in chosen] or [np.zeros(0, np.int64)])
    drawn = examples_of(annotations, truth, protocol, [(r.source, r.diagnosis) for r in runs], positions)
    parts, begin = [], 0
    for title, explanation, queries in chosen:
        if len(queries):
            parts.append(Part(title, explanation, drawn[begin : begin + len(queries)]))
        begin += len(queries)
    return parts


def _chosen(runs: Sequence[RunPart], graded: str) -> list[tuple[str, str, Indices]]:
    """(title, explanation, positions of the queries) of each part."""
    if len(runs) == 2:
        first, second = (run.diagnosis.best_iou for run in runs)
        won, lost = won_and_lost(runs[0].quality, runs[1].quality, first, second)
        by = f"By {graded or 'the rank of the first good moment'}"
        return [
            (f"Won by B ({len(won):,})", f"{by}; the largest gains first.", won[:MOST_OF_A_SIDE]),
            (f"Lost by B ({len(lost):,})", f"{by}; the largest losses first.", lost[:MOST_OF_A_SIDE]),
        ]
    counts = runs[0].class_counts
    return [
        (
            f"{CLASSES[number].name.capitalize()} ({counts[number]:,})",
            f"{CLASSES[number].meaning.capitalize()}. The worst first.",
            queries,
        )
        for number, queries in worst(runs[0].diagnosis).items()
    ]


def _notes(
    annotations: Annotations, protocol: Protocol, runs: Sequence[RunPart], comparison: Comparison | None
) -> list[str]:
    notes = list(dict.fromkeys(note for run in runs for note in run.evaluation.notes))
    notes += dict.fromkeys(run.evaluation.unjudged.sentence() for run in runs if run.evaluation.unjudged)
    notes.append(
        f"A moment is called good from IoU {GOOD:g} on, whatever the metrics above ask for; IoU is computed "
        f"and lists are cut as {protocol.label} says. A positive is a judgement with a grade "
        + ("above 0." if protocol.relevant_from is None else f"of {protocol.relevant_from:g} or more.")
    )
    if protocol.missing == "left out" and any(run.evaluation.missing for run in runs):
        notes.append(
            "This protocol leaves queries that a run does not answer out of its metrics; the classes and "
            "groups count them as not answered."
        )
    unknown = sum(video.duration is None for video in annotations.videos)
    if unknown:
        notes.append(
            f"{number_of(unknown, 'video has', 'videos have')} no known duration: their time lines end with "
            "the last span drawn, and moments in them have no position."
        )
    notes += comparison.notes if comparison else ()
    notes.append(
        "Weaker groups are those whose share of found queries lies two standard errors below the others'; "
        "with many groups one of them may do so by chance."
    )
    return notes
