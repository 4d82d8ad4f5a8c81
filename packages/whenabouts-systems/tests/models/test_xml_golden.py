"""XML as released, against what the authors' program computes: every case file of the golden folder.

Tolerances are those of the folder's README. The program's cross-attention keeps a padded row's scores to some
1e-3 only, and such rows reach the last clips before the padding through the convolution.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import Settings, cases, golden_folder
from tests.models.released_draws import negatives_at
from torch import Tensor

from whenabouts_systems.models import new_model
from whenabouts_systems.models.parts.ranking_loss import against_negatives
from whenabouts_systems.models.protocol import Batch, ClipBatch, Losses, QueryBatch, best_key, pair_products
from whenabouts_systems.models.xml import Config, Model, _groups, released_names

SPAN_PREDICTORS = {"conv": "conv", "cat_linear": "linear"}
RELEASED = {
    "merge_two_stream": False,
    "cross_att": False,
    "encoder_type": "transformer",
    "span_predictor_type": "conv",
    "conv_kernel_size": 5,
    "hidden_size": 256,
    "n_heads": 4,
    "max_ctx_l": 100,
    "max_desc_l": 30,
    "ranking_loss_type": "hinge",
    "margin": 0.1,
    "hard_pool_size": 1,
    "lw_neg_ctx": 1.0,
    "lw_neg_q": 1.0,
    "lw_st_ed": 0.01,
}
"""The program's defaults, but for the pool: the hardest negative is compared."""
UNUSED = ("input_drop", "drop", "cross_att_drop", "initializer_range", "use_hard_negative", "pe_type")
"""Settings that change no number here, or that the program does not read."""


@dataclass(frozen=True)
class Golden:
    """One case: arrays by name, the model with the case's weights, its batch."""

    arrays: dict[str, Tensor]
    model: Model
    batch: Batch

    @property
    def streams(self) -> list[str]:
        return list(self.model.config.streams)

    @property
    def loose(self) -> float:
        """The absolute tolerance of what padded rows of cross-attention reach."""
        config = self.model.config
        crossed = config.cross_attention and len(config.streams) == 2
        return 2e-3 if crossed and not self.batch.videos.mask.all() else 5e-5

    def near(self, name: str, value: Tensor, *, atol: float = 5e-5, rtol: float = 1e-4) -> None:
        torch.testing.assert_close(value.detach(), self.arrays[name], atol=atol, rtol=rtol)

    def near_where(self, mask: Tensor, name: str, value: Tensor) -> None:
        """Equal at the real rows of (B, T, …)."""
        torch.testing.assert_close(value[mask], self.arrays[name][mask], atol=5e-5, rtol=1e-4)


