"""Candidates for judging: the moments with the most similar captions, or the top answers of several runs.

Paper 004, section 3.2, judges the 20 moments whose captions are most similar to the query, and 20 more if the
last five are still relevant. A user's videos have no captions; there, the top answers of several systems are
pooled to a depth, as in TREC.

Tasks do not reveal their run or rank: the tasks of a query are shuffled.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from whenabouts.encoders.protocol import TextEncoder
from whenabouts.types import Moment, Query, UsageError, Video, number_of
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import RunSource, moments_of
from whenabouts_bench.judging.tasks import RANDOM, Source, Task
from whenabouts_bench.relevance.ranked import rank_moments

_log = logging.getLogger("whenabouts")

BATCH, BATCHES = 20, 2
DEPTH = 10
SAME = 0.7
"""Answers with at least this IoU are one task: the strictest threshold of the ranked measures."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A moment to judge for a query, with its batch and origin."""

    query: Query
    moment: Moment
    source: Source
    batch: int = 1


def by_caption(
    annotations: Annotations,
    queries: Sequence[Query],
    encoder: TextEncoder,
    batch: int = BATCH,
    batches: int = BATCHES,
    *,
    random: int = 0,
    seed: int = 0,
) -> list[Candidate]:
    """The `batch * batches` moments with the nearest captions, and in the first batch `random` others.

    Paper 004, appendix B.3, judges the best 60 and 60 random moments of 10 queries. Raises UsageError for an
    unknown query.
    """
    if batch < 1 or batches < 1:
        raise UsageError(f"{batches} batches of {batch}: give 1 or more of both")
    if random < 0:
        raise UsageError(f"--random {random}: give 0 or more")
    annotated = {query.id: query for query in annotations.queries}
    for query in queries:
        if query.id not in annotated:
            raise UsageError(f"{annotations.name}: has no query {query.id!r}; name the set it was drawn from")
    texts = [annotated[query.id].text for query in queries]
    best = batch * batches
    ranked = rank_moments(annotations, encoder, len(annotations.query) if random else best, asked_in=texts)
    chosen, draw = {query.id: query for query in queries}, np.random.default_rng(seed)
    candidates = []
    first = np.flatnonzero(np.diff(ranked.query, prepend=-1))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(ranked.query)], strict=True):
        judged = chosen.get(annotations.queries[int(ranked.query[begin])].id)
        if judged is None:
            continue
        others = draw.permutation(np.arange(min(begin + best, end), end))[:random]
        for row in [*range(begin, min(begin + best, end)), *sorted(others.tolist())]:
            rank, place = row - begin + 1, int(ranked.moment[row])
            video = annotations.videos[int(annotations.video[place])].id
            moment = Moment(video, float(annotations.start[place]), float(annotations.end[place]))
            caption = annotations.queries[int(annotations.query[place])].text
            kind = "captions" if rank <= best else RANDOM
            source = Source({kind: rank}, round(float(ranked.similarity[row]), 6), caption)
            number = (rank - 1) // batch + 1 if rank <= best else 1
            candidates.append(Candidate(judged, moment, source, number))
    return candidates


