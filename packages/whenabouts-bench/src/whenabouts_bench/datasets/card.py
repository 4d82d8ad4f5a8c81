"""The card of a split: its numbers beside those of the papers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.intake.files import open_unpacked
from whenabouts_bench.datasets.declaration import (
    COUNTS,
    MEASURES,
    AnnotationFile,
    Declaration,
    Split,
    Statistics,
)
from whenabouts_bench.formats.annotations import Annotations, judgement_rows

_LABELS = {
    "videos": "videos",
    "queries": "queries",
    "judgements": "judgements",
    "judged_videos": "videos with a judgement",
    "full_pools": "queries with a full pool",
    "video_seconds": "mean video, s",
    "moment_seconds": "mean moment, s",
    "moment_share": "mean share of its video",
    "words_per_query": "words a query",
    "relevant_per_query": "relevant moments a query",
}


@dataclass(frozen=True)
class Item:
    """A query as read, with its judgements."""

    query_id: str
    text: str
    moments: tuple[tuple[str, float, float, float], ...]
    """(video id, start, end, relevance), in seconds; start == end without a usable span."""


@dataclass(frozen=True)
class Card:
    """The contents of a split. Lengths are seconds, None if unknown."""

    dataset: str
    title: str
    split: str
    path: str
    format: str
    fingerprint: str
    """The first 16 digits of the sha256 of the unpacked file."""
    is_known_release: bool | None
    """Whether the fingerprint is the known one; None if there is no known one."""
    numbers: Statistics
    queries_per_video: float
    repeated_queries: int
    """Queries with the same text and moments as another query of the split."""
    first: Item | None
    tenth: Item | None
    last: Item | None
    rules: Mapping[str, int]
    """Rule for odd data -> how often it applied."""
    paper: Statistics
    released: Statistics
    notes: tuple[str, ...]

    def differing_counts(self) -> tuple[str, ...]:
        """Counts that agree with neither the released file nor the papers, as text."""
        differing = []
        for measure in COUNTS:
            here = getattr(self.numbers, measure)
            published = {getattr(self.released, measure), getattr(self.paper, measure)} - {None}
            if published and here not in published:
                expected = " or ".join(f"{number:,}" for number in sorted(published))
                differing.append(f"{here:,} {_LABELS[measure]}, expected {expected}")
        return tuple(differing)

    def to_json(self) -> dict[str, Any]:
        differing = list(self.differing_counts())
        return {**asdict(self), "notes": list(self.notes), "differing_counts": differing}

    def lines(self) -> Iterator[str]:
        another = "another release than the known one"
        releases = {True: "the known release", False: another, None: "none known"}
        yield f"{self.title}, {self.split}"
        yield f"{self.path} ({self.format}, sha256 {self.fingerprint}…: {releases[self.is_known_release]})"
        yield ""
        yield f"{'':26}{'here':>12}{'released':>12}{'papers':>12}"
        for measure in MEASURES:
            row = [getattr(numbers, measure) for numbers in (self.numbers, self.released, self.paper)]
            if any(number is not None for number in row):
                yield f"{_LABELS[measure]:26}" + "".join(f"{_shown(number):>12}" for number in row)
        yield f"{'queries a video':26}{_shown(self.queries_per_video):>12}"
        if self.repeated_queries:
            yield f"{'repeated queries':26}{self.repeated_queries:>12,}"
        yield ""
        for label, item in (("first", self.first), ("tenth", self.tenth), ("last", self.last)):
            if item is not None:
                yield f"{label:6}{item.query_id}: {item.text}"
                for video_id, start, end, relevance in item.moments[:5]:
                    yield f"      {video_id} {start:.2f}-{end:.2f}, relevance {relevance:g}"
        yield ""
        yield from (f"{rule}: {times:,}" for rule, times in self.rules.items())
        yield from (f"note: {note}" for note in self.notes)
        yield from (f"differs: {what}" for what in self.differing_counts())


def make_card(
    dataset: Declaration, split: Split, file: AnnotationFile, path: Path, annotations: Annotations
) -> Card:
    """The card of a split that was read. Raises FormatError if the file has disappeared."""
    fingerprint = fingerprint_of(path)
    count = len(annotations.queries)
    return Card(
        dataset=dataset.name,
        title=dataset.title,
        split=split.name,
        path=str(path),
        format=file.format,
        fingerprint=fingerprint,
        is_known_release=fingerprint == file.fingerprint if file.fingerprint else None,
        numbers=numbers_of(annotations, dataset.pool_size),
        queries_per_video=count / len(annotations.videos) if annotations.videos else 0.0,
        repeated_queries=_repeated(annotations),
        first=_item(annotations, 0) if count else None,
        tenth=_item(annotations, 9) if count > 9 else None,
        last=_item(annotations, count - 1) if count else None,
        rules=dict(annotations.counts),
        paper=split.paper,
        released=file.holds,
        notes=tuple(note for note in (split.note, *dataset.notes) if note),
    )


def fingerprint_of(*paths: Path) -> str:
    """The first 16 hexadecimal digits of the sha256 of the unpacked files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open_unpacked(path) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


def numbers_of(annotations: Annotations, pool_size: int | None = None) -> Statistics:
    """Counts and means of a split.

    With pools, means over queries and moments include only queries with a full pool. Judgements without
    usable span count, but are left out of means over moments.
    """
    counted = np.ones(len(annotations.queries), bool)
    if pool_size is not None:
        sizes = [len(annotations.pools.get(query.id, ())) for query in annotations.queries]
        counted = np.array(sizes, np.int64) == pool_size
    rows = counted[annotations.query]
    durations = np.array(
        [np.nan if v.duration is None else v.duration for v in annotations.videos], np.float64
    )
    span = (annotations.end - annotations.start)[rows]
    share = span / durations[annotations.video[rows]]
    words = np.array([len(query.text.split()) for query in annotations.queries], np.float64)
    relevant = np.bincount(
        annotations.query[annotations.relevance > 0], minlength=len(annotations.queries)
    ).astype(np.float64)
    return Statistics(
        videos=len(annotations.videos),
        queries=len(annotations.queries),
        judgements=len(annotations.query),
        judged_videos=len(np.unique(annotations.video)),
        full_pools=None if pool_size is None else int(counted.sum()),
        video_seconds=_mean(durations),
        moment_seconds=_mean(span[span > 0]),
        moment_share=_mean(share[span > 0]),
        words_per_query=_mean(words[counted]),
        relevant_per_query=_mean(relevant[counted]) if len(rows) else None,
    )


def _mean(values: NDArray[np.float64]) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _repeated(annotations: Annotations) -> int:
    judged: dict[int, list[tuple[int, float, float]]] = {}
    for query, video, start, end, _ in judgement_rows(annotations):
        judged.setdefault(query, []).append((video, start, end))
    repeats = Counter((annotations.queries[q].text, tuple(moments)) for q, moments in judged.items())
    return sum(times - 1 for times in repeats.values())


def _item(annotations: Annotations, number: int) -> Item:
    query = annotations.queries[number]
    rows = np.flatnonzero(annotations.query == number)
    videos = [annotations.videos[video].id for video in annotations.video[rows].tolist()]
    columns = (annotations.start, annotations.end, annotations.relevance)
    moments = zip(videos, *(column[rows].tolist() for column in columns), strict=True)
    return Item(query.id, query.text, tuple(moments))


def _shown(number: float | None) -> str:
    if number is None:
        return "·"
    return f"{number:,}" if isinstance(number, int) else f"{number:.2f}"
