"""ReLoCLNet as released, against what the official program and that of TVR-Ranking compute.

Every case file of the golden folder; the tolerances are those of its README: the programs' cross-attention
keeps some 1e-3 of a padded row's scores, which reaches the last clips before the padding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import Settings, cases, golden_folder
from tests.models.released_draws import draw_these, negatives_at
from torch import Tensor

from whenabouts_systems.models import new_model, reloclnet
from whenabouts_systems.models.parts.contrast import clip_labels
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, best_key, pair_products
from whenabouts_systems.models.reloclnet import Config, Model, released_names

STREAMS = ("video", "sub")
RELEASED = {
    "conv_kernel_size": 5,
    "hidden_size": 384,
    "n_heads": 8,
    "max_ctx_l": 128,
    "max_desc_l": 30,
    "ranking_loss_type": "hinge",
    "margin": 0.1,
    "hard_pool_size": 1,
    "lw_st_ed": 0.01,
    "lw_neg_ctx": 1.0,
    "lw_neg_q": 1.0,
    "lw_fcl": 0.03,
    "lw_vcl": 0.03,
}
"""The program's defaults, but for the pool: the hardest negative is compared."""
UNUSED = ("input_drop", "drop", "initializer_range", "use_hard_negative")
"""Settings that change no number here."""
TOLD_BY_INPUTS = ("visual_input_size", "sub_input_size", "ctx_mode")
HARDEST = 99
"""An epoch after `pool_from_epoch`: with a pool of 1 the hardest negative is taken."""


@dataclass(frozen=True)
class Golden:
    """One case: arrays by name, settings, and the model with its weights."""

    arrays: dict[str, Tensor]
    model: Model
    batch: Batch

    def near(self, name: str, value: Tensor, *, atol: float = 5e-5, rtol: float = 1e-4) -> None:
        torch.testing.assert_close(value, self.arrays[name], atol=atol, rtol=rtol)

    def near_at_clips(self, name: str, value: Tensor) -> None:
        """Equal at the real clips of (V, T, …)."""
        mask = self.batch.videos.mask
        torch.testing.assert_close(value[mask], self.arrays[name][mask], atol=5e-5, rtol=1e-4)


CASES = cases("reloclnet", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@cache
def _opened(path: Path) -> Golden:
    told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["config"]
    with np.load(path) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in stored.files}
    model = new_model("reloclnet", config_of_case(told, arrays)).eval()
    names = released_names(model.config)
    model.load_state_dict({ours: arrays[f"param/{theirs}"] for ours, theirs in names.items()})
    return Golden(arrays, model, _batch(arrays))


def config_of_case(config: dict[str, Any], arrays: Mapping[str, Any]) -> Config:
    """Our settings for those of a case; fails where it tells what is not implemented."""
    told = Settings(config, RELEASED)
    assert told.get("conv_stride", 1) == 1, f"conv_stride {told['conv_stride']} is not implemented"
    made = Config(
        streams={name: arrays[f"in/{name}_feat"].shape[-1] for name in STREAMS},
        query_width=told["query_input_size"],
        hidden=told["hidden_size"],
        heads=told["n_heads"],
        max_clips=told["max_ctx_l"],
        max_tokens=told["max_desc_l"],
        span_kernel=told["conv_kernel_size"],
        margin=told["margin"],
        ranking=told["ranking_loss_type"],
        pool=told["hard_pool_size"],
        weight_negative_videos=told["lw_neg_ctx"],
        weight_negative_queries=told["lw_neg_q"],
        weight_spans=told["lw_st_ed"],
        weight_frame_contrast=told["lw_fcl"],
        weight_video_contrast=told["lw_vcl"],
        as_released=True,
    )
    told.refuse_unread(*UNUSED, *TOLD_BY_INPUTS)
    return made


