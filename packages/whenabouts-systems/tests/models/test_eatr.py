"""EaTR: the events of a video are its own, whatever lies beside it and behind its end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.small_batches import mask_of, small_batch

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.eatr import events_of
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch

FEATURES = torch.eye(4)


def video(*stretches: tuple[int, int]) -> torch.Tensor:
    """(T, 4) clips that show one thing for so many clips each."""
    return torch.cat([FEATURES[what].expand(clips, 4) for what, clips in stretches])


def test_events_lie_between_the_clips_where_a_video_changes() -> None:
    """Of 5, 4 and 6 clips: before and behind a cut all differs, at its clip and at the one before it."""
    rows = video((0, 5), (1, 4), (2, 6))[None]
    events = events_of(rows, torch.ones(1, 15, dtype=torch.bool), across_batch=False)[0] * 15
    borders = (events[:, 0] - events[:, 1] / 2).tolist()
    assert borders[0] == 0
    assert {round(border) for border in borders} >= {0, 4, 5, 8, 9}
    assert float(events[-1, 0] + events[-1, 1] / 2) == pytest.approx(14)


def test_events_do_not_depend_on_padding_and_neighbours() -> None:
    one, other = video((0, 4), (1, 5)), video((3, 6), (2, 7))
    rows, mask = torch.rand(2, 13, 4), mask_of([9, 13])
    rows[0, :9], rows[1] = one, other
    both = events_of(rows, mask, across_batch=False)
    alone = events_of(one[None], torch.ones(1, 9, dtype=torch.bool), across_batch=False)
    torch.testing.assert_close(both[0, : alone.shape[1]], alone[0])
    assert both[0, alone.shape[1] :].isnan().all()


def test_the_released_program_has_an_event_over_the_whole_batch() -> None:
    """Of an odd number of videos the middle one gets it; its width is negative."""
    rows = video((0, 4), (1, 4)).expand(3, 8, 4)
    mask = torch.ones(3, 8, dtype=torch.bool)
    released = events_of(rows, mask, across_batch=True)
    assert (released[:, :, 1] < 0).sum(1).tolist() == [0, 1, 0]
    assert not (events_of(rows, mask, across_batch=False)[:, :, 1] < 0).any()


def test_a_video_of_one_clip_has_no_event_and_a_finite_loss() -> None:
    model = small()
    batch = small_batch({"video": 6}, [1, 1], [3, 2], [0, 1])
    losses = model.loss(batch)
    assert (losses["event_span"], losses["event_giou"]) == (0, 0)
    assert all(bool(loss.isfinite()) for loss in losses.values())


@torch.no_grad()
def test_padding_of_clips_and_words_changes_nothing() -> None:
    model = small()
    batch = small_batch({"video": 6}, [9, 5], [4, 2], [0, 1])
    together = model.detect(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    words = QueryBatch(batch.queries.tokens[1:, :2], batch.queries.mask[1:, :2])
    clips = ClipBatch({"video": batch.videos.streams["video"][1:, :5]}, batch.videos.mask[1:, :5])
    alone = model.detect(model.encode_queries(words), model.encode_videos(clips))
    torch.testing.assert_close(together.layers[-1].spans[1:], alone.layers[-1].spans)
    torch.testing.assert_close(together.events[1:], alone.events)


def small() -> Any:
    torch.manual_seed(0)
    settings = {"streams": {"video": 6}, "query_width": 5, "hidden": 8, "heads": 2, "feedforward": 12}
    return new_model("eatr", config_of("eatr", settings)).eval()
