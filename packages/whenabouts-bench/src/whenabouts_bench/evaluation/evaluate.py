"""Evaluate a run against judgements: a value per query and metric, and their means (`Evaluation`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import line_containing
from whenabouts.types import Qrels, Run, UsageError, number_of
from whenabouts_bench import formats
from whenabouts_bench.evaluation.highlights import highlights_of
from whenabouts_bench.evaluation.matching import Mask, Rows, Truth, rows_of, truth_of
from whenabouts_bench.evaluation.metrics import (
    Metric,
    fill,
    mark_not_applicable,
    means_of,
    metrics_of,
    without_nan,
)
from whenabouts_bench.evaluation.protocols import Protocol, find_protocol, protocol_for
from whenabouts_bench.evaluation.unjudged import JUDGED_IOU, Unjudged
from whenabouts_bench.formats.annotations import Annotations, Floats
from whenabouts_bench.formats.runs import MemoryRun, RunBlock, RunSource, Task, answered_by, saliency_of

Lists = Mapping[Task, Task]
"""Task -> the list of the run that answers it."""

_SEEMS_GIVEN = (
    "The run does not say its task. All its moments lie in their query's own video, as if it had been given: "
    'they answer SVMR. (In run.jsonl, "task": "VCMR" in each line says that it ranked the corpus.)'
)
_UNSAID = (
    "The run does not say its task, and whether the videos were given cannot be seen: SVMR and the metrics "
    'of the corpus read the same moments. (In run.jsonl, "task": "VCMR" or "SVMR" in each line says it.)'
)
NO_MOMENT_OF_GRADE = "Queries without a moment of grade"
"""The beginning of the note on a level of relevance."""
_LEAST_JUDGED = 0.01  # a run that answers a smaller share of what it could is of another data set


@dataclass(frozen=True)
class Evaluation:
    """The numbers of one run under one protocol.

    `values` (Q, M) are unrounded fractions in [0, 1], with a row per query that counts and a column per
    metric; NaN if a metric does not apply to a query (no moment of that length). Unanswered queries have
    zeros (under an `-as-released` protocol that drops them, no row). `groups` are labels of the queries, (Q,)
    each, such as their type.
    """

    protocol: str
    """Name and version: "tvr@1"."""
    run: str
    metrics: tuple[str, ...]
    query_ids: tuple[str, ...]
    values: Floats
    missing: tuple[str, ...] = ()
    """Judged queries without an answer."""
    unknown_queries: int = 0
    """The run's queries without judgement."""
    unknown_videos: int = 0
    """The run's moments (of judged queries) in videos that the truth does not name."""
    left_out: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Judged queries that the protocol leaves out, by reason."""
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    """Caveats for readers of the numbers."""
    unjudged: Unjudged | None = None
    """The effect of unjudged answers, if the judgements come from pools."""
    is_given: bool = False
    """Whether the run was given each query's video, though the protocol has pools."""
    not_answered: tuple[str, ...] = ()
    """Metrics of tasks that the run does not answer; their values are NaN."""

    def means(self, queries: Mask | None = None) -> dict[str, float]:
        """Metric -> mean over the queries (of a mask (Q,)) that it applies to, unrounded; NaN without any."""
        means = means_of(self.values if queries is None else self.values[queries])
        return dict(zip(self.metrics, means.tolist(), strict=True))

    def on_condensed_lists(self) -> Evaluation:
        """The evaluation on condensed lists, without unjudged answers. Raises UsageError without pools."""
        if self.unjudged is None:
            raise UsageError(
                f"{self.run}: has no condensed lists, because its judgements do not come from pools"
            )
        return replace(self, values=self.unjudged.condensed, unjudged=None)

    def means_by(self, group: str) -> dict[str, dict[str, float]]:
        """Label -> metric -> mean over the queries with that label; labels sorted."""
        labels = self.groups[group]
        return {str(label): self.means(labels == label) for label in np.unique(labels)}

    def column(self, metric: str) -> Floats:
        """(Q,) values of a metric. Raises UsageError if it was not evaluated."""
        if metric not in self.metrics:
            raise UsageError(f"{metric!r} was not evaluated; there are {', '.join(self.metrics)}")
        return np.asarray(self.values[:, self.metrics.index(metric)])

    def per_query(self) -> Iterator[dict[str, Any]]:
        """A JSON object per query: id, whether the run misses it, values (None if not applicable)."""
        missing, pools = set(self.missing), self.unjudged
        labels = {name: values.tolist() for name, values in self.groups.items()}
        for number, query_id in enumerate(self.query_ids):
            values = dict(zip(self.metrics, self.values[number].tolist(), strict=True))
            yield {
                "query_id": query_id,
                **{name: of_queries[number] for name, of_queries in labels.items()},
                "missing": query_id in missing,
                "metrics": without_nan(values),
                **({} if pools is None else {"unjudged": pools.of_query(number, self.metrics)}),
            }

    def lines(self) -> list[str]:
        lines = [number_of(len(self.query_ids), "query")]
        if self.missing:
            zero = "counted as 0" if set(self.missing) <= set(self.query_ids) else "left out"
            some = ", ".join(self.missing[:3]) + (", …" if len(self.missing) > 3 else "")
            lines.append(f"{len(self.missing):,} judged queries are missing from the run, {zero} ({some})")
        lines += [f"left out, {reason}: {times:,}" for reason, times in self.left_out.items()]
        if self.unknown_queries:
            lines.append(
                number_of(self.unknown_queries, "query of the run is", "queries of the run are")
                + " not judged"
            )
        if self.unknown_videos:
            lines.append(
                number_of(self.unknown_videos, "moment lies", "moments lie")
                + " in videos that the judgements do not name"
            )
        if self.unjudged is not None:
            lines.append(self.unjudged.sentence())
        return [*lines, *self.notes]

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "run": self.run,
            "queries": len(self.query_ids),
            "missing_queries": len(self.missing),
            "unknown_queries": self.unknown_queries,
            "unknown_videos": self.unknown_videos,
            "left_out": dict(self.left_out),
            "metrics": without_nan(self.means()),
            **({} if self.unjudged is None else {"unjudged": self.unjudged.to_json(self.metrics)}),
            "by": {
                group: {label: without_nan(means) for label, means in self.means_by(group).items()}
                for group in self.groups
            },
            "notes": list(self.notes),
        }