def _batch(arrays: dict[str, Tensor]) -> Batch:
    size = len(arrays["in/simi"])
    assert torch.equal(arrays["in/video_mask"], arrays["in/sub_mask"])
    return Batch(
        QueryBatch(arrays["in/query_feat"], arrays["in/query_mask"].bool()),
        ClipBatch({name: arrays[f"in/{name}_feat"] for name in STREAMS}, arrays["in/video_mask"].bool()),
        torch.arange(size),
        arrays["in/st_ed_indices"],
        torch.eye(size, dtype=torch.bool),
        epoch=HARDEST,
    )


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no reloclnet folder")


def test_every_released_parameter_has_a_name_and_a_shape_here(case: Golden) -> None:
    released = {name.removeprefix("param/") for name in case.arrays if name.startswith("param/")}
    names = released_names(case.model.config)
    assert set(names.values()) == released
    assert set(names) == set(case.model.state_dict())


def test_queries_become_the_released_vectors(case: Golden) -> None:
    encoded = case.model.encode_queries(case.batch.queries)
    pooled = case.model._pooled(case.batch.queries)
    for number, name in enumerate(STREAMS):
        case.near(f"out_official/{name}_query", pooled.vectors[:, number])
        torch.testing.assert_close(
            encoded.parts[f"words/{name}"],
            case.arrays["out_official/modular_att"][:, :, number],
            atol=5e-5,
            rtol=1e-4,
        )


def test_clips_become_the_released_vectors(case: Golden) -> None:
    clips = case.model._clips(case.batch.videos)
    encoded = case.model.encode_videos(case.batch.videos)
    for number, name in enumerate(STREAMS):
        case.near_at_clips(f"out_official/{name}_feat_mid", clips.middle[number])
        case.near_at_clips(f"out_official/{name}_feat_final", clips.final[number])
        kept = encoded.keys[name] * encoded.parts[f"length/{name}"]
        case.near_at_clips(f"out_official/{name}_feat_final", kept)


@torch.no_grad()
def test_words_and_clips_are_as_released_after_each_encoder(case: Golden) -> None:
    model, batch = case.model, case.batch
    mask = batch.queries.mask
    words = model.query_places(model.query_input(batch.queries.tokens, mask), mask)
    for name, encoder in zip(("encoder", "encoder1"), model.query_encoders, strict=True):
        words = encoder(words, mask)
        stored = case.arrays[f"out_official/query_after_{name}"][mask]
        torch.testing.assert_close(words[mask], stored, atol=5e-5, rtol=1e-4)
    mask = batch.videos.mask
    for name, stream in zip(STREAMS, model.streams, strict=True):
        clips = model.clip_places(stream.input(batch.videos.streams[name], mask), mask)
        case.near_at_clips(f"out_official/{name}_feat_enc1", stream.first(clips, mask))


@torch.no_grad()
def test_similarities_of_queries_and_clips_are_as_released(case: Golden) -> None:
    queries, videos = case.model.encode_queries(case.batch.queries), case.model._clips(case.batch.videos)
    vectors = [queries.parts[f"span/{name}"] for name in STREAMS]
    clips = videos.final
    pairs = [pair_products(vector, final) for vector, final in zip(vectors, clips, strict=True)]
    case.near_at_clips("out_official/similarity_pair", torch.stack(pairs).mean(0))
    crossed = [torch.einsum("qd,vtd->qvt", one, rows) for one, rows in zip(vectors, clips, strict=True)]
    mask = case.batch.videos.mask.expand(len(case.batch), -1, -1)
    stored = case.arrays["out_official/similarity_cross"][mask]
    torch.testing.assert_close(torch.stack(crossed).mean(0)[mask], stored, atol=5e-5, rtol=1e-4)


def test_videos_score_as_released(case: Golden) -> None:
    queries = case.model.encode_queries(case.batch.queries)
    videos = case.model.encode_videos(case.batch.videos)
    case.near("out_official/q2ctx_scores", case.model.score_videos(queries, videos))
    for name in STREAMS:
        alone = replace(queries, search={name: queries.search[name]})
        case.near(f"out_official/{name}_q2ctx_cosine_max", case.model.score_videos(alone, videos))


