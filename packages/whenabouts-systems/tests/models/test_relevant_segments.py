"""Segments that overlap a moment, and the maximum over a segment's clips, against plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.prem_localizer import overlapping_segments, segment_maxima


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _by_hand(first: int, last: int, clips: int, above: float) -> list[tuple[int, int]]:
    moment, found = set(range(first, last + 1)), []
    for begin in range(clips):
        for end in range(begin, clips):
            segment = set(range(begin, end + 1))
            if len(segment & moment) / len(segment | moment) > above:
                found.append((begin, end))
    return found


def test_the_papers_example_of_segments_that_answer() -> None:
    query, segments = overlapping_segments(torch.tensor([[5, 8]]), _mask([20]), 0.7)
    assert query.tolist() == [0] * 5
    assert segments.tolist() == [[4, 8], [5, 7], [5, 8], [5, 9], [6, 8]]


@pytest.mark.parametrize("above", [0.0, 0.5, 0.7])
def test_segments_are_those_of_plain_loops(above: float) -> None:
    moments, clips = [(0, 0), (3, 9), (0, 13), (12, 13)], [1, 10, 14, 20]
    query, segments = overlapping_segments(torch.tensor(moments), _mask(clips), above)
    for row, (moment, count) in enumerate(zip(moments, clips, strict=True)):
        found = [tuple(one) for one in segments[query == row].tolist()]
        assert found == _by_hand(*moment, count, above)


def test_an_overlap_of_exactly_the_threshold_is_not_more_than_it() -> None:
    """Seven of ten clips: 0.7, which no float32 can hold."""
    _, segments = overlapping_segments(torch.tensor([[0, 9]]), _mask([10]), 0.7)
    assert [0, 6] not in segments.tolist()
    assert [0, 7] in segments.tolist()


def test_maxima_of_all_segments_are_those_of_slices() -> None:
    clips = torch.randn(3, 13, 4, generator=torch.Generator().manual_seed(0))
    every = [(pair, a, b) for pair in range(3) for a in range(13) for b in range(a, 13)]
    pairs, segments = torch.tensor(every)[:, 0], torch.tensor(every)[:, 1:]
    found = segment_maxima(clips, pairs, segments)
    assert torch.equal(found, torch.stack([clips[pair, a : b + 1].amax(0) for pair, a, b in every]))


def test_maxima_see_nothing_beside_their_segment() -> None:
    clips = torch.full((1, 9, 2), -torch.inf)
    clips[0, 2:5] = torch.tensor([[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]])
    assert segment_maxima(clips, torch.tensor([0]), torch.tensor([[2, 4]])).tolist() == [[3.0, 6.0]]


def test_the_gradient_of_a_maximum_goes_to_the_clip_that_has_it() -> None:
    clips = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    pairs, segments = torch.tensor([0, 1, 1]), torch.tensor([[1, 5], [0, 6], [3, 3]])
    weights = torch.tensor([[1.0, 2.0, 4.0]]) * torch.tensor([[1.0], [8.0], [64.0]])
    (found,) = torch.autograd.grad((segment_maxima(clips, pairs, segments) * weights).sum(), clips)
    expected = torch.zeros(2, 7, 3)
    for row, (pair, (first, last)) in enumerate(zip(pairs.tolist(), segments.tolist(), strict=True)):
        for at in range(3):
            best = first + int(clips[pair, first : last + 1, at].argmax())
            expected[pair, best, at] += weights[row, at]
    torch.testing.assert_close(found, expected)


def test_no_segments_have_no_maxima() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert segment_maxima(torch.ones(2, 3, 5), none, none.view(0, 2)).shape == (0, 5)