def evaluate(
    truth: Annotations | Qrels | str | Path,
    run: RunSource | Run | str | Path,
    metrics: Sequence[str] = (),
    *,
    protocol: Protocol | str | None = None,
    truth_format: str | None = None,
    run_format: str | None = None,
    as_released: bool = False,
    strict: bool = False,
    judged_iou: float | None = None,
    relevant_from: float | None = None,
) -> Evaluation:
    """Values per query and their means of a run against judgements.

    `truth` and `run` are files in any format of `whenabouts_bench.formats`, `Annotations` and `RunSource`, or
    mappings: query id -> judgements, query id -> scored moments of a corpus (of given videos:
    `MemoryRun.from_run(run, task="SVMR")`). `metrics` are names such as "R@10,IoU=0.5", "nDCG@20,IoU=0.7",
    "mAP" or "VR R@100"; none means the protocol's. A metric of a task that the run does not answer has NaN
    values (`Evaluation.not_answered`), and a note.

    Without a protocol the judgements choose (`protocol_for`). With `as_released`, `protocol` is a name, and
    numbers have the faults of its released program. With `strict`, unjudged queries and unknown videos are
    errors.
    `relevant_from` is the lowest grade of a right moment (any above 0 by default), which metrics without
    gains say in their names: "R@1,IoU=0.5,grade>=3".

    Judgements from pools (`Annotations.most_grade`, or a `judged_iou`) leave other moments unjudged.
    `Evaluation.unjudged` says how many answers are unjudged, and how far they could move each value. An
    answer is judged if its IoU with a judged moment is at least `judged_iou`.

    >>> from whenabouts.types import Judgement, Moment, ScoredMoment
    >>> qrels = {"q": [Judgement(Moment("v", 0.0, 10.0))]}
    >>> answer = {"q": [ScoredMoment(Moment("v", 0.0, 8.0), score=1.0)]}
    >>> evaluate(qrels, answer, ["R@1,IoU=0.7", "mIoU"]).means()
    {'R@1,IoU=0.7': 1.0, 'mIoU': 0.8}

    Raises FormatError for files, UsageError for metrics, protocols and runs that do not fit.
    """
    if as_released and not isinstance(protocol, str):
        raise UsageError("name the protocol whose released program is meant, such as 'rvmr'")
    chosen = find_protocol(protocol, as_released=as_released) if isinstance(protocol, str) else protocol
    annotations = annotations_of(truth, chosen, truth_format)
    chosen = protocol_for(annotations, chosen, relevant_from)
    if isinstance(run, str | Path):
        run = formats.open_run(run, run_format, annotations)
    elif isinstance(run, Mapping):
        run = MemoryRun.from_run(run)
    lists = answered_by(run, annotations.first_videos)
    if chosen.given_video and "VCMR" not in lists and "SVMR" in lists:
        lists = {**lists, "VCMR": lists["SVMR"]}
    chosen_metrics = metrics_of(chosen, metrics)
    if not metrics:
        chosen_metrics = _shown(chosen_metrics, chosen, lists, annotations, run)
    _refuse_unreached_grade(annotations, chosen_metrics)
    pools = None
    if judged_iou is not None or annotations.most_grade is not None:
        pools = (JUDGED_IOU if judged_iou is None else judged_iou, _most_grade(annotations))
    return _evaluated(annotations, run, lists, chosen_metrics, chosen, strict, pools)


