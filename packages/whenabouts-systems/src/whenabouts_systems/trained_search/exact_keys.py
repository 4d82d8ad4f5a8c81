"""Find the exact nearest keys on a GPU: compare a query with every key, instead of the approximate index.

The device holds the keys of a corpus in half precision, as the index stores them. When a corpus is opened,
`quickest` measures whether this or the index is faster.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from whenabouts.index.keys import Keys, SystemKeys
from whenabouts.index.lookup import no_hits
from whenabouts.index.records import ClipHits, unit_query

_MEASURED, _K = 3, 800
_REFINED = 2
"""Half-precision products choose this multiple of k keys, which full-precision products then rank."""
_SHARE_OF_MEMORY = 0.25
_COLUMNS = ("video_id", "index", "start", "end", "kind", "vector")


@dataclass(frozen=True, eq=False)
class _Stream:
    """The N keys of a stream, ordered by video and number; `video` (N,) indexes the sorted `names`."""

    names: NDArray[np.str_]
    video: Tensor
    kind: Tensor
    vectors: Tensor
    index: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    @classmethod
    def of(cls, table: Any, device: torch.device, dtype: torch.dtype) -> _Stream:
        """The keys of an Arrow table."""
        ids, index = np.array(table["video_id"].to_pylist(), np.str_), table["index"].to_numpy()
        names, video = np.unique(ids, return_inverse=True)
        order = np.lexsort((index, video))
        flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        vectors = torch.from_numpy(flat.reshape(len(ids), -1)[order]) if len(ids) else torch.zeros(0, 0)
        return cls(
            names,
            torch.from_numpy(video[order]).to(device),
            torch.from_numpy(table["kind"].to_numpy()[order]).to(device),
            vectors.to(device, dtype),
            index[order],
            table["start"].to_numpy()[order],
            table["end"].to_numpy()[order],
        )

    def allowed(self, video_ids: Sequence[str] | None, kind: int | None) -> Tensor | None:
        """(N,) bool: the keys of some videos (None: all) and of one kind (None: any); None for all keys."""
        allowed = None if kind is None else self.kind == kind
        if video_ids is not None:
            is_named = np.isin(self.names, np.asarray(video_ids, np.str_))
            of_videos = torch.from_numpy(is_named).to(self.video.device)[self.video]
            allowed = of_videos if allowed is None else of_videos & allowed
        return allowed

    def nearest(self, query: NDArray[np.float32], k: int, allowed: Tensor | None) -> ClipHits:
        """The k keys with the largest dot products; ties are ordered by video and number."""
        if not len(self.vectors):
            return no_hits()
        vector = torch.from_numpy(query).to(self.vectors.device)
        products = self.vectors @ vector.to(self.vectors.dtype)
        if allowed is not None:
            products = products.masked_fill(~allowed, -torch.inf)
        best, rows = products.topk(min(_REFINED * k, len(products)))
        rows = rows[best > -torch.inf]
        score = (self.vectors[rows].float() @ vector).cpu().numpy()
        at = rows.cpu().numpy()
        order = np.lexsort((at, -score))[:k]
        at = at[order]
        names = self.names[self.video[torch.from_numpy(at).to(self.video.device)].cpu().numpy()]
        return ClipHits(names.tolist(), self.index[at], self.start[at], self.end[at], score[order])


class ExactKeys:
    """The search keys of one system on a device, with the methods of `Keys`.

    It is a snapshot: make another one when videos were added or removed.
    """

    def __init__(self, keys: Keys, device: torch.device, dtype: torch.dtype = torch.float16) -> None:
        self._keys, self._device, self._dtype = keys, device, dtype

    @property
    def info(self) -> SystemKeys:
        """The system whose keys these are."""
        return self._keys.info

    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """The same as `Keys.kinds`."""
        return self._keys.kinds()

    @cached_property
    def _streams(self) -> Mapping[str, _Stream]:
        return {
            stream: _Stream.of(self._keys.read(stream, _COLUMNS), self._device, self._dtype)
            for stream in self.info.streams
        }

    def nearest(
        self,
        stream: str,
        vector: ArrayLike,
        k: int,
        video_ids: Sequence[str] | None = None,
        *,
        kind: Collection[str] | None = None,
    ) -> ClipHits:
        """The same as `Keys.nearest`, but exact up to the rounding of stored keys to half precision."""
        query, stored = unit_query(vector, self.info.streams[stream], stream), self._streams[stream]
        only = None if kind is None or len(self.info.streams) == 1 else self.info.kind(kind)
        return stored.nearest(query, k, stored.allowed(video_ids, only)) if k > 0 else no_hits()


def quickest(keys: Keys, device: torch.device) -> Keys | ExactKeys:
    """The index, or all keys on the GPU if a measurement shows that they are faster.

    Without a GPU, or if the keys would take more than a quarter of its free memory, it is the index.
    """
    if device.type != "cuda":
        return keys
    free, _ = torch.cuda.mem_get_info(device)
    if sum(keys.bytes_held().values()) > _SHARE_OF_MEMORY * free:
        return keys
    return quicker(keys, ExactKeys(keys, device))


def quicker(keys: Keys, exact: ExactKeys) -> Keys | ExactKeys:
    """The faster of the two, by the best time of three searches of every stream."""
    return exact if _seconds(exact) < _seconds(keys) else keys


def _seconds(keys: Keys | ExactKeys) -> float:
    vectors = {
        name: np.full(width, width**-0.5, np.float32) for name, width in sorted(keys.info.streams.items())
    }
    spent = []
    for _ in range(_MEASURED + 1):  # the first search also reads the keys, so its time is dropped
        begun = time.perf_counter()
        for name, vector in vectors.items():
            keys.nearest(name, vector, _K)
        spent.append(time.perf_counter() - begun)
    return min(spent[1:])
