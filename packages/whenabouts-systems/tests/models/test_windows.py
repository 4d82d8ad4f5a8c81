"""Windows on no grid: which are answered, how they are ranked, and what they are learned from."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.detr_cases import SYSTEMS
from tests.models.small_batches import small_batch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding, best_spans, best_windows
from whenabouts_systems.models.parts.window_model import Pieces
from whenabouts_systems.models.parts.window_targets import (
    Weights,
    Windows,
    generalized_iou,
    matched,
    relevant_clips,
    saliency_pairs,
    true_windows,
    window_losses,
)
from whenabouts_systems.models.protocol import ClipBatch, SpanScores

MASK = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


def scores_of(*windows: list[list[float]]) -> SpanScores:
    return SpanScores.of_windows(torch.tensor(windows), MASK[: len(windows)])


def found(scores: SpanScores, k: int = 5, **decoding: Any) -> list[list[tuple[float, float, float]]]:
    """Start, end (clips) and score of what is answered, pair by pair."""
    best = best_spans(scores, Decoding(**decoding), k)
    assert best.borders is not None
    rows = zip(best.borders.tolist(), best.score.tolist(), strict=True)
    return [
        [(*borders, score) for borders, score in zip(pair, values, strict=True) if score > -np.inf]
        for pair, values in rows
    ]


def test_windows_are_answered_best_first_and_keep_their_borders() -> None:
    pair = found(scores_of([[0.5, 2.25, -1.0], [1.5, 4.0, -0.5]]))[0]
    assert pair == [(1.5, 4.0, -0.5), (0.5, 2.25, -1.0)]


def test_a_window_is_cut_to_its_video_and_an_empty_one_is_not_answered() -> None:
    outside, across, turned = [4.5, 5.5, 0.0], [-1.0, 9.0, -1.0], [2.0, 1.0, 0.0]
    assert found(scores_of([across], [outside]))[0] == [(0.0, 6.0, -1.0)]
    assert found(scores_of([[0.0, 1.0, 0.0]] * 3, [outside, across, turned]))[1] == [(0.0, 4.0, -1.0)]


def test_the_clips_that_a_window_touches_are_bounded() -> None:
    """From 0.9 to 2.1 it touches three clips."""
    scores = scores_of([[0.9, 2.1, -1.0], [3.0, 4.0, -2.0]])
    assert [one[0] for one in found(scores, max_clips=2)[0]] == pytest.approx([3.0])
    assert [one[0] for one in found(scores, min_clips=2)[0]] == pytest.approx([0.9])
    best = best_spans(scores, Decoding(), 2)
    assert best.first.tolist() == [[0, 3]]
    assert best.last.tolist() == [[2, 3]]


def test_a_window_within_one_clip_is_answered_whatever_ends_are() -> None:
    inside = scores_of([[1.2, 1.7, -1.0]])
    assert [len(found(inside, ends=ends)[0]) for ends in ("inclusive", "exclusive", "as-released")] == [1] * 3
    assert found(inside, ends="as-released", max_clips=1)[0] == [(1.0, 2.0, -1.0)]


def test_windows_of_equal_scores_are_ordered_by_start_and_end() -> None:
    """As rounded windows are, too: a run that is sorted by score, then moment, keeps this order."""
    rows = [[2.0, 4.0, -1.0], [1.2, 3.0, -1.0], [0.8, 3.6, -1.0], [0.8, 2.0, -1.0], [3.0, 4.0, -0.5]]
    windows, clips, video = torch.tensor([[rows]]), torch.full((1, 1), 4), torch.zeros(1, 1)
    best = best_windows(windows, clips, video, Decoding(), 4)
    assert best.borders is not None
    expected = torch.tensor([[3.0, 4.0], [0.8, 2.0], [0.8, 3.6], [1.2, 3.0]])
    torch.testing.assert_close(best.borders[0], expected)
    assert best.first.tolist() == [[3, 0, 0, 1]] and best.last.tolist() == [[3, 1, 3, 2]]
    rounded = best_windows(windows, clips, video, Decoding(ends="as-released"), 5).borders
    assert rounded is not None
    assert rounded[0].tolist() == [[3.0, 4.0], [1.0, 2.0], [1.0, 3.0], [1.0, 4.0], [2.0, 4.0]]


def test_windows_of_several_videos_are_ranked_together() -> None:
    windows = torch.tensor([[[[0.0, 1.0, -1.0]], [[2.0, 3.0, -2.0]], [[1.0, 2.0, -1.0]]]])
    video = torch.tensor([[0.0, 1.5, -torch.inf]])
    best = best_windows(windows, torch.full((1, 3), 4), video, Decoding(), 3)
    assert best.place[0, :2].tolist() == [1, 0]
    assert best.score[0].tolist() == [-0.5, -1.0, -torch.inf]


def test_released_evaluation_rounds_to_whole_clips() -> None:
    assert found(scores_of([[0.6, 2.4, 0.0]]), ends="as-released")[0] == [(1.0, 2.0, 0.0)]


def test_seconds_end_with_the_video() -> None:
    best = best_spans(scores_of([[0.5, 6.0, 0.0]]), Decoding(), 1)
    start, end = best.seconds(np.array([[2.0]]), np.array([[11.0]]), Decoding())
    assert (start[0, 0], end[0, 0]) == (1.0, 11.0)


def test_a_window_in_the_empty_rest_of_the_last_clip_is_answered_as_the_clip() -> None:
    """The sixth clip of 2 seconds has one second of video; a moment of no length could not be answered."""
    scores = scores_of([[5.6, 6.0, 0.0], [5.25, 6.0, -1.0], [1.0, 2.0, -2.0]])
    best = best_spans(scores, Decoding(), 4)
    start, end = best.seconds(np.array([[2.0]]), np.array([[11.0]]), Decoding())
    assert start[0].tolist() == [10.0, 10.5, 2.0, 0.0] and end[0].tolist() == [11.0, 11.0, 4.0, 0.0]


def test_generalized_iou_knows_windows_that_share_nothing() -> None:
    """Half of each is shared; and two of one clip with a gap of one between them."""
    first = torch.tensor([[1.0, 2.0], [0.5, 1.0], [2.0, 2.0]])
    second = torch.tensor([[2.0, 2.0], [2.5, 1.0], [2.0, 2.0]])
    assert generalized_iou(first, second).tolist() == pytest.approx([1 / 3, -1 / 3, 1.0])


def test_the_assignment_is_the_cheapest_of_all() -> None:
    generator = torch.Generator().manual_seed(4)
    predicted = Windows(
        torch.randn(6, 5, 2, generator=generator), torch.rand(6, 5, 2, generator=generator) + 0.01
    )
    truth = torch.rand(6, 3, 2, generator=generator) + 0.01
    truth[1, 2:] = torch.nan
    truth[4, 1:] = torch.nan
    weights = Weights(span=3.0, giou=2.0, label=1.5)
    query, prediction, target = matched(predicted, truth, weights)
    for at in range(6):
        count = int(truth[at].isfinite().all(-1).sum())
        mine = dict(zip(target[query == at].tolist(), prediction[query == at].tolist(), strict=True))
        costs = {
            order: _cost(predicted, truth, at, order, weights) for order in permutations(range(5), count)
        }
        least = min(costs, key=costs.__getitem__)
        assert [mine[number] for number in range(count)] == list(least)


@pytest.mark.parametrize(("costs", "expected"), [(Weights(9, 0, 1), 0.1), (Weights(1, 0, 9), 0.5)])
def test_windows_are_matched_by_what_they_cost_whatever_they_weigh(costs: Weights, expected: float) -> None:
    """The first lies near and is taken for background; the second is far off and taken for an answer."""
    predicted = Windows(torch.tensor([[[-2.0, 2.0], [2.0, -2.0]]]), torch.tensor([[[0.3, 0.2], [0.7, 0.2]]]))
    truth = torch.tensor([[[0.2, 0.2]]])
    losses = window_losses(predicted, truth, Weights(2, 0, 0), costs, lambda logits, classes: logits.sum())
    assert losses["span"].item() == pytest.approx(2 * expected / 2)


def test_layers_before_the_last_may_be_left_out_of_the_loss() -> None:
    sizes = {"streams": {"v": 4}, "query_width": 5, "hidden": 8, "heads": 2, "feedforward": 8, "windows": 3}
    batch = small_batch({"v": 4}, [5, 6], [3, 2], [0, 1], spans=torch.tensor([[1, 2], [0, 4]]))
    torch.manual_seed(0)
    models = [
        new_model("moment_detr", config_of("moment_detr", {**sizes, "each_layer": each})).eval()
        for each in (True, False)
    ]
    models[1].load_state_dict(models[0].state_dict())
    torch.manual_seed(0)
    every = models[0].loss(batch)
    torch.manual_seed(0)
    last = models[1].loss(batch)
    assert set(every) - set(last) == {"span_0", "giou_0", "label_0"}
    assert all(torch.equal(value, every[name]) for name, value in last.items())


def _cost(predicted: Windows, truth: Tensor, at: int, order: tuple[int, ...], weights: Weights) -> float:
    spans, classes = predicted.spans[at, list(order)], predicted.logits[at, list(order)].softmax(-1)
    real = truth[at, : len(order)]
    cost = weights.span * (spans - real).abs().sum(-1) - weights.giou * generalized_iou(spans, real)
    return float((cost - weights.label * classes[:, 0]).sum())


def test_without_windows_a_query_has_the_one_of_its_span() -> None:
    batch = small_batch({"video": 3}, [4, 5], [2, 3], [0, 1], spans=torch.tensor([[1, 2], [0, 4]]))
    assert true_windows(batch, torch.tensor([4, 5])).tolist() == [[[0.5, 0.5]], [[0.5, 1.0]]]
    inside = relevant_clips(batch, batch.videos.mask)
    assert inside.tolist() == [[False, True, True, False, False], [True] * 5]


def test_pairs_of_clips_hold_one_inside_and_one_outside() -> None:
    windows = torch.tensor([[[0.5, 1.5], [3.0, 4.0]], [[0.0, 5.0], [torch.nan, torch.nan]]])
    rated = torch.tensor([[3.0, 9.0, 0.0, 5.0, 0.0], [1.0, 2.0, 7.0, 4.0, 4.0]])
    labels = {"windows": windows, "saliency": rated}
    batch = small_batch({"video": 3}, [5, 5], [2, 3], [0, 1], labels=labels)
    for _ in range(20):
        higher, lower = saliency_pairs(batch, batch.videos.mask)
        assert (higher[0, 0].item(), lower[0, 0].item()) == (1, 0)
        assert higher[0, 1] in (0, 1, 3)
        assert lower[0, 1] in (2, 4)
        assert higher[1].tolist() == [2, 2]
        assert lower[1].tolist() == [0, 0]


def test_a_long_video_is_read_in_pieces_that_overlap_by_half() -> None:
    """19 clips in pieces of 8: the last ends with the video; a short video is one piece."""
    mask = torch.arange(19) < torch.tensor([[19], [5]])
    pieces = Pieces.of(mask, 8)
    assert list(zip(pieces.pair.tolist(), pieces.begin.tolist(), pieces.clips.tolist(), strict=True)) == [
        (0, 0, 8),
        (0, 4, 8),
        (0, 8, 8),
        (0, 11, 8),
        (1, 0, 5),
    ]


@pytest.mark.parametrize("system", SYSTEMS)
@torch.no_grad()
def test_every_even_width_makes_a_system_and_an_odd_one_is_refused(system: str) -> None:
    batch = small_batch({"vision": 4}, [5, 6], [3, 2], [0, 1])
    sizes = {"streams": {"vision": 4}, "query_width": 5, "feedforward": 8, "heads": 1}
    sizes |= {"text_heads": 1} if system == "cg_detr" else {}
    model: Any = new_model(system, config_of(system, {**sizes, "hidden": 6})).eval()
    scores = model.score_spans(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    assert scores.windows.isfinite().all()
    with pytest.raises(UsageError, match=f"{system}: hidden is 7; accepted: an even number, 2 or more"):
        config_of(system, {**sizes, "hidden": 7})


@pytest.mark.parametrize("system", SYSTEMS)
@torch.no_grad()
def test_what_is_found_in_a_long_video_is_what_is_found_in_its_pieces(system: str) -> None:
    config = config_of(
        system, {"streams": {"vision": 6}, "query_width": 5, "hidden": 8, "heads": 2, "longest_clips": 8}
    )
    model: Any = new_model(system, config).eval()
    rows = torch.randn(1, 19, 6, generator=torch.Generator().manual_seed(3))
    batch = small_batch({"vision": 6}, [19], [4], [0])
    queries = model.encode_queries(batch.queries)
    whole = ClipBatch({"vision": rows}, torch.ones(1, 19, dtype=torch.bool))
    together = model.score_spans(queries, model.encode_videos(whole)).windows
    curve = model.saliency(queries, model.encode_videos(whole))[0]
    assert together.shape == (1, 4 * config.windows, 3)
    curves = torch.full((4, 19), torch.nan)
    for number, begin in enumerate((0, 4, 8, 11)):
        piece = ClipBatch({"vision": rows[:, begin : begin + 8]}, torch.ones(1, 8, dtype=torch.bool))
        found = model.score_spans(queries, model.encode_videos(piece)).windows
        mine = together[:, number * config.windows : (number + 1) * config.windows]
        torch.testing.assert_close(mine - torch.tensor([begin, begin, 0.0]), found)
        curves[number, begin : begin + 8] = model.saliency(queries, model.encode_videos(piece))[0]
    torch.testing.assert_close(curve, curves.nanmean(0))
