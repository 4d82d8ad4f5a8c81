"""PREM's retriever: equations 5 to 8 against plain computations, what is no key, its switches, learning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.small_systems import Letters, small_system, write_talk
from torch import Tensor
from torch.nn import functional

from whenabouts import Corpus
from whenabouts.types import UsageError
from whenabouts_systems.features import open_features
from whenabouts_systems.models.parts.relevant_content import RelevantContent, clip_cosines
from whenabouts_systems.models.prem_retriever import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.trained_search import search as trained_search

BOTH: Mapping[str, int] = {"video": 7, "sub": 5}
CLIPS, TOKENS = [6, 4, 1, 5, 3], [3, 1, 5, 2]
OWN = [1, 0, 2, 0]
SPANS = [[1, 2], [0, 0], [0, 0], [3, 5]]
SILENT = {0: [0, 2], 1: [], 2: [0], 3: [0, 1, 2, 3, 4], 4: [1]}
"""Clips of each video in which nothing is said: the moment of query 1; all of video 2 and of video 3."""


def _model(streams: Mapping[str, int] = BOTH, **settings: Any) -> Model:
    torch.manual_seed(0)
    told = {"query_width": 4, "hidden": 8, "heads": 2, "feedforward": 12, "initializer_range": 0.4}
    return Model(Config(**{**told, "streams": streams, "temperature": 0.1, **settings})).eval()


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _batch(streams: Mapping[str, int] = BOTH, **more: Any) -> Batch:
    """Four queries and five videos; video 4 is of no query; query 0 is known to answer to video 3 too."""
    generator = torch.Generator().manual_seed(1)
    clips, tokens = _mask(CLIPS), _mask(TOKENS)
    made = {
        name: torch.randn(*clips.shape, width, generator=generator) * clips[..., None]
        for name, width in streams.items()
    }
    for video, places in SILENT.items():
        if "sub" in made:
            made["sub"][video, places] = 0.0
    words = torch.randn(*tokens.shape, 4, generator=generator) * tokens[..., None]
    positives = functional.one_hot(torch.tensor(OWN), len(CLIPS)).bool()
    positives[0, 3] = True
    return Batch(
        QueryBatch(words, tokens),
        ClipBatch(made, clips),
        torch.tensor(OWN),
        torch.tensor(SPANS),
        **{"positives": positives, **more},
    )


def _total(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()


# --- the paper's formulas, one number at a time


class Plain:
    """The retriever computed a query, a video and a clip at a time, with the weights of ours."""

    def __init__(self, model: Model) -> None:
        self.model, self.weights = model, dict(model.named_parameters())

    def word_rows(self, words: Tensor) -> Tensor:
        rows = self._projected("query_projection", words)
        rows = rows + self.weights["query_positions.table.weight"][: len(rows)]
        return self._layer("query_encoder.layers.0", self._norm("query_positions.norm", rows))

    def query(self, words: Tensor, stream: int) -> Tensor:
        """Equation 5, or the pooling that stands for it."""
        rows = self.word_rows(words)
        if self.model.config.pooling == "mean":
            return torch.stack(list(rows)).sum(0) / len(rows)
        if self.model.config.pooling == "max":
            return torch.stack([rows[:, at].max() for at in range(rows.shape[1])])
        likelihood = [(self.weights["pooling.linear.weight"][stream] * row).sum() for row in rows]
        below = torch.stack(likelihood).exp().sum()
        return torch.stack([one.exp() / below * row for one, row in zip(likelihood, rows, strict=True)]).sum(
            0
        )

    def clips(self, video: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The clips of both streams as one sequence: each has a place and a kind."""
        rows, kinds = [], []
        for number, (name, features) in enumerate(video.items()):
            made = self._projected(f"video_encoder.projections.{name}", features)
            made = made + self.weights["video_encoder.positions.places.weight"][: len(made)]
            rows.append(made + self.weights["video_encoder.positions.types.weight"][number])
            kinds += [name] * len(made)
        normed = self._norm("video_encoder.positions.norm", torch.cat(rows))
        encoded = self._layer("video_encoder.encoder.layers.0", normed)
        return {
            name: torch.stack([row for row, kind in zip(encoded, kinds, strict=True) if kind == name])
            for name in video
        }

    def score(self, words: Tensor, video: Mapping[str, Tensor], among: list[int]) -> Tensor | None:
        """Equation 6 over some clips of a video; None where none of them has anything in any stream."""
        best = []
        for number, rows in enumerate(self.clips(video).values()):
            asked = self.query(words, number)
            cosines = [
                (asked * rows[at]).sum() / (asked.norm() * rows[at].norm())
                for at in among
                if any((one[at] != 0).any() for one in video.values())
            ]
            if cosines:
                best.append(torch.stack(cosines).max())
        return torch.stack(best).sum() / len(best) if best else None

    def _projected(self, name: str, rows: Tensor) -> Tensor:
        return self._linear(f"{name}.linear", self._norm(f"{name}.norm", rows)).relu()

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        return rows @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, name: str, rows: Tensor) -> Tensor:
        centred = rows - rows.mean(1, keepdim=True)
        scaled = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _layer(self, name: str, rows: Tensor) -> Tensor:
        """One layer of "Attention is all you need"."""
        asked, keys, values = (
            self._linear(f"{name}.attention.{part}", rows) for part in ("query", "key", "value")
        )
        width = rows.shape[1] // self.model.config.heads
        heads = []
        for low in range(0, rows.shape[1], width):
            part = slice(low, low + width)
            weights = (asked[:, part] @ keys[:, part].T / math.sqrt(width)).exp()
            heads.append(weights / weights.sum(1, keepdim=True) @ values[:, part])
        attended = self._linear(f"{name}.output", torch.cat(heads, 1))
        rows = self._norm(f"{name}.attention_norm", rows + attended)
        wide = self._linear(f"{name}.wide", rows).clamp(min=0)
        return self._norm(f"{name}.feedforward_norm", rows + self._linear(f"{name}.narrow", wide))


