"""Run a system on a task: index, ask, measure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts.version import __version__
from whenabouts_bench.datasets.card import fingerprint_of
from whenabouts_bench.evaluation.comparison import clusters_of, few_videos
from whenabouts_bench.evaluation.evaluate import Evaluation, evaluate
from whenabouts_bench.evaluation.metrics import Metric, metrics_of
from whenabouts_bench.evaluation.protocols import Protocol, find_protocol
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunBlock, rows_of
from whenabouts_bench.formats.runs import Task as RunList
from whenabouts_bench.harness.answers import (
    Answered,
    block_of,
    clips_of_given,
    lists_of,
    scores_of_clips,
    videos_of_clips,
)
from whenabouts_bench.harness.cost import Spent, cost_of, machine, measured
from whenabouts_bench.harness.rejection import rejection_of
from whenabouts_bench.harness.results import (
    FORM,
    OfRejection,
    OfSystem,
    OfTask,
    Results,
    measured_metrics,
    per_query_of,
    public,
)
from whenabouts_bench.harness.system import BenchQuery, methods_of
from whenabouts_bench.harness.task import Material, Task
from whenabouts_bench.harness.videos import videos_in

RIGHT_IOU = 0.5
"""The least IoU with a right moment at which the calibration error counts a first answer as right."""


def run_task(
    task: Task, system: Any, folder: Path, *, factory: str = "", settings: dict[str, str] | None = None
) -> Results:
    """The metrics and answers of a system on a task whose files are in `folder`.

    Metrics that the system's methods do not support are listed in `not_honoured`. Raises UsageError for a
    system that returns malformed rows, or that supports no metric of the task; FormatError for files that are
    not those of the task.
    """
    facts = facts_of(system, factory, settings)
    material = task.read(folder)
    annotations = material.annotations
    videos = videos_in(folder, annotations.videos)
    protocol = find_protocol(task.protocol)
    metrics = _task_metrics(task, protocol, annotations)
    with measured() as indexing:
        system.index(videos)
    collector = _ListCollector(task, system, facts, annotations)
    answered = collector.answered({metric.task for metric in metrics})
    honoured = _honoured(metrics, answered, protocol, facts, task)
    evaluation = evaluate(
        annotations,
        answered,
        [metric.name for metric in honoured],
        protocol=protocol,
        judged_iou=task.judged_iou,
    )
    clusters = _clusters(annotations)
    per_query = per_query_of(evaluation, clusters)
    few = few_videos(per_query.videos())
    size = getattr(system, "index_bytes", None)
    return Results(
        whenabouts_bench=FORM,
        task=_of_task(task, material, evaluation),
        system=facts,
        date=datetime.now(UTC).date().isoformat(),
        version=__version__,
        machine=machine(),
        videos=len(annotations.videos),
        queries=len(evaluation.query_ids),
        missing=len(evaluation.missing),
        left_out=dict(evaluation.left_out),
        metrics=measured_metrics(evaluation, clusters),
        not_honoured=[metric.name for metric in metrics if metric not in honoured],
        rejection=_rejection(evaluation, annotations, answered, protocol, clusters),
        cost=cost_of(
            indexing,
            collector.spent,
            collector.queried,
            sum(video.duration or 0.0 for video in annotations.videos),
            int(size()) if callable(size) else None,
        ),
        unjudged=_unjudged(evaluation),
        notes=[*task.notes, *task.counts_that_differ(annotations), *evaluation.notes, *few],
        per_query=per_query,
        answers={listed: _rows(block) for listed, block in answered.lists.items()},
        probability=dict(answered.probability),
        clip_scores={query: scores.tolist() for query, scores in answered.clip_scores.items()},
    )


def facts_of(system: Any, factory: str = "", settings: dict[str, str] | None = None) -> OfSystem:
    """The facts on a system for the results: name, revision, and the factory without its folder."""
    place, colon, attribute = factory.rpartition(":")
    return OfSystem(
        name=str(getattr(system, "name", "") or "").strip() or attribute or type(system).__name__,
        revision=str(getattr(system, "revision", "") or "").strip() or "unversioned",
        factory=f"{Path(place).name}{colon}{attribute}",
        methods=list(methods_of(system)),
        settings=public(settings or {}),
    )


def _task_metrics(task: Task, protocol: Protocol, annotations: Annotations) -> tuple[Metric, ...]:
    """The metrics of a task: of given videos if videos are given, else of a corpus; highlights if graded.

    Some protocols measure moments of given videos by the metrics of a corpus (`given_video`).
    """
    metrics = metrics_of(protocol, (*(protocol.metrics if task.of_protocol else ()), *task.metrics))
    read = {"SVMR"} if task.is_given else {"VCMR", "SVMR", "VR"}
    read |= {"VCMR"} if protocol.given_video else set()
    if annotations.queries and "saliency_scores" in annotations.queries[0].metadata:
        read.add("HL")
    return tuple(metric for metric in metrics if metric.task in read)


class _ListCollector:
    """Asks a system for the lists of a run; `spent` and `queried` are cost and queries of the first list."""

    def __init__(self, task: Task, system: Any, facts: OfSystem, annotations: Annotations) -> None:
        self.task, self.system, self.methods, self.name = task, system, facts.methods, facts.name
        self.spent, self.queried = Spent(), 0
        given = annotations.given_videos
        pools = annotations.pools
        self._all = [
            BenchQuery(query.id, query.text, pools.get(query.id, ())) for query in annotations.queries
        ]
        self._given = [replace(query, videos=(given[query.id],)) for query in self._all if query.id in given]
        self._pooled = bool(pools) and all(query.videos for query in self._all)

    def answered(self, read: set[str]) -> Answered:
        """The lists that the metrics need, as far as the system's methods allow."""
        lists: dict[RunList, RunBlock] = {}
        probability: dict[str, float] = {}
        clips, depth = {}, self.task.depth
        for listed in cast(tuple[RunList, ...], ("VCMR", "SVMR", "VR")):
            if listed not in read and not (listed == "SVMR" and self.task.is_given):
                continue
            if listed == "VCMR" and self.task.is_given:
                continue
            queries, rows = self._rows(listed)
            if rows is not None:
                block, of_list = block_of(queries, rows, depth, of_videos=listed == "VR", named=self.name)
                probability = probability if lists else of_list
                lists[listed] = block
        if "score_clips" in self.methods and (not lists or "HL" in read):
            queries = self._given if self.task.is_given or "HL" in read else self._all
            returned = self._timed(lambda: self.system.score_clips(queries), len(queries))
            scores = scores_of_clips(queries, returned, self.name)
            clips = clips_of_given(queries, scores)
            if not lists:
                rows = videos_of_clips(scores)
                lists["VR"], probability = block_of(queries, rows, depth, of_videos=True, named=self.name)
        if not lists:
            raise UsageError(f"{self.name}: {', '.join(self.methods)} cannot answer {self.task.name}")
        return Answered(self.name, lists, clips, probability)

    def _rows(self, listed: RunList) -> tuple[list[BenchQuery], Any]:
        """The queries of a list and the system's answers; None if it has no method for the list."""
        depth, system = self.task.depth, self.system
        if listed == "VR":
            if "rank_videos" not in self.methods:
                return [], None
            return self._all, self._timed(lambda: system.rank_videos(self._all, depth), len(self._all))
        queries = self._given if listed == "SVMR" else self._all
        way = "ground" if listed == "SVMR" and "ground" in self.methods else "search"
        if way in self.methods:
            return queries, self._timed(lambda: getattr(system, way)(queries, depth), len(queries))
        if listed == "VCMR" and self._pooled and "ground" in self.methods:
            return queries, self._timed(lambda: [self._in_pool(query) for query in queries], len(queries))
        return [], None

    def _in_pool(self, query: BenchQuery) -> list[Any]:
        """The rows of all videos of a pool, for a system that answers only in a given video."""
        each = [replace(query, videos=(video,)) for video in query.videos]
        answers = lists_of(each, self.system.ground(each, self.task.depth), self.name)
        return [row for rows in answers for row in rows]

    def _timed(self, ask: Any, queries: int) -> Any:
        with measured() as spent:
            answers = ask()
        if not self.queried:
            self.spent, self.queried = spent, queries
        return answers


