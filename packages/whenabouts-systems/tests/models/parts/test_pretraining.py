"""HERO's pre-training tasks: what is drawn, what depends on what, and that each is learned."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import mask_of
from tests.models.test_hero_whole import SIZES, _batch, _videos
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.parts.cross_modal import Sequences
from whenabouts_systems.models.parts.pretraining import (
    TASKS,
    Pretraining,
    drawn_task,
    hidden_words,
    matched,
    new_places,
    some_of,
)
from whenabouts_systems.models.protocol import Batch, ClipBatch, SentenceBatch
from whenabouts_systems.released.hero import two_clips_long

MASK, BEGIN = 29, 0
EVERY: dict[str, float] = dict.fromkeys(TASKS, 1.0)


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    return Model(Config(**{**SIZES, "pretraining": EVERY, "mask_token": MASK, **settings})).eval()


def test_a_share_of_what_is_there_is_chosen_and_in_every_row_something() -> None:
    torch.manual_seed(0)
    mask = mask_of([40, 1, 20, 0, 3] * 40)
    chosen = some_of(mask, 0.15)
    assert not (chosen & ~mask).any()
    assert torch.equal(chosen.any(1), mask.any(1))
    assert 0.12 < float(chosen[::5].float().mean()) < 0.18


def test_hidden_words_become_the_mask_mostly_and_never_the_first_token() -> None:
    torch.manual_seed(0)
    said = _videos().sentences
    assert said is not None
    counts = {"hidden": 0, "mask": 0, "same": 0}
    for _ in range(60):
        hidden = hidden_words(said, (BEGIN, MASK), 30, 0.15)
        assert hidden is not None
        words, where = hidden.sequences.words, hidden.where
        # The third video has sentences without words: they are not read here.
        assert set(hidden.sequences.owner[:, 0].tolist()) == {0, 1}
        assert (words[:, 0] == BEGIN).all() and not where[:, 0].any()
        assert where.any(1).all() and not (where & ~hidden.sequences.word_mask).any()
        counts["hidden"] += int(where.sum())
        counts["mask"] += int((words[where] == MASK).sum())
        counts["same"] += int((words[where] == hidden.labels).sum())
    assert 0.74 < counts["mask"] / counts["hidden"] < 0.88
    assert 0.05 < counts["same"] / counts["hidden"] < 0.2
    assert hidden_words(replace(said, mask=torch.zeros_like(said.mask)), (BEGIN, MASK), 30, 0.15) is None


@pytest.mark.parametrize(
    ("mask_token", "words"), [(MASK, range(4, 29)), (4, range(5, 30)), (12, range(13, 30)), (2, range(3, 30))]
)
def test_a_hidden_word_becomes_a_word_wherever_the_mask_stands_among_the_special_tokens(
    mask_token: int, words: range
) -> None:
    """RoBERTa's stands behind the words, BERT's and those that `tokenizers` trains before them."""
    torch.manual_seed(0)
    said = _videos().sentences
    assert said is not None
    seen: set[int] = set()
    for _ in range(60):
        hidden = hidden_words(replace(said, words=said.words * 0 + 1), (BEGIN, mask_token), 30, 0.9)
        assert hidden is not None
        seen.update(hidden.sequences.words[hidden.where].tolist())
    seen -= {1, mask_token}
    assert seen <= set(words) and len(seen) > len(words) // 2


def test_a_video_longer_than_the_places_of_order_is_refused_with_what_helps() -> None:
    model, mask = _model(temporal={**SIZES["temporal"], "places": 200}), mask_of([101])
    videos = ClipBatch({name: torch.randn(1, 101, wide) for name, wide in SIZES["streams"].items()}, mask)
    said = SentenceBatch(
        torch.full((1, 1, 3), 5), torch.ones(1, 1, 3, dtype=torch.bool), torch.full((1, 101), -1)
    )
    batch = replace(_batch(), videos=replace(videos, sentences=said))
    with pytest.raises(UsageError, match=r"101 clips, .*fom.* features\.max_clips = 100, or leave fom out"):
        model.task_terms("fom", batch)


def test_clips_change_places_among_themselves() -> None:
    torch.manual_seed(0)
    mask = mask_of([9, 5, 1])
    for _ in range(20):
        places = new_places(mask, 0.5)
        for row, length in zip(places.tolist(), [9, 5, 1], strict=True):
            drawn = [at for at, place in enumerate(row) if place >= 0]
            assert sorted(row[at] for at in drawn) == drawn
            assert drawn and max(drawn) < length


def test_a_clip_that_stays_teaches_nothing_and_an_order_is_told_from_the_clips() -> None:
    model, videos = _model(), _videos()
    learned, drawn = _learned(model, videos)
    none = torch.full(videos.mask.shape, -1)
    swapped = none.clone()
    swapped[0, :2] = torch.tensor([1, 0])
    one, other = (learned.order_loss(*drawn, places) for places in (swapped, swapped.flip(0)))
    assert torch.isfinite(one) and one != other
    first = learned.order_logits(*drawn, torch.arange(9).expand(3, 9))
    moved = learned.order_logits(*drawn, swapped.where(swapped >= 0, torch.arange(9)))
    assert not torch.allclose(first[0], moved[0])
    torch.testing.assert_close(first[1:], moved[1:])


def _learned(model: Model, videos: ClipBatch) -> tuple[Pretraining, tuple[Tensor, Tensor, Sequences]]:
    assert model.encoder is not None and model.pretraining_heads is not None
    learned = model.losses_of_tasks(model.encoder, model.pretraining_heads)
    return learned, (model._features(videos), videos.mask, model.sequences(videos))


@pytest.mark.parametrize("released", [False, True])
@torch.no_grad()
def test_padded_clips_are_negatives_only_as_released(released: bool) -> None:
    model, videos = _model(as_released=released), _videos()
    learned, drawn = _learned(model, videos)
    hidden = torch.zeros_like(videos.mask)
    hidden[:, 1] = True
    logits = learned.clip_logits(*drawn, hidden)
    assert logits.shape == (3, 27 if released else int(videos.mask.sum()))


@pytest.mark.parametrize("released", [False, True])
def test_regression_counts_how_far_what_is_told_lies_from_the_features(released: bool) -> None:
    """Value and gradient by hand; the output layer's bias moves all that is told alike."""
    model, videos = _model(as_released=released), _videos()
    learned, (features, mask, sequences) = _learned(model, videos)
    hidden = torch.zeros_like(mask)
    hidden[0, 3] = hidden[1, :2] = True
    told = learned.predicted_clips(features, mask, sequences, hidden)[hidden].tolist()
    apart = [
        [a - b for a, b in zip(*pair, strict=True)]
        for pair in zip(told, features[hidden].tolist(), strict=True)
    ]
    lengths = [math.hypot(*row) for row in apart]
    losses = learned.regression_loss(features, mask, sequences, hidden)
    expected = lengths if released else [length**2 for length in lengths]
    torch.testing.assert_close(losses.detach(), torch.tensor(expected))
    losses.mean().backward()  # type: ignore[no-untyped-call]
    slopes = [1 / length if released else 2.0 for length in lengths]
    gradient = [sum(slope * row[at] for slope, row in zip(slopes, apart, strict=True)) / 3 for at in range(9)]
    torch.testing.assert_close(learned.heads.clip_out.bias.grad, torch.tensor(gradient))