class Told(NamedTuple):
    """A batch without padding: the words of each query, the streams of each video."""

    words: list[Tensor]
    videos: list[dict[str, Tensor]]


def _told(batch: Batch) -> Told:
    return Told(
        [rows[mask] for rows, mask in zip(batch.queries.tokens, batch.queries.mask, strict=True)],
        [
            {name: one[at][mask] for name, one in batch.videos.streams.items()}
            for at, mask in enumerate(batch.videos.mask)
        ],
    )


def _plain_scores(model: Model, batch: Batch) -> list[list[Tensor]]:
    plain, told = Plain(model), _told(batch)
    every = [list(range(length)) for length in batch.videos.mask.sum(1).tolist()]
    found = []
    for words in told.words:
        scores = [plain.score(words, video, every[at]) for at, video in enumerate(told.videos)]
        found.append([torch.tensor(-1.0) if one is None else one for one in scores])
    return found


def _plain_losses(model: Model, batch: Batch) -> dict[str, Tensor]:
    """Equations 7 and 8, and L^q, as means over the queries."""
    config, plain, told = model.config, Plain(model), _told(batch)
    scores, t = _plain_scores(model, batch), config.temperature
    sums: dict[str, list[Tensor]] = {"negative_videos": [], "weak": [], "negative_queries": []}
    for query, (own, (first, last)) in enumerate(zip(batch.video_of.tolist(), SPANS, strict=True)):
        clips = range(int(batch.videos.mask[own].sum()))
        inside = [at for at in clips if first <= at <= last or not config.strong]
        outside = [at for at in clips if not first <= at <= last]
        videos = [
            (scores[query][at].double() / t).exp()
            for at in range(len(told.videos))
            if not batch.positives[query, at]
        ]
        queries = [
            (scores[at][own].double() / t).exp()
            for at in range(len(told.words))
            if not batch.positives[at, own]
        ]
        for name, among, negatives, share in (
            ("negative_videos", inside, videos, config.weight_negative_videos),
            ("weak", outside, videos, config.weight_negative_videos * config.lambda_weak),
            ("negative_queries", inside, queries, config.weight_negative_queries),
        ):
            positive = plain.score(told.words[query], told.videos[own], among)
            if positive is None:
                continue
            above = (positive.double() / t).exp()
            loss = -(above / torch.stack([above, *negatives]).sum()).log()
            sums[name].append(share * loss * (1.0 if batch.weight is None else batch.weight[query]))
    return {name: torch.stack(sums[name]).sum().float() / len(batch) for name in sums if sums[name]}


