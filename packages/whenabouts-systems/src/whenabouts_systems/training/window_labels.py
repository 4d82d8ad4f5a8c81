"""What systems that answer windows learn from: all moments of a query in its video, how salient clips are.

A data set with several moments of a query in one video has an example for each of them; every one of these
carries all their windows, because a window that is not told would be learned as background.
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

    `borders` (N, 2) start and end counted in clips. `queries` may have `relevant_clip_ids` and
    `saliency_scores` in their metadata, as QVHighlights has: some people's ratings of each such clip.
    `videos` are the ids of all videos. Of more than `most` windows of a query in a video, `most` are drawn
    anew in each epoch, as the DETR programs do (None: all).
    """

    def __init__(
        self,
        query: Indices,
        video: Indices,
        borders: NDArray[np.float32],
        queries: Sequence[Query],
        videos: Sequence[str],
        most: int | None = None,
    ) -> None:
        self._query, self._borders, self._queries, self._most = query, borders, queries, most
        self._sources = sources_of(videos)[torch.from_numpy(video)]
        _, self._group = np.unique(np.stack([query, video], 1), axis=0, return_inverse=True)
        self._order = np.argsort(self._group, kind="stable")
        self._counts = np.bincount(self._group, minlength=1)
        self._begins = np.cumsum(self._counts) - self._counts

    def of(self, examples: Indices, clips: int, epoch: int = 0) -> Mapping[str, Tensor]:
        """`windows` (n, W, 2), NaN where there are fewer; `saliency` (n, `clips`) where queries have it.

        `source` (n,): see `sources_of`.
        """
        group = self._group[examples]
        counts = self._counts[group] if self._most is None else np.minimum(self._counts[group], self._most)
        places = np.arange(counts.max(initial=1))
        at = np.minimum(self._begins[group][:, None] + places, len(self._order) - 1)
        for row in np.flatnonzero(self._counts[group] > counts):
            drawn = np.random.default_rng([epoch, group[row]]).permutation(self._counts[group[row]])
            at[row] = self._begins[group[row]] + np.sort(drawn[: self._most])
        windows = np.where((places < counts[:, None])[..., None], self._borders[self._order[at]], np.nan)
        labels = {
            "windows": torch.from_numpy(windows.astype(np.float32)),
            "source": self._sources[torch.from_numpy(examples)],
        }
        every = [_ratings(self._queries[row].metadata, clips) for row in self._query[examples].tolist()]
        rated = [ratings for ratings in every if ratings is not None]
        if rated and len(rated) == len(every):
            labels["saliency"] = torch.from_numpy(np.stack(rated))
        return labels


def sources_of(videos: Sequence[str]) -> Tensor:
    """(V,) int64, equal where videos are segments of one recording, by their ids: `name_start_end`.

    That is how QVHighlights calls them (`RoripwjYFp8_360.0_510.0`).
    """
    names = [_SEGMENT.sub("", video) for video in videos]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([numbers[name] for name in names], dtype=torch.int64)


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
