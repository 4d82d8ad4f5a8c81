"""How far apart moments of a video are along the moments between them (G2L, Li et al., ICCV 2023).

Features of moments lie on a surface; two of them can be near in a straight line and far along the surface, or
far apart in time and near in meaning. A graph joins each moment with its nearest ones, an edge is as long as
the two features are apart, and the geodesic distance is the length of the shortest way (as in Isomap,
Tenenbaum et al., 2000).

Shapes: V videos, P moments (cells of a map), k neighbours, S sources, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_BETWEEN_LOOKS = 4
"""Rounds between looks whether anything still changes: a look makes a GPU wait."""


@dataclass(frozen=True)
class Neighbours:
    """A graph over the moments of V videos: `other` (V, P, k) int64 the nearest of each, `length` (V, P, k).

    Lengths are infinite where there is no edge. An edge goes both ways.
    """

    other: Tensor
    length: Tensor


@torch.no_grad()
def nearest_neighbours(features: Tensor, there: Tensor, k: int) -> Neighbours:
    """The graph of the k nearest moments of each, by the distance of their features (V, P, D).

    `there` (V, P) bool says which moments are real; others have no edge. Fewer than k real ones: fewer edges.
    """
    count = features.shape[1]
    apart = torch.cdist(features.float(), features.float())
    itself = torch.eye(count, dtype=torch.bool, device=features.device)
    apart = apart.masked_fill(itself | ~(there[:, :, None] & there[:, None, :]), torch.inf)
    length, other = apart.topk(min(k, max(count - 1, 1)), dim=2, largest=False)
    return Neighbours(other, length)


@torch.no_grad()
def geodesic_distances(graph: Neighbours, video_of: Tensor, sources: Tensor) -> Tensor:
    """(S, P): the shortest way from moment `sources` (S,) of video `video_of` (S,) to each moment of it.

    Infinite where there is no way. All sources go one edge further in each round (Bellman and Ford), until
    nothing changes: as many rounds as the longest shortest way has edges.
    """
    other, length = graph.other[video_of], graph.length[video_of]
    distances = length.new_full(other.shape[:2], torch.inf)
    distances.scatter_(1, sources[:, None], 0.0)
    flat = other.flatten(1)
    for number in range(1, other.shape[1]):
        before = distances
        through = distances.gather(1, flat).view_as(other) + length
        distances = torch.minimum(distances, through.amin(2))
        onward = (distances[..., None] + length).flatten(1)
        distances = distances.scatter_reduce(1, flat, onward, "amin")
        if number % _BETWEEN_LOOKS == 0 and torch.equal(before, distances):
            break
    return distances


def relative(distances: Tensor) -> Tensor:
    """(S, P) in [0, 1]: shares of the farthest moment that can be reached; 1 for those that cannot."""
    reached = distances.isfinite()
    farthest = distances.masked_fill(~reached, 0.0).amax(1, keepdim=True)
    shares = distances / farthest.clamp(min=torch.finfo(distances.dtype).tiny)
    return torch.where(reached, shares, 1.0)
