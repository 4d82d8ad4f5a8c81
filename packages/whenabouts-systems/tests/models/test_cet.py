"""CET's equations, each against a plain computation, and its settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import cet
from whenabouts_systems.models.cet import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, QueryEncoding, VideoEncoding

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 7, 2], [3, 1, 5, 2]
VIDEO_OF = [2, 0, 1, 0]
SPANS = [[0, 1], [1, 3], [2, 2], [0, 0]]


def _model(**settings: Any) -> Model:
    """With weights large enough that every part of a pair says something."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "layers": 2, "feedforward": 20, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": 5, "max_tokens": 8, "initializer_range": 0.3, **settings}
    return Model(Config(**{**sizes, **told})).eval()


def _batch(**more: Any) -> Batch:
    positives = torch.zeros(4, 3, dtype=torch.bool)
    told = {"spans": torch.tensor(SPANS), "positives": positives, **more}
    return small_batch(STREAMS, CLIPS, TOKENS, VIDEO_OF, **told)


def _by_hand(model: Model, words: Tensor, clips: Tensor) -> tuple[Tensor, Tensor]:
    """p_start and p_end (T,) of one pair by equations 7 to 9: words (L, D_q), clips (T, D_v)."""
    every = torch.ones(1, len(clips) + len(words), dtype=torch.bool)
    projected = (
        (clips @ model.clip_projection.weight.T)[None],
        (words @ model.token_projection.weight.T)[None],
    )
    first = model.clip_positions(projected[0], every[:, : len(clips)])
    second = model.token_positions(projected[1], every[:, : len(words)])
    of_clips = model.encoder(torch.cat([first, second], 1), every)[0, : len(clips)]
    return model.start(of_clips)[:, 0].sigmoid(), model.end(of_clips)[:, 0].sigmoid()


def _probabilities(model: Model, batch: Batch) -> list[tuple[Tensor, Tensor]]:
    """By hand, of each query in its own video."""
    features = torch.cat(list(batch.videos.streams.values()), dim=2)
    return [
        _by_hand(model, batch.queries.tokens[row, : TOKENS[row]], features[video, : CLIPS[video]])
        for row, video in enumerate(VIDEO_OF)
    ]


@torch.no_grad()
def test_span_scores_are_the_logarithms_of_equation_9() -> None:
    model, batch = _model(), _batch()
    videos = model.encode_videos(batch.videos).take(batch.video_of)
    scores = model.score_spans(model.encode_queries(batch.queries), videos)
    for row, (start, end) in enumerate(_probabilities(model, batch)):
        torch.testing.assert_close(scores.start[row, : len(start)].exp(), start, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scores.end[row, : len(end)].exp(), end, rtol=1e-4, atol=1e-5)
        assert scores.mask[row].tolist() == [place < len(start) for place in range(max(CLIPS))]


@torch.no_grad()
def test_the_loss_is_equations_10_to_12() -> None:
    model, batch = _model(label_power=3.0), _batch()
    expected = 0.0
    for (first, last), both in zip(SPANS, _probabilities(model, batch), strict=True):
        count = last - first + 1
        for which, chances in enumerate(both):
            for place, chance in enumerate(chances.tolist()):
                share = (last + 1 - place, place - first + 1)[which] / count
                wanted = share**3 if first <= place <= last else 0.0
                entropy = -wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance)
                expected += entropy / len(chances) / 2 / len(SPANS)
    losses = model.loss(batch)
    assert set(losses) == {"start", "end"}
    assert sum(one.item() for one in losses.values()) == pytest.approx(expected, rel=1e-4)


def test_scores_of_many_pairs_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = _model(), _batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    whole = model.score_spans(queries, videos.take(batch.video_of))
    monkeypatch.setattr(cet, "_ROWS", 1)
    seen: list[int] = []

    def watched(queries: QueryEncoding, videos: VideoEncoding, video_of: Tensor) -> Tensor:
        seen.append(len(video_of))
        return Model.border_logits(model, queries, videos, video_of)

    monkeypatch.setattr(model, "border_logits", watched)
    blocks = model.score_spans(queries, videos.take(batch.video_of))
    assert seen == [1, 1, 1, 1]
    torch.testing.assert_close(whole.start, blocks.start, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole.end, blocks.end, rtol=1e-4, atol=1e-5)


