"""CG-DETR beyond its golden numbers: what it does where the released program slips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch, with_more_padding
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.cg_detr import Model, unlike_each_other
from whenabouts_systems.models.protocol import Batch

SMALL = {"streams": {"vision": 6}, "query_width": 5, "hidden": 16, "heads": 2, "dummies": 3, "prompts": 4}


def model(**settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "windows": 4, "feedforward": 12}
    return new_model("cg_detr", config_of("cg_detr", {**SMALL, **sizes, **settings})).eval()


def batch(source: list[int] | None = None) -> Batch:
    """Three queries, each with a video of its own."""
    spans = torch.tensor([[1, 2], [0, 1], [3, 4]])
    labels = {"saliency_pairs": torch.tensor([[[1, 2], [0, 4]], [[0, 1], [2, 3]], [[3, 4], [0, 1]]])}
    if source:
        labels["source"] = torch.tensor(source)
    return small_batch({"vision": 6}, [5, 4, 6], [3, 5, 2], [0, 1, 2], spans=spans, labels=labels)


@torch.no_grad()
def test_padding_moves_no_loss_but_as_released() -> None:
    for as_released in (False, True):
        system = model(as_released=as_released)
        short, long = system.loss(batch()), system.loss(with_more_padding(batch()))
        moved = {name for name in short if not torch.isclose(short[name], long[name], rtol=1e-4)}
        assert moved == ({"saliency", "align", "distill"} if as_released else set())


@torch.no_grad()
def test_words_of_the_same_recording_are_no_wrong_words() -> None:
    """Row p is asked with the words of row p + 1."""
    system, wrong = model(), torch.tensor([1, 2, 0])
    assert system._is_negative(batch(), wrong).tolist() == [True] * 3
    assert system._is_negative(batch([7, 7, 8]), wrong).tolist() == [False, True, True]
    known = replace(batch(), positives=torch.ones(3, 3, dtype=torch.bool))
    assert not system._is_negative(known, wrong).any()
    assert model(as_released=True)._is_negative(known, wrong).all()


@torch.no_grad()
def test_a_single_query_without_wrong_words_counts_as_any_other() -> None:
    """As released its contrast vanishes; that of all clips is over one pass, or over both."""
    generator = torch.Generator().manual_seed(5)
    scores, others = torch.randn(3, 5, generator=generator), torch.randn(2, 5, generator=generator)
    labels = torch.tensor([[0, 3.0, 9, 0, 0], [5, 5, 0, 0, 0], [0, 0, 0, 2, 12]])
    mask, negative = torch.ones(3, 5, dtype=torch.bool), torch.tensor([True, False, True])

    def expected(row: int, wrong: Tensor | None) -> Tensor:
        candidates = scores[row] if wrong is None else torch.cat([scores[row], wrong])
        log_p = (candidates / 0.5).log_softmax(0)[:5]
        terms = [
            log_p[labels[row] >= rating].mean() for rating in range(1, 12) if labels[row].max() >= rating
        ]
        return -torch.stack(terms).sum() / 12

    rows = torch.stack([expected(0, others[0]), expected(1, None), expected(2, others[1])])
    found = model()._contrast(scores, others, labels, mask, negative)
    torch.testing.assert_close(found, rows.mean(), rtol=1e-4, atol=1e-5)
    released = model(as_released=True)._contrast(scores, others, labels, mask, negative)
    torch.testing.assert_close(released, (rows[0] + rows[2]) / 2, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_moment_fits_any_dummy_sentence_but_its_own() -> None:
    """Of two: with one-hot vectors the softmax over four is told by how many of them are alike."""
    one, other, third = torch.eye(3)
    inside, outside = torch.stack([one, other]), torch.stack([third, third])
    far = torch.stack([third, third])
    apart = model()._align(inside, outside, inside, far)
    close = model()._align(inside, outside, inside, inside)
    row = torch.tensor([0.0, 0.0, 1.0, 1.0]).softmax(0)  # neither moment, but both of what lies outside
    fits = -torch.tensor([1.0, 0.0, 0.0, 0.0]).log_softmax(0)[0]
    torch.testing.assert_close(apart, fits - (1 - row[0]).log())
    torch.testing.assert_close(close, fits - (1 - torch.tensor([1.0, 0, 0, 0]).softmax(0)[0]).log())
    assert apart < close


def test_vectors_are_pushed_from_each_other_not_from_themselves() -> None:
    tokens = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], requires_grad=True)
    assert unlike_each_other(tokens).item() == pytest.approx(2 / 9)
    assert unlike_each_other(tokens[:1]).item() == 0


@torch.no_grad()
def test_a_clip_shares_its_attention_among_dummies_and_real_words() -> None:

    system: Model = model()
    made = batch()
    queries, videos = system.encode_queries(made.queries), system.encode_videos(made.videos)
    found = system.guided(queries, system.clips_of(videos), videos.mask)
    assert found.attention.shape == (3, 6, 3 + 5)
    torch.testing.assert_close(found.attention.sum(-1), torch.ones(3, 6))
    assert not found.attention[0, :, 3 + 3 :].any()  # the words of query 0 are three


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_heads": 3}, "hidden = 16 is no multiple of text_heads = 3"),
        ({"prompts_taken": 5}, "prompts_taken = 5, but there are 4 prompts"),
        ({"dummies": 0}, "cg_detr: dummies"),
    ],
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model(**settings)
