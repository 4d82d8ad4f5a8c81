"""TR-DETR beyond its golden numbers: what it does where the released program slips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch, with_more_padding
from torch.nn import functional

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.parts.window_targets import Windows
from whenabouts_systems.models.protocol import Batch


def model(**settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {
        "streams": {"vision": 6},
        "query_width": 5,
        "hidden": 8,
        "heads": 2,
        "windows": 3,
        "feedforward": 12,
        "encoder_layers": 1,
    }
    return new_model("tr_detr", config_of("tr_detr", {**sizes, **settings})).eval()


def batch(**more: Any) -> Batch:
    """Three queries, the first two of one video."""
    spans = torch.tensor([[1, 2], [0, 1], [3, 4]])
    labels = {"saliency_pairs": torch.tensor([[[1, 2], [0, 4]], [[0, 1], [2, 3]], [[3, 4], [0, 1]]])}
    return small_batch({"vision": 6}, [5, 6], [3, 5, 2], [0, 0, 1], spans=spans, labels=labels, **more)


@torch.no_grad()
def test_padding_moves_no_loss_but_as_released() -> None:
    for as_released in (False, True):
        system = model(as_released=as_released)
        short, long = system.loss(batch()), system.loss(with_more_padding(batch()))
        moved = {name for name in short if not torch.isclose(short[name], long[name], rtol=1e-5)}
        assert {"saliency", "clip_text", "video_text"} <= moved if as_released else not moved


@torch.no_grad()
def test_clips_are_encoded_once_before_the_second_pass_but_twice_with_dropout() -> None:
    system, count = model(), [0]

    def one_more(*_: object) -> None:
        count[0] += 1

    system.encoder.register_forward_hook(one_more)
    system.loss(batch())
    assert count == [2]
    system.train().loss(batch())
    assert count == [5]


def best(borders: list[float], clips: int, *, as_released: bool) -> list[int]:
    """First clip and the one behind the last, of a window with these borders in clips, among 8 of a batch."""
    start, end = (border / (8 if as_released else clips) for border in borders)
    spans = torch.tensor([[[0.5, 0.1], [(start + end) / 2, end - start]]])
    windows = Windows(torch.tensor([[[0.0, 3.0], [2.0, 0.0]]]), spans)
    mask = torch.arange(8)[None] < clips
    first, behind, _ = model(as_released=as_released)._best(windows, mask)
    return [first.item(), behind.item()]


def test_the_likeliest_window_is_read_from_its_first_clip_to_its_last() -> None:
    assert best([1.5, 3.5], 6, as_released=False) == [1, 4]
    assert best([-1.5, 3.5], 6, as_released=False) == [0, 4]
    assert best([4.5, 7.5], 6, as_released=False) == [4, 6]


def test_as_released_a_window_that_begins_before_its_video_is_sliced_from_the_end() -> None:
    assert best([1.5, 3.5], 6, as_released=True) == [1, 4]
    assert best([-1.5, 3.5], 6, as_released=True) == [6, 4]  # nothing
    assert best([4.5, 7.5], 6, as_released=True) == [4, 8]


@torch.no_grad()
def test_what_is_read_is_the_window_and_nothing_behind_it() -> None:
    system = model()
    clips = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(2))
    windows = Windows(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.5, 0.4]]]))  # clips 1.5 to 3.5 of 5
    read = system.read(clips, torch.arange(6)[None] < 5, windows)
    rows = torch.cat([clips[:, 1:4], torch.zeros(1, 2, 8)], 1)
    torch.testing.assert_close(read, system.reader(rows)[1][0])


def test_videos_known_to_answer_are_no_wrong_ones() -> None:
    """Queries 0 and 1 share a video: by default only the third is wrong for them."""
    system = model()
    made = batch()
    clips, words = torch.randn(3, 5, 8), torch.randn(3, 4, 8)
    everything = torch.ones(3, 5, dtype=torch.bool), torch.ones(3, 4, dtype=torch.bool)
    all_known = replace(made, positives=torch.ones(3, 2, dtype=torch.bool))
    arguments = (clips, everything[0], words, everything[1])
    assert system._videos_with_texts(all_known, *arguments).item() == 0
    logits = (
        functional.normalize(words.mean(1), dim=1) @ functional.normalize(clips.mean(1), dim=1).T
    ) / 0.07
    expected = torch.stack([logits[0, [0, 2]], logits[1, [1, 2]]]).log_softmax(1)[:, 0]
    third = logits[2].log_softmax(0)[2]
    of_texts = -(expected.sum() + third) / 3
    back = torch.stack([logits[[0, 2], 0], logits[[1, 2], 1]]).log_softmax(1)[:, 0]
    of_videos = -(back.sum() + logits[:, 2].log_softmax(0)[2]) / 3
    found = system._videos_with_texts(made, *arguments)
    torch.testing.assert_close(found, (of_texts + of_videos) / 2)


def test_the_focal_loss_counts_what_is_nearly_right_little() -> None:
    """Of one window: share 1/4 of the true class, 3/4 of the other, and the square of what is missed."""
    logits = torch.tensor([[[2.0, -1.0]]])
    miss = torch.tensor([1 - torch.tensor(2.0).sigmoid(), torch.tensor(-1.0).sigmoid()])
    expected = (torch.tensor([0.25, 0.75]) * miss**2 * -(1 - miss).log()).mean()
    assert model().class_loss(logits, torch.tensor([[0]])).item() == pytest.approx(expected.item(), rel=1e-5)
