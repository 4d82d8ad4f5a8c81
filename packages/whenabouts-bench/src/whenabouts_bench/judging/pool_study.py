"""Study the pool of a judged collection: what each run gave to it, and how many queries a comparison needs.

- **A run without its own moments**: its value when the moments that no other run gave are unjudged, as they
  would be for a run that was made after the pool (Zobel, "How Reliable Are the Results of Large-Scale
  Information Retrieval Experiments?", SIGIR 1998), and Kendall's tau-b of the orders of runs by these and by
  the usual values.
- **Holes**: the share of unjudged answers at each rank.
- **Depth**: the order of the runs by the judgements of a shallower pool.
- **Queries**: how alike two separate sets of queries order the runs (Voorhees and Buckley, "The Effect of
  Topic Set Size on Retrieval Experiment Error", SIGIR 2002), and how many queries a paired test at 5 % needs
  to find a difference with a chance of 80 %: (1.960 + 0.842)^2 s^2 / difference^2, where s is the standard
  deviation of the differences by query (Sakai, "Topic set size design", Information Retrieval Journal 19,
  2016, by the normal distribution).

Intervals (95 %) come from a bootstrap over queries, those of separate sets from random sets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.types import UsageError, number_of
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.metrics import parse_metric
from whenabouts_bench.formats.annotations import Annotations, Floats
from whenabouts_bench.formats.runs import RunSource
from whenabouts_bench.judging.agreement import Interval, in_words, intervals_of
from whenabouts_bench.judging.model_study import kendall_tau, kendall_taus
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.tasks import RANDOM, Source, Task

DIFFERENCE = 0.03
"""The difference of two runs for which the number of queries is given."""
_NEEDED = (1.959963985 + 0.841621234) ** 2
_RANKS = 10
_DEPTHS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_SETS = 500
_BLOCK_CELLS = 1 << 20


@dataclass(frozen=True)
class Contribution:
    """A run in the pool.

    `own` moments were given by no other run, `own_right` of them are right. `drop` is `value` - `without`
    with its interval. `holes` are the shares of unjudged answers at rank 1, 2, ...; None without answers.
    """

    run: str
    value: float
    without: float
    drop: Interval | None
    own: int
    own_right: int
    holes: tuple[float | None, ...]


@dataclass(frozen=True)
class Pair:
    """Two runs: their difference, and the `queries` needed to find one of `DIFFERENCE`; None if s is 0.

    `detectable` is the smallest difference that the queries at hand find with a chance of 80 %.
    """

    first: str
    second: str
    difference: float
    detectable: float
    queries: int | None
    interval: Interval | None


@dataclass(frozen=True)
class Depth:
    """The pool of each run's best `depth` answers: its judgements, and tau with the order by all of them."""

    depth: int
    judgements: int
    tau: float | None


@dataclass(frozen=True)
class Halves:
    """Tau of the orders by two separate sets of `queries` queries: mean and 95 % of many random pairs."""

    queries: int
    tau: float
    interval: Interval


@dataclass(frozen=True)
class PoolStudy:
    """A judged pool by one metric; `tau` is of the order of runs without their own moments."""

    metric: str
    queries: int
    contributions: tuple[Contribution, ...]
    tau: float | None
    depths: tuple[Depth, ...]
    halves: tuple[Halves, ...]
    pairs: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        yield f"the pool, by {self.metric} over {number_of(self.queries, 'query', 'queries')}:"
        for each in self.contributions:
            holes = " ".join("-" if share is None else f"{100 * share:.0f}" for share in each.holes)
            yield (
                f"  {each.run}: {100 * each.value:.1f}; {100 * each.without:.1f} without the "
                f"{number_of(each.own, 'moment')} that it alone gave ({each.own_right:,} right)"
                f"{_between(each.drop, 'drop', 100)}; % unjudged by rank: {holes}"
            )
        yield f"  Kendall's tau of the order of runs without their own moments: {in_words(self.tau)}"
        for depth in self.depths:
            judgements = number_of(depth.judgements, "judgement")
            yield f"  a pool of depth {depth.depth} ({judgements}): tau {in_words(depth.tau)}"
        for half in self.halves:
            queries = number_of(half.queries, "query", "queries")
            yield f"  two separate sets of {queries}: tau {half.tau:.2f}{_between(half.interval, '95 %')}"
        for pair in self.pairs:
            needed = "-" if pair.queries is None else f"{pair.queries:,}{_between(pair.interval, '95 %')}"
            yield (
                f"  {pair.first} - {pair.second}: {100 * pair.difference:+.1f}; these queries "
                f"find differences from {100 * pair.detectable:.1f} points on; to find {100 * DIFFERENCE:g} "
                f"points, queries needed: {needed}"
            )