def _shown(
    metrics: tuple[Metric, ...], protocol: Protocol, lists: Lists, annotations: Annotations, run: RunSource
) -> tuple[Metric, ...]:
    """The metrics of a protocol that a run's lists answer. Raises UsageError if there are none."""
    shown = tuple(metric for metric in metrics if _is_shown(metric, lists, annotations, run))
    if not shown:
        raise UsageError(
            f"{run.name}: it has only {', '.join(lists)}, and {protocol.name} has no metric of that; use the "
            f"protocol vcmr, or name metrics (--metric){_seems_given(run)}"
        )
    return shown


def _most_grade(annotations: Annotations) -> float:
    return max(annotations.most_grade or 1.0, float(annotations.relevance.max(initial=1.0)))


def _refuse_unreached_grade(annotations: Annotations, metrics: tuple[Metric, ...]) -> None:
    most = _most_grade(annotations)
    for metric in metrics:
        if metric.grade is not None and metric.grade > most:
            raise UsageError(
                f"{annotations.name}: {metric.name}: no moment can be right, the highest grade is {most:g}"
            )


def annotations_of(
    truth: Annotations | Qrels | str | Path, protocol: Protocol | None, format: str | None = None
) -> Annotations:
    """Judgements from a file, as the protocol reads it, or from a mapping. Raises FormatError."""
    if isinstance(truth, Annotations):
        return truth
    if isinstance(truth, str | Path):
        reader = formats if protocol is None else importlib.import_module(protocol.truth_reader)
        return cast(Annotations, reader.read_annotations(truth, format))
    return Annotations.from_qrels(truth)


def _is_shown(metric: Metric, lists: Lists, annotations: Annotations, source: RunSource) -> bool:
    """Whether a metric is shown by default: those of the run's tasks, and all if it ranked a corpus."""
    if metric.task == "HL":
        first = annotations.queries[0].metadata if annotations.queries else {}
        return "saliency_scores" in first and bool(saliency_of(source))
    return metric.task in lists or _ranked_corpus(lists)


@dataclass
class _Tally:
    """Counts while a run is read."""

    values: Floats
    answered: Mask
    unjudged: Unjudged | None = None
    unknown_queries: int = 0
    judged_queries: int = 0
    unknown_videos: int = 0
    examples: list[str] = field(default_factory=list)


def _evaluated(
    annotations: Annotations,
    source: RunSource,
    lists: Lists,
    metrics: tuple[Metric, ...],
    protocol: Protocol,
    strict: bool,
    pools: tuple[float, float] | None,
) -> Evaluation:
    """The numbers; `pools` are the IoU of judged answers and the highest grade, None without pools."""
    truth = truth_of(annotations, protocol)
    queries = len(truth.query_ids)
    tally = _Tally(np.zeros((queries, len(metrics))), np.zeros(queries, bool))
    judged = truth
    if pools is not None:
        tally.unjudged = Unjudged.empty(queries, len(metrics), *pools)
        judged = truth_of(annotations, replace(protocol, zero_grades=True))
    for number, (task, columns) in enumerate(_columns_by_list(metrics, lists, source).items()):
        seen = np.zeros(queries, bool)
        chosen = [(column, metrics[column]) for column in columns]
        for block in source.blocks(task):
            rows = _checked_rows(block, truth, source, seen, strict, tally if number == 0 else None)
            listed = "VR" in source.tasks
            fill(tally.values, rows, truth, chosen, protocol, listed_videos=listed)
            if tally.unjudged is not None:
                read = (rows, truth, judged, chosen, protocol, tally.values, block.video_ids)
                tally.unjudged.fill(*read, listed_videos=listed)
        tally.answered |= seen
    mark_not_applicable(tally.values, metrics, truth, protocol)
    not_answered = [column for column, metric in enumerate(metrics) if _is_not_answered(metric, lists)]
    tally.values[:, not_answered] = np.nan
    if any(metric.task == "HL" for metric in metrics):
        _fill_highlights(tally, annotations, source, metrics)
    _refuse_another_data_set(tally, source, annotations)
    return _result(annotations, source, lists, metrics, protocol, truth, tally)


