"""Read the judgements of a split for its batches: the positives of queries, and the windows of examples.

Positives are the videos that are never a query's negatives (`DataSettings.positives`).

Windows are for systems that predict them: all moments of a query in its video, and the saliency of clips. If
a query has several moments in a video, each of them is an example. Each example has the windows of all of
them, because the system would learn a missing window as background. With `data.batch_of` "windows" only the
first of these examples comes in an epoch.

`Pairs` are two columns of equal length: rows of queries (or numbers of groups) and rows of videos.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.types import Query, UsageError
from whenabouts_bench.formats.annotations import Annotations, Indices
from whenabouts_bench.relevance.pairs import RelevantPairs
from whenabouts_bench.relevance.units import comparable
from whenabouts_systems.training.experiment import Positives

Pairs = tuple[Indices, Indices]

_BLOCK = 1024
"""The number of captions in a block; captions are compared block by block."""
_SEGMENT = re.compile(r"(?<=.)_\d+(?:\.\d+)?_\d+(?:\.\d+)?$")


class PositivePairs:
    """The positive videos of each query of a split, looked up a batch at a time.

    Queries with the same meaning share a group and its positives. `captions` (Q,) are the queries' rows in
    `pairs`, -1 if a query is not there.
    """

    def __init__(
        self,
        annotations: Annotations,
        positives: Positives,
        pairs: RelevantPairs | None,
        captions: Indices | None,
    ) -> None:
        relevant = annotations.relevance > 0
        self._videos = len(annotations.videos)
        if positives == "similar" and pairs is not None and captions is not None:
            # A query without a caption in `pairs` is a group of its own, numbered after all captions.
            own_group = np.arange(len(captions)) + len(pairs.captions)
            texts = pairs.caption_of[np.maximum(captions, 0)].astype(np.int64)
            self._groups = np.where(captions < 0, own_group, texts)
        else:
            self._groups = _groups(annotations.queries, by_text=positives == "sentence")
        group, video = self._groups[annotations.query[relevant]], annotations.video[relevant]
        if positives == "similar" and pairs is not None:
            similar = joined_by(similar_captions(pairs), (group, video))
            group, video = np.concatenate([group, similar[0]]), np.concatenate([video, similar[1]])
        self._keys = np.unique(group * self._videos + video)

    def block(self, query: Indices, video: Indices) -> NDArray[np.bool_]:
        """(Q, V): which of the given videos are positives of which of the given queries."""
        return is_in(self._keys, self._groups[query][:, None] * self._videos + video)

    @property
    def all(self) -> Pairs:
        """Query rows and video rows (K,) of all positive pairs."""
        groups = self._keys // self._videos, self._keys % self._videos
        return joined_by((np.arange(len(self._groups)), self._groups), groups)


def is_in(keys: Indices, values: Indices) -> NDArray[np.bool_]:
    """Whether each of `values` is in the sorted `keys`, in the shape of `values`."""
    if not len(keys):
        return np.zeros(values.shape, bool)
    return np.asarray(keys[np.searchsorted(keys, values).clip(max=len(keys) - 1)] == values)


def joined_by(left: Pairs, right: Pairs) -> Pairs:
    """All (a, c) such that (a, b) is in `left` and (b, c) in `right`.

    >>> [column.tolist() for column in joined_by((np.array([7, 8]), np.array([1, 2])),
    ...                                          (np.array([2, 1, 1]), np.array([5, 6, 9])))]
    [[7, 7, 8], [6, 9, 5]]
    """
    order = np.argsort(right[0], kind="stable")
    keys = right[0][order]
    begins = np.searchsorted(keys, left[1])
    counts = np.searchsorted(keys, left[1], side="right") - begins
    # For each left row: 0, 1, ... counts - 1, without a loop.
    steps = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    return np.repeat(left[0], counts), right[1][order][np.repeat(begins, counts) + steps]


def similar_captions(pairs: RelevantPairs) -> Pairs:
    """(K,) twice: all pairs of different captions that are relevant to each other, in both directions."""
    arrays = pairs.kept.arrays()
    if "columns" in arrays:
        starts, columns = arrays["starts"], arrays["columns"]
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        real = arrays["confidence"] > 0
        first, second = rows[real], columns[real].astype(np.int64)
    else:
        first, second = _computed(pairs)
    return np.concatenate([first, second]), np.concatenate([second, first])


def _computed(pairs: RelevantPairs) -> Pairs:
    """The relevant pairs i < j of pairs stored as vectors, computed block by block."""
    count = len(pairs.captions)
    first, second = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for low in range(0, count, _BLOCK):
        rows = np.arange(low, min(low + _BLOCK, count))
        for begin in range(low, count, _BLOCK):
            columns = np.arange(begin, min(begin + _BLOCK, count))
            both = rows if begin == low else np.concatenate([rows, columns])
            relevant = pairs.kept.among(both)[: len(rows), -len(columns) :] > 0
            row, column = np.nonzero(relevant & (rows[:, None] < columns))
            first.append(rows[row])
            second.append(columns[column])
    return np.concatenate(first), np.concatenate(second)


def _groups(queries: Sequence[Query], by_text: bool) -> Indices:
    """(Q,) the group of each query: shared by queries with the same words if `by_text`, else its own."""
    if not by_text:
        return np.arange(len(queries), dtype=np.int64)
    numbers: dict[str, int] = {}
    # A query without words equals no other.
    texts = (comparable(query.text) or f"\0{query.id}" for query in queries)
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


class WindowLabels:
    """Windows of N examples, which are moments of queries `query` (N,) in videos `video` (N,).

    `borders` (N, 2) are start and end, counted in clips. The metadata of `queries` may have
    `relevant_clip_ids` and `saliency_scores`: a rating of each clip or, as in QVHighlights, a list of several
    annotators' ratings. `videos` are the ids of all videos. If a query has more than `limit` windows in a
    video, `limit` of them are drawn anew in each epoch, as the DETR programs do (None: all are used).
    """

    def __init__(
        self,
        query: Indices,
        video: Indices,
        borders: NDArray[np.float32],
        queries: Sequence[Query],
        videos: Sequence[str],
        limit: int | None = None,
    ) -> None:
        self._query, self._borders, self._queries, self._limit = query, borders, queries, limit
        self._sources = sources_of(videos)[torch.from_numpy(video)]
        _, self._group = np.unique(np.stack([query, video], 1), axis=0, return_inverse=True)
        self._order = np.argsort(self._group, kind="stable")
        self._counts = np.bincount(self._group, minlength=1)
        self._begins = np.cumsum(self._counts) - self._counts

    def of(self, examples: Indices, clips: int, epoch: int = 0) -> Mapping[str, Tensor]:
        """The labels of n examples by name: `windows` (n, W, 2), padded with NaN, and `source` (n,).

        `saliency` (n, `clips`) is there only if all queries have ratings. See `sources_of` for `source`.
        Raises UsageError for a rating that is not a number.
        """
        group = self._group[examples]
        counts = self._counts[group] if self._limit is None else np.minimum(self._counts[group], self._limit)
        places = np.arange(counts.max(initial=1))
        at = np.minimum(self._begins[group][:, None] + places, len(self._order) - 1)
        for row in np.flatnonzero(self._counts[group] > counts):
            drawn = np.random.default_rng([epoch, group[row]]).permutation(self._counts[group[row]])
            at[row] = self._begins[group[row]] + np.sort(drawn[: self._limit])
        windows = np.where((places < counts[:, None])[..., None], self._borders[self._order[at]], np.nan)
        labels = {
            "windows": torch.from_numpy(windows.astype(np.float32)),
            "source": self._sources[torch.from_numpy(examples)],
        }
        ratings = [_ratings(self._queries[row], clips) for row in self._query[examples].tolist()]
        rated = [values for values in ratings if values is not None]
        if rated and len(rated) == len(ratings):
            labels["saliency"] = torch.from_numpy(np.stack(rated))
        return labels


def sources_of(videos: Sequence[str]) -> Tensor:
    """(V,) int64: equal numbers for segments of one recording, recognised by ids like `name_start_end`.

    QVHighlights names its videos like this (`RoripwjYFp8_360.0_510.0`).
    """
    names = [_SEGMENT.sub("", video) for video in videos]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([numbers[name] for name in names], dtype=torch.int64)


def _ratings(query: Query, clips: int) -> NDArray[np.float32] | None:
    """(clips,) the sum of each clip's ratings, 0 without ratings; None if the query has no ratings at all."""
    ids, ratings = query.metadata.get("relevant_clip_ids"), query.metadata.get("saliency_scores")
    if not ids or not ratings or len(ids) != len(ratings):
        return None
    values = np.zeros(clips, np.float32)
    for clip, given in zip(ids, ratings, strict=True):
        scores = given if isinstance(given, list | tuple) else [given]
        if not all(isinstance(score, int | float) for score in scores):
            raise UsageError(f"query {query.id!r}: saliency_scores has {given!r}; accepted: numbers")
        if type(clip) is int and 0 <= clip < clips:
            values[clip] = sum(scores)
    return values
