"""Which videos may answer a query, told by their sentences (papers 001 and 002, section 4.1).

A video is similar to a query where one of the video's sentences is: s_te(q, v), the largest similarity over
the sentences of v, reaches the threshold with which the relevant pairs were made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuepoint.formats.columns import Annotations
from cuepoint.relevance.pairs import ListedPairs, RelevantPairs

Indices = NDArray[np.int64]


def similar_videos(pairs: RelevantPairs, annotations: Annotations) -> tuple[Indices, Indices]:
    """(N,) rows of queries and (N,) rows of videos of all pairs that are similar, sorted, each once.

    A query's own videos are among them. Raises UsageError where a query with a judgement is missing in
    `pairs`, or had another text when they were made.
    """
    judged = annotations.relevance > 0
    asked, videos = np.unique(annotations.query[judged]), len(annotations.videos)
    queries = [annotations.queries[row] for row in asked.tolist()]
    pairs.check(queries)
    captions = np.full(len(annotations.queries), -1, np.int64)
    captions[asked] = pairs.caption_of[pairs.rows(query.id for query in queries)]
    told = np.unique(captions[annotations.query[judged]] * videos + annotations.video[judged])
    first, second = _related(pairs)
    similar = _joined(first, second, told // videos, told % videos, len(pairs.captions))
    keys = np.unique(similar[0] * videos + similar[1])
    found = _joined(asked, captions[asked], keys // videos, keys % videos, len(pairs.captions))
    key = np.sort(found[0] * videos + found[1])
    return key // videos, key % videos


def _related(pairs: RelevantPairs) -> tuple[Indices, Indices]:
    """Pairs of captions, both ways, and each with itself."""
    kept, count = pairs.kept, len(pairs.captions)
    itself = np.arange(count, dtype=np.int64)
    if isinstance(kept, ListedPairs):
        real = kept.confidence > 0
        low = np.repeat(itself, np.diff(kept.starts))[real]
        high = kept.columns.astype(np.int64)[real]
        return np.concatenate([itself, low, high]), np.concatenate([itself, high, low])
    others = [kept.of(caption)[0].astype(np.int64) for caption in range(count)]
    rows = np.repeat(itself, [len(found) for found in others])
    return np.concatenate([itself, rows]), np.concatenate([itself, *others])


def _joined(
    left: Indices, key: Indices, keys: Indices, values: Indices, count: int
) -> tuple[Indices, Indices]:
    """Each of `left` with every one of `values` whose `keys` (sorted, below `count`) is its `key`."""
    starts = np.searchsorted(keys, np.arange(count + 1))
    begins, counts = starts[key], starts[key + 1] - starts[key]
    places = np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    return np.repeat(left, counts), values[places]
