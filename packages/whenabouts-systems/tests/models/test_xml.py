"""XML beyond the released program: the losses of paper 000 by a plain oracle, negatives, weights, padding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from whenabouts.types import UsageError
from whenabouts_systems.models import new_model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch
from whenabouts_systems.models.xml import Config, Model, _groups

ALPHA = 2.0
PAIRS_VR = {"lambda_rel_neg_vr": 1.0, "lambda_pos_rel_vr": 1.0}
PAIRS_VCMR = {"lambda_rel_neg_vcmr": 1.0, "lambda_pos_rel_vcmr": 1.0}
SEGMENT = {"lambda_vcmr": 1.0}
LIKELIHOOD = {"lambda_nll_2": 1.0}
ONE = {"confidence_is_one": True}
PR = PAIRS_VR | LIKELIHOOD
ODD_WEIGHTS = {
    "lambda_rel_neg_vr": 0.3,
    "lambda_pos_rel_vr": 0.6,
    "lambda_nll_2": 0.7,
    "lambda_vcmr": 0.4,
    "lambda_rel_neg_vcmr": 1.7,
    "lambda_pos_rel_vcmr": 0.2,
    "lambda_tl": 0.5,
}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "XML": {},
    "+PR": PR,
    "+PR, C = 1": PR | ONE,
    "+PR without likelihood": PAIRS_VR,
    "+PR without likelihood, C = 1": PAIRS_VR | ONE,
    "+PR without ranking": LIKELIHOOD,
    "+PR without ranking, C = 1": LIKELIHOOD | ONE,
    "+SL": SEGMENT,
    "+SL+PR": SEGMENT | PR | PAIRS_VCMR,
    "+SL+PR, C = 1": SEGMENT | PR | PAIRS_VCMR | ONE,
    "+SL+PR without video ranking": SEGMENT | LIKELIHOOD | PAIRS_VCMR,
    "+SL+PR without video ranking, C = 1": SEGMENT | LIKELIHOOD | PAIRS_VCMR | ONE,
    "+SL+PR without likelihood": SEGMENT | PAIRS_VR | PAIRS_VCMR,
    "+SL+PR without likelihood, C = 1": SEGMENT | PAIRS_VR | PAIRS_VCMR | ONE,
    "+SL+PR without moment ranking": SEGMENT | PR,
    "+SL+PR without moment ranking, C = 1": SEGMENT | PR | ONE,
    "odd weights": ODD_WEIGHTS | {"weight_negative_videos": 0.9, "weight_negative_queries": 1.3},
}
"""The rows of tables 5 to 8 of paper 000, and one in which every weight is another."""


def _config(**settings: Any) -> Config:
    return Config(
        **{
            "streams": {"video": 12, "words": 7},
            "query_width": 9,
            "hidden": 16,
            "heads": 2,
            "max_clips": 14,
            "max_tokens": 8,
            "first_pool": 1,
            "alpha": ALPHA,
            "initializer_range": 0.3,
            **settings,
        }
    )


def _model(seed: int = 0, **settings: Any) -> Model:
    torch.manual_seed(seed)
    made: Model = new_model("xml", _config(**settings)).eval()
    return made


def _mask(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _batch(widths: Mapping[str, int] | None = None, seed: int = 1) -> Batch:
    """Six queries, the first and the fifth of one video, one video that is nobody's; pairs of all kinds."""
    generator = torch.Generator().manual_seed(seed)
    tokens, clips = _mask([5, 8, 3, 6, 2, 7]), _mask([9, 4, 12, 6, 8, 5])
    widths = widths or {"video": 12, "words": 7}
    own = torch.tensor([0, 1, 2, 3, 0, 5])
    confidence = torch.zeros(6, 6)
    for query, moment, value in (
        (0, 1, 0.8),
        (1, 0, 0.8),
        (2, 3, 0.3),
        (0, 4, 0.6),
        (4, 0, 0.6),
        (5, 2, 1.0),
    ):
        confidence[query, moment] = value
    return Batch(
        QueryBatch(torch.randn(6, 8, 9, generator=generator) * tokens[..., None], tokens),
        ClipBatch(
            {
                name: torch.randn(6, 12, width, generator=generator) * clips[..., None]
                for name, width in widths.items()
            },
            clips,
        ),
        own,
        torch.tensor([[2, 4], [0, 3], [11, 11], [0, 5], [7, 8], [1, 2]]),
        own[:, None] == torch.arange(6),
        confidence=confidence,
    )


