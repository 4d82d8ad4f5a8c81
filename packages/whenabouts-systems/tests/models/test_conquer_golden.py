"""CONQUER as released, against what the authors' program computes: every case file of the golden folder.

Tolerances are those of the folder's README or tighter. Video 0 of each query is its own, in both parts of a
case; behind it stand its negatives (training) or the candidates of the retriever (evaluation).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import Settings, arrays_of, cases, golden_folder, only_gelu, told_inside
from tests.ranked_rows import assert_same_ranking
from torch import Tensor
from torch.nn import functional

from whenabouts.overlap import suppress
from whenabouts_systems.models import new_model
from whenabouts_systems.models.conquer import Config, Model, released_names
from whenabouts_systems.models.decoding import BestSpans, Decoding, best_over_videos, span_mask
from whenabouts_systems.models.parts.pairs import PairLogits
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)

RELEASED = {"video": "visual", "sub": "sub"}
SETTINGS = {
    "hidden_dim": 768,
    "max_ctx_len": 100,
    "max_desc_len": 30,
    "no_output_moe_weight": False,
    "lw_st_ed": 0.01,
    "lw_video_ce": 0.05,
    "clip_length": 1.5,
    "min_pred_l": 0,
    "max_pred_l": 24,
    "nms_thd": 0.7,
}
"""The program's defaults."""
PARTS = ["train", "eval"]
_PARTS = ("bert_config", "netvlad_config", "query_bert_config", "video_scoring_config")


@dataclass(frozen=True)
class Golden:
    """One case: what is told of it, arrays by name, the model with the case's weights."""

    told: dict[str, Any]
    arrays: dict[str, Tensor]
    model: Model

    def near(self, name: str, value: Tensor, *, atol: float = 2e-5, rtol: float = 1e-5) -> None:
        torch.testing.assert_close(value.detach(), self.arrays[name], atol=atol, rtol=rtol)

    def inputs(self, part: str) -> tuple[QueryBatch, ClipBatch]:
        """Queries (Q) and their videos (Q * V, those of a query one after the other)."""
        held = {name: self.arrays[f"{part}.in.{RELEASED[name]}.feat"] for name in self.model.config.streams}
        first = RELEASED[next(iter(held))]
        mask = self.arrays[f"{part}.in.{first}.feat_mask"].bool()
        return (
            QueryBatch(
                self.arrays[f"{part}.in.query.feat"], self.arrays[f"{part}.in.query.feat_mask"].bool()
            ),
            ClipBatch({name: one.flatten(0, 1) for name, one in held.items()}, mask.flatten(0, 1)),
        )

    def pairs(self, part: str) -> tuple[QueryEncoding, VideoEncoding]:
        """Each query once for each of its videos."""
        queries, videos = self.inputs(part)
        each = len(videos) // len(queries)
        asked = torch.arange(len(queries)).repeat_interleave(each)
        return self.model.encode_queries(queries).take(asked), self.model.encode_videos(videos)

    def logits(self, part: str) -> PairLogits:
        """`borders` (2, Q, V, T), `video` (Q, V) or None."""
        found = self.model.pair_logits(*self.pairs(part))
        shape = self.arrays[f"{part}.out.begin_score"].shape
        video = None if found.video is None else found.video.view(shape[:2])
        return PairLogits(found.borders.view(2, *shape), video)

    @property
    def least(self) -> float:
        """Above it are the scores of moments that are allowed: sums, or products."""
        return -1e3 if self.told["measure"] == "disjoint" else 1e-9

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            min_clips=self.told["min_pred_l"], max_clips=self.told["max_pred_l"], ends="as-released"
        )