CASES = cases("xml", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@cache
def _opened(path: Path) -> Golden:
    told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["config"]
    with np.load(path) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    model = new_model("xml", config_of_case(told, arrays)).eval()
    names = released_names(model.config)
    model.load_state_dict({ours: arrays[f"param/{theirs}"] for ours, theirs in names.items()})
    return Golden(arrays, model, _batch(arrays, list(model.config.streams)))


def config_of_case(config: dict[str, Any], arrays: Mapping[str, Any]) -> Config:
    """Our settings for those of a case; fails where it tells what is not implemented."""
    told = Settings(config, RELEASED)
    stacked = told.get("stack_conv_predictor_conv_kernel_sizes", -1)
    assert stacked in (-1, [-1]), f"stacked convolutions {stacked} are not implemented"
    kernels = [one.shape[2] for name, one in arrays.items() if name.endswith("depthwise_conv.weight")]
    assert told.get("conv_stride", 1) == 1, f"conv_stride {told['conv_stride']} is not implemented"
    widths = {"video": told["visual_input_size"], "sub": told["sub_input_size"]}
    made = Config(
        streams={name: width for name, width in widths.items() if name in told["ctx_mode"].split("_")},
        query_width=told["query_input_size"],
        hidden=told["hidden_size"],
        heads=told["n_heads"],
        max_clips=told["max_ctx_l"],
        max_tokens=told["max_desc_l"],
        encoder=told["encoder_type"],
        encoder_kernel=kernels[0] if kernels else 5,
        merge=told["merge_two_stream"],
        cross_attention=told["cross_att"],
        modular=not told.get("no_modular", False),
        span_predictor=SPAN_PREDICTORS[told["span_predictor_type"]],  # type: ignore[arg-type]
        span_kernel=told["conv_kernel_size"],
        ranking=told["ranking_loss_type"],
        margin=told["margin"],
        pool=told["hard_pool_size"],
        pool_from_epoch=0,
        weight_negative_videos=told["lw_neg_ctx"],
        weight_negative_queries=told["lw_neg_q"],
        lambda_tl=told["lw_st_ed"],
        as_released=True,
    )
    told.refuse_unread(*UNUSED, "use_self_attention", "add_pe_rnn")
    return made


def _batch(arrays: dict[str, Tensor], streams: list[str]) -> Batch:
    masks = [arrays[f"in/{name}_mask"].bool() for name in streams]
    assert all(torch.equal(masks[0], mask) for mask in masks)
    size = len(masks[0])
    return Batch(
        QueryBatch(arrays["in/query_feat"], arrays["in/query_mask"].bool()),
        ClipBatch({name: arrays[f"in/{name}_feat"] for name in streams}, masks[0]),
        torch.arange(size),
        arrays["in/st_ed_indices"],
        torch.eye(size, dtype=torch.bool),
    )


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no xml folder")


def test_every_released_parameter_has_a_name_here(case: Golden) -> None:
    released = {name.removeprefix("param/") for name in case.arrays if name.startswith("param/")}
    if not case.model.config.modular:
        released.remove("modular_vector_mapping.weight")  # made by the program, and not used
    names = released_names(case.model.config)
    assert set(names.values()) == released
    assert set(names) == set(case.model.state_dict())


@torch.no_grad()
def test_words_become_the_released_vectors(case: Golden) -> None:
    model, queries = case.model, case.batch.queries
    mask = queries.mask
    words = model.query_positions(model.query_projection(queries.tokens, mask), mask)
    words = model.query_encoder(words, mask)
    case.near_where(mask, "out/encoded_query", words)
    pooled = model.pooling(words, mask)
    for name in ("video", "sub"):  # the program makes both, of which one may be read by no stream
        number = case.streams.index(name) if name in case.streams else 0
        case.near(f"out/{name}_query", pooled.vectors[:, number])
    if "out/modular_att" in case.arrays and model.config.modular:
        case.near("out/modular_att", pooled.weights.expand_as(case.arrays["out/modular_att"]))


@torch.no_grad()
def test_search_vectors_are_the_released_vectors_at_length_one(case: Golden) -> None:
    encoded = case.model.encode_queries(case.batch.queries)
    for name in case.streams:
        vector = case.arrays[f"out/{name}_query"]
        torch.testing.assert_close(
            encoded.search[name], vector / vector.norm(dim=1, keepdim=True), atol=5e-5, rtol=1e-4
        )


@torch.no_grad()
def test_clips_become_the_released_vectors(case: Golden) -> None:
    videos, mask = case.model.encode_videos(case.batch.videos), case.batch.videos.mask
    for name in case.streams:
        first = case.arrays[f"out/{name}_feat1"]
        torch.testing.assert_close(
            videos.keys[name][mask], first[mask] / first[mask].norm(dim=1, keepdim=True), atol=5e-5, rtol=1e-4
        )
        case.near_where(mask, f"out/{name}_feat2", videos.parts[f"clips/{name}"])


@torch.no_grad()
def test_videos_get_the_released_cosines(case: Golden) -> None:
    queries = case.model.encode_queries(case.batch.queries)
    case.near(
        "out/q2ctx_scores", case.model.score_videos(queries, case.model.encode_videos(case.batch.videos))
    )
    clips = case.model.encode_videos(case.batch.videos)
    for name in case.streams:
        scores = best_key(queries.search[name], clips.keys[name], case.batch.videos.mask)
        case.near(f"out/{name}_q2ctx_scores", scores)


@torch.no_grad()
def test_pairs_get_the_released_probabilities(case: Golden) -> None:
    queries = case.model.encode_queries(case.batch.queries)
    scores = case.model.score_spans(queries, case.model.encode_videos(case.batch.videos))
    case.near("out/st_prob_pair", scores.start.exp(), atol=case.loose)
    case.near("out/ed_prob_pair", scores.end.exp(), atol=case.loose)


@torch.no_grad()
def test_pairs_get_the_released_logits(case: Golden) -> None:
    model = case.model
    queries, videos = model.encode_queries(case.batch.queries), model.encode_videos(case.batch.videos)
    logits = [
        model.borders[group](
            [queries.parts[f"span/{name}"] for name in names],
            [videos.parts[f"clips/{name}"] for name in names],
            videos.mask,
        )
        for group, names in _groups(model.config).items()
    ]
    start, end = torch.stack(logits).mean(0)
    case.near("out/st_logits_pair", start, atol=case.loose)
    case.near("out/ed_logits_pair", end, atol=case.loose)


@torch.no_grad()
def test_pairs_get_the_released_similarities_and_likelihoods(case: Golden) -> None:
    queries = case.model.encode_queries(case.batch.queries)
    videos = case.model.encode_videos(case.batch.videos)
    products = [
        pair_products(queries.parts[f"span/{name}"], videos.parts[f"clips/{name}"]) for name in case.streams
    ]
    merged = torch.stack(products).mean(0)
    for name, value in zip(("", *(f"{one}_" for one in case.streams)), (merged, *products), strict=True):
        if f"out/{name}similarity_pair" in case.arrays:  # where borders are convolved, and streams merged
            case.near_where(videos.mask, f"out/{name}similarity_pair", value)
    scores = case.model.score_spans(queries, videos)
    for name, border, place in (("st", scores.start, 0), ("ed", scores.end, 1)):
        truth = border.gather(1, case.batch.spans[:, place, None])
        case.near(f"out/nll_{name}_unweighted", -truth.mean(), atol=0.0)


@torch.no_grad()
def test_every_query_with_every_video_gets_the_released_logits_and_probabilities(case: Golden) -> None:
    size = len(case.batch)
    pairs = (torch.arange(size).repeat_interleave(size), torch.arange(size).repeat(size))
    start, end = _some(case, pairs).view(2, size, size, -1)
    for name, logits in (("st", start), ("ed", end)):
        case.near(f"out/{name}_logits_cross", logits, atol=case.loose)
        case.near(f"out/{name}_prob_cross", logits.softmax(-1), atol=case.loose)


@torch.no_grad()
def test_logits_at_the_moments_of_others_are_those_of_the_whole_video(case: Golden) -> None:
    model, batch = case.model, case.batch
    queries, clips = model.encode_queries(batch.queries), model.encode_videos(batch.videos)
    places = (batch.video_of, batch.spans)
    found = [
        predictor.at(spans, last, places) for predictor, spans, last in model._predictors(queries, clips)
    ]
    start, end = torch.stack(found).mean(0)
    moments = torch.arange(len(batch))
    for name, value, border in (("st", start, 0), ("ed", end, 1)):
        stored = case.arrays[f"out/{name}_logits_cross"][:, moments, batch.spans[:, border]]
        torch.testing.assert_close(value, stored, atol=case.loose, rtol=1e-4)


def _some(case: Golden, pairs: tuple[Tensor, Tensor]) -> Tensor:
    queries, clips = (
        case.model.encode_queries(case.batch.queries),
        case.model.encode_videos(case.batch.videos),
    )
    logits = [
        predictor.some(spans, last, case.batch.videos.mask, pairs)
        for predictor, spans, last in case.model._predictors(queries, clips)
    ]
    return torch.stack(logits).mean(0)


def _terms(losses: Losses) -> Tensor:
    """In the order of the golden arrays: spans, negative videos, negative queries, their sum."""
    parts = [losses[name].detach() for name in ("spans", "negative_videos", "negative_queries")]
    assert len(losses) == 3
    return torch.stack([*parts, sum(parts, torch.zeros(()))])


def test_losses_against_the_hardest_negatives_are_the_released_ones(case: Golden) -> None:
    case.near("out/loss_terms_hardest", _terms(case.model.loss(case.batch)), atol=1e-7, rtol=1e-4)


@torch.no_grad()
def test_losses_against_the_drawn_negatives_are_the_released_ones(case: Golden) -> None:
    config, size = case.model.config, len(case.batch)
    queries = case.model.encode_queries(case.batch.queries)
    scores = case.model.score_videos(queries, case.model.encode_videos(case.batch.videos))
    others = ~torch.eye(size, dtype=torch.bool)
    sides = (("negative_videos", scores, "ctx"), ("negative_queries", scores.T, "q"))
    weights = (config.weight_negative_videos, config.weight_negative_queries)
    found = {"spans": case.model.loss(case.batch)["spans"]}
    for (name, table, side), weight in zip(sides, weights, strict=True):
        ranks = case.arrays[f"rand/ranks_neg_{side}"] - 1  # the program counts the positive as rank 0
        drawn = negatives_at(ranks, table, others)
        chosen = case.arrays[f"rand/neg_{'video' if side == 'ctx' else 'query'}_index"]
        torch.testing.assert_close(drawn.score, table[torch.arange(size), chosen])
        lacking = against_negatives(table.diagonal(), drawn, margin=config.margin, kind=config.ranking)
        found[name] = weight * lacking.mean()
    case.near("rand/loss_terms", _terms(found), atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize("part", ["total", "st_ed"])
def test_gradients_are_the_released_ones(case: Golden, part: str) -> None:
    losses = case.model.loss(case.batch)
    loss = losses["spans"] if part == "st_ed" else torch.stack(list(losses.values())).sum()
    stored = {name for name in case.arrays if name.startswith(f"grad_{part}/")}
    ours = {theirs: name for name, theirs in released_names(case.model.config).items()}
    parameters = dict(case.model.named_parameters())
    assert stored
    for name in stored:
        parameter = parameters[ours[name.removeprefix(f"grad_{part}/")]]
        (gradient,) = torch.autograd.grad(loss, parameter, retain_graph=True)
        case.near(name, gradient, atol=1e-5, rtol=1e-3)
