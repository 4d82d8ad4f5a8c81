"""BET's equations, each against a plain computation, and its settings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cuepoint.models._parts.packing import Packing
from cuepoint.models.bet import Config, Model
from cuepoint.models.protocol import Batch, ClipBatch, QueryBatch
from cuepoint.types import UsageError

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 7, 2], [3, 1, 5, 2]
VIDEO_OF = [2, 0, 1, 0]
SPANS = [[0, 1], [1, 3], [2, 2], [0, 0]]


def _model(**settings: Any) -> Model:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "layers": 2, "feedforward": 20, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": 5, "initializer_range": 0.3, **settings}
    return Model(Config(**{**sizes, **told})).eval()


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _batch(**more: Any) -> Batch:
    generator = torch.Generator().manual_seed(1)
    clips, tokens = _mask(CLIPS), _mask(TOKENS)
    streams = {name: torch.randn(*clips.shape, width, generator=generator) for name, width in STREAMS.items()}
    return Batch(
        QueryBatch(torch.randn(*tokens.shape, 5, generator=generator), tokens),
        ClipBatch(streams, clips),
        torch.tensor(VIDEO_OF),
        torch.tensor(SPANS),
        **{"positives": torch.zeros(4, 3, dtype=torch.bool), **more},
    )


def _cosine(left: Tensor, right: Tensor) -> float:
    return float(left @ right / (left.norm() * right.norm()))


def _probabilities(model: Model, batch: Batch, scale: float) -> list[tuple[list[float], list[float]]]:
    """p_start and p_end by hand (equations 13 to 15), of each query in its own video."""
    features = torch.cat(list(batch.videos.streams.values()), dim=2)
    found = []
    for row, video in enumerate(VIDEO_OF):
        clips = features[video, : CLIPS[video]]
        alone = Packing.of(torch.ones(1, len(clips), dtype=torch.bool))
        encoded = model.encoder(model.clip_positions(clips @ model.clip_projection.weight.T, alone), alone)
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
        ({"layers": 0}, "layers = 0: at least 1"),
        ({"text": {"depth": 3}}, "text has no size 'depth'; it has vocab_size"),
        ({"text": {"dim": 0}}, "text.dim = 0: a whole number, at least 1"),
        ({"feedforward": -1}, "feedforward = -1: at least 1"),
        ({"norm": "both"}, "norm = 'both': known are before, after"),
        ({"label_power": -1.0}, "label_power = -1.0: a number above 0"),
        ({"scale": 0.0}, "scale = 0.0: a number above 0"),
        ({"scale": True}, "scale = True: a finite number is expected"),
    ],
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=f"bet: .*{told}"):
        Config(**settings)


def test_a_video_longer_than_its_table_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(UsageError, match="max_clips = 7"):
        _model(max_clips=6).loss(_batch())


TINY = {
    "vocab_size": 30,
    "dim": 8,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 12,
    "max_position_embeddings": 16,
}


def _with_text_encoder() -> Model:
    pytest.importorskip("transformers")
    return _model(text_encoder="a tiny one", text=TINY)


def _ids() -> QueryBatch:
    words = _mask(TOKENS)
    drawn = torch.randint(1, 30, words.shape, generator=torch.Generator().manual_seed(3))
    return QueryBatch(torch.where(words, drawn, 29), words)


def test_ids_score_as_the_features_that_the_text_encoder_makes_of_them() -> None:
    model, ids, batch = _with_text_encoder(), _ids(), _batch()
    assert model.words.bert is not None
    features = torch.zeros(*ids.mask.shape, 8)
    for row, length in enumerate(TOKENS):
        features[row, :length] = model.words.bert(ids.tokens[row : row + 1, :length]).last_hidden_state[0]
    other = _model(query_width=8)
    weights = {name: one for name, one in model.state_dict().items() if not name.startswith("words.")}
    other.load_state_dict(weights)
    videos = batch.videos
    found, expected = (
        one.score_spans(one.encode_queries(told), one.encode_videos(videos).take(batch.video_of))
        for one, told in ((model, ids), (other, QueryBatch(features, ids.mask)))
    )
    torch.testing.assert_close(found.start, expected.start, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.end, expected.end, rtol=1e-4, atol=1e-5)


def test_a_training_begins_with_the_weights_of_the_named_text_encoder(tmp_path: Path) -> None:
    model = _with_text_encoder()
    assert model.words.bert is not None
    kept = {name: one.clone() for name, one in model.words.bert.state_dict().items()}
    model.words.bert.save_pretrained(tmp_path)
    other = _model(text_encoder=str(tmp_path), text=TINY, initializer_range=0.1)
    assert other.words.bert is not None
    name = "transformer.layer.0.attention.q_lin.weight"
    assert not torch.equal(other.words.bert.state_dict()[name], kept[name])
    other.begin()
    assert all(torch.equal(one, kept[name]) for name, one in other.words.bert.state_dict().items())
    _model().begin()  # nothing to read


def test_ids_without_a_text_encoder_and_features_with_one_are_refused() -> None:
    with pytest.raises(UsageError, match="words are ids; this system has no text encoder"):
        _model().encode_queries(_ids())
    model = _with_text_encoder()
    with pytest.raises(UsageError, match="words are features; this system has a text encoder"):
        model.encode_queries(_batch().queries)
