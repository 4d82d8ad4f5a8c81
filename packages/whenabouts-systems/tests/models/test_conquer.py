"""CONQUER's measures, losses and settings, each against a plain computation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models import new_model
from whenabouts_systems.models.conquer import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, Retriever, SpanScores

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 7, 2, 5], [3, 1, 5]
OWN = [2, 0, 1]
NEGATIVES = [[0, 3], [1, -1], [3, 2]]
MEASURES = ["general", "disjoint", "exclusive"]


def _model(**settings: Any) -> Model:
    """With weights large enough that every part of a pair says something."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "clusters": 3, "span_hidden": 8, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": 5, "max_tokens": 8, "initializer_range": 0.3, **settings}
    made: Model = new_model("conquer", Config(**{**sizes, **told})).eval()
    return made


def _batch(clips: list[int] = CLIPS, tokens: list[int] = TOKENS, **more: Any) -> Batch:
    told = {"spans": torch.tensor([[0, 1], [1, 3], [2, 2]]), "negatives": torch.tensor(NEGATIVES), **more}
    return small_batch(STREAMS, clips, tokens, OWN, **told)


def _spans(model: Model, batch: Batch, videos: list[int]) -> SpanScores:
    """Query p with video videos[p]."""
    shown = model.encode_videos(batch.videos).take(torch.tensor(videos))
    return model.score_spans(model.encode_queries(batch.queries), shown)


def _logits(model: Model, batch: Batch, query: int, video: int) -> tuple[Tensor, Tensor | None]:
    """(2, T) logits of one pair by itself, nothing padded, and its video's own score."""
    clips, tokens = int(batch.videos.mask[video].sum()), int(batch.queries.mask[query].sum())
    streams = {name: one[video, :clips][None] for name, one in batch.videos.streams.items()}
    asked = QueryBatch(batch.queries.tokens[query, :tokens][None], torch.ones(1, tokens, dtype=torch.bool))
    shown = ClipBatch(streams, torch.ones(1, clips, dtype=torch.bool))
    found = model.pair_logits(model.encode_queries(asked), model.encode_videos(shown))
    return found.borders[:, 0], None if found.video is None else found.video[0]


def _loss_by_hand(
    model: Model, batch: Batch, query: int, negatives: list[int]
) -> tuple[Tensor, Tensor | None]:
    """The cross-entropies of one query: of start and end together, and of the videos."""
    pairs = [_logits(model, batch, query, video) for video in (OWN[query], *negatives)]
    every = torch.cat([borders for borders, _ in pairs], dim=1).log_softmax(1)
    first, last = batch.spans[query].tolist()
    scores = [video for _, video in pairs if video is not None]
    videos = -torch.stack(scores).log_softmax(0)[0] if scores else None
    return -every[0, first] - every[1, last], videos


# --- measures


@torch.no_grad()
def test_a_general_span_scores_the_logarithms_of_both_probabilities_in_its_own_video() -> None:
    model, batch = _model(alpha=20.0), _batch()
    scores = _spans(model, batch, [3, 1, 0])
    for query, video in enumerate([3, 1, 0]):
        start, end = _logits(model, batch, query, video)[0].log_softmax(1)
        torch.testing.assert_close(scores.start[query, : len(start)], start)
        torch.testing.assert_close(scores.end[query, : len(end)], end)
    assert model.video_weight == 20.0


@torch.no_grad()
def test_a_disjoint_span_scores_the_logits_and_the_retriever_counts_nothing() -> None:
    model, batch = _model(measure="disjoint", alpha=20.0), _batch()
    scores = _spans(model, batch, [3, 1, 0])
    for query, video in enumerate([3, 1, 0]):
        start, end = _logits(model, batch, query, video)[0]
        torch.testing.assert_close(scores.start[query, : len(start)], start)
        torch.testing.assert_close(scores.end[query, : len(end)], end)
    assert model.video_weight == 0.0


@torch.no_grad()
def test_an_exclusive_span_scores_its_videos_own_score_too() -> None:
    model, batch = _model(measure="exclusive", alpha=20.0), _batch()
    scores = _spans(model, batch, [3, 1, 0])
    for query, video in enumerate([3, 1, 0]):
        borders, own = _logits(model, batch, query, video)
        start, end = borders.log_softmax(1)
        assert own is not None
        torch.testing.assert_close(scores.start[query, : len(start)], start + own)
        torch.testing.assert_close(scores.end[query, : len(end)], end)
    assert model.video_weight == 0.0


@pytest.mark.parametrize("measure", MEASURES)
def test_it_chooses_no_videos(measure: Any) -> None:
    assert not isinstance(_model(measure=measure), Retriever)