STREAMS = pytest.mark.parametrize("streams", [BOTH, {"video": 7}, {"sub": 5}], ids=["both", "video", "sub"])


@STREAMS
@pytest.mark.parametrize("pooling", ["modality-specific", "mean", "max"])
@torch.no_grad()
def test_videos_score_equations_5_and_6(streams: Mapping[str, int], pooling: Any) -> None:
    model, batch = _model(streams, pooling=pooling), _batch(streams)
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    expected = torch.tensor([[float(one) for one in row] for row in _plain_scores(model, batch)])
    torch.testing.assert_close(model.score_videos(queries, videos), expected, rtol=1e-4, atol=1e-5)
    assert expected.std() > 0.05


@STREAMS
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.01, "initializer_range": 0.1},
        {"strong": False},
        {"pooling": "max", "lambda_weak": 2.0, "weight_negative_queries": 0.7},
    ],
    ids=["as published", "cold", "best of all", "other weights"],
)
def test_losses_and_gradients_are_those_of_equations_7_and_8(
    streams: Mapping[str, int], settings: dict[str, Any]
) -> None:
    model, batch = _model(streams, **settings), _batch(streams, weight=torch.tensor([1.0, 0.3, 0.8, 0.5]))
    ours, plain = model.loss(batch), _plain_losses(model, batch)
    assert set(ours) == set(plain) == {"negative_videos", "weak", "negative_queries"}
    for name, loss in plain.items():
        torch.testing.assert_close(ours[name], loss, rtol=1e-3, atol=1e-4)
    parameters = list(model.parameters())
    found = torch.autograd.grad(_total(ours), parameters, allow_unused=True)
    expected = torch.autograd.grad(_total(plain), parameters, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        torch.testing.assert_close(
            one, torch.zeros_like(one) if other is None else other, rtol=2e-3, atol=2e-3
        )


# --- words that are not there


@torch.no_grad()
def test_a_pause_is_a_key_by_what_stands_around_it_and_nothing_at_all_is_none() -> None:
    model, batch = _model(), _batch()
    videos = model.encode_videos(batch.videos)
    for name, keys in videos.keys.items():
        assert torch.equal(videos.key_masks[name], batch.videos.mask)
        lengths = keys[videos.key_masks[name]].norm(dim=1)
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
    streams = dict(batch.videos.streams)
    streams["video"] = streams["video"].clone()
    streams["video"][0, 2] = 0.0
    dark = model.encode_videos(ClipBatch(streams, batch.videos.mask))
    for mask in dark.key_masks.values():
        assert mask[0].tolist() == [True, True, False, True, True, True]
    alone = _model({"sub": 5}).encode_videos(_batch({"sub": 5}).videos)
    for video, (length, silent) in enumerate(zip(CLIPS, SILENT.values(), strict=True)):
        expected = [at < length and at not in silent for at in range(max(CLIPS))]
        assert alone.key_masks["sub"][video].tolist() == expected


def test_no_positive_gains_where_the_words_of_all_videos_are_pushed_away() -> None:
    """A query whose moment is silent is held against others over the same streams as they are.

    All keys of the subtitles get the same cosine with the query, once high and once low: what tells no videos
    apart must not change the loss.
    """
    model, batch = _model(), _batch(weight=torch.tensor([0.0, 1.0, 0.0, 0.0]))
    losses = []
    for cosine in (0.9, -0.9):
        shown = model.encode_videos(batch.videos)
        asked = model.encode_queries(batch.queries)
        search = asked.search["sub"]
        across = functional.normalize(torch.ones_like(search) - search * search.sum(1, keepdim=True), dim=1)
        key = cosine * search[1] + math.sqrt(1 - cosine**2) * across[1]
        keys = {**shown.keys, "sub": key.expand_as(shown.keys["sub"])}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "encode_videos", lambda _, shown=shown, keys=keys: replace(shown, keys=keys))
            losses.append(model.loss(batch))
    for name in ("negative_videos", "weak"):
        torch.testing.assert_close(losses[0][name], losses[1][name], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_video_with_nothing_at_all_comes_last() -> None:
    model, batch = _model({"sub": 5}), _batch({"sub": 5})
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    assert (scores[:, 2:4] == -1.0).all()
    assert (scores[:, [0, 1, 4]] > -1.0).all()


def test_a_query_without_a_positive_on_one_side_loses_nothing_there() -> None:
    """Nothing is said in the moment of query 1; that of query 2 is all of its video, which is silent."""
    model, batch = _model({"sub": 5}), _batch({"sub": 5})
    told = model.loss(replace(batch, weight=torch.tensor([0.0, 1.0, 1.0, 0.0])))
    assert told["negative_videos"].item() == told["negative_queries"].item() == 0.0
    assert told["weak"].item() > 0.0
    alone = model.loss(replace(batch, weight=torch.tensor([0.0, 0.0, 1.0, 0.0])))
    assert all(one.item() == 0.0 for one in alone.values())


def test_without_any_words_in_the_batch_all_parts_learn() -> None:
    model, batch = _model(), _batch()
    streams = {**batch.videos.streams, "sub": torch.zeros_like(batch.videos.streams["sub"])}
    losses = model.loss(replace(batch, videos=ClipBatch(streams, batch.videos.mask)))
    _total(losses).backward()  # type: ignore[no-untyped-call]
    assert all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters())