def test_borders_score_as_released_in_the_own_video(case: Golden) -> None:
    queries = case.model.encode_queries(case.batch.queries)
    videos = case.model.encode_videos(case.batch.videos)
    logits = case.model.border_logits(queries, videos)
    scores = case.model.score_spans(queries, videos)
    for border, logit, score in zip(("st", "ed"), logits, (scores.start, scores.end), strict=True):
        case.near(f"out_official/{border}_logits_pair", logit, atol=2e-3)
        case.near(f"out_official/{border}_prob_pair", score.exp(), atol=2e-3)


def test_borders_score_as_released_in_all_videos(case: Golden) -> None:
    size = len(case.batch)
    every = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    queries = case.model.encode_queries(case.batch.queries).take(every[:, 0])
    videos = case.model.encode_videos(case.batch.videos).take(every[:, 1])
    logits = case.model.border_logits(queries, videos).view(2, size, size, -1)
    scores = case.model.score_spans(queries, videos)
    for border, logit, score in zip(("st", "ed"), logits, (scores.start, scores.end), strict=True):
        case.near(f"out_official/{border}_logits_cross", logit, atol=2e-3)
        case.near(f"out_official/{border}_prob_cross", score.exp().view(size, size, -1), atol=2e-3)


def test_scores_of_the_video_contrast_are_as_released(case: Golden) -> None:
    vectors = case.model._pooled(case.batch.queries).vectors.unbind(1)
    clips = case.model._clips(case.batch.videos)
    mask = case.batch.videos.mask
    found = [best_key(vector, middle, mask) for vector, middle in zip(vectors, clips.middle, strict=True)]
    for name, scores in zip(STREAMS, found, strict=True):
        case.near(f"out_official/vcl_{name}_scores", scores)
    case.near("out_official/vcl_scores", torch.stack(found).mean(0))


def test_labels_of_the_frame_contrast_are_as_released(case: Golden) -> None:
    labels = clip_labels(case.batch.spans, case.batch.videos.mask.shape[1])
    assert torch.equal(labels.long(), case.arrays["in/match_labels"])


def test_losses_of_each_sample_are_as_released(case: Golden) -> None:
    model, batch = case.model, case.batch
    pooled, clips = model._pooled(batch.queries), model._clips(batch.videos)
    vectors = pooled.vectors.unbind(1)
    for number, name in enumerate(STREAMS):
        alone = replace(clips, middle=clips.middle[number : number + 1])
        frames = model._frame_contrast(vectors[number : number + 1], alone, batch)
        case.near(f"out_tvrr/fcl_{name}_per_sample", frames, atol=0.0)
        case.near(f"out_official/loss_fcl_{name}_unweighted", frames.mean(), atol=0.0)
    contrast = model._video_contrast(vectors, clips, batch)
    case.near("out_tvrr/vcl_per_sample", contrast, atol=0.0)
    case.near("out_official/loss_vcl_unweighted", contrast.mean(), atol=0.0)
    borders = model._span_term(model._for_spans(pooled), clips, batch)
    both = case.arrays["out_tvrr/nll_st_per_sample"] + case.arrays["out_tvrr/nll_ed_per_sample"]
    torch.testing.assert_close(borders, both, atol=0.0, rtol=1e-4)
    unweighted = [case.arrays[f"out_official/nll_{border}_unweighted"] for border in ("st", "ed")]
    torch.testing.assert_close(borders.mean(), unweighted[0] + unweighted[1], atol=0.0, rtol=1e-4)


ORDER = ("spans", "frame_contrast", "video_contrast", "negative_videos", "negative_queries")


def test_the_loss_with_the_hardest_negatives_is_as_released(case: Golden) -> None:
    terms = case.model.loss(case.batch)
    found = torch.stack([terms[name] for name in ORDER])
    case.near("out_official/loss_terms_hardest", torch.cat([found, found.sum()[None]]), atol=0.0)


