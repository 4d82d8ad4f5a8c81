"""What is G2L's own: its terms beside MMN's, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import g2l, mmn
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch

SIZES: dict[str, Any] = {
    "streams": {"video": 6},
    "query_width": 5,
    "hidden": 16,
    "map_layers": 2,
    "map_kernel": 3,
    "pooling_counts": (7,),
    "margin": 0.1,
}
TERMS = {"iou", "moments", "sentences", "interaction"}


def _model(**settings: Any) -> g2l.Model:
    torch.manual_seed(0)
    return g2l.Model(g2l.Config(**{**SIZES, **settings})).eval()


def _as_mmn(model: g2l.Model) -> mmn.Model:
    """MMN with the same weights."""
    other = mmn.Model(mmn.Config(**SIZES)).eval()
    other.load_state_dict(model.state_dict())
    return other


def _batch(**more: Any) -> Batch:
    """Four queries, two of them of one video of three."""
    generator = torch.Generator().manual_seed(1)
    clips = torch.arange(8) < torch.tensor([8, 5, 7])[:, None]
    words = torch.arange(4) < torch.tensor([4, 2, 3, 1])[:, None]
    video_of = torch.tensor([0, 1, 0, 2])
    return Batch(
        QueryBatch(torch.randn(4, 4, 5, generator=generator), words),
        ClipBatch({"video": torch.randn(3, 8, 6, generator=generator)}, clips),
        video_of,
        torch.tensor([[1, 3], [0, 0], [5, 7], [2, 6]]),
        **{"positives": video_of[:, None] == torch.arange(3), **more},
    )


def _losses(model: Any, batch: Batch) -> Mapping[str, Tensor]:
    found: Mapping[str, Tensor] = model.loss(batch)
    return found


def test_as_released_normalisation_alone_differs_and_only_in_training() -> None:
    ours, theirs, batch = _model(), _model(as_released=True), _batch()
    for mode in (False, True):
        one, other = (_losses(model.train(mode), batch) for model in (ours, theirs))
        assert all(torch.equal(one[name], other[name]) is not mode for name in TERMS)


def test_scores_are_those_of_mmn_with_the_same_weights() -> None:
    model, batch = _model(), _batch()
    other = _as_mmn(model)
    for one in (model, other):
        assert one.video_weight == 0
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    theirs = other.encode_queries(batch.queries), other.encode_videos(batch.videos)
    assert torch.equal(model.score_videos(queries, videos), other.score_videos(*theirs))
    spans = model.score_spans(queries, videos.take(batch.video_of)).spans
    expected = other.score_spans(theirs[0], theirs[1].take(batch.video_of)).spans
    assert spans is not None
    assert expected is not None
    assert torch.equal(spans, expected)


def test_the_loss_has_mmns_cross_entropy_and_three_terms_of_its_own() -> None:
    model, batch = _model(), _batch()
    found, theirs = _losses(model, batch), _losses(_as_mmn(model), batch)
    assert set(found) == TERMS
    assert torch.equal(found["iou"], theirs["iou"])
    # Negatives of the same video count less than wholly: the contrast is below MMN's.
    assert found["sentences"] < theirs["sentences"]
    assert found["interaction"] > 0


def test_where_no_video_has_another_negative_guided_contrast_is_mmns() -> None:
    """One clip a video: all negatives are of other videos, which count wholly."""
    model, batch = _model(), _batch()
    own = torch.arange(3)
    single = replace(
        batch,
        queries=QueryBatch(batch.queries.tokens[:3], batch.queries.mask[:3]),
        videos=ClipBatch({"video": batch.videos.streams["video"][:, :1]}, torch.ones(3, 1, dtype=torch.bool)),
        video_of=own,
        spans=torch.zeros(3, 2, dtype=torch.int64),
        positives=torch.eye(3, dtype=torch.bool),
    )
    found, theirs = _losses(model, single), _losses(_as_mmn(model), single)
    for name in ("moments", "sentences"):
        torch.testing.assert_close(found[name], theirs[name])


@pytest.mark.parametrize(
    ("setting", "terms"),
    [("lambda_interaction", {"interaction"}), ("lambda_contrast", {"moments", "sentences", "interaction"})],
)
def test_each_weight_is_that_of_its_terms(setting: str, terms: set[str]) -> None:
    batch = _batch()
    once, twice = (_losses(_model(**{setting: weight}), batch) for weight in (0.5, 1.0))
    for name in TERMS:
        torch.testing.assert_close(twice[name], once[name] * (2 if name in terms else 1))


def test_contrast_and_interaction_fade_together_after_their_epochs() -> None:
    model = _model(contrast_epochs=3, later_contrast=0.01)
    early, late = (_losses(model, _batch(epoch=epoch)) for epoch in (2, 3))
    for name in TERMS - {"iou"}:
        torch.testing.assert_close(late[name], 0.01 * early[name])
    assert torch.equal(late["iou"], early["iou"])


def test_videos_that_may_answer_too_are_no_negatives() -> None:
    model, batch = _model(), _batch()
    plain = _losses(model, batch)
    spared = _losses(model, replace(batch, positives=torch.ones(4, 3, dtype=torch.bool)))
    assert spared["sentences"] < plain["sentences"]
    assert spared["moments"] < plain["moments"]
    assert torch.equal(spared["interaction"], plain["interaction"])  # its players are of one video


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"neighbours": 0}, "neighbours is 0; accepted: a whole number, 1 or more"),
        ({"neighbours": 2.5}, "neighbours is 2.5; accepted: a whole number"),
        ({"players": 1}, "players is 1; accepted: a whole number, 2 or more, at most 10"),
        ({"players": 11}, "players is 11; accepted: a whole number, 2 or more, at most 10"),
        ({"lambda_interaction": -1.0}, "lambda_interaction is -1.0; accepted: a finite number, 0 or more"),
        ({"map_kernel": 4}, "map_kernel is 4; accepted: an odd number"),
    ],
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=f"g2l: .*{told}"):
        g2l.Config(**settings)
