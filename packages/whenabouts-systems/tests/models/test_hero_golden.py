"""HERO's head as released, against what the authors' program computes: every case file of the golden folder.

The head is given the frames and words that the case has stored; what its encoders make of the raw ones is
compared by itself. Tolerances are those of the folder's README (1e-4 on logits, 1e-5 of a loss).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_folder import arrays_of, cases, golden_folder, only_gelu, told_inside
from tests.models.hero_cases import RELEASED, sentence_batch, sequences_alone, sizes
from tests.ranked_rows import assert_same_ranking
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.decoding import Decoding, best_over_videos, span_mask
from whenabouts_systems.models.hero import Config, Model, released_names
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SpanScores

PADDING = 1
"""The id behind the end of words, in all of the program's files."""
HEAD = ("video_query_linear.", "video_st_predictor.", "video_ed_predictor.", "q_feat_attn.")


@dataclass(frozen=True)
class Golden:
    """One case: what is told of it, arrays by name, the model with the case's weights, its batch."""

    path: Path
    told: dict[str, Any]
    arrays: dict[str, Tensor]
    model: Model
    batch: Batch

    def near(self, name: str, value: Tensor, *, atol: float = 1e-4, rtol: float = 1e-5) -> None:
        torch.testing.assert_close(value.detach(), self.arrays[name], atol=atol, rtol=rtol)

    @property
    def whole(self) -> Model:
        """The head with the encoders before it."""
        return _whole(self.path)

    def logits(self, queries: list[int], videos: list[int]) -> Tensor:
        """(2, P, T) of pairs; the program's -1e4 in the padding."""
        asked = self.model.encode_queries(self.batch.queries).take(torch.tensor(queries))
        shown = self.model.encode_videos(self.batch.videos).take(torch.tensor(videos))
        return self.model.border_logits(asked, shown).clamp(min=-1e4)


CASES = cases("hero", "*.npz")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return _opened(request.param)


@cache
def _opened(path: Path) -> Golden:
    told, arrays = {**RELEASED, **told_inside(path)}, arrays_of(path)
    width = arrays["head.frame_embeddings"].shape[-1]
    only_gelu(told["config"]["q_config"], epsilon=1e-12)
    config = Config(
        streams={"frames": width},
        query_width=width,
        hidden=width,
        heads=told["config"]["q_config"]["num_attention_heads"],
        max_tokens=told["config"]["q_config"]["max_position_embeddings"],
        span_kernel=told["conv_kernel_size"],
        margin=told["margin"],
        weight_negative_videos=told["lw_neg_ctx"],
        weight_negative_queries=told["lw_neg_q"],
        lambda_tl=told["lw_st_ed"],
        alpha=told["q2c_alpha"],
        as_released=True,
    )
    model = Model(config).eval()
    model.load_state_dict({ours: arrays[f"sd.{name}"] for ours, name in released_names(config).items()})
    return Golden(path, told, arrays, model, _batch(arrays))


def _batch(arrays: dict[str, Tensor]) -> Batch:
    frames, own = arrays["head.frame_embeddings"], arrays["in.q_vidx"]
    return Batch(
        QueryBatch(arrays["head.query_token_features"], arrays["in.query_attn_masks"].bool()),
        ClipBatch({"frames": frames}, arrays["in.c_attn_masks"].bool()),
        own,
        arrays["in.targets"],
        functional.one_hot(own, len(frames)).bool(),
    )


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no hero folder")


def test_every_released_parameter_of_the_head_has_a_name_here(case: Golden) -> None:
    released = {name.removeprefix("sd.") for name in case.arrays if name.startswith("sd.")}
    names = released_names(case.model.config)
    assert set(names.values()) == {name for name in released if name.startswith(HEAD)}
    assert set(names) == set(case.model.state_dict())


@cache
def _whole(path: Path) -> Model:
    told, arrays = {**RELEASED, **told_inside(path)}, arrays_of(path)
    model = Model(Config(**sizes(told, arrays, "in"), as_released=True)).eval()
    names = released_names(model.config)
    model.load_state_dict({ours: arrays[f"sd.{name}"] for ours, name in names.items()})
    return model


