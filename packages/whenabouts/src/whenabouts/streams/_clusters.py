"""Groups voice or face vectors into people, by agglomerative clustering."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MOST = 2000
"""Most vectors compared pair by pair (2 s). Of more, an even sample is clustered; the others join the nearest
cluster."""


def clusters(vectors: NDArray[np.float32], least: float) -> NDArray[np.int64]:
    """The person of each of n unit vectors, (n,), numbered from 0 by first appearance.

    Agglomerative clustering with average linkage: two groups merge while their mean cosine is at least
    `least`.
    """
    count = len(vectors)
    if count < 2:
        return np.zeros(count, np.int64)
    sample = np.unique(np.linspace(0, count - 1, min(count, _MOST)).astype(np.int64))
    group = _agglomerated(vectors[sample], least)
    if len(sample) < count:
        means = np.zeros((group.max() + 1, vectors.shape[1]))
        np.add.at(means, group, vectors[sample])
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        group = np.argmax(vectors @ means.T.astype(np.float32), axis=1)
    return _by_appearance(group)


def _agglomerated(vectors: NDArray[np.float32], least: float) -> NDArray[np.int64]:
    """Average linkage by nearest-neighbour chains (Murtagh, 1983), cut at the distance 1 - `least`."""
    distance = (1.0 - np.clip(vectors @ vectors.T, -1, 1)).astype(np.float64)
    np.fill_diagonal(distance, np.inf)
    size, group = np.ones(len(vectors)), np.arange(len(vectors))
    chain: list[int] = []
    for _ in range(len(vectors) - 1):
        if not chain:
            chain.append(int(np.flatnonzero(size)[0]))
        while True:
            row = distance[chain[-1]]
            nearest = int(np.argmin(row))
            if len(chain) > 1 and row[chain[-2]] <= row[nearest]:
                break
            chain.append(nearest)
        merged, kept = sorted((chain.pop(), chain.pop()))
        if distance[merged, kept] <= 1.0 - least:
            group[group == group[merged]] = group[kept]
        mean = (size[merged] * distance[merged] + size[kept] * distance[kept]) / (size[merged] + size[kept])
        size[merged], size[kept] = 0, size[merged] + size[kept]
        distance[kept], distance[:, kept] = mean, mean
        distance[merged], distance[:, merged], distance[kept, kept] = np.inf, np.inf, np.inf
    return np.unique(group, return_inverse=True)[1]


def _by_appearance(group: NDArray[np.int64]) -> NDArray[np.int64]:
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)
