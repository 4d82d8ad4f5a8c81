"""PREM's localizer: equations 9 to 13, losses, gradients and settings, each against a plain computation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.models.small_batches import small_batch
from torch import Tensor, nn
from torch.nn.functional import conv1d, layer_norm, linear, logsigmoid

from whenabouts.types import UsageError
from whenabouts_systems.models import prem_localizer
from whenabouts_systems.models.decoding import Decoding, best_spans
from whenabouts_systems.models.prem_localizer import Config, Model
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    Explainer,
    QueryBatch,
    Retriever,
    SpanScores,
)

STREAMS = {"video": 6, "sub": 3}
CLIPS, TOKENS = [4, 9, 2, 5], [3, 1, 5]
OWN = [3, 0, 1]
SPANS = [[0, 3], [1, 2], [2, 7]]
NEGATIVES = [[0, 1], [1, -1], [3, 2]]


def _model(**settings: Any) -> Model:
    """With weights large enough that every part of a pair says something."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "feedforward": 24, "span_hidden": 6, "max_clips": 9}
    told = {"streams": STREAMS, "query_width": 5, "max_tokens": 8, "initializer_range": 0.3, **settings}
    return Model(Config(**{**sizes, **told})).eval()


def _batch(clips: list[int] = CLIPS, tokens: list[int] = TOKENS, **more: Any) -> Batch:
    told = {"spans": torch.tensor(SPANS), "negatives": torch.tensor(NEGATIVES), **more}
    return small_batch(STREAMS, clips, tokens, OWN, **told)


def _alone(batch: Batch, query: int, video: int) -> tuple[QueryBatch, ClipBatch]:
    """One query and one video, nothing padded."""
    clips, tokens = int(batch.videos.mask[video].sum()), int(batch.queries.mask[query].sum())
    streams = {name: one[video, :clips][None] for name, one in batch.videos.streams.items()}
    asked = QueryBatch(batch.queries.tokens[query, :tokens][None], torch.ones(1, tokens, dtype=torch.bool))
    return asked, ClipBatch(streams, torch.ones(1, clips, dtype=torch.bool))


def _logits(model: Model, batch: Batch, query: int, video: int) -> Tensor:
    """(2, T) logits of one pair by itself."""
    asked, shown = _alone(batch, query, video)
    return model.pair_logits(model.encode_queries(asked), model.encode_videos(shown)).borders[:, 0]


def _spans(model: Model, batch: Batch, videos: list[int]) -> SpanScores:
    """Query p with video videos[p]."""
    shown = model.encode_videos(batch.videos).take(torch.tensor(videos))
    return model.score_spans(model.encode_queries(batch.queries), shown)


# --- equations 5, 9, 10 and 13, written down plainly for one query and one video


