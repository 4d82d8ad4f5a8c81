"""Frame-level and video-level contrast against sums written out by hand, and what no batch may break."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.parts.contrast import (
    clip_labels,
    frame_contrast,
    positive_pair_contrast,
    video_contrast,
)


def _scores(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def _gradient(value: Tensor, scores: Tensor) -> Tensor:
    """Of the sum of all losses."""
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return gradient


def _softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def _log_sum(values: list[float]) -> float:
    return math.log(sum(math.exp(value) for value in values))


def test_labels_mark_the_clips_from_first_to_last() -> None:
    labels = clip_labels(torch.tensor([[1, 2], [0, 0], [3, 3]]), 4)
    assert labels.int().tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]


def test_frame_contrast_is_the_formula_of_jensen_and_shannon() -> None:
    scores = _scores(1, 5)
    labels = torch.tensor([[False, True, True, False, False]])
    mask = torch.tensor([[True, True, True, True, False]])
    values = scores[0].tolist()
    inside = [math.log(2) - _softplus(-values[at]) for at in (1, 2)]
    outside = [_softplus(-values[at]) + values[at] - math.log(2) for at in (0, 3)]
    expected = sum(outside) / 2 - sum(inside) / 2
    assert frame_contrast(scores, labels, mask).item() == pytest.approx(expected, abs=1e-12)


def test_frame_contrast_falls_as_the_moment_stands_out() -> None:
    labels = torch.tensor([[True, False]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    apart = [frame_contrast(torch.tensor([[up, -up]]), labels, mask).item() for up in (-2.0, 0.0, 2.0, 9.0)]
    assert apart == sorted(apart, reverse=True)
    assert apart[1] == 0.0


def test_padded_clips_add_nothing_to_frame_contrast_and_get_no_gradient() -> None:
    scores = torch.cat([_scores(2, 4), torch.full((2, 3), 50.0, dtype=torch.float64)], dim=1)
    scores.requires_grad_()
    mask = torch.arange(7).expand(2, 7) < 4
    labels = clip_labels(torch.tensor([[1, 6], [0, 2]]), 7)
    padded = frame_contrast(scores, labels, mask)
    short = frame_contrast(scores[:, :4], labels[:, :4], mask[:, :4])
    assert torch.equal(padded, short)
    gradient = _gradient(padded, scores)
    assert (gradient[:, 4:] == 0).all()
    assert (gradient[:, :4] != 0).all()


@pytest.mark.parametrize("inside", [True, False], ids=["the moment is the video", "no clip is labelled"])
def test_frame_contrast_is_finite_when_one_side_has_no_clip(inside: bool) -> None:
    scores = _scores(1, 3).requires_grad_()
    value = frame_contrast(scores, torch.full((1, 3), inside), torch.ones(1, 3, dtype=torch.bool))
    gradient = _gradient(value, scores)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


def test_frame_contrast_stays_finite_for_extreme_scores() -> None:
    scores = torch.tensor([[1e4, -1e4, 1e4, -1e4]], requires_grad=True)
    labels = torch.tensor([[True, True, False, False]])
    value = frame_contrast(scores, labels, torch.ones(1, 4, dtype=torch.bool))
    gradient = _gradient(value, scores)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


def test_video_contrast_as_released_counts_the_own_pair_in_row_and_column() -> None:
    scores = _scores(3, 3)
    value = video_contrast(scores, torch.arange(3))
    for query in range(3):
        pairs = [*scores[query].tolist(), *scores[:, query].tolist()]
        expected = _log_sum(pairs) - scores[query, query].item()
        assert value[query].item() == pytest.approx(expected, abs=1e-12)


def test_video_contrast_with_the_mask_sums_over_all_positives_and_counts_every_pair_once() -> None:
    scores = _scores(3, 4)  # two queries of one video, and two videos that are negatives only
    video_of = torch.tensor([0, 1, 0])
    positives = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)
    value = video_contrast(scores, video_of, positives)
    for query, own in enumerate(video_of.tolist()):
        pairs = {(query, video) for video in range(4)} | {(other, own) for other in range(3)}
        every = _log_sum([scores[pair].item() for pair in pairs])
        related = _log_sum([scores[pair].item() for pair in pairs if positives[pair]])
        assert value[query].item() == pytest.approx(every - related, abs=1e-12)


def test_video_contrast_never_pushes_a_positive_pair_down() -> None:
    scores = _scores(4, 4).requires_grad_()
    positives = torch.eye(4, dtype=torch.bool) | (_scores(4, 4) > 0.5)
    gradient = _gradient(video_contrast(scores, torch.arange(4), positives), scores)
    assert (gradient[positives] <= 1e-12).all()
    assert (gradient[~positives] > 0).all()


def test_video_contrast_as_released_pushes_a_second_positive_down() -> None:
    scores = _scores(4, 4).requires_grad_()
    gradient = _gradient(video_contrast(scores, torch.arange(4)), scores)
    assert (gradient[~torch.eye(4, dtype=torch.bool)] > 0).all()


def test_video_contrast_of_one_query_and_one_video_is_zero_with_the_mask() -> None:
    scores = torch.tensor([[3.0]], requires_grad=True)
    one, video_of = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, dtype=torch.int64)
    value = video_contrast(scores, video_of, one)
    gradient = _gradient(value, scores)
    assert value.tolist() == [0.0]
    assert gradient.tolist() == [[0.0]]
    assert video_contrast(scores, video_of).item() == pytest.approx(math.log(2))


def test_a_batch_of_positives_only_costs_nothing() -> None:
    value = video_contrast(_scores(3, 3), torch.arange(3), torch.ones(3, 3, dtype=torch.bool))
    assert value.abs().max().item() < 1e-12


POSITIVES = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0]], dtype=torch.bool)


def test_the_positive_pair_mask_sums_all_positives_in_the_numerator() -> None:
    scores = _scores(3, 4)
    summed = positive_pair_contrast(scores, POSITIVES)
    literal = positive_pair_contrast(scores, POSITIVES, "scores")
    for row in range(3):
        values = scores[row].tolist()
        positive = [value for value, known in zip(values, POSITIVES[row].tolist(), strict=True) if known]
        assert summed[row].item() == pytest.approx(_log_sum(values) - _log_sum(positive), abs=1e-12)
        assert literal[row].item() == pytest.approx(_log_sum(values) - sum(positive), abs=1e-12)


def test_with_one_positive_both_readings_are_the_softmax_of_the_own_pair() -> None:
    scores, own = _scores(4, 4), torch.eye(4, dtype=torch.bool)
    expected = -scores.log_softmax(1).diagonal()
    torch.testing.assert_close(positive_pair_contrast(scores, own), expected)
    torch.testing.assert_close(positive_pair_contrast(scores, own, "scores"), expected)


def test_the_positive_pair_mask_pulls_every_positive_up_and_every_negative_down() -> None:
    scores = _scores(3, 4).requires_grad_()
    gradient = _gradient(positive_pair_contrast(scores, POSITIVES), scores)
    assert (gradient[POSITIVES] < 0).all() and (gradient[~POSITIVES] > 0).all()
