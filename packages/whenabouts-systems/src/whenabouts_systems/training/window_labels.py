"""Make labels for systems that predict windows: all moments of a query in its video, and saliency of clips.

If a query has several moments in a video, each of them is an example. Each example has the windows of all of
them, because the system would learn a missing window as background. With `data.batch_of` "windows" only the
first of these examples comes in an epoch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.types import Query

Indices = NDArray[np.int64]
_SEGMENT = re.compile(r"(?<=.)_\d+(?:\.\d+)?_\d+(?:\.\d+)?$")


class WindowLabels:
    """Windows of N examples, which are moments of queries `query` (N,) in videos `video` (N,).

    `borders` (N, 2) are start and end, counted in clips. The metadata of `queries` may have
    `relevant_clip_ids` and `saliency_scores`, several annotators' ratings of each clip, as in QVHighlights.
    `videos` are the ids of all videos. If a query has more than `limit` windows in a video, `limit` of them
    are drawn anew in each epoch, as the DETR programs do (None: all are used).
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
        ratings = [_ratings(self._queries[row].metadata, clips) for row in self._query[examples].tolist()]
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


def _ratings(metadata: Mapping[str, Any], clips: int) -> NDArray[np.float32] | None:
    """(clips,) the sum of each clip's ratings, 0 without ratings; None if the query has no ratings at all."""
    ids, ratings = metadata.get("relevant_clip_ids"), metadata.get("saliency_scores")
    if not ids or not ratings or len(ids) != len(ratings):
        return None
    values = np.zeros(clips, np.float32)
    for clip, scores in zip(ids, ratings, strict=True):
        if type(clip) is int and 0 <= clip < clips:
            values[clip] = sum(scores)
    return values
