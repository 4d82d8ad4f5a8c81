"""CroCs against what its released losses compute, and equations 1 to 3 of the paper worked out in float64.

Every case file of the golden folder's `crocs`. Cells stand in the row-major order of the case's mask.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import Settings, golden_folder
from torch import Tensor
from torch.nn.functional import normalize

from whenabouts_bench.relevance.pairs import ListedPairs, PairSettings, RelevantPairs
from whenabouts_systems.models.parts.cross_directional import draw_logits, golden_means
from whenabouts_systems.models.parts.moment_map import iou
from whenabouts_systems.models.parts.mutual_matching import (
    Keep,
    Rule,
    Truth,
    mutual_matching,
    positive_cells,
    scaled_bce,
)
from whenabouts_systems.released.crocs import drawn_sentences, filtered_matching, negative_cross_entropy
from whenabouts_systems.released.mmn import ReleasedRule
from whenabouts_systems.training.labels import joined_by, similar_captions

_SETTINGS = (
    *("margin", "tau", "topk", "min_iou", "max_iou", "ns", "Q", "pre_topk"),
    *("dataset", "N", "C", "counts", "V", "nv", "ns_q2v", "ns_v2q", "similar", "pairs"),
)
"""What is read; and what arrays tell as well."""


def cases(kind: str) -> list[Path]:
    found = (golden_folder() / "crocs").glob(f"{kind}*.npz")
    return sorted(path for path in found if not path.name.startswith("."))


def filtered_parts() -> list[tuple[Path, str]]:
    """Every case of the filter, with each of its tables of similar sentences."""
    found = []
    for path in cases("false_neg_loss"):
        with np.load(path) as file:
            names = sorted(name for name in file.files if name.endswith(".simcse_matrix"))
        assert names, path
        found += [(path, name.removesuffix(".simcse_matrix")) for name in names]
    return found


@dataclass(frozen=True)
class Case:
    """One case file: its arrays and settings."""

    path: Path

    @cached_property
    def arrays(self) -> Mapping[str, Any]:
        with np.load(self.path) as file:
            return {name: file[name] for name in file.files}

    @cached_property
    def config(self) -> Settings:
        told = Settings(json.loads(str(self.arrays["config"])))
        told.refuse_unread(*_SETTINGS)
        return told

    @property
    def rule(self) -> Rule:
        config = self.config
        return ReleasedRule(config["margin"], config["tau"], config["tau"], positives=config["topk"])

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(np.asarray(self.arrays[name]))

    def listed(self, name: str) -> Tensor:
        """The arrays `name`.0, `name`.1, ... as one."""
        count = sum(key.rpartition(".")[0] == name for key in self.arrays)
        return torch.cat([self.tensor(f"{name}.{at}") for at in range(count)])

    def maps(self, name: str) -> Tensor:
        """(V, D, N, N) as unit vectors (V, P, D)."""
        return normalize(self.tensor(name), dim=1)[:, :, self.tensor("mask2d")].transpose(1, 2)

    def cells(self, values: Tensor) -> Tensor:
        """(S, N, N) as (S, P)."""
        return values[:, self.tensor("mask2d")]

    def near(self, value: Tensor, name: str, *, atol: float = 1e-4, rtol: float = 1e-4) -> None:
        torch.testing.assert_close(value.detach().double(), self.tensor(name).double(), atol=atol, rtol=rtol)


def batch_truth(case: Case) -> Truth:
    """What is known of the sentences of a batch of videos."""
    counts = torch.tensor(case.config["ns"])
    moments = case.listed("in.moments")
    found = case.cells(case.listed("in.iou2d"))
    cells = torch.ones(len(counts), found.shape[1], dtype=torch.bool)
    of_video = torch.repeat_interleave(torch.arange(len(counts)), counts)
    overlaps(case, "", moments, found, of_video)
    return Truth(found, of_video, cells, iou(moments[:, None], moments[None]))


def overlaps(case: Case, side: str, moments: Tensor, found: Tensor, of_video: Tensor) -> None:
    """Stored overlaps (S, P) are those of the cells of a map with the moments (S, 2) of these videos."""
    first, last = case.tensor("mask2d").nonzero().T
    share = (case.tensor(f"{side}in.duration").float()[of_video] / len(case.tensor("mask2d")))[:, None]
    cells = torch.stack([first * share, (last + 1) * share], -1)
    torch.testing.assert_close(iou(moments[:, None], cells), found, atol=1e-5, rtol=1e-5)


# --- the first stage


@pytest.mark.parametrize(("path", "part"), filtered_parts(), ids=lambda one: getattr(one, "stem", one))
def test_the_released_filter_gives_the_losses_and_gradients_of_the_program(path: Path, part: str) -> None:
    case = Case(path)
    maps = case.tensor("in.feat2ds").requires_grad_()
    features = case.listed("in.sent_feats").requires_grad_()
    cells = normalize(maps, dim=1)[:, :, case.tensor("mask2d")].transpose(1, 2)
    filtered = case.tensor(f"{part}.simcse_matrix") > float(case.arrays["threshold"])
    assert torch.equal(filtered, case.tensor(f"{part}.filtered_mask"))
    of_moments, of_sentences = filtered_matching(
        normalize(features, dim=1), cells, batch_truth(case), case.rule, filtered
    )
    case.near(of_moments, f"{part}.loss_vid")
    case.near(of_sentences, f"{part}.loss_sent")
    (of_moments + of_sentences).backward()  # type: ignore[no-untyped-call]
    assert maps.grad is not None
    assert features.grad is not None
    case.near(maps.grad, f"{part}.grad_feat2ds")
    torch.testing.assert_close(features.grad, case.listed(f"{part}.grad_sent_feats"), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("path", cases("false_neg_loss"), ids=lambda path: path.stem)
def test_without_a_pair_to_filter_the_losses_are_those_of_mmn(path: Path) -> None:
    case = Case(path)
    sentences, cells = normalize(case.listed("in.sent_feats"), dim=1), case.maps("in.feat2ds")
    found = mutual_matching(sentences, cells, batch_truth(case), case.rule)
    for value, name in zip(found, ("plain_mmn.loss_vid", "plain_mmn.loss_sent"), strict=True):
        case.near(value, name)


@pytest.mark.parametrize("path", cases("false_neg_loss"), ids=lambda path: path.stem)
def test_the_cross_entropy_is_that_of_the_program(path: Path) -> None:
    case = Case(path)
    truth = batch_truth(case)
    scores = case.cells(case.tensor("bce.scores2d"))
    lowest, highest = case.config["min_iou"], case.config["max_iou"]
    plain = scaled_bce(torch.logit(scores), truth.iou, torch.ones_like(scores).bool(), lowest, highest)
    case.near(plain, "bce.plain_loss")


@pytest.mark.parametrize("path", cases("loss_modified"), ids=lambda path: path.stem)
def test_the_other_released_loss_leaves_sentences_out_of_the_moments_side_alone(path: Path) -> None:
    case = Case(path)
    kept = Keep(case.tensor("query_query_keep_mask").bool())
    assert torch.equal(beside_similar(case), case.tensor("query_query_keep_mask"))
    sentences, cells = normalize(case.listed("in.sent_feats"), dim=1), case.maps("in.feat2ds")
    of_moments, of_sentences = mutual_matching(sentences, cells, batch_truth(case), case.rule, kept)
    case.near(of_moments, "loss_vid")
    case.near(of_sentences, "loss_sent")
    plain = mutual_matching(sentences, cells, batch_truth(case), case.rule)
    for value, name in zip(plain, ("plain_mmn.loss_vid", "plain_mmn.loss_sent"), strict=True):
        if name in case.arrays:
            case.near(value, name)


def beside_similar(case: Case) -> Tensor:
    """(S, S) 0 for the pairs that the case tells, each sentence by its video and its place there."""
    starts = np.cumsum([0, *case.config["ns"]])
    video, place, other_video, other_place = case.arrays["similar_pairs_videopos_query_videopos_query"].T
    kept = torch.ones(starts[-1], starts[-1])
    kept[starts[video] + place, starts[other_video] + other_place] = 0
    return kept


# --- the second stage


@pytest.mark.parametrize("path", cases("hard_negative_loss"), ids=lambda path: path.stem)
def test_the_loss_of_drawn_videos_is_that_of_the_program(path: Path) -> None:
    case = Case(path)
    found = case.cells(case.tensor("q2v.in.iou2d_positive"))
    cells = case.maps("q2v.in.map2d_contrastive")
    sentences = normalize(case.listed("q2v.in.sent_contrastive"), dim=1)
    own = torch.zeros(len(sentences), dtype=torch.int64)
    moments = case.tensor("q2v.in.moments.0")
    overlaps(case, "q2v.", moments, found, own)
    truth = Truth(
        found, own, torch.ones(cells.shape[:2], dtype=torch.bool), iou(moments[:, None], moments[None])
    )
    _, of_sentences = mutual_matching(sentences, cells, truth, case.rule)
    case.near(of_sentences, "q2v.loss_contrast")
    logits = 10 * torch.einsum(
        "sd,vpd->svp", normalize(case.listed("q2v.in.sent_iou"), dim=1), case.maps("q2v.in.map2d_iou")
    )
    lowest, highest = case.config["min_iou"], case.config["max_iou"]
    case.near(scaled_bce(logits[:, 0], found, truth.cells[own], lowest, highest), "q2v.loss_iou_positive")
    pairs = torch.ones(logits.shape[:2], dtype=torch.bool)
    pairs[:, 0] = False
    case.near(negative_cross_entropy(logits, pairs, truth.cells), "q2v.loss_iou_negative")


@pytest.mark.parametrize("path", cases("hard_negative_loss"), ids=lambda path: path.stem)
def test_the_loss_of_drawn_sentences_is_that_of_the_program(path: Path) -> None:
    case = Case(path)
    if "v2q.loss_contrast" not in case.arrays:
        pytest.skip("the program stops at several positive sentences")
    found = case.cells(case.tensor("v2q.in.iou2d_positive"))
    cells = case.maps("v2q.in.map2d_contrastive")
    sentences = normalize(case.listed("v2q.in.sent_contrastive"), dim=1)
    own = torch.tensor([0])
    overlaps(case, "v2q.", case.tensor("v2q.in.moments.0"), found, own)
    truth = Truth(found, own, torch.ones_like(found).bool(), torch.ones(1, 1))
    chosen = positive_cells(truth, case.rule.positives).chosen
    matched = cells[0][chosen] @ sentences.T
    there = torch.ones(1, len(sentences), dtype=torch.bool)
    case.near(drawn_sentences(matched, there, case.rule).mean(), "v2q.loss_contrast")
    paper, _ = mutual_matching(sentences, cells, truth, case.rule)
    case.near(paper, "v2q.loss_contrast_row0_only")
    logits = 10 * torch.einsum(
        "sd,vpd->svp", normalize(case.listed("v2q.in.sent_iou"), dim=1), case.maps("v2q.in.map2d_iou")
    )
    lowest, highest = case.config["min_iou"], case.config["max_iou"]
    case.near(scaled_bce(logits[:1, 0], found, truth.cells, lowest, highest), "v2q.loss_iou_positive")
    pairs = torch.ones(logits.shape[:2], dtype=torch.bool)
    pairs[0] = False
    case.near(negative_cross_entropy(logits, pairs, truth.cells), "v2q.loss_iou_negative")


def test_a_row_that_is_not_there_adds_nothing_to_the_loss_of_drawn_sentences() -> None:
    rule = Rule(0.4)
    matched = torch.rand(2, 1, 4, generator=torch.Generator().manual_seed(0))
    there = torch.tensor([[True, True, True, True], [True, True, False, False]])
    found = drawn_sentences(matched, there, rule)
    alone = drawn_sentences(matched[1:, :, :2], there[1:, :2], rule)
    torch.testing.assert_close(found[1], alone[0])
    assert not torch.allclose(found[0], drawn_sentences(matched[:1, :, :2], there[1:, :2], rule)[0])


# --- equations 1 to 3


def _pairs(case: Case) -> RelevantPairs:
    """The relevant pairs of queries that are similar enough, every query with a caption of its own."""
    similarity = case.arrays["query_query_sim"]
    count = len(similarity)
    row, column = np.nonzero(np.triu(similarity >= float(case.arrays["threshold"]), 1))
    starts = np.searchsorted(row, np.arange(count + 1))
    kept = ListedPairs(starts, column.astype(np.int32), similarity[row, column].astype(np.float16))
    captions = tuple(f"caption {row}" for row in range(count))
    return RelevantPairs(
        tuple(f"q{row}" for row in range(count)),
        np.arange(count, dtype=np.int32),
        captions,
        PairSettings("sent", float(case.arrays["threshold"]), "golden", "golden"),
        kept,
    )


def probabilities(scores: Tensor, means: Tensor, candidates: Tensor, **how: Any) -> Tensor:
    """Of a draw: 0 in rows without a candidate."""
    return draw_logits(scores, means, candidates, **how).softmax(1).nan_to_num(0.0)


@pytest.mark.parametrize("path", cases("sampling_probabilities"), ids=lambda path: path.stem)
def test_what_is_similar_is_what_equation_1_leaves_out(path: Path) -> None:
    case = Case(path)
    own = np.arange(case.config["Q"]), np.asarray(case.arrays["video_of_query"], np.int64)
    candidates = np.ones(case.arrays["s_te"].shape, bool)
    candidates[own] = False
    candidates[joined_by(similar_captions(_pairs(case)), own)] = False
    np.testing.assert_array_equal(candidates, case.arrays["negative_candidate_mask_eq1"])
    assert 0 < candidates.sum() < candidates.size


@pytest.mark.parametrize("over", ["own", "global"])
@pytest.mark.parametrize("path", cases("sampling_probabilities"), ids=lambda path: path.stem)
def test_probabilities_are_those_of_equations_2_and_3(path: Path, over: Any) -> None:
    case = Case(path)
    scores, candidates = case.tensor("r_query_video"), case.tensor("negative_candidate_mask_eq1")
    query, video = case.tensor("golden_mask").nonzero().T
    true = scores[query, video]
    of_queries = golden_means(true, query, len(scores), over)
    of_videos = golden_means(true, video, scores.shape[1], over)
    if over == "own":
        case.near(of_queries, "rbar_per_query", atol=1e-12)
        case.near(of_videos, "rbar_per_video", atol=1e-12)
    else:
        case.near(of_queries[0], "rbar_global", atol=1e-12)
    told = {"own": ("rbar_per_query", "rbar_per_video"), "global": ("rbar_global", "rbar_global")}[over]
    found = probabilities(scores, of_queries, candidates)
    case.near(found, f"p_video_given_query.paper.{told[0]}", atol=1e-12)
    found = probabilities(scores.T, of_videos, candidates.T).T
    case.near(found, f"p_query_given_video.paper.{told[1]}", atol=1e-12)


@pytest.mark.parametrize("path", cases("sampling_probabilities"), ids=lambda path: path.stem)
def test_the_unread_settings_divide_the_square_or_keep_the_highest(path: Path) -> None:
    case = Case(path)
    scores, candidates = case.tensor("r_query_video"), case.tensor("negative_candidate_mask_eq1")
    of_queries, of_videos = case.tensor("rbar_per_query"), case.tensor("rbar_per_video")
    divided = [re.search(r"\.variant_over_tau([\d.]+)\.rbar_per_query$", name) for name in case.arrays]
    temperatures = [one[1] for one in divided if one]
    assert temperatures
    for tau in temperatures:
        found = probabilities(scores, of_queries, candidates, temperature=float(tau))
        case.near(found, f"p_video_given_query.variant_over_tau{tau}.rbar_per_query", atol=1e-12)
        found = probabilities(scores.T, of_videos, candidates.T, temperature=float(tau)).T
        case.near(found, f"p_query_given_video.variant_over_tau{tau}.rbar_per_video", atol=1e-12)
    found = probabilities(scores, of_queries, candidates, highest=int(case.arrays["pre_topk"]))
    case.near(found, "p_video_given_query.variant_pre_topk.rbar_per_query", atol=1e-12)
    assert torch.equal(found > 0, case.tensor("pre_topk_mask"))