def _between(interval: Interval | None, what: str, times: float = 1) -> str:
    if interval is None:
        return ""
    low, high = (
        f"{end:,.0f}" if end > 10 else f"{times * end:.{1 if times > 1 else 2}f}" for end in interval
    )
    return f" ({what} {low} to {high})"


def pool_study(judged: Judged, runs: Mapping[str, RunSource], metric: str) -> PoolStudy:
    """The study of the pool that `runs` were judged with.

    A run's name in the task set is its name here, its path or the name of its file. Raises UsageError for
    fewer than two runs, for a run that the task set does not know, and whatever `evaluate` raises.
    """
    settled = [(task, final) for task, final in judged.outcomes if final.grade is not None]
    sources = judged.task_set.sources()
    ranks = [dict(sources.get(task.id, Source()).ranks) for task, _ in settled]
    pooled = {name for each in ranks for name in each} - {RANDOM}
    if len(runs) < 2:
        raise UsageError("the study of a pool needs two or more of its runs: give --run again")
    runs = _by_pooled_name(runs, pooled)
    if unknown := sorted(runs.keys() - pooled):
        raise UsageError(
            f"run {unknown[0]!r} gave no judged moment to {judged.task_set.folder}; it was pooled from "
            f"{', '.join(map(repr, sorted(pooled))) or 'no runs'}"
        )

    def truth_of(kept: Sequence[bool]) -> Annotations:
        outcomes = [each for each, stays in zip(settled, kept, strict=True) if stays]
        return replace(judged, outcomes=outcomes).annotations

    def values_of(kept: Sequence[bool], some: Mapping[str, RunSource]) -> Floats:
        return _aligned(truth_of(kept), some, metric, row)

    whole = truth_of([True] * len(settled))
    queries, values = _values(whole, runs, metric)
    row = {query_id: number for number, query_id in enumerate(queries)}
    without = np.concatenate(
        [values_of([given.keys() != {name} for given in ranks], {name: run}) for name, run in runs.items()]
    )
    least = parse_metric(metric).grade or 0.5
    means = values.mean(axis=1).tolist()
    return PoolStudy(
        metric=metric,
        queries=len(queries),
        contributions=tuple(
            _contribution(name, run, whole, settled, ranks, least, values[n], without[n])
            for n, (name, run) in enumerate(runs.items())
        ),
        tau=kendall_tau(means, without.mean(axis=1).tolist()),
        depths=tuple(
            Depth(depth, sum(kept), kendall_tau(means, values_of(kept, runs).mean(axis=1).tolist()))
            for depth in _depths(ranks)
            for kept in [[_best(given) <= depth for given in ranks]]
        ),
        halves=tuple(_halves(values)),
        pairs=tuple(_pairs(list(runs), values)),
    )


def _by_pooled_name(runs: Mapping[str, RunSource], pooled: Collection[str]) -> dict[str, RunSource]:
    """The runs by their names in the pool; a run that is not in it keeps its name."""
    named: dict[str, RunSource] = {}
    for name, run in runs.items():
        pooled_name = next((n for n in (name, run.name, Path(run.name).name) if n in pooled), name)
        named[name if pooled_name in named else pooled_name] = run
    return named


def _best(ranks: Mapping[str, int]) -> float:
    """The best rank that a run gave a moment; infinite for moments that were drawn at random."""
    return min((rank for name, rank in ranks.items() if name != RANDOM), default=math.inf)


def _depths(ranks: Sequence[Mapping[str, int]]) -> list[int]:
    """Depths below that of the pool."""
    deepest = max((rank for each in ranks for name, rank in each.items() if name != RANDOM), default=0)
    return [depth for depth in _DEPTHS if depth < deepest]