def _ranked_corpus(lists: Lists) -> bool:
    """Whether the run ranks moments of a corpus, not only of given videos."""
    return "VCMR" in lists and lists["VCMR"] != lists.get("SVMR")


def _is_not_answered(metric: Metric, lists: Lists) -> bool:
    return metric.task != "HL" and metric.task not in lists


def _is_given(metrics: tuple[Metric, ...], protocol: Protocol, lists: Lists) -> bool:
    """Whether a protocol of pools reads a run that was given each query's video."""
    in_video = "SVMR" in lists and lists.get("VCMR") == lists["SVMR"]
    return protocol.full_pools and in_video and any(metric.task == "VCMR" for metric in metrics)


def _of_lists(
    metrics: tuple[Metric, ...], protocol: Protocol, lists: Lists, source: RunSource
) -> Iterator[str]:
    """Notes on the tasks that the run answers."""
    tasks = {metric.task for metric in metrics} - {"HL"}
    if _is_given(metrics, protocol, lists):
        yield "The run answers in each query's own video: it did not have to find it in a pool."
    elif source.answered is None and "SVMR" in lists:
        yield _UNSAID if "VR" in lists else _SEEMS_GIVEN
    if not_answered := [task for task in ("SVMR", "VR") if task in tasks and task not in lists]:
        yield (
            f"{' and '.join(not_answered)}: no value, because this run ranked the moments of the corpus. "
            f"A trained system answers it by `run --task {not_answered[0].lower()}`, all by `--out X.json`."
        )
    if "VR" in tasks and lists.get("VR") not in (None, "VR"):
        yield "VR: videos are ranked by their best moments, as far as the list of moments goes."


def _of_grades(metrics: tuple[Metric, ...], truth: Truth) -> Iterator[str]:
    """A note for each level of relevance that some queries do not reach."""
    for grade in sorted({metric.grade for metric in metrics if metric.grade is not None}):
        has = np.bincount(truth.positives(grade).query, minlength=len(truth.query_ids)) > 0
        if lost := int(np.count_nonzero(truth.counts & ~has)):
            yield f"{NO_MOMENT_OF_GRADE} {grade:g} or more, which count as 0: {lost:,}."


def _seems_given(run: RunSource) -> str:
    """What is added to an error about a run that does not say its task."""
    return f"; {_SEEMS_GIVEN}" if run.answered is None else ""


def _columns_by_list(metrics: tuple[Metric, ...], lists: Lists, source: RunSource) -> dict[Task, list[int]]:
    """List of the run -> columns of the metrics that read it; metrics without a list are skipped."""
    columns: dict[Task, list[int]] = {}
    for column, metric in enumerate(metrics):
        if metric.task == "HL":
            continue
        if metric.task in lists:
            columns.setdefault(lists[metric.task], []).append(column)
        elif not _ranked_corpus(lists):
            held = ", ".join(task for task in lists if task != "VCMR")
            raise UsageError(
                f"{source.name}: it has only {held}, which {metric.name!r} does not read"
                f"{_seems_given(source)}"
            )
    return columns or {source.tasks[0]: []}


