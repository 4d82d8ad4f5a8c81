"""SQuiDNet's comparison of clips and words, its measures and losses, each against a plain computation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.models.small_batches import mask_of, small_batch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import new_model, squidnet
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, Retriever
from whenabouts_systems.models.squidnet import ComparedWords, Config, Model

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 7, 2, 5], [3, 1, 5]
OWN = [2, 0, 1]
NEGATIVES = [[0, 3], [1, -1], [3, 2]]
SPANS = [[0, 1], [1, 3], [2, 2]]


def _model(**settings: Any) -> Model:
    """With weights large enough that every part of a pair says something."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "clusters": 3, "span_hidden": 8, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": 5, "max_tokens": 8, "initializer_range": 0.3}
    made: Model = new_model(
        "squidnet", Config(**{**sizes, **told, "measure": "moment_video", **settings})
    ).eval()
    return made


def _batch(**more: Any) -> Batch:
    told = {"spans": torch.tensor(SPANS), "negatives": torch.tensor(NEGATIVES), **more}
    return small_batch(STREAMS, CLIPS, TOKENS, OWN, **told)


def _alone(model: Model, batch: Batch, query: int, video: int) -> tuple[Tensor, Tensor]:
    """(2, T) logits of one pair by itself, nothing padded, and its video's own score."""
    clips, tokens = int(batch.videos.mask[video].sum()), int(batch.queries.mask[query].sum())
    streams = {name: one[video, :clips][None] for name, one in batch.videos.streams.items()}
    asked = QueryBatch(batch.queries.tokens[query, :tokens][None], torch.ones(1, tokens, dtype=torch.bool))
    shown = ClipBatch(streams, torch.ones(1, clips, dtype=torch.bool))
    found = model.pair_logits(model.encode_queries(asked), model.encode_videos(shown))
    assert found.video is not None
    return found.borders[:, 0], found.video[0]


@pytest.mark.parametrize("values", [1, 200, 1 << 22])
@torch.no_grad()
def test_every_clip_is_compared_with_every_word(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs are compared at once, in whatever order."""
    monkeypatch.setattr(squidnet, "_VALUES", {"cpu": values})
    torch.manual_seed(0)
    compared = ComparedWords(6)
    masks = mask_of([4, 2, 5, 3]), mask_of([3, 5, 1, 2])
    clips, words = torch.randn(4, 5, 6), torch.randn(4, 5, 6)
    found = compared.similarity(clips, words, *masks)
    assert found.shape == (4, 5, 5)
    for pair, clip, word in (masks[0][:, :, None] & masks[1][:, None]).nonzero().tolist():
        v, q = clips[pair, clip], words[pair, word]
        expected = compared.narrow(compared.wide(torch.cat([v, q, v * q])).relu())[0]
        torch.testing.assert_close(found[pair, clip, word], expected, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_scores_are_log_probabilities_and_the_videos_own_score() -> None:
    model, batch = _model(), _batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    rows = torch.tensor([0, 3, 1])
    found = model.score_spans(queries, videos.take(rows))
    sigmoids = _model(probabilities="sigmoid").score_spans(queries, videos.take(rows))
    for query, video in enumerate(rows.tolist()):
        borders, own = _alone(model, batch, query, video)
        start, end = borders.log_softmax(1)
        clips = CLIPS[video]
        torch.testing.assert_close(found.start[query, :clips], start + own, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.end[query, :clips], end, atol=1e-5, rtol=1e-5)
        start, end = borders.sigmoid().log()
        at = sigmoids.start[query, :clips]
        torch.testing.assert_close(at, start + own.sigmoid().log(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(sigmoids.end[query, :clips], end, atol=1e-5, rtol=1e-5)


def test_losses_are_cross_entropies_over_own_video_and_negatives() -> None:
    model, batch = _model(lambda_tl=2.0, lambda_video=3.0), _batch(weight=torch.tensor([1.0, 0.5, 0.0]))
    spans, videos = [], []
    for query, negatives in enumerate([[0, 3], [1], [3, 2]]):
        pairs = [_alone(model, batch, query, video) for video in (OWN[query], *negatives)]
        every = torch.cat([borders for borders, _ in pairs], dim=1).log_softmax(1)
        spans.append(-every[0, SPANS[query][0]] - every[1, SPANS[query][1]])
        videos.append(-torch.stack([own for _, own in pairs]).log_softmax(0)[0])
    assert batch.weight is not None
    losses = model.loss(batch)
    for term, values, factor in (("spans", spans, 2.0), ("videos", videos, 3.0)):
        expected = factor * (torch.stack(values) * batch.weight).mean()
        torch.testing.assert_close(losses[term], expected, atol=1e-5, rtol=1e-5)


def test_a_negative_that_answers_is_none_unless_as_released() -> None:
    positives = torch.zeros(3, 4, dtype=torch.bool)
    positives[[0, 1, 2, 0], [*OWN, 3]] = True
    one_less = torch.tensor([[0, -1], [1, -1], [3, 2]])
    for released in (False, True):
        model = _model(as_released=released)
        answering = model.loss(_batch(positives=positives))["videos"]
        assert torch.equal(answering, model.loss(_batch(negatives=one_less))["videos"]) != released


def test_what_the_retriever_says_counts_where_a_video_has_no_own_score() -> None:
    assert _model().video_weight == 0.0
    plain = _model(measure="moment", alpha=7.0)
    assert (plain.video_weight, plain.video_score) == (7.0, None)
    assert set(plain.loss(_batch())) == {"spans"}
    assert not isinstance(plain, Retriever)


def test_a_video_score_without_negatives_is_refused() -> None:
    with pytest.raises(UsageError, match=r'measure = "moment_video" needs negatives'):
        _model().loss(_batch(negatives=None))