# --- padding, batch-mates, positives, negatives


def test_padding_and_order_move_no_loss() -> None:
    model, batch = _model(), _batch()
    wide = {
        name: functional.pad(one, (0, 0, 0, 3)).masked_fill(
            ~functional.pad(batch.videos.mask, (0, 3))[..., None], 40.0
        )
        for name, one in batch.videos.streams.items()
    }
    words = functional.pad(batch.queries.tokens, (0, 0, 0, 2), value=9.0)
    padded = replace(
        batch,
        videos=ClipBatch(wide, functional.pad(batch.videos.mask, (0, 3))),
        queries=QueryBatch(words, functional.pad(batch.queries.mask, (0, 2))),
    )
    rows = torch.tensor([3, 0, 4, 1, 2])
    turned = replace(
        batch,
        videos=ClipBatch(
            {name: one[rows] for name, one in batch.videos.streams.items()}, batch.videos.mask[rows]
        ),
        video_of=rows.argsort()[batch.video_of],
        positives=batch.positives[:, rows],
    )
    losses = model.loss(batch)
    for other in (model.loss(padded), model.loss(turned)):
        for name, loss in losses.items():
            torch.testing.assert_close(other[name], loss, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("known", [False, True])
def test_a_video_that_is_known_to_answer_is_no_negative(known: bool) -> None:
    """Query 0 answers to video 3 as well: only where that is not known does it lose by it."""
    model, batch = _model(), _batch()
    positives = batch.positives.clone()
    positives[0, 3] = known
    batch = replace(batch, positives=positives, weight=torch.tensor([1.0, 0.0, 0.0, 0.0]))
    streams = {name: one.clone().requires_grad_() for name, one in batch.videos.streams.items()}
    losses = model.loss(replace(batch, videos=ClipBatch(streams, batch.videos.mask)))
    _total(losses).backward()  # type: ignore[no-untyped-call]
    assert streams["video"].grad is not None
    assert bool(streams["video"].grad[3].any()) is not known
    assert streams["video"].grad[4].any()


def test_chosen_negatives_count_like_all_other_videos() -> None:
    model, batch = _model(), _batch()
    losses = model.loss(batch)
    chosen = model.loss(replace(batch, negatives=torch.tensor([[4, -1], [2, 4], [0, 1], [-1, -1]])))
    assert all(torch.equal(chosen[name], loss) for name, loss in losses.items())


def test_what_moves_the_weak_positive_is_outside_the_moment() -> None:
    """One stream, so that each side has one best clip: L++ reaches the moment, L+ what is outside."""
    model = _model({"video": 7})
    positives = torch.tensor([[True]])
    batch = Batch(
        QueryBatch(torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(4)), _mask([3])),
        ClipBatch({"video": torch.randn(1, 6, 7, generator=torch.Generator().manual_seed(5))}, _mask([6])),
        torch.tensor([0]),
        torch.tensor([[2, 3]]),
        positives,
    )
    cosines = clip_cosines(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    strong, weak = RelevantContent()._positives(batch, cosines)
    clips = cosines[0, 0, :, 0]
    assert strong.item() == clips[2:4].max().item()
    assert weak.item() == clips[[0, 1, 4, 5]].max().item()
    assert strong.item() != weak.item()


# --- switches


@pytest.mark.parametrize(
    ("settings", "terms"),
    [
        ({}, {"negative_videos", "weak", "negative_queries"}),
        ({"lambda_weak": 0.0}, {"negative_videos", "negative_queries"}),
        ({"weight_negative_queries": 0.0}, {"negative_videos", "weak"}),
        ({"weight_negative_videos": 0.0}, {"negative_queries"}),
    ],
)
def test_a_term_without_weight_is_left_out(settings: dict[str, Any], terms: set[str]) -> None:
    assert set(_model(**settings).loss(_batch())) == terms


def test_without_strong_positives_the_best_of_the_whole_video_is_drawn_near() -> None:
    batch = _batch()
    strong, best = (_model(strong=told).loss(batch) for told in (True, False))
    for name in ("negative_videos", "negative_queries"):
        assert best[name] < strong[name]
    assert best["weak"] == strong["weak"]


@torch.no_grad()
def test_each_stream_has_words_of_its_own_and_other_poolings_have_one_vector() -> None:
    batch = _batch()
    for pooling, same in (("modality-specific", False), ("mean", True), ("max", True)):
        model = _model(pooling=pooling)
        queries = model.encode_queries(batch.queries)
        assert torch.equal(queries.search["video"], queries.search["sub"]) is same
        weights = model.word_weights(queries)
        assert torch.equal(weights["video"], weights["sub"]) is same
        for one in weights.values():
            torch.testing.assert_close(one.sum(1), torch.ones(len(TOKENS)))
            assert (one[~batch.queries.mask] == 0).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"streams": {}}, "one stream"),
        ({"streams": {"a": 1, "b": 1, "c": 1}}, "one stream or two"),
        ({"streams": {"a b": 3}}, "names of letters"),
        ({"pooling": "sum"}, "accepted: 'modality-specific', 'mean', 'max'"),
        ({"temperature": 0.0}, "above 0"),
        ({"lambda_weak": -0.5}, "0 or more"),
        ({"weight_negative_videos": 0, "weight_negative_queries": 0}, "nothing would be learned"),
        ({"hidden": 10, "heads": 4}, "no multiple"),
        ({"layers": 0}, "1 or more"),
        ({"strong": "yes"}, "true or false"),
    ],
)
def test_a_setting_that_makes_no_model_is_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"prem_retriever: .*{message}"):
        Config(**settings)