def _checked_rows(
    block: RunBlock, truth: Truth, source: RunSource, seen: Mask, strict: bool, tally: _Tally | None
) -> Rows:
    """The rows of queries that count. Updates `seen` (Q,) and `tally`; refuses a duplicate query."""
    codes = truth.codes_of(block.query_ids)
    unknown = np.flatnonzero(codes < 0)
    if strict and len(unknown):
        name = block.query_ids[unknown[0]]
        raise UsageError(
            f"{_place(source, name)}: query {name!r} is not judged; without strict it is only counted"
        )
    judged = codes[codes >= 0]
    distinct, times = np.unique(judged, return_counts=True)
    twice = distinct[(times > 1) | seen[distinct]]
    if len(twice):
        raise UsageError(
            f"{source.name}: query {truth.query_ids[twice[0]]!r} is answered twice; give one list"
        )
    seen[judged] = True
    rows = rows_of(block, truth)
    unknown_video = rows.video >= len(truth.video_codes)
    if strict and unknown_video.any():
        name = block.video_ids[int(rows.video[unknown_video][0]) - len(truth.video_codes)]
        raise UsageError(
            f"{_place(source, name)}: video {name!r} is not named by the judgements; "
            "without strict it is only counted"
        )
    if tally is not None:
        tally.unknown_queries += len(unknown)
        tally.judged_queries += len(judged)
        tally.unknown_videos += int(unknown_video.sum())
        tally.examples.extend(block.query_ids[number] for number in unknown[: 1 - len(tally.examples)])
    return rows


def _place(source: RunSource, name: str) -> str:
    """A run's file, with the line of a name if known."""
    line = line_containing(Path(source.name), name)
    return source.name if line is None else f"{source.name}, line {line}"


def _fill_highlights(
    tally: _Tally, annotations: Annotations, source: RunSource, metrics: tuple[Metric, ...]
) -> None:
    saliency = saliency_of(source)
    if not saliency or any("saliency_scores" not in query.metadata for query in annotations.queries):
        raise UsageError(
            f"{source.name}: HL metrics need saliency scores, both judged and predicted (qvhighlights)"
        )
    lengths, given = {video.id: video.duration for video in annotations.videos}, annotations.given_videos
    seconds = [lengths.get(given.get(query.id, "")) or 0.0 for query in annotations.queries]
    clips = highlights_of(annotations.queries, seconds, saliency)
    scored = np.array([query.id in saliency for query in annotations.queries])
    for column, metric in enumerate(metrics):
        if metric.task == "HL":
            tally.values[:, column] = np.where(scored, metric.row.value(clips, metric.saliency), 0.0)
    tally.answered |= scored


def _refuse_another_data_set(tally: _Tally, source: RunSource, annotations: Annotations) -> None:
    count = tally.judged_queries + tally.unknown_queries
    if not annotations.queries:
        raise UsageError(f"{annotations.name}: has no judgements")
    if not count and not tally.answered.any():
        raise UsageError(f"{source.name}: has no answers")
    if count and tally.judged_queries < _LEAST_JUDGED * min(count, len(annotations.queries)):
        judged = annotations.queries[0].id
        raise UsageError(
            f"{source.name}: {tally.judged_queries} of its {count} queries are judged in {annotations.name}: "
            "this is a run of another data set "
            f"(its ids look like {tally.examples[0]!r}, the judged ones like {judged!r})"
        )


def _result(
    annotations: Annotations,
    source: RunSource,
    lists: Lists,
    metrics: tuple[Metric, ...],
    protocol: Protocol,
    truth: Truth,
    tally: _Tally,
) -> Evaluation:
    lost = np.flatnonzero(truth.counts & ~tally.answered)
    kept = np.flatnonzero(truth.counts & tally.answered if protocol.missing == "left out" else truth.counts)
    kinds = [str(annotations.queries[number].metadata.get("type", "")) for number in kept.tolist()]
    return Evaluation(
        protocol=protocol.label,
        run=source.name,
        metrics=tuple(metric.name for metric in metrics),
        query_ids=tuple(truth.query_ids[number] for number in kept.tolist()),
        values=tally.values[kept],
        missing=tuple(truth.query_ids[number] for number in lost.tolist()),
        unknown_queries=tally.unknown_queries,
        unknown_videos=tally.unknown_videos,
        left_out=truth.left_out,
        is_given=_is_given(metrics, protocol, lists),
        not_answered=tuple(metric.name for metric in metrics if _is_not_answered(metric, lists)),
        groups={"type": np.array(kinds)} if kinds and all(kinds) else {},
        unjudged=tally.unjudged and tally.unjudged.finished(tally.values, metrics, kept),
        notes=(
            *protocol.notes,
            *_of_lists(metrics, protocol, lists, source),
            *_of_grades(metrics, truth),
            *(f"judgements: {rule}: {times:,}" for rule, times in annotations.counts.items()),
        ),
    )