def test_every_word_and_every_clip_of_a_pair_moves_its_borders() -> None:
    """Query and video are seen together: no word or clip is idle."""
    model, batch = _model(), _batch()
    tokens = batch.queries.tokens.clone().requires_grad_()
    clips = batch.videos.streams["video"].clone().requires_grad_()
    streams = {**batch.videos.streams, "video": clips}
    queries = model.encode_queries(QueryBatch(tokens, batch.queries.mask))
    videos = model.encode_videos(ClipBatch(streams, batch.videos.mask))
    logits = model.border_logits(queries, videos, batch.video_of)
    of_tokens, of_clips = torch.autograd.grad(logits[0, 2, 0], [tokens, clips])
    assert of_tokens.any(2).tolist() == [[row == 2 for _ in range(5)] for row in range(4)]
    assert of_clips.any(2).tolist() == [[row == 1 for _ in range(7)] for row in range(3)]


def test_other_videos_and_other_known_answers_have_no_part_in_the_loss() -> None:
    model, batch = _model(), _batch()
    streams = {name: one.clone() for name, one in batch.videos.streams.items()}
    changed = replace(batch, video_of=torch.tensor([2, 0, 2, 0]))
    others = {name: one.index_fill(0, torch.tensor([1]), 5.0) for name, one in streams.items()}
    spans = torch.tensor([[0, 1], [1, 3], [0, 0], [0, 0]])
    plain = model.loss(replace(changed, spans=spans))
    other = model.loss(
        replace(
            changed,
            spans=spans,
            videos=ClipBatch(others, batch.videos.mask),
            positives=torch.ones(4, 3, dtype=torch.bool),
        )
    )
    assert all(torch.equal(plain[name], other[name]) for name in plain)


def test_a_weighted_query_counts_less() -> None:
    model, batch = _model(), _batch()
    plain, half = model.loss(batch), model.loss(replace(batch, weight=torch.full((4,), 0.5)))
    for name in plain:
        torch.testing.assert_close(half[name], 0.5 * plain[name])


def test_as_released_labels_are_those_of_the_printed_letter() -> None:
    batch = replace(_batch(), spans=torch.tensor([[1, 1], [1, 1], [1, 1], [1, 1]]))
    model = _model(as_released=True)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    logits = model.border_logits(queries, videos, batch.video_of)
    own = batch.videos.mask[batch.video_of]
    never = (torch.nn.functional.softplus(logits) * own).sum(2) / own.sum(1)  # a single clip has no label
    losses = model.loss(batch)
    torch.testing.assert_close(losses["start"], 0.5 * never[0].mean())
    torch.testing.assert_close(losses["end"], 0.5 * never[1].mean())


def test_there_is_nothing_to_search_by() -> None:
    model, batch = _model(), _batch()
    assert not model.encode_videos(batch.videos).keys
    assert not model.encode_queries(batch.queries).search
    assert model.video_weight == 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"streams": {}}, "one stream at least"),
        ({"heads": 7}, "hidden = 512 is no multiple of heads = 7"),
        ({"layers": 0}, "layers is 0"),
        ({"text": {"depth": 3}}, "text has no size 'depth'; it has vocab_size"),
        ({"text": {"dim": 0}}, "text is {'dim': 0}; accepted: for each name a whole number, 1 or more"),
        ({"feedforward": 0}, "feedforward is 0"),
        ({"norm": "both"}, "norm is 'both'"),
        ({"label_power": 0.0}, "label_power is 0.0"),
        ({"label_power": "ten"}, "label_power is 'ten'"),
    ],
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=f"cet: .*{told}"):
        Config(**settings)


def test_a_video_or_query_longer_than_its_table_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(UsageError, match="max_clips = 7"):
        _model(max_clips=6).loss(_batch())
    with pytest.raises(UsageError, match="max_tokens = 5"):
        _model(max_tokens=4).loss(_batch())
