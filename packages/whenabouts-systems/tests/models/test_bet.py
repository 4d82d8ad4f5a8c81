"""BET's equations, each against a plain computation, and its settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.bet import Config, Model
from whenabouts_systems.models.protocol import Batch

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 7, 2], [3, 1, 5, 2]
VIDEO_OF = [2, 0, 1, 0]
SPANS = [[0, 1], [1, 3], [2, 2], [0, 0]]


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "layers": 2, "feedforward": 20, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": 5, "initializer_range": 0.3, **settings}
    return Model(Config(**{**sizes, **told})).eval()


def _batch(**more: Any) -> Batch:
    positives = torch.zeros(4, 3, dtype=torch.bool)
    told = {"spans": torch.tensor(SPANS), "positives": positives, **more}
    return small_batch(STREAMS, CLIPS, TOKENS, VIDEO_OF, **told)


def _cosine(left: Tensor, right: Tensor) -> float:
    return float(left @ right / (left.norm() * right.norm()))


def _probabilities(model: Model, batch: Batch, scale: float) -> list[tuple[list[float], list[float]]]:
    """p_start and p_end by hand (equations 13 to 15), of each query in its own video."""
    features = torch.cat(list(batch.videos.streams.values()), dim=2)
    found = []
    for row, video in enumerate(VIDEO_OF):
        clips = features[video, : CLIPS[video]]
        alone = torch.ones(1, len(clips), dtype=torch.bool)
        placed = model.clip_positions((clips @ model.clip_projection.weight.T)[None], alone)
        encoded = model.encoder(placed, alone)[0]
        words = batch.queries.tokens[row, : TOKENS[row]] @ model.token_projection.weight.T
        start, end = model.start(words.mean(0)), model.end(words.mean(0))
        found.append(
            (
                [1 / (1 + math.exp(-scale * _cosine(clip, start))) for clip in encoded],
                [1 / (1 + math.exp(-scale * _cosine(clip, end))) for clip in encoded],
            )
        )
    return found


@torch.no_grad()
@pytest.mark.parametrize("scale", [10.0, 2.0])
def test_span_scores_are_the_logarithms_of_equation_15(scale: float) -> None:
    model, batch = _model(scale=scale), _batch()
    videos = model.encode_videos(batch.videos).take(batch.video_of)
    scores = model.score_spans(model.encode_queries(batch.queries), videos)
    for row, (start, end) in enumerate(_probabilities(model, batch, scale)):
        assert scores.start[row, : len(start)].exp().tolist() == pytest.approx(start, rel=1e-3)
        assert scores.end[row, : len(end)].exp().tolist() == pytest.approx(end, rel=1e-3)
        assert scores.mask[row].tolist() == [place < len(start) for place in range(max(CLIPS))]


@torch.no_grad()
def test_the_loss_is_equations_10_to_12() -> None:
    model, batch = _model(label_power=3.0, scale=4.0), _batch()
    expected = 0.0
    for (first, last), both in zip(SPANS, _probabilities(model, batch, 4.0), strict=True):
        count = last - first + 1
        for which, chances in enumerate(both):
            for place, chance in enumerate(chances):
                share = (last + 1 - place, place - first + 1)[which] / count
                wanted = share**3 if first <= place <= last else 0.0
                entropy = -wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance)
                expected += entropy / len(chances) / 2 / len(SPANS)
    losses = model.loss(batch)
    assert set(losses) == {"start", "end"}
    assert sum(one.item() for one in losses.values()) == pytest.approx(expected, rel=1e-4)


def test_keys_are_the_unit_clips_that_spans_are_scored_with_and_nothing_is_kept_twice() -> None:
    model, batch = _model(), _batch()
    videos, queries = model.encode_videos(batch.videos), model.encode_queries(batch.queries)
    assert not videos.parts
    lengths = videos.keys["clips"].norm(dim=2)
    torch.testing.assert_close(lengths, batch.videos.mask.float())
    own = videos.take(batch.video_of)
    cosines = torch.einsum("qd,qtd->qt", queries.parts["start"], own.keys["clips"])
    expected = (10 * cosines).sigmoid().log()[own.mask]
    torch.testing.assert_close(
        model.score_spans(queries, own).start[own.mask], expected, rtol=1e-4, atol=1e-5
    )


def test_a_search_vector_is_the_direction_between_start_and_end() -> None:
    queries = _model().encode_queries(_batch().queries)
    between = queries.parts["start"] + queries.parts["end"]
    torch.testing.assert_close(queries.search["clips"], between / between.norm(dim=1, keepdim=True))


def test_a_weighted_query_counts_less() -> None:
    model, batch = _model(), _batch()
    plain, half = model.loss(batch), model.loss(replace(batch, weight=torch.full((4,), 0.5)))
    for name in plain:
        torch.testing.assert_close(half[name], 0.5 * plain[name])


def test_as_released_labels_are_those_of_the_printed_letter() -> None:
    batch = _batch()
    right, letter = _model().loss(batch), _model(as_released=True).loss(batch)
    assert all(letter[name] != right[name] for name in right)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"streams": {}}, "one stream at least"),
        ({"heads": 7}, "hidden = 512 is no multiple of heads = 7"),
        ({"layers": 0}, "layers is 0"),
        ({"text": {"depth": 3}}, "text has no size 'depth'; it has vocab_size"),
        ({"text": {"dim": 0}}, "text is {'dim': 0}; accepted: for each name a whole number, 1 or more"),
        ({"feedforward": -1}, "feedforward is -1"),
        ({"norm": "both"}, "norm is 'both'"),
        ({"label_power": -1.0}, "label_power is -1.0"),
        ({"scale": 0.0}, "scale is 0.0"),
        ({"scale": True}, "scale is True"),
    ],
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=f"bet: .*{told}"):
        Config(**settings)


def test_a_video_longer_than_its_table_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(UsageError, match="max_clips = 7"):
        _model(max_clips=6).loss(_batch())