def test_the_ranked_loss_with_the_hardest_negatives_is_as_released(case: Golden) -> None:
    weighted = replace(case.batch, weight=case.arrays["in/simi"])
    terms = case.model.loss(weighted)
    config = case.model.config
    case.near(
        "out_tvrr/neg_ctx_unweighted", terms["negative_videos"] / config.weight_negative_videos, atol=0.0
    )
    case.near(
        "out_tvrr/neg_q_unweighted", terms["negative_queries"] / config.weight_negative_queries, atol=0.0
    )
    case.near("out_tvrr/loss_overall_hardest", torch.stack(list(terms.values())).sum(), atol=0.0)


def test_the_loss_with_drawn_negatives_is_as_released(case: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    config, batch = case.model.config, case.batch
    queries, videos = case.model.encode_queries(batch.queries), case.model.encode_videos(batch.videos)
    # The program puts the positive at rank 0; here it is no candidate.
    ranks = (case.arrays["rand/ranks_neg_ctx"] - 1, case.arrays["rand/ranks_neg_q"] - 1)
    cosines = case.model.score_videos(queries, videos)
    others = ~torch.eye(len(batch), dtype=torch.bool)
    for table, place, name in ((cosines, ranks[0], "video"), (cosines.T, ranks[1], "query")):
        chosen = table[torch.arange(len(batch)), case.arrays[f"rand/neg_{name}_index"]]
        torch.testing.assert_close(negatives_at(place, table, others).score, chosen)
    with monkeypatch.context() as patch:
        draw_these(patch, reloclnet, *ranks)
        drawn = [term.mean() for term in case.model.ranking_terms(cosines, batch)]
    drawn = [drawn[0] * config.weight_negative_videos, drawn[1] * config.weight_negative_queries]
    for weight, name in (
        (None, "rand/loss_terms_official"),
        (case.arrays["in/simi"], "rand/loss_overall_tvrr"),
    ):
        terms = case.model.loss(replace(batch, weight=weight))
        found = torch.stack([*(terms[one] for one in ORDER[:3]), *drawn])
        total = found.sum()
        case.near(name, total if weight is not None else torch.cat([found, total[None]]), atol=0.0)


@pytest.mark.parametrize("program", ["official", "tvrr"])
def test_gradients_are_as_released(case: Golden, program: str) -> None:
    weight = case.arrays["in/simi"] if program == "tvrr" else None
    ours = {theirs: name for name, theirs in released_names(case.model.config).items()}
    prefix = f"grad_{program}/"
    wanted = [name.removeprefix(prefix) for name in case.arrays if name.startswith(prefix)]
    assert wanted
    parameters = dict(case.model.named_parameters())
    loss = torch.stack(list(case.model.loss(replace(case.batch, weight=weight)).values())).sum()
    found = torch.autograd.grad(loss, [parameters[ours[name]] for name in wanted])
    for name, gradient in zip(wanted, found, strict=True):
        case.near(prefix + name, gradient, atol=1e-5, rtol=1e-3)


def test_without_padding_the_default_computes_what_is_released() -> None:
    """The corrections change nothing where there is nothing to correct, but for the pair counted twice."""
    full = [path for path in CASES if _opened(path).batch.videos.mask.all()]
    if not full:
        pytest.skip("this golden folder has no case without padding")
    for case in map(_opened, full):
        model = new_model("reloclnet", replace(case.model.config, as_released=False)).eval()
        model.load_state_dict(case.model.state_dict())
        ours, theirs = model.loss(case.batch), case.model.loss(case.batch)
        for name in ORDER:
            if name != "video_contrast":
                torch.testing.assert_close(ours[name], theirs[name], atol=1e-6, rtol=1e-5)
        assert ours["video_contrast"] < theirs["video_contrast"]