@torch.no_grad()
def test_what_is_told_of_a_hidden_clip_does_not_see_it() -> None:
    model, videos = _model(), _videos()
    learned, (features, mask, sequences) = _learned(model, videos)
    hidden = torch.zeros_like(mask)
    hidden[0, 3] = True
    other = features.clone()
    other[0, 3] += 1.0
    one, two = (learned.predicted_clips(rows, mask, sequences, hidden) for rows in (features, other))
    assert torch.equal(one, two)


def test_sentences_become_queries_and_are_taken_out_of_their_videos() -> None:
    torch.manual_seed(0)
    videos = _videos()
    said = videos.sentences
    assert said is not None
    batch = matched(videos, 2, 3)
    assert batch is not None and batch.videos.sentences is not None
    # The third video has no words.
    assert sorted(batch.video_of.tolist()) == [0, 0, 1, 1]
    left = batch.videos.sentences.mask
    assert int(said.mask.any(2).sum()) - int(left.any(2).sum()) == 4
    for row, (own, (first, last)) in enumerate(
        zip(batch.video_of.tolist(), batch.spans.tolist(), strict=True)
    ):
        (number,) = {int(said.of_clips[own, clip]) for clip in (first, last)}
        assert not left[own, number].any() and said.mask[own, number].any()
        asked = batch.queries.tokens[row][batch.queries.mask[row]]
        assert torch.equal(asked, said.words[own, number][said.mask[own, number]][:3])
        clips = (said.of_clips[own] == number).nonzero()[:, 0].tolist()
        assert (first, last) == (clips[0], clips[-1])
    every = matched(videos, 5, 9)
    assert every is not None
    released = two_clips_long(every)
    spans, ends = released.spans, videos.mask.sum(1)[released.video_of] - 1
    assert ((spans[:, 1] > spans[:, 0]) | (spans[:, 1] == ends)).all()
    assert matched(replace(videos, sentences=replace(said, mask=said.mask & False)), 5, 9) is None


@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_learned_and_reaches_its_own_head(task: str) -> None:
    model, batch = _model(input_dropout=0.0, dropout=0.0), _batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(25):
        torch.manual_seed(step % 2)  # two draws, again and again
        losses.append(_stepped(model, task, batch, optimizer))
    assert sum(losses[-2:]) < 0.8 * sum(losses[:2])


def _stepped(model: Model, task: str, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    total: Tensor = torch.stack(list(model.task_terms(task, batch).values())).sum()
    total.backward()  # type: ignore[no-untyped-call]
    heads = {"mlm": "word_", "mfm": "clip_", "mffr": "clip_", "fom": "order_", "vsm": "span_query"}
    learned = {name for name, one in model.named_parameters() if one.grad is not None and one.grad.any()}
    assert any(heads[task] in name for name in learned)
    optimizer.step()
    return total.item()


def test_a_task_without_anything_to_do_is_zero() -> None:
    batch = _batch()
    said = batch.videos.sentences
    assert said is not None
    silent = replace(batch, videos=replace(batch.videos, sentences=replace(said, mask=said.mask & False)))
    for task in ("mlm", "vsm"):
        (term,) = _model().task_terms(task, silent).values()
        assert term == 0


def test_tasks_are_drawn_by_their_shares_and_wrong_ones_are_named() -> None:
    torch.manual_seed(0)
    drawn = [drawn_task({"mlm": 3.0, "vsm": 1.0, "fom": 0.0}) for _ in range(200)]
    assert 0.65 < drawn.count("mlm") / 200 < 0.85
    assert "fom" not in drawn
    with pytest.raises(UsageError, match="pretraining has no task 'mrm'; it has mlm, mfm, mffr, fom, vsm"):
        _model(pretraining={"mrm": 1.0})
    with pytest.raises(UsageError, match="the shares of all tasks of pretraining are 0"):
        _model(pretraining={"mlm": 0.0})
    with pytest.raises(UsageError, match="pretraining needs words"):
        Config(pretraining=EVERY)