def by_runs(
    runs: Sequence[RunSource], queries: Sequence[Query], depth: int = DEPTH, same: float = SAME
) -> list[Candidate]:
    """The top `depth` answers of each run to each query; answers whose IoU is at least `same` are merged.

    The best-ranked of merged answers is the candidate (ties: the run named first). Answers to other queries
    are skipped with a warning, because the line numbers of a text file fit any other file. Raises UsageError
    if a run answers none of the queries.
    """
    if depth < 1:
        raise UsageError(f"--depth {depth}: give 1 or more")
    if not 0 < same <= 1:
        raise UsageError(f"--iou {same}: give more than 0, at most 1")
    ids = {query.id for query in queries}
    answers: dict[str, list[tuple[int, int, Moment]]] = {query.id: [] for query in queries}
    for number, run in enumerate(runs):
        others, answered = set[str](), False
        for query_id, moments in moments_of(run):
            if query_id in ids:
                best = enumerate(moments[:depth], 1)
                answers[query_id] += [(rank, number, scored.moment) for rank, scored in best]
                answered = True
            else:
                others.add(query_id)
        if not answered:
            raise UsageError(f"{run.name}: answers none of the {number_of(len(queries), 'query')}")
        if others:
            _log.warning(
                "%s: also answers %s that --queries lacks; if it is a run of another file, the ids mean "
                "other queries",
                run.name,
                number_of(len(others), "query"),
            )
    names = names_of_runs([run.name for run in runs])
    return [c for query in queries for c in _merged(query, sorted(answers[query.id]), names, same)]


def _merged(
    query: Query, answers: Iterable[tuple[int, int, Moment]], names: Sequence[str], same: float
) -> list[Candidate]:
    merged: list[tuple[Moment, dict[str, int]]] = []
    for rank, run, moment in answers:
        ranks = next((ranks for other, ranks in merged if other.iou(moment) >= same), None)
        if ranks is None:
            merged.append((moment, ranks := {}))
        ranks.setdefault(names[run], rank)
    return [Candidate(query, moment, Source(ranks)) for moment, ranks in merged]


def not_judged(candidates: Sequence[Candidate], judged: Annotations, same: float = SAME) -> list[Candidate]:
    """The candidates whose IoU with every moment of an earlier round is below `same`.

    Raises UsageError if the earlier round has another text under a query's id.
    """
    texts = {query.id: query.text for query in judged.queries}
    for query in {candidate.query.id: candidate.query for candidate in candidates}.values():
        if (earlier := texts.get(query.id)) and query.text and earlier != query.text:
            raise UsageError(
                f"{judged.name}: query {query.id!r} is {earlier!r} there, and {query.text!r} here; give the "
                "queries of the earlier round, new ones after them"
            )
    return [
        candidate
        for candidate in candidates
        if all(j.moment.iou(candidate.moment) < same for j in judged.qrels.get(candidate.query.id, ()))
    ]


def names_of_runs(paths: Sequence[str]) -> list[str]:
    """File names of runs, or their paths if two names are equal."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def tasks_of(
    candidates: Sequence[Candidate], videos: Mapping[str, Video], seed: int = 0
) -> tuple[list[Task], dict[str, Source]]:
    """(tasks in the order of presentation, task id -> its origin).

    First batches come first; tasks of one query and batch stay together, shuffled by `seed`. Ends beyond a
    video's duration are clipped. Raises UsageError for a moment that starts after its video ends.
    """
    queries = {query_id: n for n, query_id in enumerate(dict.fromkeys(c.query.id for c in candidates))}
    drawn = np.random.default_rng(seed).permutation(len(candidates)).tolist()
    order = sorted(
        range(len(candidates)),
        key=lambda place: (candidates[place].batch, queries[candidates[place].query.id], drawn[place]),
    )
    tasks: list[Task] = []
    sources: dict[str, Source] = {}
    digits = len(str(len(candidates)))
    for number, place in enumerate(order, 1):
        candidate = candidates[place]
        moment = candidate.moment
        duration = videos[moment.video_id].duration if moment.video_id in videos else None
        if duration is not None and moment.start >= duration:
            raise UsageError(
                f"query {candidate.query.id!r}: {moment.start:g}-{moment.end:g} s is after the end of video "
                f"{moment.video_id!r}, {duration:g} s; is it the recording that was searched?"
            )
        if duration is not None and moment.end > duration:
            moment = replace(moment, end=duration)
        task_id = f"t{number:0{digits}}"
        query = candidate.query
        tasks.append(Task(task_id, query.id, query.text, moment, duration, candidate.batch))
        sources[task_id] = candidate.source
    return tasks, sources
