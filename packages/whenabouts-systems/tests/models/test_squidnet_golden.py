"""SQuiDNet as released, against what the authors' programs compute: every case file of the golden folder.

Tolerances are those of the folder's README or tighter. Video 0 of each query is its own, in both parts of a
case; behind it stand its negatives (training) or the candidates of its list (inference).
"""

from __future__ import annotations

from collections.abc import Sequence
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

from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.annotations import AnnotationBuilder
from whenabouts_bench.formats.runs import MemoryRun, RunBlockBuilder
from whenabouts_systems.models import new_model
from whenabouts_systems.models.decoding import BestSpans, Decoding, best_over_videos
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.parts.pairs import PairLogits
from whenabouts_systems.models.protocol import (
    Batch,
    ClipBatch,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.models.squidnet import Config, Model, released_names
from whenabouts_systems.training.examples import spans_in_clips
from whenabouts_systems.training.optimizer import EarlyAdamW, decay_groups

RELEASED: dict[str, Any] = {
    "max_vid_len": 100,
    "max_query_len": 30,
    "loss_measure": "moment_video",
    "lw_st_ed": 0.01,
    "lw_vid": 0.005,
    "infer": {},
}
OF_INFERENCE = {"min_pred_l": 0, "max_pred_l": 24, "max_vcmr_video": 10}
"""The program's settings for TVR."""
UNUSED = {"CMP.video_predictor.0.weight", "CMP.video_predictor.2.weight", "CMP.video_predictor.4.weight"}
"""Parameters that the program has with "moment", too, and does not train then."""


@dataclass(frozen=True)
class Golden:
    """One case: what it tells, arrays by name, the model with the case's weights."""

    told: dict[str, Any]
    arrays: dict[str, Tensor]
    model: Model

    def near(self, name: str, value: Tensor, *, atol: float = 1e-5, rtol: float = 1e-5) -> None:
        torch.testing.assert_close(value.detach(), self.arrays[name], atol=atol, rtol=rtol)

    @property
    def clip(self) -> float:
        """Seconds, those of TVR where the case does not tell."""
        return float(self.told.get("clip_length", 1.5))

    @property
    def inputs(self) -> Inputs:
        """Features as they are made ready: pictures brought to unit length, words not."""
        told = self.told
        return Inputs(
            StreamInput(told["sizes"]["text_dim"], False),
            {
                "video": StreamInput(told["sizes"]["vid_dim"]),
                "sub": StreamInput(told["sizes"]["text_dim"], False),
            },
            clip_seconds=self.clip,
            max_clips=told["max_vid_len"],
            max_tokens=told["max_query_len"],
            long_videos="cut",
        )

    def videos(self, names: Sequence[str]) -> ClipBatch:
        raw = {"video": "raw.vid", "sub": "raw.sub"}
        rows = [{stream: self.arrays[f"{raw[stream]}.{name}"].numpy() for stream in raw} for name in names]
        return self.inputs.clips(rows)

    def queries(self, ids: Sequence[int]) -> QueryBatch:
        return self.inputs.queries([self.arrays[f"raw.query.{one}"].numpy() for one in ids])

    def pairs(
        self, ids: Sequence[int], names: Sequence[Sequence[str]]
    ) -> tuple[QueryEncoding, VideoEncoding]:
        """Each query once for each of its videos, as many for each query."""
        asked = torch.arange(len(ids)).repeat_interleave(len(names[0]))
        every = [name for own in names for name in own]
        return (
            self.model.encode_queries(self.queries(ids)).take(asked),
            self.model.encode_videos(self.videos(every)),
        )

    def batch(self, ids: Sequence[int], names: Sequence[Sequence[str]], spans: Tensor) -> Batch:
        videos = self.videos([name for own in names for name in own])
        each = len(names[0])
        own = torch.arange(len(ids)) * each
        positives = functional.one_hot(own, len(videos)).bool()
        others = own[:, None] + torch.arange(1, each)
        return Batch(self.queries(ids), videos, own, spans, positives, negatives=others)

    @property
    def decoding(self) -> Decoding:
        infer = self.told["infer"]
        return Decoding(min_clips=infer["min_pred_l"], max_clips=infer["max_pred_l"], ends="as-released")

    def rows(self) -> tuple[list[int], list[list[str]], Tensor]:
        """The training batch: ids of queries, names of videos and labels of clips."""
        queries, told = self.told["queries"], self.told["told"]
        ids = [queries[row]["desc_id"] for row in self.told["train_rows"]]
        return ids, told["train_video_lists"], self.arrays["train.in.st_ed_indices"]


CASES = cases("squidnet", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@pytest.fixture(
    params=[path for path in CASES if "infer_candidates" in told_inside(path)["told"]],
    ids=lambda path: path.stem,
)
def inferring(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@pytest.fixture(
    params=[path for path in CASES if "ranked" in told_inside(path)["told"]], ids=lambda path: path.stem
)
def ranking(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


def config_of_case(told: dict[str, Any], **settings: Any) -> Config:
    parts = Settings(told["config"])
    inside, joint, heads = (
        parts[f"{name}_config"] for name in ("query_enc", "joint_emb", "moment_prediction")
    )
    Settings(heads).refuse_unread(*(f"{kind}_cfg_{at}" for kind in ("conv", "linear") for at in range(1, 4)))
    convolution = Settings(heads["conv_cfg_1"])
    assert convolution.get("stride", 1) == 1 and not convolution.get("bias", False)
    clusters = Settings(parts["netvlad_config"])
    alike = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers")
    for name in alike:
        assert inside[name] == joint[name], f"{name}: our encoders are all alike"
    only_gelu(inside, joint)
    made = Config(
        streams={"video": told["sizes"]["vid_dim"], "sub": told["sizes"]["text_dim"]},
        query_width=told["sizes"]["text_dim"],
        hidden=inside["hidden_size"],
        heads=inside["num_attention_heads"],
        feedforward=inside["intermediate_size"],
        layers=inside["num_hidden_layers"],
        clusters=clusters["text_cluster"],
        span_hidden=convolution["out_channels"],
        span_kernel=convolution["kernel_size"],
        max_clips=joint["max_position_embeddings"],
        max_tokens=inside["max_position_embeddings"],
        measure=told["loss_measure"],
        lambda_tl=told["lw_st_ed"],
        lambda_video=told["lw_vid"],
        as_released=True,
        **settings,
    )
    parts.refuse_unread("initializer_range")
    clusters.refuse_unread("hidden_size", "moe_dropout_prob")
    convolution.refuse_unread("in_channels", "padding")
    return made


def loaded(told: dict[str, Any], arrays: dict[str, Tensor], **settings: Any) -> Model:
    model: Model = new_model("squidnet", config_of_case(told, **settings)).eval()
    names = released_names(model.config)
    model.load_state_dict({ours: arrays[f"sd.{name}"] for ours, name in names.items()})
    return model


@cache
def _opened(path: Path) -> Golden:
    told, arrays = {**RELEASED, **told_inside(path)}, arrays_of(path)
    told["infer"] = Settings(told["infer"], OF_INFERENCE)
    told["infer"].refuse_unread("max_before_nms", "query_batch")
    return Golden(told, arrays, loaded(told, arrays))


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no squidnet folder")


def test_every_released_parameter_has_a_name_here(case: Golden) -> None:
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    unused = set() if case.told["loss_measure"] == "moment_video" else UNUSED
    names = released_names(case.model.config)
    assert set(names.values()) == released - unused
    assert set(names) == set(case.model.state_dict())
    assert len(set(names.values())) == len(names)


def test_features_and_labels_are_made_ready_as_released(case: Golden) -> None:
    ids, names, _ = case.rows()
    queries, videos = case.queries(ids), case.videos([name for own in names for name in own])
    for mine, mask, name in (
        (queries.tokens, queries.mask, "query"),
        (videos.streams["video"], videos.mask, "vid"),
        (videos.streams["sub"], videos.mask, "sub"),
    ):
        told, seen = (
            case.arrays[f"train.in.{name}.{what}"].flatten(0, -3 + (what == "feat_mask"))
            for what in ("feat", "feat_mask")
        )
        steps = mask.shape[1]
        assert torch.equal(told[:, steps:], torch.zeros_like(told[:, steps:]))
        assert torch.equal(seen[:, :steps].bool(), mask)
        assert not seen[:, steps:].any()
        torch.testing.assert_close(mine, told[:, :steps], atol=1e-6, rtol=1e-6)
    moments = np.array([case.told["queries"][row]["ts"] for row in case.told["train_rows"]])
    clips = videos.mask.sum(1)[:: len(names[0])].numpy()
    spans = spans_in_clips(moments[:, 0], moments[:, 1], np.full(len(ids), case.clip), clips, "inclusive")
    assert np.array_equal(spans, case.arrays["train.in.st_ed_indices"].numpy())


@torch.no_grad()
def test_each_step_of_the_network_is_the_released_one(case: Golden) -> None:
    model, (ids, names, _) = case.model, case.rows()
    queries, videos = case.pairs(ids, names)
    each, streams = len(names[0]), list(model.config.streams)
    step = "train.step."
    case.near(f"{step}MMAencoder.text_enc", queries.parts["tokens"][::each])
    kept = [videos.parts[f"clips/{stream}"] for stream in streams]
    case.near(f"{step}MMAencoder.vsMMA.transformer", torch.cat(kept, 1))
    weights = model.stream_weights
    assert weights is not None
    pooled = weights.clusters(queries.parts["tokens"], torch.ones_like(queries.parts["mask"]))
    case.near(f"{step}nvld_query_weight.text_pooling", pooled, atol=1e-6)
    case.near(f"{step}nvld_query_weight.fc_lyr", weights.linear(pooled), atol=1e-6)
    shares = queries.parts["stream_weights"]
    clips = kept[0] * shares[:, :1, None] + kept[1] * shares[:, 1:, None]
    words, masks = queries.parts["tokens"], (videos.mask, queries.parts["mask"])
    table = model.comparison.similarity(clips, words, *masks)
    real = masks[0][:, :, None] & masks[1][:, None]
    told = case.arrays[f"{step}VQMMA.sim_weight"][..., 0]
    torch.testing.assert_close(table[real], told[real], atol=1e-5, rtol=1e-5)
    aware = model.comparison(clips, words, *masks, model._attended(*masks))
    case.near(f"{step}VQMMA", aware)
    context = model.context(aware, masks[0])
    case.near(f"{step}JS_emb", context)
    both = torch.cat([aware, context], 2)
    start = model.start_features(both, masks[0])
    case.near(f"{step}CMP.start_JSemb", start)
    end = model.end_features(torch.cat([context, start], 2), masks[0])
    case.near(f"{step}CMP.conditional_end_JSemb", end)


@torch.no_grad()
def test_projections_and_places_are_the_released_ones(case: Golden) -> None:
    model, (ids, names, _) = case.model, case.rows()
    queries = case.queries(ids)
    videos = case.videos([name for own in names for name in own])
    step, encoder = "train.step.MMAencoder.", model.video_encoder
    projected = model.query_projection(queries.tokens, queries.mask)
    told = case.arrays[f"{step}text_enc.linear"][:, : queries.mask.shape[1]]
    torch.testing.assert_close(projected[queries.mask], told[queries.mask], atol=1e-6, rtol=1e-5)
    both = []
    for stream, name in (("video", "img_linear"), ("sub", "text_linear")):
        both.append(encoder.projections[stream](videos.streams[stream], videos.mask))
        told = case.arrays[f"{step}vsMMA.{name}"][:, : videos.mask.shape[1]]
        torch.testing.assert_close(both[-1][videos.mask], told[videos.mask], atol=1e-6, rtol=1e-5)
    mask = videos.mask.repeat_interleave(2, dim=1)
    placed = encoder.positions(torch.stack(both, 2).flatten(1, 2), mask, each=2)
    placed = torch.stack([placed[:, 0::2], placed[:, 1::2]], 2)
    halves = case.arrays[f"{step}vsMMA.transformer.embeddings"].chunk(2, dim=1)
    told = torch.stack(halves, 2)[:, : videos.mask.shape[1]]
    torch.testing.assert_close(placed[videos.mask], told[videos.mask], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_pairs_get_the_released_logits(case: Golden) -> None:
    ids, names, _ = case.rows()
    found = case.model.pair_logits(*case.pairs(ids, names))
    for at, border in enumerate(("start", "end")):
        shape = case.arrays[f"train.out.{border}_logits"].shape
        case.near(f"train.out.{border}_logits", found.borders[at].clamp(min=-1e4).view(shape))
        case.near(f"train.step.CMP.{border}_moment_prediction", found.borders[at].clamp(min=-1e4))
    assert (found.video is not None) == (case.told["loss_measure"] == "moment_video")
    if found.video is not None:
        case.near("train.out.video_score", found.video.view(len(ids), -1))
        case.near("train.step.CMP.video_predictor", found.video[:, None])


def test_losses_and_gradients_are_the_released_ones(case: Golden) -> None:
    case.model.zero_grad()
    losses = case.model.loss(case.batch(*case.rows()))
    assert ("videos" in losses) == (case.told["loss_measure"] == "moment_video")
    for ours, theirs in (("spans", "moment"), ("videos", "video")):
        value = losses.get(ours, torch.zeros(())).double()
        case.near(f"train.loss.{theirs}", value, atol=0.0)
    total = torch.stack(list(losses.values())).sum()
    case.near("train.loss.total", total, atol=0.0)
    total.backward()  # type: ignore[no-untyped-call]
    names, lengths = released_names(case.model.config), case.told["told"]["grad_l2"]
    assert {name for name, length in lengths.items() if length is not None} == set(names.values())
    for ours, parameter in case.model.named_parameters():
        assert parameter.grad is not None, ours
        length = lengths[names[ours]]
        assert parameter.grad.norm().item() == pytest.approx(length, rel=1e-3, abs=1e-5), ours
        if (whole := f"train.grad.{names[ours]}") in case.arrays:
            case.near(whole, parameter.grad, atol=1e-6, rtol=1e-3)


def test_three_steps_of_adamw_lead_to_the_released_weights(case: Golden) -> None:
    told = case.told["told"]
    model = loaded(case.told, case.arrays)
    first, second = told["optim_groups"][:2]
    groups = decay_groups(model, first["weight_decay"])
    unused = len(UNUSED) if case.told["loss_measure"] == "moment" else 0
    assert [len(group["params"]) for group in groups] == [first["tensors"] - unused, second["tensors"]]
    assert first["eps"] == 1e-6
    optimizer = EarlyAdamW(groups, first["lr"], betas=tuple(first["betas"]))
    for loss in case.arrays["optim.loss"]:
        total = torch.stack(list(model.loss(case.batch(*case.rows())).values())).sum()
        assert total.item() == pytest.approx(loss.item(), rel=1e-5)
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    names = released_names(model.config)
    for ours, parameter in model.named_parameters():
        assert parameter.norm().item() == pytest.approx(told["optim_after_l2"][names[ours]], rel=1e-4), ours


# --- inference


def _found(golden: Golden) -> tuple[PairLogits, tuple[int, int]]:
    """The logits of each query with its own video and its candidates, and (queries, videos of each)."""
    told = golden.told["told"]
    own = {query["desc_id"]: query["vid_name"] for query in golden.told["queries"]}
    names = [
        [own[one], *some] for one, some in zip(told["infer_desc_ids"], told["infer_candidates"], strict=True)
    ]
    return golden.model.pair_logits(*golden.pairs(told["infer_desc_ids"], names)), (len(names), len(names[0]))


def _numbers(golden: Golden) -> Tensor:
    """(Q, N) the program's numbers of the candidates."""
    number = {video["name"]: video["idx"] for video in golden.told["videos"]}
    return torch.tensor([[number[name] for name in some] for some in golden.told["told"]["infer_candidates"]])


@torch.no_grad()
def test_the_first_of_a_list_are_looked_into(inferring: Golden) -> None:
    number = {video["name"]: video["idx"] for video in inferring.told["videos"]}
    most = inferring.told["infer"]["max_vcmr_video"]
    listed = {query["desc_id"]: query["bmr"][:most] for query in inferring.told["queries"]}
    lists = [[video for video, _ in listed[one]] for one in inferring.told["told"]["infer_desc_ids"]]
    assert lists == [[number[name] for name in some] for some in inferring.told["told"]["infer_candidates"]]


@torch.no_grad()
def test_candidates_get_the_released_scores(inferring: Golden) -> None:
    found, shape = _found(inferring)
    for at, border in enumerate(("start", "end")):
        inferring.near(f"infer.{border}_logits", found.borders[at].clamp(min=-1e4).view(*shape, -1))
    assert found.video is not None
    inferring.near("infer.video_score", found.video.view(shape))


@torch.no_grad()
def test_moments_of_the_candidates_are_the_released_ones(inferring: Golden) -> None:
    found, shape = _found(inferring)
    assert found.video is not None
    spans, own = _spans(inferring, shape), found.video.view(shape)[:, 1:]
    best = best_over_videos(
        SpanScores(spans.start[:, 1:], spans.end[:, 1:], spans.mask[:, 1:]),
        torch.zeros_like(own),
        inferring.decoding,
        inferring.arrays["infer.VCMR"].shape[1],
    )
    videos = _numbers(inferring).gather(1, best.place)
    # The program's softmax over the candidates takes the same number off every moment of a query.
    scores = (best.score - own.logsumexp(1, keepdim=True)).exp()
    _same_moments(inferring, "VCMR", best, videos, scores)


@torch.no_grad()
def test_moments_of_the_own_video_are_the_released_ones(inferring: Golden) -> None:
    found, shape = _found(inferring)
    assert found.video is not None
    spans, own = _spans(inferring, shape), found.video.view(shape)[:, :1]
    best = best_over_videos(
        SpanScores(spans.start[:, :1], spans.end[:, :1], spans.mask[:, :1]),
        torch.zeros_like(own),
        inferring.decoding,
        inferring.arrays["infer.SVMR"].shape[1],
    )
    videos = inferring.arrays["infer.SVMR"][:, :1, 0].expand_as(best.score)
    _same_moments(inferring, "SVMR", best, videos, (best.score - own).exp())


def _spans(golden: Golden, shape: tuple[int, int]) -> SpanScores:
    """What `score_spans` makes of the pairs of `_found`, (Q, N, T)."""
    told = golden.told["told"]
    own = {query["desc_id"]: query["vid_name"] for query in golden.told["queries"]}
    names = [
        [own[one], *some] for one, some in zip(told["infer_desc_ids"], told["infer_candidates"], strict=True)
    ]
    scores = golden.model.score_spans(*golden.pairs(told["infer_desc_ids"], names))
    return SpanScores(*(one.view(*shape, -1) for one in (scores.start, scores.end, scores.mask)))


def _same_moments(golden: Golden, task: str, best: BestSpans, videos: Tensor, scores: Tensor) -> None:
    """As far as the released scores are above 0: those of 0 have no order."""
    stored = golden.arrays[f"infer.{task}"]
    counts = golden.told["told"]["infer_entries_above_zero"][task]
    clip = golden.clip
    mine = torch.stack([videos, best.first * clip, (best.last + 1) * clip, scores], 2)
    for query, count in enumerate(counts):
        assert_same_ranking(mine[query].tolist(), stored[query, :count].tolist(), atol=1e-6)


@torch.no_grad()
def test_videos_are_in_the_released_order_by_their_own_score(inferring: Golden) -> None:
    found, shape = _found(inferring)
    assert found.video is not None
    scores, order = found.video.view(shape)[:, 1:].softmax(1).sort(dim=1, descending=True)
    rows = torch.stack([_numbers(inferring).gather(1, order), *2 * [torch.zeros_like(scores)], scores], 2)
    stored = inferring.arrays["infer.VR"].clone()
    stored[..., 1:3] = 0
    for mine, theirs in zip(rows.tolist(), stored.tolist(), strict=True):
        assert_same_ranking(mine, theirs, close=1e-5, rtol=1e-5, atol=1e-6)


# --- the ranked program


def test_the_ranked_program_has_the_same_loss(ranking: Golden) -> None:
    rows = ranking.told["told"]["ranked"]["training_rows"]
    spans = torch.tensor([row["st_ed"] for row in rows])
    batch = ranking.batch([row["desc_id"] for row in rows], [row["videos"] for row in rows], spans)
    total = torch.stack(list(ranking.model.loss(batch).values())).sum()
    ranking.near("ranked.train.loss", total, atol=0.0)


@torch.no_grad()
def test_moments_of_drawn_candidates_are_those_of_the_ranked_program(ranking: Golden) -> None:
    """Of the rows of a query the last counts, as it does there."""
    told = ranking.told["told"]["ranked"]
    rows = {row["desc_id"]: row["candidates"] for row in told["candidate_rows"]}
    queries, videos = ranking.pairs(list(rows), list(rows.values()))
    own = ranking.model.pair_logits(queries, videos).video
    assert own is not None
    shared = own.view(len(rows), -1).logsumexp(1, keepdim=True)
    scored = ranking.model.score_spans(queries, videos)
    _same_predictions(ranking, told["candidate_predictions"], scored, rows, shared)


@torch.no_grad()
def test_a_whole_corpus_is_ranked_by_sigmoids(ranking: Golden) -> None:
    told, names = ranking.told["told"]["ranked"], [video["name"] for video in ranking.told["videos"]]
    model = loaded(ranking.told, ranking.arrays, probabilities="sigmoid")
    rows = {row["desc_id"]: names for row in told["all_predictions"]}
    corpus = model.encode_videos(ranking.videos(names))
    ranking.near("ranked.corpus.all_video_feat", corpus.parts["clips/video"])
    ranking.near("ranked.corpus.all_sub_feat", corpus.parts["clips/sub"])
    assert torch.equal(ranking.arrays["ranked.corpus.all_video_mask"].bool(), corpus.mask)
    queries, videos = ranking.pairs(list(rows), list(rows.values()))
    found = model.pair_logits(queries, videos)
    assert found.video is not None
    shape = (len(rows), len(names))
    ranking.near("ranked.all.video_score", found.video.sigmoid().view(shape))
    for at, border in enumerate(("start", "end")):
        ranking.near(f"ranked.all.{border}", found.borders[at].sigmoid().view(*shape, -1))
    nothing = torch.zeros(len(rows), 1)
    scored = model.score_spans(queries, videos)
    _same_predictions(ranking, told["all_predictions"], scored, rows, nothing)


@pytest.mark.parametrize("kind", ["candidate", "all"])
def test_the_ranked_program_is_measured_as_it_measures_itself(ranking: Golden, kind: str) -> None:
    told = ranking.told["told"]["ranked"]
    truth = AnnotationBuilder("ranked", cut=False)
    for query in told["annotations"]:
        truth.add_query(str(query["query_id"]))
        for one in query["relevant_moment"]:
            start, end = one["timestamp"]
            truth.judge(str(query["query_id"]), one["video_name"], start, end, one["relevance"])
    builder = RunBlockBuilder()
    for answer in told[f"{kind}_predictions"]:
        builder.add(str(answer["desc_id"]), [tuple(one) for one in answer["predictions"]])
    run = MemoryRun("ranked", {"VCMR": (builder.block(),)})
    values = {
        f"nDCG@{k},IoU={iou}": value for k, row in told[f"{kind}_ndcg"].items() for iou, value in row.items()
    }
    found = evaluate(truth.annotations(), run, list(values), protocol="rvmr-as-released").means()
    assert found == pytest.approx(values, abs=1e-9)


def _same_predictions(
    golden: Golden, told: list[Any], scored: SpanScores, rows: dict[int, list[str]], shared: Tensor
) -> None:
    """The best moments of each query are the told ones; `shared` (Q, 1) is taken off all of a query."""
    count = max(len(answer["predictions"]) for answer in told)
    laid = (one.view(len(rows), -1, one.shape[1]) for one in (scored.start, scored.end, scored.mask))
    spans = SpanScores(*laid)
    best = best_over_videos(spans, torch.zeros(spans.mask.shape[:2]), golden.decoding, count)
    values, clip = (best.score - shared).exp(), golden.clip
    assert [answer["desc_id"] for answer in told] == list(rows)
    for query, (answer, names) in enumerate(zip(told, rows.values(), strict=True)):
        columns = (one[query].tolist() for one in (best.place, best.first, best.last, values))
        mine = [
            (names[place], first * clip, (last + 1) * clip, value)
            for place, first, last, value in zip(*columns, strict=True)
        ]
        theirs = [row for row in answer["predictions"] if row[3] > 0]
        assert theirs
        assert_same_ranking(mine, theirs, atol=1e-6)
