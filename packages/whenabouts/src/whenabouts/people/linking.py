"""Joins labels of new videos to the people with the nearest mean vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.index.records import natural_key
from whenabouts.index.store import Store
from whenabouts.index.stream import label_in


@dataclass(frozen=True, slots=True, eq=False)
class LabelVectors:
    """The vectors of one label: the sum (D,) of its clips' unit vectors, and the ids of its videos."""

    total: NDArray[np.float64]
    videos: frozenset[str]


def label_vectors(store: Store, stream: str) -> dict[str, LabelVectors]:
    """The vectors and videos of each label of a stream, in natural order of the labels."""
    sums: dict[str, NDArray[np.float64]] = {}
    videos = defaultdict[str, set[str]](set)
    ids = [record.video_id for record in store.ledger().listed if stream in record.streams]
    for at in range(0, len(ids), 100):
        block = store.clips_of(stream, ids[at : at + 100])
        owner = np.repeat(np.arange(len(block.video_ids)), np.diff(block.offsets)).tolist()
        labels, number = np.unique(np.array(block.text, object).astype(str), return_inverse=True)
        added = np.zeros((len(labels), block.vectors.shape[1]))
        np.add.at(added, number, block.vectors)
        for place, label in enumerate(labels.tolist()):
            sums[label] = sums.get(label, 0.0) + added[place]
        for place, label in zip(owner, block.text, strict=True):
            videos[label].add(block.video_ids[place])
    return {
        label: LabelVectors(sums[label], frozenset(videos[label])) for label in sorted(sums, key=natural_key)
    }


def join_labels(vectors: Mapping[str, LabelVectors], names: dict[str, str], least: float) -> int:
    """Give each label that is not in `names` a person's name in it; returns how many labels were named.

    A label made for one video ("voice 2 (talk-00ff00ff)") gets the nearest person with a cosine of at least
    `least`, or becomes a new person. A name that the source gave is the person's name. Labels are named in
    the order of `vectors`, so that the same videos give the same people.
    """
    people = _People(vectors)
    for label in vectors:
        if label in names:
            people.add(label, names[label])
    new = [label for label in vectors if label not in names]
    unnamed = {
        label
        for label in new
        if len(vectors[label].videos) == 1 and label.endswith(label_in("", *vectors[label].videos))
    }
    for label in sorted(new, key=unnamed.__contains__):
        person = people.nearest(label, least) if label in unnamed else None
        names[label] = person or label
        people.add(label, names[label])
    return len(new)


class _People:
    """The people named so far: for each name, the sum of the labels' vectors, and the videos."""

    def __init__(self, vectors: Mapping[str, LabelVectors]) -> None:
        self._vectors = vectors
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._rows_in = defaultdict[str, set[int]](set)
        width = len(next(iter(vectors.values())).total) if vectors else 0
        self._sums, self._lengths = np.zeros((len(vectors), width)), np.zeros(len(vectors))

    def add(self, label: str, person: str) -> None:
        """Add a label to a person."""
        row = self._rows.setdefault(person, len(self._rows))
        if row == len(self._names):
            self._names.append(person)
        self._sums[row] += self._vectors[label].total
        # Kept, because measuring them all anew for each label would take hours for thousands of videos.
        self._lengths[row] = np.linalg.norm(self._sums[row])
        for video_id in self._vectors[label].videos:
            self._rows_in[video_id].add(row)

    def nearest(self, label: str, least: float) -> str | None:
        """The person with the largest cosine of at least `least` who is in none of the label's videos."""
        sought, count = self._vectors[label], len(self._names)
        lengths = self._lengths[:count] * np.linalg.norm(sought.total)
        cosine = np.full(count, -1.0)
        np.divide(self._sums[:count] @ sought.total, lengths, out=cosine, where=lengths > 0)
        # Two labels of one video are different people.
        cosine[[row for video_id in sought.videos for row in self._rows_in[video_id]]] = -1.0
        best = int(np.argmax(cosine)) if count else -1
        return self._names[best] if best >= 0 and cosine[best] >= least else None