@torch.no_grad()
def test_sentences_with_their_frames_become_the_released_vectors(case: Golden) -> None:
    whole, (videos, rows, mask) = case.whole, sequences_alone(case.arrays, "in", PADDING)
    assert whole.encoder is not None
    found = whole.encoder.cross_modal(videos.streams["frames"], whole.sequences(videos))
    expected = case.arrays["out.frame_sequence_output"][rows][mask]
    torch.testing.assert_close(found[mask[:, : found.shape[1]]], expected, atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_videos_become_the_released_frames(case: Golden) -> None:
    """But those with a frame in two sentences, which the program's own data classes never make."""
    told, mask = case.told, case.arrays["in.c_attn_masks"].bool()
    words = list(torch.split(case.arrays["in.f_sub_input_ids"][:, 1:], told["num_subs"]))
    frames = [[frame for _, own in of_video for frame in own] for of_video in told["sub_idx2frame_idx"]]
    clear = torch.tensor([len(own) == len(set(own)) for own in frames])
    if not clear.any():
        pytest.skip("each video of this case has a frame in two sentences")
    sentences = sentence_batch(words, told["sub_idx2frame_idx"], mask, PADDING)
    shown = ClipBatch({"frames": case.arrays["in.c_v_feats"]}, mask, sentences=sentences)
    found = case.whole.encode_videos(shown).parts["frames"]
    case_frames = case.arrays["head.frame_embeddings"]
    torch.testing.assert_close(found[clear], case_frames[clear], atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_words_become_the_released_tokens(case: Golden) -> None:
    ids, mask = case.arrays["in.query_input_ids"], case.arrays["in.query_attn_masks"].bool()
    words, read = case.whole._words(QueryBatch(ids[:, 1:], mask[:, 1:]))
    assert torch.equal(read, mask)
    expected = case.arrays["head.query_token_features"]
    torch.testing.assert_close(words[mask], expected[mask], atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_words_become_the_released_vectors(case: Golden) -> None:
    encoded = case.model.encode_queries(case.batch.queries)
    case.near("head.query_pool_attention", encoded.parts["words"][..., None], atol=1e-5)
    case.near("head.video_query_linear", encoded.parts["span"])
    vector = case.arrays["head.modularized_query"]
    expected = vector / vector.norm(dim=1, keepdim=True)
    torch.testing.assert_close(encoded.search["frames"], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_videos_get_the_released_cosines(case: Golden) -> None:
    model, batch = case.model, case.batch
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    case.near("head.video_scores", scores, atol=1e-5)


@torch.no_grad()
def test_pairs_get_the_released_logits(case: Golden) -> None:
    queries, videos = len(case.batch), len(case.batch.videos)
    own = case.logits(list(range(queries)), case.batch.video_of.tolist())
    every = case.logits(
        [query for query in range(queries) for _ in range(videos)], list(range(videos)) * queries
    )
    for at, border in enumerate(("start", "end")):
        case.near(f"head.pair.{border}_logits", own[at])
        case.near(f"head.cross.{border}_logits", every[at].view(queries, videos, -1))


@torch.no_grad()
def test_moments_of_the_corpus_are_the_released_ones(case: Golden) -> None:
    """Span + 20 * cosine is the logarithm of the released score, in the released order."""
    model, told = case.model, case.told
    queries, videos = model.encode_queries(case.batch.queries), model.encode_videos(case.batch.videos)
    stored_rows = case.arrays["infer.video_index"]
    best, rows = model.score_videos(queries, videos).topk(stored_rows.shape[1])
    assert torch.equal(rows, stored_rows)
    torch.testing.assert_close(
        (model.video_weight * best).exp(), case.arrays["infer.video_weight"], atol=0.0, rtol=1e-4
    )
    asked = torch.arange(len(queries)).repeat_interleave(rows.shape[1])
    spans = model.score_spans(queries.take(asked), videos.take(rows.flatten()))
    start, end, mask = (one.view(*rows.shape, -1) for one in (spans.start, spans.end, spans.mask))
    decoding = Decoding(min_clips=told["min_pred_l"], max_clips=told["max_pred_l"], ends="as-released")
    allowed = span_mask(start.shape[-1], decoding)
    assert torch.equal(allowed, case.arrays["infer.length_mask"].bool())
    spoken = start[..., :, None] + end[..., None, :] + (model.video_weight * best)[..., None, None]
    case.near("infer.score_map", (spoken.exp() * allowed).where(mask[..., None], 0.0), rtol=5e-4)
    (stored,) = (one for name, one in case.arrays.items() if re.fullmatch(r"infer\.top\d+", name))
    clip, count = told["frame_interval"], stored.shape[1]
    found = best_over_videos(SpanScores(start, end, mask), model.video_weight * best, decoding, count)
    times = (found.first * clip, (found.last + 1) * clip)
    mine = torch.stack([rows.gather(1, found.place), *times, found.score.exp()], 2)
    for ours, theirs in zip(mine.tolist(), stored.tolist(), strict=True):
        assert_same_ranking(ours, [row for row in theirs if row[3] > 0], rtol=5e-4)


@pytest.mark.parametrize("hard", [False, True], ids=["all alike", "hard ones more"])
def test_losses_and_gradients_are_the_released_ones(case: Golden, hard: bool) -> None:
    model, told = case.model, case.told
    stored = "loss.train_hard_weighted" if hard else "loss.train_all_neg"
    pool = told["hard_pool_size"] if hard else None
    config = replace(model.config, pool=pool, hard_weight=told["hard_neg_weight"])
    other = Model(config).eval()
    other.load_state_dict(model.state_dict())
    losses = other.loss(case.batch)
    for ours, theirs in (("spans", "st_ed"), ("negative_videos", "neg_ctx"), ("negative_queries", "neg_q")):
        case.near(f"{stored}.{theirs}", losses[ours], atol=0.0)
    torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
    lengths = told["grad_l2." + stored.removeprefix("loss.")]
    for ours, parameter in other.named_parameters():
        name = released_names(config)[ours]
        assert parameter.grad is not None, name
        assert parameter.grad.norm().item() == pytest.approx(lengths[name], rel=1e-3, abs=1e-5), name


@torch.no_grad()
def test_losses_of_single_queries_are_the_released_ones(case: Golden) -> None:
    """In evaluation the program keeps one value a query, and the sum of the spans'."""
    model, batch, told = case.model, case.batch, case.told
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(batch.videos))
    lacking = model.ranking_losses(batch, scores)
    case.near("loss.eval_sum.neg_ctx", told["lw_neg_ctx"] * lacking["negative_videos"], atol=1e-5)
    case.near("loss.eval_sum.neg_q", told["lw_neg_q"] * lacking["negative_queries"], atol=1e-5)
    case.near("loss.eval_sum.st_ed", len(batch) * model.loss(batch)["spans"], atol=0.0)