@torch.no_grad()
def test_pairs_score_the_same_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = _model(measure="exclusive"), _batch()
    together = _spans(model, batch, [3, 1, 0])
    monkeypatch.setattr(Model, "clips_at_once", 1)
    alone = _spans(model, batch, [3, 1, 0])
    torch.testing.assert_close(alone.start, together.start)
    torch.testing.assert_close(alone.end, together.end)


# --- streams


@torch.no_grad()
def test_the_query_says_how_much_each_stream_counts() -> None:
    model, batch = _model(), _batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    weights = queries.parts["stream_weights"]
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    assert weights.std(0).min() > 1e-4
    fused = model._fused(queries, videos.take(torch.tensor(OWN)))
    kept = [videos.parts[f"clips/{name}"][OWN] for name in STREAMS]
    expected = sum(weights[:, at, None, None] * one for at, one in enumerate(kept))
    torch.testing.assert_close(fused, expected)


@torch.no_grad()
def test_without_weights_of_streams_their_mean_is_taken() -> None:
    model, batch = _model(weigh_streams=False), _batch()
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    assert "stream_weights" not in queries.parts
    assert not any(name.startswith("stream_weights") for name in model.state_dict())
    first, second = (videos.parts[f"clips/{name}"][OWN] for name in STREAMS)
    torch.testing.assert_close(model._fused(queries, videos.take(torch.tensor(OWN))), (first + second) / 2)


@torch.no_grad()
def test_each_stream_sees_the_other_of_the_same_video() -> None:
    model, batch = _model(), _batch()
    before = model.encode_videos(batch.videos).parts["clips/video"]
    other = {**batch.videos.streams, "sub": batch.videos.streams["sub"].clone()}
    other["sub"][1, 2, 0] += 1.0
    after = model.encode_videos(ClipBatch(other, batch.videos.mask)).parts["clips/video"]
    changed = (before - after).abs().amax(2) > 1e-5
    assert changed[1].all()
    assert not changed[[0, 2, 3]].any()


# --- losses


@pytest.mark.parametrize("measure", MEASURES)
def test_borders_are_told_from_those_of_negatives(measure: Any) -> None:
    model, batch = _model(measure=measure), _batch()
    losses = model.loss(batch)
    by_hand = [
        _loss_by_hand(model, batch, query, [one for one in negatives if one >= 0])
        for query, negatives in enumerate(NEGATIVES)
    ]
    spans = torch.stack([spans for spans, _ in by_hand])
    torch.testing.assert_close(losses["spans"], 0.01 * spans.mean())
    videos = [videos for _, videos in by_hand if videos is not None]
    assert ("videos" in losses) == (measure == "exclusive")
    if videos:
        torch.testing.assert_close(losses["videos"], 0.05 * torch.stack(videos).mean())


def test_without_negatives_borders_are_told_from_the_rest_of_their_own_video() -> None:
    model, batch = _model(), _batch(negatives=None)
    spans = torch.stack([_loss_by_hand(model, batch, query, [])[0] for query in range(3)])
    torch.testing.assert_close(model.loss(batch)["spans"], 0.01 * spans.mean())


@pytest.mark.parametrize(("released", "counted"), [(False, [3]), (True, [0, 3])])
def test_a_negative_that_answers_the_query_does_not_count(released: bool, counted: list[int]) -> None:
    """But in the released program it does."""
    seven = [7, 7, 7, 7]  # nothing is padded, so that the two differ in this alone
    batch = _batch(seven, [5, 5, 5])
    known = batch.positives.clone()
    known[0, 0] = True
    model = _model(as_released=released, max_clips=7, max_tokens=5)
    found = model.loss(replace(batch, positives=known))["spans"]
    rows = [counted, [1], [3, 2]]
    spans = torch.stack([_loss_by_hand(model, batch, query, row)[0] for query, row in enumerate(rows)])
    torch.testing.assert_close(found, 0.01 * spans.mean())


def test_examples_count_as_much_as_their_weight() -> None:
    model, weight = _model(measure="exclusive"), torch.tensor([1.0, 0.0, 0.3])
    batch = _batch(weight=weight)
    by_hand = [
        _loss_by_hand(model, batch, query, [one for one in negatives if one >= 0])
        for query, negatives in enumerate(NEGATIVES)
    ]
    losses = model.loss(batch)
    spans = torch.stack([spans for spans, _ in by_hand])
    videos = torch.stack([videos for _, videos in by_hand if videos is not None])
    torch.testing.assert_close(losses["spans"], 0.01 * (spans * weight).mean())
    torch.testing.assert_close(losses["videos"], 0.05 * (videos * weight).mean())