class Plain:
    """The paper's formulas with a model's weights, a clip and a word at a time where that is short."""

    def __init__(self, model: Model) -> None:
        self.weights = model.state_dict()
        self.config = model.config

    def linear(self, name: str, values: Tensor) -> Tensor:
        return linear(values, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, name: str, values: Tensor) -> Tensor:
        return layer_norm(
            values, values.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        )

    def attention(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(T, H) from (T, H) and (L, H) twice."""
        heads = []
        for q, k, v in zip(
            *(one.chunk(self.config.heads, 1) for one in (queries, keys, values)), strict=True
        ):
            heads.append((q @ k.T / math.sqrt(q.shape[1])).softmax(1) @ v)
        return torch.cat(heads, 1)

    def itself(self, name: str, rows: Tensor) -> Tensor:
        """Self-attention with its residual."""
        q, k, v = (self.linear(f"{name}.attention.{one}", rows) for one in ("query", "key", "value"))
        mixed = self.linear(f"{name}.output", self.attention(q, k, v))
        return self.norm(f"{name}.attention_norm", rows + mixed)

    def widened(self, name: str, rows: Tensor) -> Tensor:
        found = self.linear(f"{name}.narrow", self.linear(f"{name}.wide", rows).relu())
        return self.norm(f"{name}.feedforward_norm", rows + found)

    def transformer(self, name: str, rows: Tensor) -> Tensor:
        return self.widened(f"{name}.layers.0", self.itself(f"{name}.layers.0", rows))

    def projected(self, name: str, rows: Tensor) -> Tensor:
        return self.linear(f"{name}.linear", self.norm(f"{name}.norm", rows)).relu()

    def words(self, tokens: Tensor) -> Tensor:
        rows = self.projected("query_projection", tokens)
        places = self.weights["query_positions.table.weight"][: len(rows)]
        return self.transformer("query_encoder", self.norm("query_positions.norm", rows + places))

    def pooled(self, words: Tensor, gate: int) -> tuple[Tensor, Tensor]:
        """Equation 5."""
        weights = (words @ self.weights["pooling.linear.weight"][gate]).softmax(0)
        return weights @ words, weights

    def clips(self, streams: dict[str, Tensor]) -> list[Tensor]:
        """All clips of all streams through one transformer."""
        rows = []
        places, kinds = (self.weights[f"video_encoder.positions.{one}.weight"] for one in ("places", "types"))
        for kind, (name, values) in enumerate(streams.items()):
            found = self.projected(f"video_encoder.projections.{name}", values)
            rows.append(self.norm("video_encoder.positions.norm", found + places[: len(found)] + kinds[kind]))
        return list(self.transformer("video_encoder.encoder", torch.cat(rows)).chunk(len(rows)))

    def gated(self, clips: Tensor, query: Tensor, gate: int) -> Tensor:
        """Equation 9."""
        products = [self.linear(f"focus.gates.{gate}", clip) * query for clip in clips]
        return torch.stack([one / one.norm() * clip for one, clip in zip(products, clips, strict=True)])

    def fused(self, words: Tensor, streams: list[Tensor]) -> Tensor:
        """Equations 9 and 10."""
        gates = [self.gated(clips, self.pooled(words, gate)[0], gate) for gate, clips in enumerate(streams)]
        return self.linear("focus.linear", torch.cat(gates, 1))

    def together(self, words: Tensor, clips: Tensor) -> Tensor:
        """Layers of self- and cross-attention."""
        for name in (f"fusion.layers.{number}" for number in range(self.config.fusion_layers)):
            clips = self.itself(name, clips)
            keys, values = self.linear(f"{name}.words.heard", words).chunk(2, 1)
            found = self.attention(self.linear(f"{name}.words.query", clips), keys, values)
            clips = self.norm(f"{name}.words_norm", clips + self.linear(f"{name}.words_output", found))
            clips = self.widened(name, clips)
        return clips

    def borders(self, clips: Tensor) -> Tensor:
        """(2, T)."""
        wide, narrow = (
            [self.weights[f"borders.{part}.{one}"].chunk(2) for one in ("weight", "bias")]
            for part in ("wide", "narrow")
        )
        found = []
        for border in range(2):
            inner = conv1d(clips.T[None], wide[0][border], wide[1][border], padding="same").relu()
            found.append(conv1d(inner, narrow[0][border], narrow[1][border])[0, 0])
        return torch.stack(found)


@torch.no_grad()
@pytest.mark.parametrize("streams", [["video", "sub"], ["video"]], ids=["two streams", "one stream"])
def test_borders_are_those_of_the_equations(streams: list[str]) -> None:
    model, batch = _model(streams={name: STREAMS[name] for name in streams}), _batch()
    batch = replace(
        batch, videos=ClipBatch({name: batch.videos.streams[name] for name in streams}, batch.videos.mask)
    )
    plain, videos = Plain(model), [1, 0, 2]
    scores = _spans(model, batch, videos)
    for query, video in enumerate(videos):
        asked, shown = _alone(batch, query, video)
        words = plain.words(asked.tokens[0])
        clips = plain.clips({name: shown.streams[name][0] for name in streams})
        start, end = plain.borders(plain.together(words, plain.fused(words, clips)))
        torch.testing.assert_close(scores.start[query, : len(start)], start, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(scores.end[query, : len(end)], end, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_word_weights_are_those_of_equation_5_for_each_stream() -> None:
    model, batch = _model(), _batch()
    found, plain = model.word_weights(model.encode_queries(batch.queries)), Plain(model)
    for query, count in enumerate(TOKENS):
        words = plain.words(batch.queries.tokens[query, :count])
        for gate, name in enumerate(STREAMS):
            torch.testing.assert_close(found[name][query, :count], plain.pooled(words, gate)[1])
    assert isinstance(model, Explainer)


def test_the_retrievers_score_is_divided_by_the_temperature() -> None:
    assert _model().video_weight == 100.0
    assert _model(temperature=0.5).video_weight == 2.0
    assert not isinstance(_model(), Retriever)


@torch.no_grad()
def test_spans_score_logits_and_no_probabilities_of_one_video() -> None:
    """A logarithm of probabilities would add up to 1 in every video; what is shared is told by logits."""
    scores = _spans(_model(), _batch(), [1, 0, 2])
    sums = scores.start.masked_fill(~scores.mask, -torch.inf).exp().sum(1)
    assert (sums - 1).abs().min() > 1e-3


@torch.no_grad()
def test_pairs_score_the_same_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = _model(), _batch()
    together = _spans(model, batch, [3, 1, 0])
    monkeypatch.setattr(prem_localizer, "_CLIPS", 1)
    alone = _spans(model, batch, [3, 1, 0])
    torch.testing.assert_close(alone.start, together.start)
    torch.testing.assert_close(alone.end, together.end)


@torch.no_grad()
def test_pairs_of_different_lengths_score_as_each_alone() -> None:
    model, batch = _model(), _batch()
    query = torch.arange(3).repeat(2)
    video = torch.arange(6) * 7 % 4
    pairs = model.encode_queries(batch.queries).take(query)
    scores = model.score_spans(pairs, model.encode_videos(batch.videos).take(video))
    for row in range(6):
        alone = _logits(model, batch, int(query[row]), int(video[row]))
        found = torch.stack([scores.start[row], scores.end[row]])[:, : alone.shape[1]]
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)


# --- clips and videos without words


def _silent(batch: Batch, video: int, clips: slice) -> Batch:
    said = batch.videos.streams["sub"].clone()
    said[video, clips] = 0
    return replace(batch, videos=ClipBatch({**batch.videos.streams, "sub": said}, batch.videos.mask))


def _shares(model: Model, batch: Batch, videos: list[int]) -> dict[str, Tensor]:
    shown = model.encode_videos(batch.videos).take(torch.tensor(videos))
    return dict(model.stream_shares(model.encode_queries(batch.queries), shown))


@torch.no_grad()
def test_a_clip_without_words_is_a_pause_that_knows_what_is_said_around_it() -> None:
    batch = _silent(_batch(), 1, slice(3, 5))
    said = batch.videos.streams["sub"].clone()
    said[1, 6] *= -1
    other = ClipBatch({**batch.videos.streams, "sub": said}, batch.videos.mask)
    for pauses, knows in (("context", True), ("nothing", False)):
        model = _model(pauses=pauses)
        one, changed = (
            model.encode_videos(videos).parts["clips/sub"][1, 4] for videos in (batch.videos, other)
        )
        assert bool(one.any()) == knows
        assert (not torch.allclose(one, changed)) == knows


@torch.no_grad()
@pytest.mark.parametrize("pauses", ["context", "nothing"])
def test_a_video_without_any_words_is_scored_by_what_is_seen(pauses: Any) -> None:
    model, batch = _model(pauses=pauses), _silent(_batch(), 1, slice(None))
    scores = _spans(model, batch, [1, 1, 1])
    assert scores.start.isfinite().all()
    assert scores.start.std(1).min() > 1e-3
    shares = _shares(model, batch, [1, 1, 1])["sub"]
    assert (shares == 0).all() if pauses == "nothing" else (shares > 0).all()


@torch.no_grad()
def test_a_clip_with_nothing_in_any_stream_scores_a_number() -> None:
    model, batch = _model(pauses="nothing"), _batch()
    empty = {name: torch.zeros_like(one) for name, one in batch.videos.streams.items()}
    scores = _spans(model, replace(batch, videos=ClipBatch(empty, batch.videos.mask)), [1, 0, 2])
    assert scores.start.isfinite().all()


@torch.no_grad()
def test_shares_of_streams_are_those_of_what_each_adds_to_the_fused_clip() -> None:
    model, batch, videos = _model(), _batch(), [1, 0, 2]
    found, plain = _shares(model, batch, videos), Plain(model)
    whole = torch.stack(list(found.values())).sum(0)
    for query, video in enumerate(videos):
        asked, shown = _alone(batch, query, video)
        words = plain.words(asked.tokens[0])
        clips = plain.clips({name: one[0] for name, one in shown.streams.items()})
        maps = plain.weights["focus.linear.weight"].chunk(2, 1)
        lengths = [
            (plain.gated(one, plain.pooled(words, gate)[0], gate) @ maps[gate].T).norm(dim=1)
            for gate, one in enumerate(clips)
        ]
        count = len(lengths[0])
        torch.testing.assert_close(found["sub"][query, :count], lengths[1] / (lengths[0] + lengths[1]))
        torch.testing.assert_close(whole[query], (torch.arange(whole.shape[1]) < count).float())


# --- equation 11


def _candidates(query: int) -> list[int]:
    return [OWN[query], *(video for video in NEGATIVES[query] if video >= 0)]


def _borders_by_hand(model: Model, batch: Batch, query: int, videos: list[int]) -> tuple[Tensor, Tensor]:
    """-log P of the true start and end over the clips of all videos, the first of which is the own one."""
    every = torch.cat([_logits(model, batch, query, video) for video in videos], dim=1).exp()
    first, last = batch.spans[query].tolist()
    return -(every[0, first] / every[0].sum()).log(), -(every[1, last] / every[1].sum()).log()


@torch.no_grad()
@pytest.mark.parametrize("shared", [True, False])
def test_borders_are_a_softmax_over_the_clips_of_all_candidates(shared: bool) -> None:
    model, batch = _model(shared_norm=shared), _batch()
    terms = model.loss(batch)
    found = [
        _borders_by_hand(model, batch, query, _candidates(query)[: None if shared else 1])
        for query in range(3)
    ]
    for name, expected in zip(("start", "end"), zip(*found, strict=True), strict=True):
        torch.testing.assert_close(terms[name], torch.stack(expected).mean(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_without_negatives_the_softmax_is_over_the_own_video_and_nothing_is_classified() -> None:
    model, batch = _model(), _batch(negatives=None)
    terms = model.loss(batch)
    assert set(terms) == {"start", "end"}
    expected = torch.stack(
        [_borders_by_hand(model, batch, query, OWN[query : query + 1])[0] for query in range(3)]
    )
    torch.testing.assert_close(terms["start"], expected.mean(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_chosen_video_that_answers_too_is_no_negative() -> None:
    model, batch = _model(), _batch()
    positives = batch.positives.clone()
    positives[0, 1] = True
    without = replace(batch, negatives=torch.tensor([[0, -1], [1, -1], [3, 2]]))
    found, expected = model.loss(replace(batch, positives=positives)), model.loss(without)
    assert {name: one.item() for name, one in found.items()} == pytest.approx(
        {name: one.item() for name, one in expected.items()}, rel=1e-5
    )


# --- equation 12


def _positives_by_hand(query: int) -> list[tuple[int, int]]:
    moment, clips = set(range(SPANS[query][0], SPANS[query][1] + 1)), CLIPS[OWN[query]]
    segments = [(a, b) for a in range(clips) for b in range(a, clips)]
    sets = {one: set(range(one[0], one[1] + 1)) for one in segments}
    return [one for one in segments if len(sets[one] & moment) / len(sets[one] | moment) > 0.7]


def _negatives_by_hand(model: Model, batch: Batch, query: int, video: int) -> list[tuple[int, int]]:
    """The best of one video, of allowed lengths."""
    start, end = _logits(model, batch, query, video)
    least, most = model.config.min_moment_clips, model.config.max_moment_clips or 99
    segments = [
        (float(start[a] + end[b]), (a, b))
        for a in range(len(start))
        for b in range(a, len(start))
        if least <= b - a + 1 <= most
    ]
    return [one for _, one in sorted(segments, reverse=True)[: model.config.negative_moments]]


def _verdicts(
    model: Model, batch: Batch, query: int, video: int, segments: list[tuple[int, int]]
) -> list[Tensor]:
    """The classifier's logits of segments."""
    plain = Plain(model)
    asked, shown = _alone(batch, query, video)
    words = plain.words(asked.tokens[0])
    clips = plain.clips({name: one[0] for name, one in shown.streams.items()})
    seen = plain.transformer("classifier.encoder", plain.together(words, plain.fused(words, clips)))
    verdicts = []
    for first, last in segments:
        best = seen[first : last + 1].amax(0)
        for layer in (0, 2, 4):
            best = plain.linear(f"classifier.layers.{layer}", best if layer == 0 else best.relu())
        verdicts.append(best[0])
    return verdicts


def _classified(model: Model, batch: Batch, query: int) -> list[tuple[Tensor, bool, float]]:
    """Of every segment of a query: the logit, whether it answers, and what the localizer scores it."""
    found = []
    for place, video in enumerate(_candidates(query)):
        segments = _negatives_by_hand(model, batch, query, video) if place else _positives_by_hand(query)
        start, end = _logits(model, batch, query, video)
        verdicts = _verdicts(model, batch, query, video, segments)
        found += [
            (verdict, not place, float(start[first] + end[last]))
            for verdict, (first, last) in zip(verdicts, segments, strict=True)
        ]
    return found


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [{}, {"min_moment_clips": 2, "max_moment_clips": 3}, {"negative_moments": 2, "max_moment_clips": None}],
    ids=["as published", "lengths", "two of any length"],
)
def test_the_classifier_is_asked_for_all_that_overlap_and_the_best_of_the_negatives(
    settings: dict[str, Any],
) -> None:
    model, batch = _model(**settings), _batch()
    expected = []
    for query in range(3):
        entropies = [
            -logsigmoid(logit if answers else -logit)
            for logit, answers, _ in _classified(model, batch, query)
        ]
        expected.append(torch.stack(entropies).mean())
    found = model.loss(batch)["adversarial"]
    torch.testing.assert_close(found, 0.8 * torch.stack(expected).mean(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_players_score_what_the_localizer_proposes_by_what_the_classifier_thinks_of_it() -> None:
    model, batch = _model(adversary="players"), _batch()
    expected = []
    for query in range(3):
        told = _classified(model, batch, query)
        chances = torch.tensor([score for _, _, score in told]).softmax(0)
        expected.append(sum(c * -logsigmoid(logit) for c, (logit, _, _) in zip(chances, told, strict=True)))
    found = model.loss(batch)["proposals"]
    torch.testing.assert_close(found, 0.8 * torch.stack(expected).mean(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_query_without_negatives_is_not_classified() -> None:
    model, batch = _model(), _batch()
    every = model.loss(batch)["adversarial"]
    alone = [
        model.loss(
            replace(batch, negatives=torch.tensor(NEGATIVES).where(torch.arange(3)[:, None] == one, -1))
        )
        for one in range(3)
    ]
    torch.testing.assert_close(sum(one["adversarial"] for one in alone), every, rtol=1e-4, atol=1e-6)
    none = model.loss(replace(batch, negatives=torch.full((3, 2), -1)))
    assert none["adversarial"] == 0


@torch.no_grad()
def test_videos_too_short_for_any_moment_are_no_negatives() -> None:
    model, batch = _model(min_moment_clips=3, max_moment_clips=7), _batch()
    short = replace(batch, negatives=torch.tensor([[2, -1], [2, -1], [2, -1]]))
    assert model.loss(short)["adversarial"] == 0


def _reached(model: Model, term: Tensor) -> set[str]:
    """Parts of the model that a term has a gradient for."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(term, parameters, allow_unused=True, retain_graph=True)
    return {
        name.split(".")[0] for name, one in zip(names, found, strict=True) if one is not None and one.any()
    }


SEEN = {
    "query_projection",
    "query_positions",
    "query_encoder",
    "pooling",
    "video_encoder",
    "focus",
    "fusion",
}


def test_together_the_classifier_teaches_what_both_look_at_and_no_border() -> None:
    model = _model()
    terms = model.loss(_batch())
    assert set(terms) == {"start", "end", "adversarial"}
    assert _reached(model, terms["adversarial"]) == SEEN | {"classifier"}
    assert _reached(model, terms["start"]) == _reached(model, terms["end"]) == SEEN | {"borders"}


def test_of_two_players_each_learns_alone() -> None:
    model = _model(adversary="players")
    terms = model.loss(_batch())
    assert set(terms) == {"start", "end", "adversarial", "proposals"}
    assert _reached(model, terms["adversarial"]) == {"classifier"}
    assert _reached(model, terms["proposals"]) == SEEN | {"borders"}


def test_a_player_moves_its_probability_to_what_the_classifier_approves() -> None:
    model, batch = _model(adversary="players", gamma=1.0), _batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    before = model.loss(batch)["proposals"]
    for _ in range(5):
        optimizer.zero_grad()
        model.loss(batch)["proposals"].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert model.loss(batch)["proposals"] < before


def test_the_weights_of_examples_multiply_all_terms() -> None:
    model, batch = _model(adversary="players"), _batch()
    each = [model.loss(replace(batch, weight=torch.eye(3)[query])) for query in range(3)]
    weight = torch.tensor([0.5, 0.0, 2.0])
    found = model.loss(replace(batch, weight=weight))
    for name, one in found.items():
        expected = sum(w * part[name] for w, part in zip(weight, each, strict=True))
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-5)
        assert one > 0


# --- padding and batch-mates in the loss


@torch.no_grad()
def test_more_padding_and_videos_that_nobody_chose_move_no_term() -> None:
    model, batch = _model(max_clips=20), _batch()
    streams = {
        name: torch.cat([nn.functional.pad(one, (0, 0, 0, 5)), torch.ones(1, 14, one.shape[2])])
        for name, one in batch.videos.streams.items()
    }
    mask = torch.cat([nn.functional.pad(batch.videos.mask, (0, 5)), torch.ones(1, 14, dtype=torch.bool)])
    more = replace(
        batch,
        videos=ClipBatch(streams, mask),
        queries=QueryBatch(
            nn.functional.pad(batch.queries.tokens, (0, 0, 0, 2), value=9.0),
            nn.functional.pad(batch.queries.mask, (0, 2)),
        ),
        positives=nn.functional.pad(batch.positives, (0, 1)),
    )
    expected = model.loss(batch)
    for name, one in model.loss(more).items():
        torch.testing.assert_close(one, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("adversary", ["together", "players"])
def test_in_half_precision_all_terms_and_gradients_are_finite(adversary: Any) -> None:
    model, batch = _model(adversary=adversary), _batch()
    exact = model.loss(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model.loss(batch)
    for name in ("start", "end"):
        torch.testing.assert_close(rough[name], exact[name], rtol=0.05, atol=0.05)
    whole = torch.stack(list(rough.values())).sum()
    found = torch.autograd.grad(whole, list(model.parameters()))
    assert all(one.isfinite().all() for one in found)


# --- ablations


@torch.no_grad()
def test_without_gates_clips_are_fused_as_they_are() -> None:
    model, batch = _model(gates=False), _batch()
    plain, (asked, shown) = Plain(model), _alone(batch, 0, 1)
    clips = plain.clips({name: one[0] for name, one in shown.streams.items()})
    fused = plain.linear("focus.linear", torch.cat(clips, 1))
    logits = plain.borders(plain.together(plain.words(asked.tokens[0]), fused))
    torch.testing.assert_close(_logits(model, batch, 0, 1), logits, rtol=1e-4, atol=1e-4)
    weights = model.word_weights(model.encode_queries(batch.queries))
    assert weights["sub"].tolist() == [
        pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0]),
        pytest.approx([1, 0, 0, 0, 0]),
        pytest.approx([0.2] * 5),
    ]


@torch.no_grad()
@pytest.mark.parametrize("fusion", ["linear", "mean"])
def test_streams_can_be_fused_before_one_gate(fusion: Any) -> None:
    model, batch = _model(order="fuse-then-focus", fusion=fusion), _batch()
    plain, (asked, shown) = Plain(model), _alone(batch, 0, 1)
    words = plain.words(asked.tokens[0])
    clips = plain.clips({name: one[0] for name, one in shown.streams.items()})
    fused = (
        plain.linear("focus.linear", torch.cat(clips, 1)) if fusion == "linear" else (clips[0] + clips[1]) / 2
    )
    gated = plain.gated(fused, plain.pooled(words, 0)[0], 0)
    logits = plain.borders(plain.together(words, gated))
    torch.testing.assert_close(_logits(model, batch, 0, 1), logits, rtol=1e-4, atol=1e-4)
    found = model.word_weights(model.encode_queries(batch.queries))
    assert torch.equal(found["video"], found["sub"])


@torch.no_grad()
def test_the_mean_of_gated_streams_can_stand_for_their_fusion() -> None:
    model, batch = _model(fusion="mean"), _batch()
    plain, (asked, shown) = Plain(model), _alone(batch, 0, 1)
    words = plain.words(asked.tokens[0])
    clips = plain.clips({name: one[0] for name, one in shown.streams.items()})
    gated = [plain.gated(one, plain.pooled(words, gate)[0], gate) for gate, one in enumerate(clips)]
    logits = plain.borders(plain.together(words, (gated[0] + gated[1]) / 2))
    torch.testing.assert_close(_logits(model, batch, 0, 1), logits, rtol=1e-4, atol=1e-4)


ABLATIONS: dict[str, dict[str, Any]] = {
    "no gates": {"gates": False},
    "no shared norm": {"shared_norm": False},
    "no adversary": {"gamma": 0.0},
    "neither": {"gamma": 0.0, "shared_norm": False},
    "players": {"adversary": "players"},
    "fused first": {"order": "fuse-then-focus"},
    "fused first, no gate": {"order": "fuse-then-focus", "gates": False},
    "mean": {"fusion": "mean"},
    "pauses": {"pauses": "nothing"},
    "what is seen": {"streams": {"video": 6}},
    "what is said": {"streams": {"sub": 3}},
}


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_every_ablation_learns_with_all_its_parameters(name: str) -> None:
    model = _model(**ABLATIONS[name])
    names, parameters = zip(*model.named_parameters(), strict=True)
    whole = torch.stack(list(model.loss(_batch()).values())).sum()
    found = torch.autograd.grad(whole, parameters, allow_unused=True)
    assert [one for one, value in zip(names, found, strict=True) if value is None or not value.any()] == []
    assert ("classifier.layers.0.weight" in names) == (model.config.gamma > 0)


def test_where_nothing_asks_for_negatives_their_videos_are_not_paired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, seen = _model(gamma=0.0, shared_norm=False), []
    scored = model.pair_logits

    def watched(*told: Any) -> Any:
        seen.append(len(told[0]))
        return scored(*told)

    monkeypatch.setattr(model, "pair_logits", watched)
    model.loss(_batch())
    assert seen == [3]


# --- learning


def _examples(count: int, seed: int) -> Batch:
    """Moments of one of six kinds, in videos of 6 to 10 clips that are noise elsewhere.

    What is asked is seen in one half of the examples and said in the other; the first word tells which.
    Beside the true moment each video has one of the same kind in the other stream, which does not answer.
    """
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.nn.functional.normalize(
        torch.randn(6, 8, generator=torch.Generator().manual_seed(9)), dim=1
    )
    kind, stream = (torch.randint(0, most, (count,), generator=generator) for most in (6, 2))
    clips = torch.randint(6, 11, (count,), generator=generator)
    long = torch.randint(1, 4, (count, 2), generator=generator)
    true_first = torch.randint(0, 2, (count,), generator=generator)
    # The answer lies in the first half or the second, what does not answer in the other.
    begins = torch.stack([torch.zeros_like(clips), clips // 2], 1)
    begins = begins + (torch.rand(count, 2, generator=generator) * (3 - long + 1)).long()
    place = torch.arange(10)
    inside = (place >= begins[..., None]) & (place < (begins + long)[..., None])
    answer = inside.gather(1, true_first[:, None, None].expand(-1, 1, 10))[:, 0]
    lure = inside.gather(1, (1 - true_first)[:, None, None].expand(-1, 1, 10))[:, 0]
    mask = place < clips[:, None]
    streams = {}
    for number, name in enumerate(STREAMS):
        shown = torch.where((stream == number)[:, None], answer, lure)
        noise = 0.1 * torch.randn(count, 10, 8, generator=generator)
        streams[name] = (noise + shown[..., None] * kinds[kind][:, None]) * mask[..., None]
    mark = torch.nn.functional.one_hot(stream, 8).float()
    first = begins.gather(1, true_first[:, None])[:, 0]
    spans = torch.stack([first, first + long.gather(1, true_first[:, None])[:, 0] - 1], 1)
    every = torch.arange(count)
    same = kind == kind[:, None]
    return Batch(
        QueryBatch(torch.stack([mark, kinds[kind]], 1), torch.ones(count, 2, dtype=torch.bool)),
        ClipBatch(streams, mask),
        every,
        spans,
        same,
        negatives=torch.stack([(every + 1) % count, (every + 2) % count], 1),
    )


@pytest.mark.slow
def test_it_learns_to_find_what_is_seen_and_what_is_said_in_the_right_video() -> None:
    model = _model(
        streams=dict.fromkeys(STREAMS, 8),
        query_width=8,
        hidden=32,
        feedforward=64,
        max_clips=10,
        initializer_range=0.02,
        dropout=0.0,
        input_dropout=0.0,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model.train()
    for step in range(250):
        optimizer.zero_grad()
        torch.stack(list(model.loss(_examples(48, step)).values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    batch = _examples(200, 10_000)
    with torch.no_grad():
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        own = model.score_spans(queries, videos)
        other = model.score_spans(queries, videos.take((torch.arange(200) + 1) % 200))
    best = best_spans(own, Decoding(max_clips=3), 1)
    exact = (best.first[:, 0] == batch.spans[:, 0]) & (best.last[:, 0] == batch.spans[:, 1])
    assert exact.float().mean() > 0.9
    # Logits of different videos can be compared: the own video has the better moment.
    different = ~batch.positives[torch.arange(200), (torch.arange(200) + 1) % 200]
    better = best.score[:, 0] > best_spans(other, Decoding(max_clips=3), 1).score[:, 0]
    assert better[different].float().mean() > 0.9


# --- settings


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"streams": {"a": 1, "b": 1, "c": 1}}, "one stream or two"),
        ({"streams": {"what is seen": 1}}, "letters, digits"),
        ({"fusion_layers": 0}, "fusion_layers is 0"),
        ({"classifier_layers": 0}, "classifier_layers is 0"),
        ({"negative_moments": 0}, "negative_moments is 0"),
        ({"min_moment_clips": 0}, "min_moment_clips is 0"),
        ({"min_moment_clips": 5, "max_moment_clips": 4}, "max_moment_clips is 4"),
        ({"order": "fuse"}, "order is 'fuse'"),
        ({"fusion": "max"}, "fusion is 'max'"),
        ({"adversary": "none"}, "adversary is 'none'"),
        ({"pauses": "zeros"}, "pauses is 'zeros'"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"positive_iou": 1.0}, "positive_iou is 1.0"),
        ({"hidden": 10, "heads": 4}, "no multiple"),
        ({"span_kernel": 4}, "odd number"),
    ],
)
def test_a_setting_that_makes_no_model_is_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=f"prem_localizer: .*{told}"):
        Config(**settings)


def test_a_video_longer_than_the_model_has_places_for_is_told() -> None:
    with pytest.raises(UsageError, match="9 clips, but the model has places for 8"):
        _model(max_clips=8).encode_videos(_batch().videos)