def _clusters(annotations: Annotations) -> dict[str, int]:
    """Query id -> the number of its video; unanswerable ones have that of the given video, or their own."""
    codes = {video.id: number for number, video in enumerate(annotations.videos)}
    unanswerable = annotations.given_videos.items() - annotations.first_videos.items()
    return clusters_of(annotations) | {query_id: codes[video] for query_id, video in unanswerable}


def _honoured(
    metrics: Sequence[Metric], answered: Answered, protocol: Protocol, facts: OfSystem, task: Task
) -> tuple[Metric, ...]:
    """The metrics that the answers support. Raises UsageError if they support no metric."""
    honoured = tuple(metric for metric in metrics if _is_honoured(metric, answered, protocol))
    if not honoured:
        raise UsageError(
            f"{facts.name}: has {', '.join(facts.methods)}, which can honour no metric of {task.name}: "
            f"{', '.join(metric.name for metric in metrics)}"
        )
    return honoured


def _is_honoured(metric: Metric, answered: Answered, protocol: Protocol) -> bool:
    if metric.task == "HL":
        return bool(answered.clip_scores)
    if metric.task == "VCMR" and protocol.given_video and "SVMR" in answered.lists:
        return True
    return metric.task in answered.answered


def _rejection(
    evaluation: Evaluation,
    annotations: Annotations,
    answered: Answered,
    protocol: Protocol,
    clusters: dict[str, int],
) -> OfRejection | None:
    """The measures of rejection; None if all queries have a right moment and some answer has no probability.

    They cover the evaluated queries and those without a judgement.
    """
    judged = annotations.first_videos.keys()
    listed = next(iter(answered.lists))
    left_out = judged - set(evaluation.query_ids)
    ids = [query.id for query in annotations.queries if query.id not in left_out]
    if listed == "SVMR":
        given = annotations.given_videos
        ids = [query_id for query_id in ids if query_id in given]
    has_answer = np.array([query_id in judged for query_id in ids], bool)
    block = answered.lists[listed]
    starts = block.offsets[:-1].tolist()
    first = dict(zip(block.query_ids, block.score[starts].tolist(), strict=True))
    stated = bool(first) and all(query_id in answered.probability for query_id in first)
    if not has_answer.all() or stated:
        probabilities = np.array([answered.probability.get(query_id, 0.0) for query_id in ids])
        return rejection_of(
            np.array([first.get(query_id, -np.inf) for query_id in ids]),
            probabilities if stated else None,
            has_answer,
            _right(ids, annotations, answered, listed, protocol),
            np.array([clusters[query_id] for query_id in ids], np.int64),
        )
    return None