def test_exclusive_asks_for_negatives() -> None:
    with pytest.raises(UsageError, match=r'conquer: measure = "exclusive" needs negatives'):
        _model(measure="exclusive").loss(_batch(negatives=None))


@pytest.mark.parametrize("measure", MEASURES)
def test_every_parameter_learns_from_negatives(measure: Any) -> None:
    model = _model(measure=measure)
    torch.stack(list(model.loss(_batch()).values())).sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


# --- padding


@pytest.mark.parametrize("measure", MEASURES)
@torch.no_grad()
def test_padding_moves_no_score_of_any_measure(measure: Any) -> None:
    model, batch = _model(measure=measure), _batch()
    scores = _spans(model, batch, [0, 3, 2])
    for query, video in enumerate([0, 3, 2]):
        lone = _batch()
        clips, tokens = CLIPS[video], TOKENS[query]
        shown = {name: one[[video], :clips] for name, one in lone.videos.streams.items()}
        alone = model.score_spans(
            model.encode_queries(
                QueryBatch(lone.queries.tokens[[query], :tokens], lone.queries.mask[[query], :tokens])
            ),
            model.encode_videos(ClipBatch(shown, lone.videos.mask[[video], :clips])),
        )
        torch.testing.assert_close(scores.start[query, :clips], alone.start[0], atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(scores.end[query, :clips], alone.end[0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("measure", MEASURES)
@torch.no_grad()
def test_as_released_differs_by_padding_alone(measure: Any) -> None:
    full = _batch([7, 7, 7, 7], [5, 5, 5])
    settings: dict[str, Any] = {"measure": measure, "max_clips": 7, "max_tokens": 5}
    ours, theirs = _model(**settings), _model(as_released=True, **settings)
    assert all(torch.equal(one, theirs.state_dict()[name]) for name, one in ours.state_dict().items())
    one, other = _spans(ours, full, OWN), _spans(theirs, full, OWN)
    torch.testing.assert_close(one.start, other.start, atol=1e-5, rtol=1e-5)
    short = _batch()
    lengths = [CLIPS[video] for video in OWN]
    one, other = _spans(ours, short, OWN), _spans(theirs, short, OWN)
    real = torch.arange(7) < torch.tensor(lengths)[:, None]
    assert (one.start[real] - other.start[real]).abs().max() > 1e-3


@torch.no_grad()
def test_as_released_pads_to_the_longest_that_there_may_be() -> None:
    """So that a score depends on that length, and not on who else is in the batch."""
    model, batch = _model(as_released=True), _batch()
    together = _spans(model, batch, OWN)
    assert together.mask.shape == (3, 9)
    shown = {name: one[[OWN[1]], : CLIPS[0]] for name, one in batch.videos.streams.items()}
    alone = model.score_spans(
        model.encode_queries(QueryBatch(batch.queries.tokens[[1], :1], batch.queries.mask[[1], :1])),
        model.encode_videos(ClipBatch(shown, batch.videos.mask[[OWN[1]], : CLIPS[0]])),
    )
    assert OWN[1] == 0
    torch.testing.assert_close(together.start[1:2], alone.start, atol=1e-5, rtol=1e-5)


# --- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"streams": {}}, r"conquer: streams is {}"),
        ({"streams": {"a": 1, "b": 2, "c": 3}}, r"one stream or two"),
        ({"streams": {"the video": 3}}, r"'the video': .*names of letters"),
        ({"measure": "joint"}, r"measure is 'joint'"),
        ({"clusters": 0}, r"clusters is 0"),
        ({"feedforward": 0}, r"feedforward is 0"),
        ({"hidden": 10, "heads": 4}, r"hidden = 10 is no multiple of heads = 4"),
        ({"span_kernel": 4}, r"span_kernel is 4"),
        ({"alpha": -1.0}, r"alpha is -1.0"),
        ({"layers": "two"}, r"layers is 'two'"),
    ],
)
def test_a_setting_that_makes_no_model_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Config(**settings)


@pytest.mark.parametrize("released", [False, True])
def test_sequences_that_are_too_long_are_told(released: bool) -> None:
    batch = _batch()
    short = _model(max_clips=6, max_tokens=4, as_released=released)
    with pytest.raises(UsageError, match=r"7 clips, but the model has places for 6: .* max_clips = 7"):
        short.encode_videos(batch.videos)
    with pytest.raises(UsageError, match=r"5 tokens, but the model has places for 4: .* max_tokens = 5"):
        short.encode_queries(batch.queries)


def test_at_the_released_size_it_has_as_many_parameters_as_the_program() -> None:
    with torch.device("meta"):
        model = new_model("conquer", Config())
    assert sum(one.numel() for one in model.parameters()) == 47_672_640