def _values(truth: Annotations, runs: Mapping[str, RunSource], metric: str) -> tuple[tuple[str, ...], Floats]:
    """The queries that the metric applies to, and (R, Q) the values of each run."""
    evaluations = [evaluate(truth, run, [metric]) for run in runs.values()]
    values = np.stack([each.values[:, 0] for each in evaluations])
    applies = ~np.isnan(values).any(axis=0)
    if not applies.any():
        raise UsageError(f"{metric}: applies to no judged query")
    ids = evaluations[0].query_ids
    return tuple(ids[n] for n in np.flatnonzero(applies).tolist()), values[:, applies]


def _aligned(
    truth: Annotations, runs: Mapping[str, RunSource], metric: str, row: Mapping[str, int]
) -> Floats:
    """(R, Q) values by fewer judgements, a column for each query of the whole pool; 0 without judgements."""
    values = np.zeros((len(runs), len(row)))
    for number, run in enumerate(runs.values()):
        if len(truth.query):
            each = evaluate(truth, run, [metric])
            for query_id, value in zip(each.query_ids, np.nan_to_num(each.values[:, 0]), strict=True):
                if query_id in row:
                    values[number, row[query_id]] = value
    return values


def _contribution(
    name: str, run: RunSource, truth: Annotations, settled: Sequence[tuple[Task, Any]],
    ranks: Sequence[Mapping[str, int]], least: float, values: Floats, without: Floats,
) -> Contribution:  # fmt: skip
    own = [final.grade for (_, final), given in zip(settled, ranks, strict=True) if given.keys() == {name}]
    depths = [f"R@{rank},IoU=0.5" for rank in range(1, _RANKS + 1)]
    (drop,) = intervals_of((values - without)[:, None], lambda totals: totals[:, 0] / len(values))
    holes = evaluate(truth, run, depths).unjudged
    assert holes is not None  # a task set's judgements say that they come from a pool
    answers, unjudged = (
        np.diff(np.nansum(counts, axis=0), prepend=0) for counts in (holes.answers, holes.unjudged)
    )
    return Contribution(
        run=name,
        value=float(values.mean()),
        without=float(without.mean()),
        drop=drop,
        own=len(own),
        own_right=sum(grade >= least for grade in own),
        holes=tuple(
            holed / count if count else None
            for holed, count in zip(unjudged.tolist(), answers.tolist(), strict=True)
        ),
    )


def _pairs(names: Sequence[str], values: Floats) -> Iterator[Pair]:
    count = values.shape[1]

    def needed(totals: Floats) -> Floats:
        variance = (totals[:, 1] - totals[:, 0] ** 2 / count) / max(count - 1, 1)
        queries: Floats = _NEEDED * np.maximum(variance, 0) / DIFFERENCE**2
        return queries

    for first, second in combinations(range(len(names)), 2):
        differences = values[first] - values[second]
        rows = np.stack([differences, differences**2], axis=1)
        (queries,) = needed(rows.sum(axis=0, keepdims=True)).tolist()
        (interval,) = intervals_of(rows, needed) if queries else (None,)
        yield Pair(
            names[first], names[second],
            difference=float(differences.mean()),
            detectable=DIFFERENCE * math.sqrt(queries / count),
            queries=math.ceil(queries) or None,
            interval=interval,
        )  # fmt: skip


def _halves(values: Floats) -> Iterator[Halves]:
    """Tau between the orders by two separate random sets of queries, for an eighth, a quarter and a half."""
    count = values.shape[1]
    for size in sorted({count // 8, count // 4, count // 2} - {0}):
        rng, taus = np.random.default_rng(0), list[Floats]()
        for _ in range(0, _SETS, step := max(1, min(_SETS, _BLOCK_CELLS // count))):
            order = rng.permuted(np.broadcast_to(np.arange(count), (step, count)), axis=1)
            sums = [values[:, order[:, at : at + size]].sum(axis=2).T for at in (0, size)]
            taus.append(kendall_taus(*sums))
        drawn = np.concatenate(taus)[:_SETS]
        if defined := drawn[~np.isnan(drawn)].tolist():
            low, high = np.quantile(defined, (0.025, 0.975)).tolist()
            yield Halves(size, float(np.mean(defined)), (low, high))