def _right(
    ids: Sequence[str], annotations: Annotations, answered: Answered, listed: RunList, protocol: Protocol
) -> NDArray[np.bool_]:
    """(Q,) whether the first row of each query is right."""
    name = "VR R@1" if listed == "VR" else f"{'SVMR ' if listed == 'SVMR' else ''}R@1,IoU={RIGHT_IOU}"
    values = evaluate(annotations, answered, [name], protocol=protocol)
    right = dict(zip(values.query_ids, values.values[:, 0].tolist(), strict=True))
    return np.array([right.get(query_id, 0.0) == 1.0 for query_id in ids], bool)


def _unjudged(evaluation: Evaluation) -> dict[str, float] | None:
    """Metric -> the share of unjudged ones among the answers that it reads; None without pools."""
    if evaluation.unjudged is None:
        return None
    return {
        name: numbers["unjudged"] / numbers["answers"] if numbers["answers"] else 0.0
        for name, numbers in evaluation.unjudged.means(evaluation.metrics).items()
    }


def _of_task(task: Task, material: Material, evaluation: Evaluation) -> OfTask:
    return OfTask(
        task=task.label,
        protocol=evaluation.protocol,
        fingerprint=fingerprint_of(*material.files),
        headline=list(task.headline),
        files=[path.name for path in material.files],
        **{name: getattr(task, name) for name in ("title", "split", "revision", "licence", "how")},
    )


def _rows(block: RunBlock) -> dict[str, list[tuple[str, float | None, float | None, float]]]:
    return {
        query_id: [
            (video, None if start != start else start, None if end != end else end, score)
            for video, start, end, score in rows
        ]
        for query_id, rows in rows_of(block)
    }


def default_out(system: OfSystem, task: Task) -> Path:
    """The default place of a result: results/NAME/REVISION/TASK.json, with odd characters as hyphens."""
    parts = (system.name, system.revision, task.name)
    folder, revision, name = (re.sub(r"[^\w.+-]+", "-", part).strip(".-") or "-" for part in parts)
    return Path("results", folder, revision, f"{name}.json")