def test_sequences_that_are_too_long_are_told() -> None:
    batch = _batch()
    with pytest.raises(UsageError, match=r"6 clips.*max_clips = 6"):
        _model(max_clips=5).encode_videos(batch.videos)
    with pytest.raises(UsageError, match=r"5 tokens.*max_tokens = 5"):
        _model(max_tokens=4).encode_queries(batch.queries)


# --- learning


def _separable(count: int = 6) -> Batch:
    """Query i names what two clips of video i show, or what is said in them (odd ones); the rest is noise."""
    generator = torch.Generator().manual_seed(8)
    names = torch.eye(count)
    streams = {name: torch.randn(count, 8, count, generator=generator) * 0.3 for name in ("video", "sub")}
    streams["sub"][:, 6:] = 0.0
    spans = torch.tensor([[at % 5, at % 5 + 1] for at in range(count)])
    for at, (first, _) in enumerate(spans.tolist()):
        streams["sub" if at % 2 else "video"][at, first : first + 2] += names[at] * 3
    words = torch.randn(count, 3, count, generator=generator) * 0.3
    words[:, 1] += names * 3
    every = torch.ones(count, 8, dtype=torch.bool)
    return Batch(
        QueryBatch(words, every[:, :3]),
        ClipBatch(streams, every),
        torch.arange(count),
        spans,
        torch.eye(count, dtype=torch.bool),
    )


