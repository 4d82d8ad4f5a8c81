"""Sets of imprecise queries: one pool of videos, identical captions as one query, two sets drawn by chance.

Paper 004, sections 3.1 and 3.2: 500 and 2,781 captions are drawn, all splits search the same videos.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError, open_unpacked, write_atomically
from whenabouts.types import Query, UsageError
from whenabouts_bench.formats import jsonl
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.imprecise.making import Caption

_COLUMNS = ("query", "video", "start", "end", "relevance")
REVIEW = "review.jsonl"
"""The file of a folder that lists what a person has to look at."""


def one_pool(parts: Sequence[Annotations], names: Sequence[str]) -> Annotations:
    """Several splits as one: all their videos, all their queries.

    An id that several splits use for different sentences gets the name of its split in front. Raises
    UsageError where a video has two lengths.
    """
    if len(parts) == 1:
        return parts[0]
    videos = {video.id: video for part in parts for video in part.videos}
    for part in parts:
        for video in part.videos:
            elsewhere = videos[video.id].duration
            if None not in (elsewhere, video.duration) and abs((elsewhere or 0) - (video.duration or 0)) > 1:
                raise UsageError(
                    f"{part.name}: {video.id} is {video.duration:g} s long, elsewhere {elsewhere:g} s"
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
    own = (tuple(videos.values()), tuple(queries))
    return Annotations("+".join(names), *own, query, places, start, end, relevance)


def of_types(annotations: Annotations, types: Sequence[str]) -> Annotations:
    """The queries of some types (TVR: v, t, vt) with all videos. Raises UsageError where none is left."""
    if not types:
        return annotations
    kept = [place for place, query in enumerate(annotations.queries) if query.metadata.get("type") in types]
    if not kept:
        there = sorted({str(query.metadata.get("type", "none")) for query in annotations.queries})
        raise UsageError(f"--type {' '.join(types)}: no query is of that type; there are: {', '.join(there)}")
    return _chosen(annotations, kept)


def _chosen(annotations: Annotations, kept: Sequence[int]) -> Annotations:
    """Some queries, by their numbers, rising, with their judgements."""
    place = np.full(len(annotations.queries), -1)
    place[list(kept)] = np.arange(len(kept))
    part = annotations.where(place[annotations.query] >= 0)
    return replace(
        part, queries=tuple(annotations.queries[number] for number in kept), query=place[part.query]
    )


@dataclass(frozen=True)
class QuerySets:
    """`all` descriptions with their captions; `validation` and `test`, a query for each caption drawn.

    A query of `all` says in its metadata what its `description` was, and in `group` which query has the same
    caption first.
    """

    all: Annotations
    validation: Annotations
    test: Annotations
    groups: int

    def write(self, folder: Path) -> list[Path]:
        """Write a folder of ours for each set that has queries."""
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
    """The sets of some annotations, with description -> caption; queries without a caption are left out.

    A drawn query stands for all with its caption, and has the moments of them all. Raises UsageError where
    there are fewer captions than are to be drawn.
    """
    kept = [place for place, query in enumerate(annotations.queries) if query.text.strip() in captions]
    part = _chosen(annotations, kept)
    first: dict[str, int] = {}
    group = [first.setdefault(_same(captions[q.text.strip()]), place) for place, q in enumerate(part.queries)]
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
    own = np.array(group, np.int64)
    chosen = [np.sort(drawn[:validation]), np.sort(drawn[validation : validation + test])]
    own_validation, own_test = (_grouped(part, own, numbers) for numbers in chosen)
    return QuerySets(part, own_validation, own_test, groups=len(first))


def _grouped(annotations: Annotations, group: NDArray[np.int64], firsts: NDArray[np.int64]) -> Annotations:
    """The queries of some groups, each once, with the moments of all that share its caption, each once."""
    place = np.full(len(annotations.queries), -1)
    place[firsts] = np.arange(len(firsts))
    query = place[group][annotations.query] if len(annotations.query) else annotations.query
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
    _, once = np.unique(keys, axis=0, return_index=True) if len(keys) else (None, np.zeros(0, np.int64))
    kept = np.zeros(len(keys), np.bool_)
    kept[once] = True
    return part.where(kept)


def _same(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(" .")


def write_review(captions: Sequence[Caption], path: Path) -> int:
    """List what cannot be used, for a person who fills in `caption`; how many there are."""
    failed = [caption for caption in captions if caption.fault]
    with write_atomically(path) as stream:
        for caption in failed:
            line = {
                "description": caption.description,
                "caption": "",
                "rejected": caption.caption,
                "fault": caption.fault,
            }
            stream.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
    return len(failed)


def read_review(path: Path, listed: Mapping[str, Caption]) -> dict[str, str]:
    """Description -> caption that a person wrote into a copy of the list; empty ones are still open.

    Raises FormatError, naming the line, for what is no such list or of another set.
    """
    captions: dict[str, str] = {}
    with open_unpacked(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = json.loads(line)
                description, caption = value["description"], value["caption"].strip()
            except (ValueError, KeyError, TypeError, AttributeError):
                accepted = "an object with description and caption, both texts"
                raise FormatError(path, "is no line of a review", line=number, accepted=accepted) from None
            if description not in listed:
                raise FormatError(
                    path, "is of another set:", line=number, field="description", value=description
                )
            if caption:
                captions[description] = caption
    return captions
