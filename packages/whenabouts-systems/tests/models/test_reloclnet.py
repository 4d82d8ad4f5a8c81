"""What is ReLoCLNet's own: its switches, its messages, and what the ranked setting changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import new_model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.models.reloclnet import Config, Model, released_names

TWO = {"video": 6, "sub": 4}
TERMS = {"frame_contrast", "video_contrast", "spans", "negative_videos", "negative_queries"}


def _model(**settings: Any) -> Model:
    """With weights large enough that every term says something."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"streams": TWO, "query_width": 5, "hidden": 16, "heads": 2, "max_clips": 12}
    made: Model = new_model(
        "reloclnet", Config(**{**sizes, "initializer_range": 0.3, "max_tokens": 8, **settings})
    ).eval()
    return made


def _batch(**more: Any) -> Batch:
    """Four queries of four videos."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(10) < torch.tensor([10, 6, 8, 4])[:, None]
    words = torch.arange(6) < torch.tensor([6, 2, 4, 5])[:, None]
    streams = {name: torch.randn(4, 10, width, generator=generator) for name, width in TWO.items()}
    return Batch(
        QueryBatch(torch.randn(4, 6, 5, generator=generator), words),
        ClipBatch(streams, mask),
        torch.arange(4),
        torch.tensor([[1, 3], [0, 0], [5, 7], [0, 3]]),
        **{"positives": torch.eye(4, dtype=torch.bool), **more},
    )


def _losses(model: Model, batch: Batch, seed: int = 2) -> Mapping[str, Tensor]:
    torch.manual_seed(seed)
    return model.loss(batch)


def _same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"streams": {}}, "streams is {}"),
        ({"streams": {"a": 1, "b": 1, "c": 1}}, "one stream or two"),
        ({"heads": 7}, "hidden = 384 is no multiple of heads = 7"),
        ({"span_kernel": 4}, "span_kernel is 4"),
        ({"ranking": "triplet"}, "ranking is 'triplet'"),
        ({"pool": 0}, "pool is 0"),
        ({"first_pool": 0}, "first_pool is 0"),
        ({"heads": 0}, "heads is 0"),
        ({"hidden": -8}, "hidden is -8"),
        ({"margin": "x"}, "margin is 'x'"),
    ],
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Config(**settings)


def test_a_video_or_query_longer_than_its_table_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(UsageError, match="max_clips = 10"):
        _model(max_clips=9).loss(_batch())
    with pytest.raises(UsageError, match="max_tokens = 6"):
        _model(max_tokens=5).loss(_batch())


def test_the_loss_has_five_terms() -> None:
    assert set(_model().loss(_batch())) == TERMS


@pytest.mark.parametrize(
    ("setting", "term"),
    [
        ("weight_frame_contrast", "frame_contrast"),
        ("weight_video_contrast", "video_contrast"),
        ("weight_spans", "spans"),
        ("weight_negative_videos", "negative_videos"),
        ("weight_negative_queries", "negative_queries"),
    ],
)
def test_each_weight_is_that_of_its_term(setting: str, term: str) -> None:
    once, twice = (_losses(_model(**{setting: weight}), _batch()) for weight in (1.0, 2.0))
    assert once[term] != 0
    assert {name for name in TERMS if not _same(once[name], twice[name])} == {term}
    assert _same(2 * once[term], twice[term])


def test_a_weighted_query_counts_less_in_every_term() -> None:
    model, batch = _model(first_pool=1, margin=0.9), _batch()
    plain = _losses(model, batch)
    half = _losses(model, replace(batch, weight=torch.full((4,), 0.5)))
    assert all(_same(0.5 * plain[name], half[name]) for name in TERMS)
    alone = _losses(model, replace(batch, weight=torch.tensor([1.0, 0.0, 0.0, 0.0])))
    assert not any(_same(plain[name], alone[name]) for name in TERMS)


def test_as_released_the_ranking_terms_are_not_weighted() -> None:
    model, batch = _model(first_pool=1, margin=0.9, as_released=True), _batch()
    plain = _losses(model, batch)
    half = _losses(model, replace(batch, weight=torch.full((4,), 0.5)))
    for name in TERMS:
        assert _same(half[name], plain[name] * (1.0 if name.startswith("negative") else 0.5)), name


def test_known_positives_are_never_drawn_as_negatives() -> None:
    model, batch = _model(first_pool=1, margin=0.9), _batch()
    others = _batch(positives=torch.ones(4, 4, dtype=torch.bool))
    plain, spared = _losses(model, batch), _losses(model, others)
    assert plain["negative_videos"] > 0
    assert spared["negative_videos"] == spared["negative_queries"] == 0
    assert abs(spared["video_contrast"]) < 1e-6
    for settings in ({"known_positives": False}, {"as_released": True}):
        blind = _model(first_pool=1, margin=0.9, **settings)
        assert all(_same(_losses(blind, batch)[name], _losses(blind, others)[name]) for name in TERMS)


def test_the_positive_mask_leaves_the_frame_contrast_as_it_is() -> None:
    """Paper 004, C.1: no other video has a part in it."""
    model = _model()
    masked = _losses(model, _batch(positives=torch.ones(4, 4, dtype=torch.bool)))
    assert torch.equal(_losses(model, _batch())["frame_contrast"], masked["frame_contrast"])


def test_from_its_epoch_on_the_pool_holds_the_hardest_negatives_alone() -> None:
    model = _model(pool=1, pool_from_epoch=3, margin=0.9)
    late = [_losses(model, _batch(epoch=3), seed)["negative_videos"].item() for seed in range(8)]
    early = [_losses(model, _batch(epoch=2), seed)["negative_videos"].item() for seed in range(8)]
    assert len(set(late)) == 1
    assert len(set(early)) > 1
    assert max(early) <= late[0]


def test_a_video_that_comes_once_is_as_good_as_a_copy_for_each_query_as_released() -> None:
    """The released programs read a video again for each of its queries."""
    model, copies = _model(first_pool=1, as_released=True), torch.tensor([0, 1, 1, 3])
    batch = _batch()
    spans = torch.tensor([[1, 3], [0, 0], [2, 5], [0, 3]])
    once = replace(batch, video_of=copies, spans=spans)
    again = ClipBatch(
        {name: one[copies] for name, one in batch.videos.streams.items()}, batch.videos.mask[copies]
    )
    repeated = replace(batch, videos=again, spans=spans)
    assert all(_same(_losses(model, once)[name], _losses(model, repeated)[name]) for name in TERMS)


def test_as_released_padding_moves_scores_and_by_default_it_does_not() -> None:
    batch = _batch()
    wide = ClipBatch(
        {name: torch.nn.functional.pad(one, (0, 0, 0, 2)) for name, one in batch.videos.streams.items()},
        torch.nn.functional.pad(batch.videos.mask, (0, 2)),
    )
    for settings, moves in (({"as_released": True}, True), ({}, False)):
        model = _model(**settings)
        queries = model.encode_queries(batch.queries)
        narrow = model.score_spans(queries, model.encode_videos(batch.videos))
        padded = model.score_spans(queries, model.encode_videos(wide))
        assert _same(narrow.start[narrow.mask], padded.start[padded.mask]) is not moves


def test_one_stream_has_no_crossing_and_one_weight_a_word() -> None:
    model = _model(streams={"video": 6})
    assert not [name for name in model.state_dict() if "cross" in name]
    batch = _batch()
    alone = replace(batch, videos=ClipBatch({"video": batch.videos.streams["video"]}, batch.videos.mask))
    queries = model.encode_queries(alone.queries)
    assert set(queries.search) == {"video"}
    assert torch.allclose(queries.parts["words/video"].sum(1), torch.ones(4))
    assert (queries.parts["words/video"][~batch.queries.mask] == 0).all()
    assert torch.stack(list(model.loss(alone).values())).isfinite().all()


@pytest.mark.parametrize("streams", [TWO, {"video": 6}], ids=["two streams", "one stream"])
def test_every_parameter_has_one_released_name(streams: dict[str, int]) -> None:
    model = _model(streams=streams)
    names = released_names(model.config)
    assert set(names) == set(model.state_dict())
    assert len(set(names.values())) == len(names)


def test_keys_are_unit_vectors_of_the_clips_that_spans_are_found_with() -> None:
    model, batch = _model(), _batch()
    videos = model.encode_videos(batch.videos)
    for name in TWO:
        lengths = torch.linalg.vector_norm(videos.keys[name], dim=-1)
        assert torch.allclose(lengths[batch.videos.mask], torch.tensor(1.0))
    scores = model.score_videos(model.encode_queries(batch.queries), videos)
    assert scores.abs().max() <= 1 + 1e-6


def test_a_moment_scores_with_the_published_weight_of_the_video() -> None:
    assert _model().video_weight == 30.0
    assert _model(alpha=5.0).video_weight == 5.0
