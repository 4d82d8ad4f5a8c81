"""Shortest ways over nearest neighbours, against Dijkstra's algorithm walked with a heap."""

from __future__ import annotations

import heapq
import math

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.g2l import geodesic_distances, nearest_neighbours, relative

LENGTHS = [12, 5, 1, 2]


def _there(lengths: list[int] = LENGTHS) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _features(seed: int = 0) -> Tensor:
    return torch.randn(len(LENGTHS), max(LENGTHS), 6, generator=torch.Generator().manual_seed(seed))


def _by_walking(rows: Tensor, k: int, source: int) -> list[float]:
    """Dijkstra from one moment over the graph of the k nearest, edges both ways."""
    count = len(rows)
    apart = [[math.dist(one.tolist(), other.tolist()) for other in rows] for one in rows]
    edges: dict[int, dict[int, float]] = {at: {} for at in range(count)}
    for at in range(count):
        nearest = sorted((apart[at][other], other) for other in range(count) if other != at)[:k]
        for length, other in nearest:
            edges[at][other] = edges[other][at] = length
    found = [math.inf] * count
    heap = [(0.0, source)]
    while heap:
        length, at = heapq.heappop(heap)
        if length >= found[at]:
            continue
        found[at] = length
        for other, more in edges[at].items():
            heapq.heappush(heap, (length + more, other))
    return found


@pytest.mark.parametrize("k", [1, 2, 4, 20])
def test_distances_are_those_of_dijkstra_from_every_moment(k: int) -> None:
    features, there = _features(), _there()
    graph = nearest_neighbours(features, there, k)
    video_of = torch.tensor([video for video, length in enumerate(LENGTHS) for _ in range(length)])
    sources = torch.tensor([at for length in LENGTHS for at in range(length)])
    distances = geodesic_distances(graph, video_of, sources)
    for row, (video, source) in enumerate(zip(video_of.tolist(), sources.tolist(), strict=True)):
        length = LENGTHS[video]
        expected = _by_walking(features[video, :length], k, source)
        assert distances[row, :length].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert distances[row, length:].isinf().all()


def test_with_one_neighbour_some_moments_cannot_be_reached() -> None:
    """Else the test above would not see infinite ways."""
    graph = nearest_neighbours(_features(), _there(), 1)
    distances = geodesic_distances(graph, torch.tensor([0]), torch.tensor([0]))
    assert 1 < distances.isfinite().sum() < 12


def test_a_way_along_a_curve_is_longer_than_the_straight_one() -> None:
    """Moments on three quarters of a circle: its ends are near each other, but far along it."""
    angles = torch.linspace(0, 1.5 * math.pi, 40)
    circle = torch.stack([angles.cos(), angles.sin()], 1)[None]
    graph = nearest_neighbours(circle, torch.ones(1, 40, dtype=torch.bool), 2)
    distances = geodesic_distances(graph, torch.tensor([0]), torch.tensor([0]))[0]
    assert distances[-1].item() == pytest.approx(1.5 * math.pi, rel=1e-2)
    assert (circle[0, 0] - circle[0, -1]).norm().item() == pytest.approx(math.sqrt(2), rel=1e-3)
    assert (distances.diff() > 0).all()


def test_padding_moves_no_distance() -> None:
    features, there = _features(), _there()
    littered = torch.where(there[..., None], features, 7.0)
    wide = torch.cat([littered, torch.zeros(4, 3, 6)], 1)
    wider = torch.cat([there, torch.zeros(4, 3, dtype=torch.bool)], 1)
    video_of, sources = torch.tensor([0, 1, 1, 3]), torch.tensor([3, 0, 4, 1])
    plain = geodesic_distances(nearest_neighbours(features, there, 3), video_of, sources)
    padded = geodesic_distances(nearest_neighbours(wide, wider, 3), video_of, sources)
    torch.testing.assert_close(padded[:, :12], plain, rtol=1e-4, atol=1e-5)
    assert padded[:, 12:].isinf().all()


def test_relative_distances_are_shares_of_the_farthest_and_one_out_of_reach() -> None:
    distances = torch.tensor([[0.0, 2.0, 4.0, math.inf], [0.0, math.inf, math.inf, math.inf]])
    assert relative(distances).tolist() == [[0.0, 0.5, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]]


def test_no_gradient_goes_through_a_distance() -> None:
    features = _features().requires_grad_()
    graph = nearest_neighbours(features, _there(), 3)
    assert not geodesic_distances(graph, torch.tensor([0]), torch.tensor([0])).requires_grad