def _total(losses: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()


# --- equations 9 to 18, in loops


def _plus(value: float) -> float:
    return max(value, 0.0)


class Oracle:
    """Paper 000 in plain Python, from cosines [query][video] and logits [query][video][border][clip]."""

    def __init__(self, model: Model, batch: Batch) -> None:
        config = self.config = model.config
        self.own = batch.video_of.tolist()
        self.spans = batch.spans.tolist()
        self.number = range(len(batch))
        assert batch.confidence is not None
        confidence = (batch.confidence * config.uses_pairs).tolist()
        self.c = {
            (i, j): 1.0 if config.confidence_is_one else confidence[i][j]
            for i in self.number
            for j in self.number
            if confidence[i][j] > 0
        }
        self.positive = {(i, v) for i, v in batch.positives.nonzero().tolist()}
        queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        self.cosine = model.score_videos(queries, videos).tolist()
        self.logits = [[self._pair(model, queries, videos, i, v) for v in range(6)] for i in self.number]

    @staticmethod
    def _pair(model: Model, queries: Any, videos: Any, i: int, v: int) -> list[list[float]]:
        """Logits of start and end at the video's own clips."""
        query, video = queries.take(torch.tensor([i])), videos.take(torch.tensor([v]))
        summed = torch.stack(
            [
                model.borders[group](
                    [query.parts[f"span/{name}"] for name in names],
                    [video.parts[f"clips/{name}"] for name in names],
                    video.mask,
                )
                for group, names in _groups(model.config).items()
            ]
        ).mean(0)
        return [border[: int(video.mask.sum())].tolist() for border in summed[:, 0]]

    def log_truth(self, i: int, j: int) -> float:
        """log P(start) + log P(end) of moment j for query i."""
        borders = zip(self.logits[i][self.own[j]], self.spans[j], strict=True)
        return sum(
            float(values[clip]) - math.log(sum(math.exp(value) for value in values))
            for values, clip in borders
        )

    def relevance(self, i: int, j: int) -> float:
        """Equation 14."""
        borders = zip(self.logits[i][self.own[j]], self.spans[j], strict=True)
        logs = sum(math.log(max(values[clip], 1e-6)) for values, clip in borders)
        return float(logs + self.config.alpha * self.cosine[i][self.own[j]])

    def losses(self) -> dict[str, float]:
        config = self.config
        found = self._videos()
        n = len(self.own)
        found["spans"] = config.lambda_tl * -sum(self.log_truth(i, i) for i in self.number) / n
        if config.lambda_nll_2:
            summed = -sum(c * self.log_truth(i, j) for (i, j), c in self.c.items()) / len(self.c)
            found["relevant_spans"] = config.lambda_tl * config.lambda_nll_2 * summed
        if config.lambda_vcmr:
            found |= self._moments()
        return found

    def _videos(self) -> dict[str, float]:
        """Equation 13."""
        config, own = self.config, self.own
        near = {(i, own[j]) for i, j in self.c}

        def negative(i: int, v: int) -> bool:
            return (i, v) not in self.positive and (i, v) not in near

        hardest = {i: max(self.cosine[i][v] for v in range(6) if negative(i, v)) for i in self.number}
        of_moment = {
            j: max(self.cosine[i][own[j]] for i in self.number if negative(i, own[j])) for j in self.number
        }
        pairs = {pair: c for pair, c in self.c.items() if (pair[0], own[pair[1]]) not in self.positive}
        score = {(i, j): self.cosine[i][own[j]] for i in self.number for j in self.number}
        weights = (
            config.weight_negative_videos,
            config.weight_negative_queries,
            config.lambda_rel_neg_vr,
            config.lambda_pos_rel_vr,
        )
        return self._ranked(score, hardest, of_moment, pairs, weights)

    def _moments(self) -> dict[str, float]:
        """Equation 15 with lambda_vcmr."""
        config, own = self.config, self.own
        score = {(i, j): self.relevance(i, j) for i in self.number for j in self.number}

        def negative(i: int, j: int) -> bool:
            return (i, own[j]) not in self.positive and (i, j) not in self.c

        hardest = {i: max(score[i, j] for j in self.number if negative(i, j)) for i in self.number}
        of_moment = {j: max(score[i, j] for i in self.number if negative(i, j)) for j in self.number}
        weights = (1.0, 1.0, config.lambda_rel_neg_vcmr, config.lambda_pos_rel_vcmr)
        ranked = self._ranked(score, hardest, of_moment, self.c, weights)
        return {f"moment_{name}": config.lambda_vcmr * value for name, value in ranked.items()}

    def _ranked(
        self,
        score: Mapping[tuple[int, int], float],
        of_query: Mapping[int, float],
        of_moment: Mapping[int, float],
        pairs: Mapping[tuple[int, int], float],
        weights: tuple[float, float, float, float],
    ) -> dict[str, float]:
        """Equations 10, 11, 12."""
        n, margin = len(self.own), self.config.margin
        found = {
            "negative_videos": sum(_plus(margin + of_query[i] - score[i, i]) for i in self.number) / n,
            "negative_queries": sum(_plus(margin + of_moment[j] - score[j, j]) for j in self.number) / n,
        }
        found["relevant_over_negative"] = sum(
            _plus(margin + of_query[i] - c * score[i, j]) + _plus(margin + of_moment[j] - c * score[i, j])
            for (i, j), c in pairs.items()
        ) / max(len(pairs), 1)
        found["positive_over_relevant"] = sum(
            _plus(score[i, j] - c * score[i, i]) + _plus(score[i, j] - c * score[j, j])
            for (i, j), c in pairs.items()
        ) / max(len(pairs), 1)
        scaled = {name: weight * found[name] for name, weight in zip(found, weights, strict=True)}
        optional = ("relevant_over_negative", "positive_over_relevant")
        return {
            name: value
            for name, value in scaled.items()
            if name not in optional or dict(zip(found, weights, strict=True))[name]
        }


@pytest.mark.parametrize("row", list(ROWS))
@pytest.mark.parametrize("predictor", ["conv", "linear"])
def test_every_row_of_the_tables_is_a_setting_whose_loss_is_the_papers(row: str, predictor: str) -> None:
    model, batch = _model(span_predictor=predictor, **ROWS[row]), _batch()
    with torch.no_grad():
        losses = {name: float(value) for name, value in model.loss(batch).items()}
        expected = Oracle(model, batch).losses()
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_oracle_has_something_to_say_in_every_term() -> None:
    """Else the comparison above could be one of zeros."""
    with torch.no_grad():
        expected = Oracle(_model(**ROWS["+SL+PR"]), _batch()).losses()
    assert len(expected) == 10
    assert all(value > 1e-4 for value in expected.values()), expected


def test_settings_without_relevant_pairs_do_not_heed_those_of_the_batch() -> None:
    model, batch = _model(lambda_vcmr=1.0), _batch()
    with torch.no_grad():
        assert torch.equal(_total(model.loss(batch)), _total(model.loss(replace(batch, confidence=None))))


def test_a_batch_without_relevant_pairs_has_terms_of_zero_with_a_gradient() -> None:
    model = _model(**ROWS["+SL+PR"])
    batch = _batch()
    assert batch.confidence is not None
    losses = model.loss(replace(batch, confidence=torch.zeros_like(batch.confidence)))
    terms = [value for name, value in losses.items() if "relevant" in name]
    assert len(terms) == 5
    assert all(float(term.detach()) == 0 for term in terms)
    gradients = torch.autograd.grad(_total(losses), list(model.parameters()))
    assert all(bool(one.isfinite().all()) for one in gradients)


def test_a_pair_with_itself_is_no_relevant_pair() -> None:
    model, batch = _model(**ROWS["+SL+PR"]), _batch()
    assert batch.confidence is not None
    wrong = batch.confidence + torch.eye(6)
    with torch.no_grad():
        assert torch.equal(_total(model.loss(batch)), _total(model.loss(replace(batch, confidence=wrong))))


# --- negatives


def _ranking(model: Model, batch: Batch) -> list[float]:
    with torch.no_grad():
        losses = model.loss(batch)
    return [float(losses["negative_videos"]), float(losses["negative_queries"])]


def test_another_query_of_the_same_video_is_a_negative_only_as_released() -> None:
    """The same query twice, with its video alone: as released each is the other's negative, at the margin."""
    whole, twice = _batch(), torch.tensor([0, 0])
    batch = replace(
        whole,
        queries=QueryBatch(whole.queries.tokens[twice], whole.queries.mask[twice]),
        videos=ClipBatch(
            {name: one[:1] for name, one in whole.videos.streams.items()}, whole.videos.mask[:1]
        ),
        video_of=torch.tensor([0, 0]),
        spans=whole.spans[twice],
        positives=torch.ones(2, 1, dtype=torch.bool),
        confidence=None,
    )
    assert _ranking(_model(margin=0.1), batch) == [0.0, 0.0]
    assert _ranking(_model(margin=0.1, as_released=True), batch) == pytest.approx([0.1, 0.1], abs=1e-6)


@pytest.mark.parametrize("own", [[0, 0, 1], [3, 0, 3]], ids=["one video twice", "more videos than queries"])
def test_as_released_a_moment_is_compared_with_all_queries_but_its_own(own: list[int]) -> None:
    whole, video_of = _batch(), torch.tensor(own)
    batch = replace(
        whole,
        queries=QueryBatch(whole.queries.tokens[:3], whole.queries.mask[:3]),
        video_of=video_of,
        spans=torch.zeros(3, 2, dtype=torch.int64),
        positives=video_of[:, None] == torch.arange(6),
        confidence=None,
        epoch=20,
    )
    model = _model(margin=0.5, as_released=True, pool=1)
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    square = scores[:, video_of].tolist()
    expected = [
        sum(max(0.0, 0.5 + max(side[at][:at] + side[at][at + 1 :]) - side[at][at]) for at in range(3)) / 3
        for side in (square, list(map(list, zip(*square, strict=True))))
    ]
    assert _ranking(model, batch) == pytest.approx(expected, abs=1e-5)


def test_a_video_that_is_known_to_answer_is_no_negative() -> None:
    model, batch = _model(margin=2.0), replace(_batch(), confidence=None)
    positives = batch.positives.clone()
    with torch.no_grad():
        scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    hardest = int(scores[1].masked_fill(batch.positives[1], -torch.inf).argmax())
    positives[1, hardest] = True
    before = model.loss(batch)["negative_videos"]
    after = model.loss(replace(batch, positives=positives))["negative_videos"]
    assert float(after.detach()) < float(before.detach())


@pytest.mark.parametrize("loss", ["contrast", "contrast-of-scores"])
def test_the_ranked_contrast_sums_all_positives_of_a_query_and_of_its_video(loss: str) -> None:
    model = _model(video_loss=loss, weight_negative_videos=0.9, weight_negative_queries=1.3)
    positives = _batch().positives.clone()
    positives[1, 3] = positives[5, 0] = True
    batch = replace(
        _batch(), confidence=None, positives=positives, weight=torch.tensor([1.0, 0.5, 1, 1, 0, 1])
    )
    with torch.no_grad():
        found = model.loss(batch)
        scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    expected = [0.0, 0.0]
    for query, own in enumerate(batch.video_of.tolist()):
        sides = (scores[query], positives[query]), (scores[:, own], positives[:, own])
        for side, (values, known) in enumerate(sides):
            below = math.log(sum(math.exp(value) for value in values.tolist()))
            above = values[known].tolist()
            above_sum = sum(above) if "scores" in loss else math.log(sum(map(math.exp, above)))
            assert batch.weight is not None
            expected[side] += float(batch.weight[query]) * (below - above_sum) / 6
    assert float(found["negative_videos"]) == pytest.approx(0.9 * expected[0], rel=1e-5)
    assert float(found["negative_queries"]) == pytest.approx(1.3 * expected[1], rel=1e-5)


def test_as_released_the_contrast_knows_the_diagonal_alone() -> None:
    positives = torch.ones_like(_batch().positives)
    model = _model(video_loss="contrast", as_released=True)
    batch = replace(_batch(), confidence=None)
    with torch.no_grad():
        alone, all_known = (model.loss(replace(batch, positives=p)) for p in (batch.positives, positives))
    assert torch.equal(alone["negative_videos"], all_known["negative_videos"])


def test_a_batch_of_one_video_has_no_negatives_and_no_ranking_loss() -> None:
    whole = _batch()
    batch = replace(
        whole,
        queries=QueryBatch(whole.queries.tokens[:1], whole.queries.mask[:1]),
        videos=ClipBatch(
            {name: one[:1] for name, one in whole.videos.streams.items()}, whole.videos.mask[:1]
        ),
        video_of=torch.zeros(1, dtype=torch.int64),
        spans=whole.spans[:1],
        positives=torch.ones(1, 1, dtype=torch.bool),
        confidence=torch.zeros(1, 1),
    )
    losses = _model(**ROWS["+SL+PR"]).loss(batch)
    assert all(float(value.detach()) == 0 for name, value in losses.items() if "spans" not in name)
    assert float(losses["spans"].detach()) > 0


def test_the_pool_of_negatives_changes_at_its_epoch() -> None:
    model = _model(first_pool=None, pool=1, pool_from_epoch=3)
    batch = replace(_batch(), confidence=None)
    early = {tuple(_ranking(model, replace(batch, epoch=2))) for _ in range(20)}
    late = {tuple(_ranking(model, replace(batch, epoch=3))) for _ in range(20)}
    assert len(early) > 1
    assert len(late) == 1
    assert sum(next(iter(late))) >= max(sum(one) for one in early)


def test_spans_are_trained_from_their_epoch_on() -> None:
    model, batch = _model(spans_from_epoch=2), _batch()
    assert "spans" not in model.loss(replace(batch, epoch=1))
    assert "spans" in model.loss(replace(batch, epoch=2))


# --- the ranked setting


def test_the_weight_of_a_query_multiplies_all_its_terms() -> None:
    model, batch = _model(lambda_vcmr=1.0), replace(_batch(), confidence=None)
    with torch.no_grad():
        whole, half = model.loss(batch), model.loss(replace(batch, weight=torch.full((6,), 0.5)))
    assert {name: float(value) / 2 for name, value in whole.items()} == pytest.approx(
        {name: float(value) for name, value in half.items()}
    )


def test_a_query_of_weight_zero_has_no_part_in_its_own_terms() -> None:
    model, batch = _model(), replace(_batch(), confidence=None)
    other = replace(batch, spans=torch.tensor([[5, 6], *batch.spans.tolist()[1:]]))
    weight = torch.tensor([0.0, 1, 1, 1, 1, 1])
    with torch.no_grad():
        assert torch.equal(
            model.loss(replace(batch, weight=weight))["spans"],
            model.loss(replace(other, weight=weight))["spans"],
        )
        assert not torch.equal(model.loss(batch)["spans"], model.loss(other)["spans"])


def test_as_released_the_weight_multiplies_the_span_loss_alone() -> None:
    model, batch = _model(as_released=True), replace(_batch(), confidence=None)
    with torch.no_grad():
        whole, half = model.loss(batch), model.loss(replace(batch, weight=torch.full((6,), 0.5)))
    assert float(half["spans"]) == pytest.approx(float(whole["spans"]) / 2)
    assert torch.equal(half["negative_videos"], whole["negative_videos"])


# --- padding, masks, memory


def test_as_released_the_padding_moves_scores_and_by_default_not() -> None:
    batch = _batch()
    wide = ClipBatch(
        {name: torch.nn.functional.pad(one, (0, 0, 0, 2)) for name, one in batch.videos.streams.items()},
        torch.nn.functional.pad(batch.videos.mask, (0, 2)),
    )
    for released in (True, False):
        model = _model(as_released=released)
        with torch.no_grad():
            queries = model.encode_queries(batch.queries)
            short = model.score_spans(queries, model.encode_videos(batch.videos)).start
            long = model.score_spans(queries, model.encode_videos(wide)).start[:, : short.shape[1]]
        real = batch.videos.mask
        assert torch.allclose(short[real], long[real], atol=1e-5) is not released


def test_a_padded_clip_is_never_an_answer() -> None:
    model, batch = _model(), _batch()
    with torch.no_grad():
        videos = model.encode_videos(batch.videos)
        scores = model.score_spans(model.encode_queries(batch.queries), videos)
    assert (scores.start[~batch.videos.mask] < -1e9).all()
    assert (scores.end[~batch.videos.mask] < -1e9).all()
    assert scores.start.exp().sum(1).allclose(torch.ones(6))
    assert (videos.keys["video"][~batch.videos.mask] == 0).all()


@pytest.mark.parametrize("size", [17, 40])
@pytest.mark.parametrize("encoder", ["transformer", "cnn"])
def test_large_batches_score_like_their_queries_and_videos_alone(size: int, encoder: str) -> None:
    """Large batches are cut into pieces of similar length."""
    model, generator = _model(encoder=encoder), torch.Generator().manual_seed(3)
    clips, tokens = (
        _mask((torch.randint(1, most, (size,), generator=generator)).tolist()) for most in (14, 8)
    )
    videos = ClipBatch(
        {
            name: torch.randn(*clips.shape, width, generator=generator)
            for name, width in model.config.streams.items()
        },
        clips,
    )
    queries = QueryBatch(torch.randn(*tokens.shape, 9, generator=generator), tokens)
    with torch.no_grad():
        asked, seen = model.encode_queries(queries), model.encode_videos(videos)
        together, spans = model.score_videos(asked, seen), model.score_spans(asked, seen)
        for row in (0, size // 2, size - 1):
            length, words = int(clips[row].sum()), int(tokens[row].sum())
            alone = model.encode_videos(
                ClipBatch(
                    {name: one[row : row + 1, :length] for name, one in videos.streams.items()},
                    clips[row : row + 1, :length],
                )
            )
            query = model.encode_queries(
                QueryBatch(queries.tokens[row : row + 1, :words], tokens[row : row + 1, :words])
            )
            assert model.score_videos(query, alone)[0, 0] == pytest.approx(
                float(together[row, row]), abs=1e-5
            )
            torch.testing.assert_close(
                model.score_spans(query, alone).end[0], spans.end[row, :length], atol=1e-4, rtol=1e-4
            )


class _Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The number of values in the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, Tensor):
                self.size = max(self.size, one.numel())
        return made


def test_relevant_pairs_never_make_a_tensor_of_all_queries_clips_and_dimensions() -> None:
    size, clips, hidden = 40, 12, 64
    model = _model(streams={"video": 8}, hidden=hidden, **ROWS["+SL+PR"])
    batch = Batch(
        QueryBatch(torch.randn(size, 3, 9), torch.ones(size, 3, dtype=torch.bool)),
        ClipBatch({"video": torch.randn(size, clips, 8)}, torch.ones(size, clips, dtype=torch.bool)),
        torch.arange(size),
        torch.tensor([[1, 4]]).expand(size, 2),
        torch.eye(size, dtype=torch.bool),
        confidence=torch.rand(size, size),
    )
    with _Largest() as largest:
        torch.autograd.backward(_total(model.loss(batch)))
    assert largest.size <= size * clips * max(2 * size, 10 * hidden)
    assert largest.size < size * size * clips * hidden / 10


# --- training


def test_one_batch_can_be_learnt_by_heart_with_the_segment_loss() -> None:
    torch.manual_seed(0)
    model = new_model(
        "xml", _config(**SEGMENT, streams={"video": 12}, lambda_tl=1.0, initializer_range=0.1, hidden=32)
    )
    batch = replace(_batch(), confidence=None)
    optimizer = torch.optim.Adam(model.eval().parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        torch.autograd.backward(_total(model.loss(batch)))
        optimizer.step()
        if _known_by_heart(model, batch):
            return
    pytest.fail("after 150 steps the batch's moments are not the best ones")


@torch.no_grad()
def _known_by_heart(model: Model, batch: Batch) -> bool:
    queries, videos = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    scores = model.score_spans(queries, videos.take(batch.video_of))
    found = torch.stack([scores.start.argmax(1), scores.end.argmax(1)], 1)
    chosen = model.score_videos(queries, videos).argmax(1)
    return torch.equal(chosen, batch.video_of) and torch.equal(found, batch.spans)


# --- settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"streams": {}}, "streams is {}"),
        ({"streams": {"a": 1, "b": 2, "c": 3}}, "one stream or two"),
        ({"streams": {"a.b": 1}}, "a.b"),
        ({"hidden": 30, "heads": 4}, "hidden = 30 is no multiple of heads = 4"),
        ({"span_kernel": 4}, "span_kernel is 4; accepted: an odd number"),
        ({"encoder_kernel": 2}, "encoder_kernel is 2"),
        ({"pool": 0}, "pool is 0"),
        ({"first_pool": -1}, "first_pool is -1"),
        ({"encoder": "gru"}, "'gru'; accepted: 'transformer', 'cnn'"),
        ({"span_predictor": "stacked"}, "'stacked'"),
        ({"ranking": "nce"}, "'nce'"),
        ({"video_loss": "nce"}, "'nce'"),
        (
            {"video_loss": "contrast", **PAIRS_VR},
            "video_loss is 'contrast', which cannot use relevant pairs",
        ),
        ({"hidden": 0}, "hidden is 0"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": True}, "heads is True; accepted: a whole number, 1 or more"),
        ({"max_clips": -1}, "max_clips is -1"),
        ({"span_kernel": -1}, "span_kernel is -1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"input_dropout": math.nan}, "input_dropout is nan; accepted: a finite number, 0 or more, below 1"),
        ({"initializer_range": -1}, "initializer_range is -1"),
        ({"alpha": "x"}, "alpha is 'x'; accepted: a finite number"),
        ({"pool": 1.5}, "pool is 1.5; accepted: a whole number, 1 or more, or none"),
        ({"merge": None}, "merge is None; accepted: true or false"),
        ({"streams": "x"}, "streams is 'x'"),
        ({"streams": {"a": 0}}, "streams is {'a': 0}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_make_no_model_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _config(**settings)


def test_a_video_or_query_longer_than_the_table_is_refused_with_both_numbers() -> None:
    batch = _batch()
    with pytest.raises(UsageError, match="12 clips, but the model has places for 11"):
        _model(max_clips=11).encode_videos(batch.videos)
    with pytest.raises(UsageError, match="8 tokens, but the model has places for 7"):
        _model(max_tokens=7).encode_queries(batch.queries)


def test_words_of_a_query_have_weights_that_add_up_to_one() -> None:
    batch = _batch()
    for modular in (True, False):
        weights = _model(modular=modular).encode_queries(batch.queries).parts["words/video"]
        assert weights.sum(1).allclose(torch.ones(6))
        assert (weights[~batch.queries.mask] == 0).all()
