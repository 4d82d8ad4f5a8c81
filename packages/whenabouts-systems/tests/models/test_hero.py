"""HERO's head: what is done with given frames, what is lost, and its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch

CLIPS, TOKENS = [4, 7, 2], [3, 1, 5, 2]
OWN = [2, 0, 1, 0]


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    told = {"streams": {"frames": 8}, "query_width": 5, "hidden": 8, "heads": 2, "initializer_range": 0.3}
    return Model(Config(**{**told, **settings})).eval()


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _batch(widths: dict[str, int] | None = None, **more: Any) -> Batch:
    generator = torch.Generator().manual_seed(1)
    clips, tokens = _mask(CLIPS), _mask(TOKENS)
    streams = {
        name: torch.randn(*clips.shape, width, generator=generator)
        for name, width in (widths or {"frames": 8}).items()
    }
    return Batch(
        QueryBatch(torch.randn(*tokens.shape, 5, generator=generator), tokens),
        ClipBatch(streams, clips),
        torch.tensor(OWN),
        torch.tensor([[0, 1], [1, 3], [2, 2], [0, 0]]),
        **{"positives": torch.nn.functional.one_hot(torch.tensor(OWN), 3).bool(), **more},
    )


@torch.no_grad()
def test_frames_of_the_systems_width_are_taken_as_they_are() -> None:
    model, batch = _model(), _batch()
    encoded, given, mask = (
        model.encode_videos(batch.videos),
        batch.videos.streams["frames"],
        batch.videos.mask,
    )
    assert torch.equal(encoded.parts["frames"][mask], given[mask])
    lengths = given.norm(dim=2, keepdim=True)
    torch.testing.assert_close(encoded.keys["frames"][mask], (given / lengths)[mask])
    assert not any(name.startswith("frame_projections") for name in model.state_dict())


@torch.no_grad()
def test_frames_of_other_streams_are_projected_and_added_up() -> None:
    model, batch = _model(streams={"video": 6, "sub": 3}), _batch({"video": 6, "sub": 3})
    found = model.encode_videos(batch.videos).parts["frames"][batch.videos.mask]
    expected = torch.zeros_like(found)
    for name, width in (("video", 6), ("sub", 3)):
        layer = model.frame_projections[name]
        normed = torch.nn.functional.layer_norm(batch.videos.streams[name][batch.videos.mask], (width,))
        expected += (normed @ layer.linear.weight.T + layer.linear.bias).relu()  # type: ignore[union-attr, operator]
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_a_video_scores_its_best_frames_cosine() -> None:
    model, batch = _model(), _batch()
    queries = model.encode_queries(batch.queries)
    scores = model.score_videos(queries, model.encode_videos(batch.videos))
    for query in range(4):
        for video, length in enumerate(CLIPS):
            frames = batch.videos.streams["frames"][video, :length]
            cosines = torch.cosine_similarity(queries.search["frames"][query][None], frames)
            torch.testing.assert_close(scores[query, video], cosines.max())
    assert model.video_weight == 20.0


@pytest.mark.parametrize("released", [False, True])
@torch.no_grad()
def test_padded_frames_reach_the_borders_only_as_released(released: bool) -> None:
    model, batch = _model(as_released=released), _batch()
    other = torch.where(batch.videos.mask[..., None], batch.videos.streams["frames"], 50.0)
    littered = replace(batch, videos=ClipBatch({"frames": other}, batch.videos.mask))
    queries, own = model.encode_queries(batch.queries), batch.video_of
    before, after = (
        model.border_logits(queries, model.encode_videos(one.videos).take(own)) for one in (batch, littered)
    )
    assert torch.equal(before, after) is not released


def _ranking(batch: Batch, **settings: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores (Q, V), and what ranking loses by query, margins so wide that everything counts."""
    model = _model(margin=2.0, **settings)
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    return scores, dict(model.ranking_losses(batch, scores))


@pytest.mark.parametrize("released", [False, True])
@torch.no_grad()
def test_every_other_video_and_query_of_the_batch_is_a_negative(released: bool) -> None:
    """But for known positives, which the released program does not know."""
    known = _batch().positives.clone()
    known[0, 1] = True
    batch = _batch(positives=known)
    scores, found = _ranking(batch, as_released=released)
    spared = _batch().positives if released else known
    for query, video in enumerate(OWN):
        videos = [
            2 + scores[query, other] - scores[query, video] for other in range(3) if not spared[query, other]
        ]
        queries = [
            2 + scores[other, video] - scores[query, video] for other in range(4) if not spared[other, video]
        ]
        torch.testing.assert_close(found["negative_videos"][query], torch.stack(videos).mean())
        torch.testing.assert_close(found["negative_queries"][query], torch.stack(queries).mean())


@torch.no_grad()
def test_hard_negatives_count_more_from_their_epoch_on() -> None:
    settings = {"pool": 1, "pool_from_epoch": 3}
    alike, early = _ranking(_batch())[1], _ranking(_batch(epoch=2), **settings)[1]
    late = _ranking(_batch(epoch=3), **settings)[1]
    for name in ("negative_videos", "negative_queries"):
        torch.testing.assert_close(early[name], alike[name])
        assert (late[name] > 2 * alike[name]).all()


@torch.no_grad()
def test_losses_are_weighed_by_term_and_by_example() -> None:
    weight = torch.tensor([1.0, 0.0, 0.5, 0.2])
    batch = _batch(weight=weight)
    model = _model(weight_negative_videos=3.0, weight_negative_queries=5.0, lambda_tl=0.1)
    losses = model.loss(batch)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    lacking = model.ranking_losses(batch, model.score_videos(queries, videos))
    torch.testing.assert_close(losses["negative_videos"], 3 * (lacking["negative_videos"] * weight).mean())
    torch.testing.assert_close(losses["negative_queries"], 5 * (lacking["negative_queries"] * weight).mean())
    scores, every = model.score_spans(queries, videos.take(batch.video_of)), torch.arange(4)
    likely = scores.start[every, batch.spans[:, 0]] + scores.end[every, batch.spans[:, 1]]
    torch.testing.assert_close(losses["spans"], -0.1 * (likely * weight).mean())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"streams": {}}, r"hero: streams is {}"),
        ({"streams": {"the frames": 3}}, r"'the frames': .*names of letters"),
        ({"pool": 0}, r"pool is 0"),
        ({"rest_weight": -0.1}, r"rest_weight is -0.1"),
        ({"hidden": 10, "heads": 4}, r"hidden = 10 is no multiple of heads = 4"),
        ({"span_kernel": 2}, r"span_kernel is 2"),
    ],
)
def test_a_setting_that_makes_no_model_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Config(**settings)


def test_a_query_that_is_too_long_is_told() -> None:
    with pytest.raises(UsageError, match=r"5 tokens, but the model has places for 4: .* max_tokens = 5"):
        _model(max_tokens=4).encode_queries(_batch().queries)
