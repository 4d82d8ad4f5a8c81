"""The way of a number: judgements and a run -> metrics per query -> `Evaluation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from whenabouts import formats
from whenabouts.evaluation import highlights
from whenabouts.evaluation.matching import Rows, rows_of
from whenabouts.evaluation.metrics import Metric
from whenabouts.evaluation.protocols import Protocol, find_protocol, metrics_of, protocol_for
from whenabouts.evaluation.result import Evaluation
from whenabouts.evaluation.scoring import fill, not_applicable
from whenabouts.evaluation.truth import Truth, truth_of
from whenabouts.formats.annotations import Annotations, Floats, Indices
from whenabouts.formats.files import line_containing
from whenabouts.formats.runs import MemoryRun, RunBlock, RunSource, Task
from whenabouts.types import Qrels, Run, UsageError

# Fewer known queries than this share of a run's: it is a run of something else.
_LEAST_KNOWN = 0.01


def evaluate(
    truth: Annotations | Qrels | str | Path,
    run: RunSource | Run | str | Path,
    metrics: Sequence[str] = (),
    *,
    protocol: Protocol | str | None = None,
    strict: bool = False,
) -> Evaluation:
    """Values per query and their means of a run against judgements.

    `truth` and `run` are files in any format of `whenabouts.formats`, what its readers gave, or plain
    mappings: query id -> judgements, query id -> scored moments. `metrics` are names such as "R@10,IoU=0.5",
    "nDCG@20,IoU=0.7", "mAP" or "VR R@100"; none means the protocol's own. Without a protocol the judgements
    choose (`protocol_for`). With `strict`, a query or a video that the judgements do not name is an error.

    >>> from whenabouts.types import Judgement, Moment, ScoredMoment
    >>> qrels = {"q": [Judgement(Moment("v", 0.0, 10.0))]}
    >>> answer = {"q": [ScoredMoment(Moment("v", 0.0, 8.0), score=1.0)]}
    >>> evaluate(qrels, answer, ["R@1,IoU=0.7", "mIoU"]).means()
    {'R@1,IoU=0.7': 1.0, 'mIoU': 0.8}

    Raises FormatError for files, UsageError for metrics, protocols and runs that do not fit.
    """
    chosen = find_protocol(protocol) if isinstance(protocol, str) else protocol
    annotations = _annotations(truth, as_released=chosen is not None and chosen.truth_as_released)
    chosen = chosen or protocol_for(annotations)
    source = _source(run)
    asked = metrics_of(chosen, metrics)
    if not metrics:
        asked = tuple(metric for metric in asked if _can_tell(metric, annotations, source))
    return _evaluated(annotations, source, asked, chosen, strict)


def _annotations(truth: Annotations | Qrels | str | Path, *, as_released: bool) -> Annotations:
    if isinstance(truth, Annotations):
        return truth
    if isinstance(truth, str | Path):
        return formats.read_annotations(truth, as_released=as_released)
    return Annotations.from_qrels(truth)


def _source(run: RunSource | Run | str | Path) -> RunSource:
    if isinstance(run, str | Path):
        return formats.open_run(run)
    if isinstance(run, Mapping):
        return MemoryRun.from_run(run)
    return run


def _can_tell(metric: Metric, annotations: Annotations, source: RunSource) -> bool:
    """Whether a metric of the protocol can be told from what is there; one that was asked for must be."""
    if metric.task == "HL":
        first = annotations.queries[0].metadata if annotations.queries else {}
        return "saliency_scores" in first and bool(_saliency(source))
    # A plain list of moments tells all three; a submission of several lists has what its author handed in.
    return source.tasks == ("VCMR",) or metric.task in source.tasks


def _saliency(source: RunSource) -> Mapping[str, Floats]:
    told = getattr(source, "saliency", None)
    return cast(Mapping[str, Floats], told()) if told is not None else {}


@dataclass
class _Tally:
    """What is counted while a run is read."""

    values: Floats
    answered: NDArray[np.bool_]
    unknown_queries: int = 0
    known_queries: int = 0
    unknown_videos: int = 0
    examples: list[str] = field(default_factory=list)


def _evaluated(
    annotations: Annotations, source: RunSource, asked: tuple[Metric, ...], protocol: Protocol, strict: bool
) -> Evaluation:
    truth = truth_of(annotations, protocol)
    queries = len(truth.query_ids)
    tally = _Tally(np.zeros((queries, len(asked))), np.zeros(queries, bool))
    for number, (task, columns) in enumerate(_by_list(asked, source).items()):
        seen = np.zeros(queries, bool)
        for block in source.blocks(task):
            rows = _known_rows(block, truth, source, seen, strict, tally if number == 0 else None)
            fill(tally.values, rows, truth, [(c, asked[c]) for c in columns], source, protocol)
        tally.answered |= seen
    not_applicable(tally.values, asked, truth)
    lit = [column for column, metric in enumerate(asked) if metric.task == "HL"]
    if lit:
        _highlight(tally, annotations, truth, source, asked, lit)
    _check_same_data(tally, source, annotations)
    return _result(annotations, source, asked, protocol, truth, tally)


def _by_list(asked: tuple[Metric, ...], source: RunSource) -> dict[Task, list[int]]:
    """Which list of the run is read for which metrics: its own where there is one, else the moments."""
    lists: dict[Task, list[int]] = {}
    for column, metric in enumerate(asked):
        if metric.task == "HL":
            continue
        if metric.task not in source.tasks and "VCMR" not in source.tasks:
            held = ", ".join(source.tasks)
            raise UsageError(f"{source.name}: it holds {held} alone, which cannot tell {metric.name!r}")
        task = metric.task if metric.task in source.tasks else "VCMR"
        lists.setdefault(task, []).append(column)
    return lists


def _known_rows(
    block: RunBlock,
    truth: Truth,
    source: RunSource,
    seen: NDArray[np.bool_],
    strict: bool,
    tally: _Tally | None,
) -> Rows:
    """The rows of queries that count; notes what is unknown, and refuses a query that comes twice."""
    codes = np.array([truth.query_codes.get(query_id, -1) for query_id in block.query_ids], np.int64)
    unknown = np.flatnonzero(codes < 0)
    if strict and len(unknown):
        name = block.query_ids[unknown[0]]
        raise UsageError(
            f"{_place(source, name)}: query {name!r} is not judged; without strict it is counted"
        )
    known = codes[codes >= 0]
    twice = known[seen[known]] if len(np.unique(known)) == len(known) else known[_repeated(known)]
    if len(twice):
        raise UsageError(
            f"{source.name}: query {truth.query_ids[twice[0]]!r} is answered twice; one list for each query"
        )
    seen[known] = True
    rows = rows_of(block, truth)
    strange = rows.video >= len(truth.video_codes)
    if strict and strange.any():
        name = block.video_ids[int(rows.video[strange][0]) - len(truth.video_codes)]
        raise UsageError(
            f"{_place(source, name)}: video {name!r} is not named by the judgements; "
            "without strict it is counted"
        )
    if tally is not None:
        tally.unknown_queries += len(unknown)
        tally.known_queries += len(known)
        tally.unknown_videos += int(strange.sum())
        tally.examples.extend(block.query_ids[number] for number in unknown[: 1 - len(tally.examples)])
    return rows


def _place(source: RunSource, name: str) -> str:
    """Where a run names something: its file, and the line where it has lines."""
    line = line_containing(Path(source.name), name)
    return source.name if line is None else f"{source.name}, line {line}"


def _repeated(codes: Indices) -> NDArray[np.bool_]:
    repeated = np.ones(len(codes), bool)
    repeated[np.unique(codes, return_index=True)[1]] = False
    return repeated


def _highlight(
    tally: _Tally,
    annotations: Annotations,
    truth: Truth,
    source: RunSource,
    asked: tuple[Metric, ...],
    columns: list[int],
) -> None:
    saliency = _saliency(source)
    if not saliency or any("saliency_scores" not in query.metadata for query in annotations.queries):
        raise UsageError(
            f"{source.name}: HL metrics need saliency scores, both judged and predicted (qvhighlights)"
        )
    seconds = [annotations.videos[number].duration or 0.0 for number in truth.given_video.tolist()]
    told = highlights.highlights_of(annotations.queries, seconds, saliency)
    for column in columns:
        metric = asked[column]
        measure = highlights.hit_at_one if metric.measure == "Hit" else highlights.average_precision
        tally.values[:, column] = measure(told, metric.saliency or 0)
        tally.values[[query.id not in saliency for query in annotations.queries], column] = 0.0
    tally.answered |= np.array([query.id in saliency for query in annotations.queries])


def _check_same_data(tally: _Tally, source: RunSource, annotations: Annotations) -> None:
    told = tally.known_queries + tally.unknown_queries
    if not told and not tally.answered.any():
        raise UsageError(f"{source.name}: the run holds no answers")
    if told and tally.known_queries < _LEAST_KNOWN * told:
        own = annotations.queries[0].id if annotations.queries else ""
        raise UsageError(
            f"{source.name}: {tally.known_queries} of its {told} queries are judged in {annotations.name}: "
            "this is a run of another data set "
            f"(its ids look like {tally.examples[0]!r}, the judged ones like {own!r})"
        )


def _result(
    annotations: Annotations,
    source: RunSource,
    asked: tuple[Metric, ...],
    protocol: Protocol,
    truth: Truth,
    tally: _Tally,
) -> Evaluation:
    lost = truth.counts & ~tally.answered
    kept = truth.counts & tally.answered if protocol.missing == "left out" else truth.counts
    kept_numbers = np.flatnonzero(kept)
    kinds = [str(annotations.queries[number].metadata.get("type", "")) for number in kept_numbers.tolist()]
    return Evaluation(
        protocol=protocol.label,
        run=source.name,
        metrics=tuple(metric.name for metric in asked),
        query_ids=tuple(truth.query_ids[number] for number in kept_numbers.tolist()),
        values=tally.values[kept_numbers],
        missing=tuple(truth.query_ids[number] for number in np.flatnonzero(lost).tolist()),
        unknown_queries=tally.unknown_queries,
        unknown_videos=tally.unknown_videos,
        left_out=truth.left_out,
        groups={"type": np.array(kinds)} if kinds and all(kinds) else {},
        notes=(
            *protocol.notes,
            *(f"judgements: {times:,} {what}" for what, times in annotations.counts.items()),
        ),
    )


def evaluate_files(
    truth: str | Path,
    run: str | Path,
    protocol: str | None = None,
    metrics: Sequence[str] = (),
    *,
    truth_format: str | None = None,
    run_format: str | None = None,
    as_released: bool = False,
    strict: bool = False,
) -> Evaluation:
    """As `evaluate`, with formats named; what the command line calls."""
    chosen = None if protocol is None else find_protocol(protocol, as_released=as_released)
    wrong = chosen is not None and chosen.truth_as_released
    annotations = formats.read_annotations(truth, truth_format, as_released=wrong)
    source = formats.open_run(run, run_format)
    return evaluate(annotations, source, metrics, protocol=chosen, strict=strict)
