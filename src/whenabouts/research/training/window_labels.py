"""What systems that answer windows learn from: all moments of a query in its video, how salient clips are.

A data set with several moments of a query in one video has an example for each of them; every one of these
carries all their windows, because a window that is not told would be learned as background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.types import Query

Indices = NDArray[np.int64]


class WindowLabels:
    """Windows of N examples, which are moments of queries `query` (N,) in videos `video` (N,).

    `borders` (N, 2) start and end counted in clips. `queries` may have `relevant_clip_ids` and
    `saliency_scores` in their metadata, as QVHighlights has: some people's ratings of each such clip.
    """

    def __init__(
        self, query: Indices, video: Indices, borders: NDArray[np.float32], queries: Sequence[Query]
    ) -> None:
        self._query, self._borders, self._queries = query, borders, queries
        _, self._group = np.unique(np.stack([query, video], 1), axis=0, return_inverse=True)
        self._order = np.argsort(self._group, kind="stable")
        self._counts = np.bincount(self._group, minlength=1)
        self._begins = np.cumsum(self._counts) - self._counts

    def of(self, examples: Indices, clips: int) -> Mapping[str, Tensor]:
        """`windows` (n, W, 2), NaN where there are fewer; `saliency` (n, `clips`) where queries have it."""
        group = self._group[examples]
        counts = self._counts[group]
        places = np.arange(counts.max(initial=1))
        at = np.minimum(self._begins[group][:, None] + places, len(self._order) - 1)
        windows = np.where((places < counts[:, None])[..., None], self._borders[self._order[at]], np.nan)
        labels = {"windows": torch.from_numpy(windows.astype(np.float32))}
        every = [_ratings(self._queries[row].metadata, clips) for row in self._query[examples].tolist()]
        rated = [ratings for ratings in every if ratings is not None]
        if rated and len(rated) == len(every):
            labels["saliency"] = torch.from_numpy(np.stack(rated))
        return labels


def _ratings(metadata: Mapping[str, Any], clips: int) -> NDArray[np.float32] | None:
    """(clips,) the sum of the ratings of each clip, 0 where there are none; None where nothing is told."""
    ids, ratings = metadata.get("relevant_clip_ids"), metadata.get("saliency_scores")
    if not ids or not ratings or len(ids) != len(ratings):
        return None
    values = np.zeros(clips, np.float32)
    for clip, scores in zip(ids, ratings, strict=True):
        if type(clip) is int and 0 <= clip < clips:
            values[clip] = sum(scores)
    return values
