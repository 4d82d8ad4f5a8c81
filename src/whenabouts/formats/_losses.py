"""What a format loses of judgements and runs: counted, and logged as warnings.

A format's `KEEPS` names the parts that come back when a file of it is read again; all else is counted here.
What a format changes in a part that it keeps (rounds, cuts, renames), it counts itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.formats.annotations import Annotations
from whenabouts.formats.runs import (
    RunBlock,
    RunSource,
    Task,
    best_first,
    falling_scores,
    query_of_rows,
)

_log = logging.getLogger("whenabouts")

NO_TIMES = "videos without a moment are written with the times 0 and 0: they keep their rank"
"""What formats log in which a row must have times."""


PARTS = {
    "texts": "texts of queries",
    "durations": "durations of videos",
    "grades": "grades",
    "pools": "pools",
    "given videos": "queries without judgements",
    "unjudged queries": "queries without judgements",
    "unjudged videos": "videos without judgements",
    "query metadata": "queries' values of",
    "video metadata": "videos' values of",
    "saliency": "queries' predicted saliency scores",
    "lists": "lists",
}
"""Part -> its name in a message. "query metadata KEY" in KEEPS is one key of a part.

`given videos` are those of queries without judgements whose pool is that one video; `unjudged queries` have
none. `lists` and `saliency` are parts of runs.
"""


@dataclass
class Losses:
    """What a format cannot hold of a run or of judgements; logged once a file is written."""

    path: Path
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, times: int = 1) -> None:
        """Note that something was lost `times` times."""
        if times:
            self.counts[what] = self.counts.get(what, 0) + times

    def log(self) -> None:
        """Write a warning for each loss."""
        for what, times in self.counts.items():
            _log.warning("%s: %d %s", self.path, times, what)


def keeps_of(module: Any, path: Path) -> frozenset[str]:
    """What a format keeps in a file of that path, or in a folder."""
    kept: frozenset[str] = getattr(module, "KEEPS_IN_FOLDER", module.KEEPS) if path.is_dir() else module.KEEPS
    return kept


def without_grades(annotations: Annotations, keeps: frozenset[str]) -> Annotations:
    """What a format can say: one without grades would make positives of judgements of grade 0."""
    positive = annotations.relevance > 0
    if "grades" in keeps or positive.all():
        return annotations
    names = ("query", "video", "start", "end", "relevance")
    return replace(annotations, **{name: getattr(annotations, name)[positive] for name in names})


def losses_of_annotations(annotations: Annotations, module: Any, path: Path) -> Losses:
    """What the format does not keep of the judgements."""
    keeps, losses = keeps_of(module, path), Losses(path)
    in_folder: frozenset[str] = getattr(module, "KEEPS_IN_FOLDER", frozenset())
    if "grades" not in keeps:
        losses.count("judgements of grade 0 are left out", int((annotations.relevance == 0).sum()))
    for part, key, count in _held(without_grades(annotations, keeps)):
        if not keeps & {part, f"{part} {key}"}:
            what = f"{PARTS[part]} {key!r}" if key else PARTS[part]
            hint = " (name a folder to keep them)" if part in in_folder else ""
            losses.count(f"{what} are left out{hint}", count)
    return losses


def _held(annotations: Annotations) -> Iterator[tuple[str, str, int]]:
    """(part, key of metadata or "", how often) of what judgements hold."""
    queries, videos = annotations.queries, annotations.videos
    judged = {queries[number].id for number in np.unique(annotations.query).tolist()}
    silent = [query.id for query in queries if query.id not in judged]
    given = {query_id for query_id in silent if len(annotations.pools.get(query_id, ())) == 1}
    seen = {videos[number].id for number in np.unique(annotations.video).tolist()}
    seen |= {annotations.pools[query_id][0] for query_id in given}
    yield "texts", "", sum(bool(query.text) for query in queries)
    yield "durations", "", sum(video.duration is not None for video in videos)
    yield "grades", "", int((annotations.relevance != 1).sum())
    yield "pools", "", sum(query_id not in given for query_id in annotations.pools)
    yield "given videos", "", len(given)
    yield "unjudged queries", "", len(silent) - len(given)
    yield "unjudged videos", "", sum(video.id not in seen for video in videos)
    for part, items in (("query metadata", queries), ("video metadata", videos)):
        for key, count in Counter(key for item in items for key in item.metadata).items():
            yield part, key, count


def losses_of_run(source: RunSource, module: Any, path: Path) -> Losses:
    """What the format does not keep of a run; which list is written where it keeps one, it tells itself."""
    losses = Losses(path)
    if "saliency" not in module.KEEPS and hasattr(source, "saliency"):
        losses.count(f"{PARTS['saliency']} are left out", len(source.saliency()))
    return losses


def in_order_of_scores(block: RunBlock, losses: Losses) -> RunBlock:
    """The same rows, with scores that give their order back when they are sorted by score, then moment.

    Queries whose scores contradict the order (or tie against it) get the scores n .. 1.
    """
    ranked = best_first(block)
    if ranked is block:
        return block
    moved = (ranked.video != block.video) | (ranked.score != block.score)
    for old, new in ((block.start, ranked.start), (block.end, ranked.end)):
        moved |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    query = query_of_rows(block)
    queries = np.unique(query[moved])
    if not len(queries):
        return block
    what = "queries had scores that contradict their order; they are written with the scores n .. 1"
    losses.count(what, len(queries))
    again = np.isin(query, queries)
    return replace(block, score=np.where(again, falling_scores(np.diff(block.offsets)), block.score))


def without_empty_spans(block: RunBlock, losses: Losses) -> RunBlock:
    """The same rows; a span without length is none, and its row keeps video and rank."""
    empty = block.start >= block.end
    count = int(empty.sum())
    if not count:
        return block
    losses.count("spans without length are written as videos without a moment: they keep their rank", count)
    return replace(block, start=np.where(empty, np.nan, block.start), end=np.where(empty, np.nan, block.end))


def list_to_write(
    source: RunSource, losses: Losses, preferred: tuple[Task, ...] = ("VCMR", "SVMR", "VR")
) -> tuple[Task, Iterator[RunBlock]]:
    """The one list that is written where a format holds one (the first of `wanted`), and its blocks."""
    task = next(task for task in preferred if task in source.tasks)
    for other in source.tasks:
        if other != task:
            losses.count(f"list left out: {other} (this format holds one list, and {task} is written)")
    return task, source.blocks(task)
