"""Make sets of imprecise queries: pool several splits, merge equal captions, draw validation and test.

Paper 004, sections 3.1 and 3.2, draws 500 and 2,781 captions; all splits search the same videos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import write_atomically
from whenabouts.types import Query, UsageError, Video
from whenabouts_bench.formats import jsonl
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.json_records import Text, read_records
from whenabouts_bench.relevance.imprecise.making import Caption, json_line
from whenabouts_bench.relevance.units import comparable

_COLUMNS = ("query", "video", "start", "end", "relevance")
REVIEW = "review.jsonl"
"""The file of captions for manual review."""


def one_pool(parts: Sequence[Annotations], names: Sequence[str]) -> Annotations:
    """Several splits as one, with all videos and queries.

    An id that comes again gets its split's name as a prefix. Raises UsageError if two durations of a video
    differ by more than 1 s.
    """
    if len(parts) == 1:
        return parts[0]
    videos: dict[str, Video] = {}
    for part in parts:
        for video in part.videos:
            earlier = videos.setdefault(video.id, video)
            if earlier.duration is None:
                videos[video.id] = video
            elif video.duration is not None and abs(earlier.duration - video.duration) > 1:
                raise UsageError(
                    f"{part.name}: {video.id} is {video.duration:g} s long, elsewhere {earlier.duration:g} s"
                )
    number = {name: place for place, name in enumerate(videos)}
    times = Counter(query.id for part in parts for query in part.queries)
    queries: list[Query] = []
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _COLUMNS}
    for part, name in zip(parts, names, strict=True):
        numbers = np.array([number[video.id] for video in part.videos], np.int64)
        moved = {"query": part.query + len(queries), "video": numbers[part.video]}
        for column, values in columns.items():
            values.append(moved.get(column, getattr(part, column)))
        queries += [replace(q, id=f"{name}/{q.id}") if times[q.id] > 1 else q for q in part.queries]
    query, places, start, end, relevance = (np.concatenate(columns[name]) for name in _COLUMNS)
    items = (tuple(videos.values()), tuple(queries))
    return Annotations("+".join(names), *items, query, places, start, end, relevance)


def of_types(annotations: Annotations, types: Sequence[str]) -> Annotations:
    """The queries of some types (TVR: v, t, vt) with all videos. Raises UsageError if none is left."""
    if not types:
        return annotations
    kept = [place for place, query in enumerate(annotations.queries) if query.metadata.get("type") in types]
    if not kept:
        types_here = sorted({str(query.metadata.get("type", "none")) for query in annotations.queries})
        raise UsageError(
            f"--type {' '.join(types)}: no query is of that type; there are: {', '.join(types_here)}"
        )
    return _chosen(annotations, kept)


def _chosen(annotations: Annotations, kept: Sequence[int]) -> Annotations:
    """The queries with ascending indices `kept`, with their judgements."""
    place = np.full(len(annotations.queries), -1)
    place[list(kept)] = np.arange(len(kept))
    part = annotations.where(place[annotations.query] >= 0)
    return replace(
        part, queries=tuple(annotations.queries[number] for number in kept), query=place[part.query]
    )


@dataclass(frozen=True)
class QuerySets:
    """`all` descriptions with their captions; `validation` and `test`, a query per drawn caption.

    The metadata of a query of `all` has its `description`, and in `group` the first query with the same
    caption.
    """

    all: Annotations
    validation: Annotations
    test: Annotations
    groups: int

    def write(self, folder: Path) -> list[Path]:
        """Write a folder in our format for each non-empty set."""
        written = []
        for name, part in (("all", self.all), ("val", self.validation), ("test", self.test)):
            if part.queries:
                (folder / name).mkdir(parents=True, exist_ok=True)
                jsonl.write_annotations(part, folder / name)
                written.append(folder / name)
        return written


def query_sets(
    annotations: Annotations, captions: Mapping[str, str], validation: int, test: int, seed: int
) -> QuerySets:
    """The sets of annotations, given description -> caption; queries without a caption are left out.

    A drawn query represents all with its caption, and has all their moments. Raises UsageError if there are
    too few captions.
    """
    kept = [place for place, query in enumerate(annotations.queries) if query.text.strip() in captions]
    part = _chosen(annotations, kept)
    first: dict[str, int] = {}
    keys = [comparable(captions[query.text.strip()]) for query in part.queries]
    group = np.array([first.setdefault(key, place) for place, key in enumerate(keys)], np.int64)
    ids = [query.id for query in part.queries]
    queries = tuple(
        Query(
            query.id,
            captions[query.text.strip()],
            {**query.metadata, "description": query.text, "group": ids[group[place]]},
        )
        for place, query in enumerate(part.queries)
    )
    part = replace(part, queries=queries)
    if min(validation, test) < 0 or validation + test > len(first):
        raise UsageError(
            f"--validation {validation} --test {test}: there are {len(first):,} different captions"
        )
    drawn = np.random.default_rng(seed).permutation(np.fromiter(first.values(), np.int64, len(first)))
    chosen = [np.sort(drawn[:validation]), np.sort(drawn[validation : validation + test])]
    first_set, second_set = (_grouped(part, group, numbers) for numbers in chosen)
    return QuerySets(part, first_set, second_set, groups=len(first))


def _grouped(annotations: Annotations, group: NDArray[np.int64], firsts: NDArray[np.int64]) -> Annotations:
    """One query per group, with the distinct moments of all queries that share its caption."""
    place = np.full(len(annotations.queries), -1)
    place[firsts] = np.arange(len(firsts))
    query = place[group][annotations.query]
    rows = np.flatnonzero(query >= 0)
    rows = rows[np.argsort(query[rows], kind="stable")]
    part = replace(
        annotations,
        queries=tuple(annotations.queries[number] for number in firsts.tolist()),
        query=query[rows],
        **{name: getattr(annotations, name)[rows] for name in ("video", "start", "end", "relevance")},
        similarity=None,
        captions=None,
        pools={},
    )
    keys = np.stack([part.query, part.video, part.start, part.end], axis=1)
    _, once = np.unique(keys, axis=0, return_index=True)
    return part.where(np.isin(np.arange(len(keys)), once))


def write_review(captions: Sequence[Caption], path: Path) -> int:
    """List rejected captions for manual review, where `caption` is filled in; returns their number."""
    failed = [caption for caption in captions if caption.fault]
    with write_atomically(path) as stream:
        for each in failed:
            rejected = {"rejected": each.caption, "fault": each.fault}
            stream.write(json_line({"description": each.description, "caption": "", **rejected}))
    return len(failed)


class _Reviewed(msgspec.Struct):
    description: Text
    caption: Text


def read_review(path: Path, listed: Mapping[str, Caption]) -> dict[str, str]:
    """Description -> caption from a reviewed list; lines with an empty caption are skipped.

    Raises FormatError, with the line, if the file is not a review or belongs to another set.
    """
    captions: dict[str, str] = {}
    for origin, fields in read_records(path):
        line = origin.convert(fields, _Reviewed)
        if line.description not in listed:
            raise origin.at("description").error("is of another set:", line.description)
        if caption := line.caption.strip():
            captions[line.description] = caption
    return captions