CASES = cases("conquer", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@cache
def _opened(path: Path) -> Golden:
    told, arrays = {**SETTINGS, **told_inside(path)}, arrays_of(path)
    inside = Settings(told["model_config"])
    convolution = inside["moment_localization_config"]
    inside.refuse_unread(*_PARTS, "initializer_range")
    for at, part in enumerate((convolution["conv_cfg_1"], convolution["conv_cfg_2"])):
        assert part.get("stride", 1) == 1 and not part.get("bias", False)
        assert at == 0 or part.get("kernel_size", 1) == 1
    for name in ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"):
        of_query = inside.get("query_bert_config", inside["bert_config"])[name]
        assert of_query == inside["bert_config"][name], f"{name}: our encoders are all alike"
    only_gelu(inside["bert_config"], inside.get("query_bert_config", {}))
    widths = {"video": told["visual_dim"], "sub": told["text_dim"]}
    config = Config(
        streams={name: widths[name] for name in widths if RELEASED[name] in told["ctx_mode"].split("_")},
        query_width=told["query_dim"],
        hidden=told["hidden_dim"],
        heads=inside["bert_config"]["num_attention_heads"],
        feedforward=inside["bert_config"]["intermediate_size"],
        layers=inside["bert_config"]["num_hidden_layers"],
        clusters=inside["netvlad_config"]["text_cluster"],
        span_hidden=convolution["conv_cfg_1"]["out_channels"],
        span_kernel=convolution["conv_cfg_1"]["kernel_size"],
        max_clips=told["max_ctx_len"],
        max_tokens=told["max_desc_len"],
        measure=told["measure"],
        weigh_streams=not told["no_output_moe_weight"],
        lambda_tl=told["lw_st_ed"],
        lambda_video=told["lw_video_ce"],
        as_released=True,
    )
    model = new_model("conquer", config).eval()
    model.load_state_dict({ours: arrays[f"sd.{name}"] for ours, name in released_names(config).items()})
    return Golden(told, arrays, model)


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no conquer folder")


def test_every_released_parameter_has_a_name_here(case: Golden) -> None:
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    names = released_names(case.model.config)
    assert set(names.values()) == released
    assert set(names) == set(case.model.state_dict())
    assert len(set(names.values())) == len(names)


@torch.no_grad()
def test_words_and_clips_become_the_released_vectors(case: Golden) -> None:
    queries, videos = case.inputs("train")
    encoded = case.model.encode_queries(queries)
    case.near("train.out.query_feature", encoded.parts["tokens"])
    kept = case.model.encode_videos(videos)
    for name in case.model.config.streams:
        case.near(f"train.out.video_feature.{RELEASED[name]}", kept.parts[f"clips/{name}"])
    each = len(videos) // len(queries)
    if case.model.stream_weights is None:
        assert "train.out.netvlad" not in case.arrays
        return
    everything = torch.ones_like(queries.mask)
    pooled = case.model.stream_weights.clusters(encoded.parts["tokens"], everything)
    case.near("train.out.netvlad", pooled.repeat_interleave(each, 0), atol=1e-6)


@pytest.mark.parametrize("part", PARTS)
@torch.no_grad()
def test_pairs_get_the_released_weights_of_streams(case: Golden, part: str) -> None:
    model, (queries, videos) = case.model, case.pairs(part)
    if model.stream_weights is not None:
        for at, name in enumerate(model.config.streams):
            weight = queries.parts["stream_weights"][:, at]
            case.near(f"{part}.out.moe_weight.{RELEASED[name]}", weight, atol=1e-6)
    case.near(f"{part}.out.QDF_feature", model._fused(queries, videos))


@torch.no_grad()
def test_clips_and_words_look_at_each_other_as_released(case: Golden) -> None:
    model, (queries, videos) = case.model, case.pairs("train")
    fused = model._fused(queries, videos)
    attended = model._attended(videos.mask, queries.parts["mask"])
    aware = model.attention(fused, queries.parts["tokens"], videos.mask, attended)
    case.near("train.out.QAL_feature", aware)


@pytest.mark.parametrize("part", PARTS)
@torch.no_grad()
def test_clips_that_have_seen_the_words_are_the_released_ones(case: Golden, part: str) -> None:
    model, (queries, videos) = case.model, case.pairs(part)
    aware = model.attention(
        model._fused(queries, videos),
        queries.parts["tokens"],
        videos.mask,
        model._attended(videos.mask, queries.parts["mask"]),
    )
    case.near(f"{part}.out.contextual_QAL", model.context(aware, videos.mask))


@pytest.mark.parametrize("part", PARTS)
@torch.no_grad()
def test_pairs_get_the_released_logits(case: Golden, part: str) -> None:
    found = case.logits(part)
    for at, border in enumerate(("begin", "end")):
        case.near(f"{part}.out.{border}_score", found.borders[at].clamp(min=-1e4))
    if found.video is not None:
        case.near(f"{part}.out.video_similarity_score", found.video)
    assert (found.video is None) == (case.told["measure"] != "exclusive")


def _batch(case: Golden) -> Batch:
    queries, videos = case.inputs("train")
    each = len(videos) // len(queries)
    own = torch.arange(len(queries)) * each
    return Batch(
        queries,
        videos,
        own,
        case.arrays["train.in.st_ed_indices"],
        functional.one_hot(own, len(videos)).bool(),
        negatives=own[:, None] + torch.arange(1, each) if each > 1 else None,
    )


def test_losses_and_gradients_are_the_released_ones(case: Golden) -> None:
    case.model.zero_grad()
    losses = case.model.loss(_batch(case))
    assert ("videos" in losses) == (case.told["measure"] == "exclusive")
    for ours, theirs in (("spans", "moment_ce_loss"), ("videos", "video_ce_loss")):
        value = losses.get(ours, torch.zeros(())).double()
        case.near(f"train.out.loss.{theirs}", value, atol=0.0)
    total = torch.stack(list(losses.values())).sum()
    case.near("train.out.loss", total, atol=0.0)
    case.near("train.out.loss.loss_overall", total.double(), atol=0.0)
    total.backward()  # type: ignore[no-untyped-call]
    names, lengths = released_names(case.model.config), case.told["train_grad_l2_norms"]
    assert set(lengths) == set(names.values())
    nothing = 1e-6 * max(lengths.values())  # what rounding leaves of gradients that are 0 (biases of keys)
    for ours, parameter in case.model.named_parameters():
        assert parameter.grad is not None, ours
        assert parameter.grad.norm().item() == pytest.approx(lengths[names[ours]], rel=1e-3, abs=nothing), (
            ours
        )


def _candidates(case: Golden) -> tuple[SpanScores, Tensor, Tensor]:
    """Scores (Q, N, T) of the candidates' spans, what the retriever adds (Q, N), and their numbers (Q, N)."""
    queries, videos = case.pairs("eval")
    spans = case.model.score_spans(queries, videos)
    shape = case.arrays["eval.out.begin_score"].shape
    start, end, mask = (one.view(shape)[:, 1:] for one in (spans.start, spans.end, spans.mask))
    retrieved = case.arrays["eval.in.inference_vr_scores"].log()
    numbers = [[case.told["video2idx"][name] for name in row] for row in case.told["eval_video_lists"]]
    return SpanScores(start, end, mask), retrieved * case.model.video_weight, torch.tensor(numbers)


def _released_scores(case: Golden, found: Tensor) -> Tensor:
    """What the program writes for our scores of moments (Q, k): products, where ours are logarithms."""
    measure = case.told["measure"]
    if measure == "disjoint":
        return found
    own = case.logits("eval").video
    if own is None:
        return found.exp()
    # The softmax over the candidates, which takes the same off every moment of a query.
    shared = own[:, 1:].logsumexp(1)
    return (found - shared.view(-1, *[1] * (found.dim() - 1))).exp()


@torch.no_grad()
def test_every_span_of_the_candidates_scores_as_released(case: Golden) -> None:
    """0 where a length is not allowed; "exclusive" has the candidates in the order of its video scores."""
    spans, video, _ = _candidates(case)
    start, end = spans.start.masked_fill(~spans.mask, -1e4), spans.end.masked_fill(~spans.mask, -1e4)
    scores = start[..., :, None] + end[..., None, :] + video[..., None, None]
    allowed = span_mask(start.shape[-1], case.decoding)
    assert torch.equal(allowed, case.arrays["eval.out.length_mask"].bool())
    stored = case.arrays["eval.out.score_map"]
    if "eval.out.video_order" in case.arrays:
        weights, own = case.arrays["eval.out.video_weight"], case.logits("eval").video
        asked = case.arrays["eval.in.inference_vr_scores"] if own is None else own[:, 1:].softmax(1)
        order = case.arrays["eval.out.video_order"]
        torch.testing.assert_close(asked.gather(1, order), weights, atol=1e-5, rtol=1e-5)
        at = order[..., None, None].expand_as(stored)
        scores = scores.gather(1, at)
    if case.told["measure"] == "disjoint":  # sums, where others multiply
        found = scores.where(allowed & (scores > -1e3), 0.0)
        stored = stored.where(stored > -1e3, 0.0)
    else:
        found = _released_scores(case, scores) * allowed
    assert (found != 0).any(2).any(2).all()
    torch.testing.assert_close(found, stored, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_moments_of_the_candidates_are_the_released_ones(case: Golden) -> None:
    spans, video, numbers = _candidates(case)
    stored = case.arrays["eval.out.VCMR"]
    found = best_over_videos(spans, video, case.decoding, stored.shape[1])
    clip = case.told["clip_length"]
    scores = _released_scores(case, found.score).double()
    _same_moments(case, found, numbers.gather(1, found.place), scores)
    rows = zip(found.first.numpy(), found.last.numpy(), found.place.numpy(), found.score.numpy(), strict=True)
    for query, (first, last, place, score) in enumerate(rows):
        start, end = first * clip, (last + 1) * clip
        kept = suppress(place, start, end, score.astype(np.float64), case.told["nms_thd"])
        names = numbers[query].numpy()[place[kept]]
        mine = np.stack([names, start[kept], end[kept], scores[query].numpy()[kept]], 1).tolist()
        told = [row for row in case.told["VCMR_after_nms"][query] if row[3] > case.least]
        assert_same_ranking(mine, told, close=2e-5, atol=1e-4)


def _same_moments(case: Golden, found: BestSpans, videos: Tensor, scores: Tensor) -> None:
    """As far as the released ones are allowed: behind them a list may be filled up."""
    clip = case.told["clip_length"]
    mine = torch.stack([videos.double(), found.first * clip, (found.last + 1) * clip, scores], dim=2)
    for ours, theirs in zip(mine.tolist(), case.arrays["eval.out.VCMR"].tolist(), strict=True):
        real = [row for row in theirs if row[3] > case.least]
        assert real
        assert_same_ranking(ours, real, close=2e-5, atol=1e-4)


@torch.no_grad()
def test_moments_of_the_own_video_are_the_released_ones_as_far_as_none_are_equal(case: Golden) -> None:
    queries, videos = case.pairs("eval")
    shape = case.arrays["eval.out.begin_score"].shape
    own = torch.arange(shape[0]) * shape[1]
    spans = case.model.score_spans(queries.take(own), videos.take(own))
    stored = case.arrays["eval.out.SVMR"]
    nothing = torch.zeros(len(own), 1)
    found = best_over_videos(
        SpanScores(spans.start[:, None], spans.end[:, None], spans.mask[:, None]),
        nothing,
        case.decoding,
        stored.shape[1],
    )
    scores = found.score.double()
    if case.told["measure"] != "disjoint":
        video = case.logits("eval").video
        scores = (scores if video is None else scores - video[:, :1]).exp()
    clip, numbers = case.told["clip_length"], case.told["video2idx"]
    for at, query in enumerate(case.told["queries"]):
        real = [row for row in stored[at].tolist() if row[3] > case.least]
        number = torch.full_like(scores[at], numbers[query["vid_name"]])
        mine = torch.stack([number, found.first[at] * clip, (found.last[at] + 1) * clip, scores[at]], 1)
        assert real
        assert_same_ranking(mine.tolist(), real, close=2e-5, atol=2e-5)


@torch.no_grad()
def test_videos_are_ordered_as_released(case: Golden) -> None:
    """By the retriever; with a video score of its own by that; by the best moment where it is "disjoint"."""
    spans, _, numbers = _candidates(case)
    stored, measure = case.arrays["eval.out.VR"], case.told["measure"]
    own = case.logits("eval").video
    values = case.arrays["eval.in.inference_vr_scores"]
    if measure == "disjoint":
        rows, videos, clips = spans.start.shape
        flat = SpanScores(
            *(one.reshape(rows * videos, 1, clips) for one in (spans.start, spans.end, spans.mask))
        )
        values = best_over_videos(flat, torch.zeros(rows * videos, 1), case.decoding, 1).score.view(
            rows, videos
        )
    elif own is not None:
        values = own[:, 1:].softmax(1)
    scores, order = values.sort(dim=1, descending=True)
    assert torch.equal(numbers.gather(1, order).double(), stored[..., 0])
    torch.testing.assert_close(scores.double(), stored[..., 3], atol=1e-5, rtol=1e-5)
