"""What judgements and runs hold that a format may not keep, and what is told of it.

A format's `KEEPS` names the parts that come back when a file of it is read again; the rest is counted here
and told. What a format changes in a part that it keeps (rounds, cuts, renames), it tells itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.formats._blocks import Losses
from whenabouts.formats.columns import Annotations, RunSource

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
"""Part -> how it is called in a message. "query metadata KEY" in KEEPS is one key of a part.

`given videos` are those of queries without judgements whose pool is that one video; `unjudged queries` have
none. `lists` and `saliency` are parts of runs.
"""


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