def test_it_learns_to_find_the_video_and_the_clip_that_answers() -> None:
    torch.manual_seed(1)
    config = Config({"video": 6, "sub": 6}, query_width=6, hidden=16, heads=2, feedforward=32)
    model, batch = Model(config), _separable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = _total(model.loss(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    model.eval()
    with torch.no_grad():
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        assert model.score_videos(queries, videos).argmax(1).tolist() == list(range(6))
        best = {
            name: (keys @ queries.search[name][..., None])[..., 0]
            .masked_fill(~videos.key_masks[name], -2)
            .argmax(1)
            for name, keys in videos.keys.items()
        }
        inside = [
            int(first) <= int(best["sub" if at % 2 else "video"][at]) <= int(last)
            for at, (first, last) in enumerate(batch.spans.tolist())
        ]
    assert sum(inside) >= 5


# --- an index


@pytest.mark.slow
def test_an_indexed_corpus_is_searched_by_the_keys_of_clips_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transcripts with pauses; as few videos as may be are scored exactly."""
    (tmp_path / "talks").mkdir()
    for number in range(6):
        write_talk(tmp_path / "talks", number)
    corpus = Corpus(tmp_path / "my.corpus", encoders=[Letters()], create=True)
    corpus.add(tmp_path / "talks", text=Letters(), processes=1)
    trained, text = small_system("prem_retriever"), "the penguin moves to the north"
    monkeypatch.setattr(trained_search, "EXACT_VIDEOS", 2)
    found = corpus.search(text, k=2, model=trained.save_pretrained(tmp_path / "run")).moments
    corpus.export_features("subtitle", 2.0, tmp_path / "features")
    scores = {}
    with open_features(tmp_path / "features") as source, torch.no_grad():
        asked = trained.model.encode_queries(trained.inputs.queries(Letters().encode_tokens([text])))
        for record in corpus.records():
            video = trained.model.encode_videos(
                trained.inputs.clips([{"subtitle": source.get(record.video_id)}])
            )
            assert 0 < int(video.key_masks["subtitle"].sum()) < video.mask.shape[1]
            scores[record.video_id] = float(trained.model.score_videos(asked, video)[0, 0])
    best = sorted(scores, key=lambda name: -scores[name])[:2]
    assert [one.moment.video_id for one in found] == best
    assert [one.score for one in found] == pytest.approx([scores[name] for name in best], abs=1e-3)
