"""G2L's losses, each against its sum written out, with distances taken from the graph."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.g2l import (
    game_players,
    geodesic_distances,
    guided_positives,
    interaction_loss,
    nearest_neighbours,
    relative,
    shapley_interactions,
)
from whenabouts_systems.models.parts.mutual_matching import Keep, Positives, Rule, Truth, mutual_matching

VIDEOS, CELLS, WIDTH = 3, 10, 6
REAL = [10, 7, 4]
VIDEO_OF = [0, 0, 1, 2, 0]
RULE = Rule(margin=0.2, moment_temperature=0.3, sentence_temperature=0.2, positives=2)
NEIGHBOURS, PLAYERS = 2, 4
LEAST = 1e-4
Taken = Set[tuple[int, int]]
"""Pairs of a sentence and a video that are no negatives."""


def _unit(*shape: int, seed: int) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(made, dim=-1)


def _truth() -> Truth:
    generator = torch.Generator().manual_seed(5)
    there = torch.arange(CELLS) < torch.tensor(REAL)[:, None]
    iou = torch.rand(len(VIDEO_OF), CELLS, generator=generator) * there[VIDEO_OF]
    overlap = torch.rand(len(VIDEO_OF), len(VIDEO_OF), generator=generator)
    return Truth(iou, torch.tensor(VIDEO_OF), there, (overlap + overlap.T) / 2)


CONTENT = _unit(VIDEOS, CELLS, WIDTH, seed=1)
SENTENCES = _unit(len(VIDEO_OF) + 2, WIDTH, seed=2)  # the last two are negatives only


def _near(truth: Truth, rule: Rule = RULE) -> Positives:
    return guided_positives(CONTENT, truth, rule.positives, NEIGHBOURS)


def _share(video: int, cell: int) -> list[float]:
    """How far the cells of a video lie from one of them."""
    there = _truth().cells
    graph = nearest_neighbours(CONTENT, there, NEIGHBOURS)
    distances = geodesic_distances(graph, torch.tensor([video]), torch.tensor([cell]))
    return [float(one) for one in relative(distances)[0]]


def _positives(truth: Truth, sentence: int, count: int = 2) -> list[int]:
    real = range(REAL[VIDEO_OF[sentence]])
    return sorted(real, key=lambda cell: -truth.iou[sentence, cell].item())[:count]


def _cosine(sentence: int, video: int, cell: int) -> float:
    return float(SENTENCES[sentence] @ CONTENT[video, cell])


def _of_moment(truth: Truth, sentence: int, cell: int, taken: Taken = frozenset()) -> float:
    """A moment looks for its sentence: those of the same video count by the distance of their moments."""
    video, share = VIDEO_OF[sentence], _share(VIDEO_OF[sentence], cell)
    own = math.exp((_cosine(sentence, video, cell) - RULE.margin) / RULE.moment_temperature)
    total = own
    for other in range(len(SENTENCES)):
        weight = 1.0
        if other == sentence or (other, video) in taken:
            continue
        if other < len(VIDEO_OF) and VIDEO_OF[other] == video:
            if truth.overlap[sentence, other] >= RULE.same_iou:
                continue
            weight = max(share[_positives(truth, other)[0]], LEAST)
        total += weight * math.exp(_cosine(other, video, cell) / RULE.moment_temperature)
    return -math.log(own / total)


def _of_sentence(truth: Truth, sentence: int, cell: int, taken: Taken = frozenset()) -> float:
    """A sentence looks for its moment: cells of the same video count by their distance from it."""
    video, share = VIDEO_OF[sentence], _share(VIDEO_OF[sentence], cell)
    own = math.exp((_cosine(sentence, video, cell) - RULE.margin) / RULE.sentence_temperature)
    total = own
    for place in range(VIDEOS):
        for other in range(REAL[place]):
            weight = 1.0
            if (sentence, place) in taken:
                continue
            if place == video:
                if truth.iou[sentence, other] >= RULE.negative_iou or other in _positives(truth, sentence):
                    continue
                weight = max(share[other], LEAST)
            total += weight * math.exp(_cosine(sentence, place, other) / RULE.sentence_temperature)
    return -math.log(own / total)


def test_guided_contrast_is_the_weighted_sum_both_ways() -> None:
    truth = _truth()
    found = mutual_matching(SENTENCES, CONTENT, truth, RULE, Keep(), _near(truth))
    pairs = [(one, cell) for one in range(len(VIDEO_OF)) for cell in _positives(truth, one)]
    for which, loss in enumerate((_of_moment, _of_sentence)):
        expected = sum(loss(truth, *pair) for pair in pairs) / len(pairs)
        assert found[which].item() == pytest.approx(expected, rel=1e-4)


def test_a_near_moment_of_the_same_video_is_pushed_away_less_than_a_far_one() -> None:
    truth = replace(_truth(), iou=_truth().iou * 0.4)  # no cell but the best is near a positive
    near = _near(truth, replace(RULE, positives=1))
    sentences = SENTENCES.clone().requires_grad_()
    cells = CONTENT.expand(2, -1, -1, -1)[0].clone()
    cells[0, :] = cells[0, near.chosen[0, 0]]  # all alike: only the distance tells them apart
    cells.requires_grad_()
    rule = replace(RULE, positives=1)
    _, loss = mutual_matching(sentences[:1], cells, _first(truth), rule, Keep(), _first_near(near))
    (gradient,) = torch.autograd.grad(loss, cells)
    assert near.share is not None
    share = near.share[0, 0]
    others = [at for at in range(CELLS) if at != near.chosen[0, 0]]
    pushed = gradient[0, others].norm(dim=1)
    torch.testing.assert_close(pushed / share[others], (pushed / share[others])[:1].expand(len(others)))
    assert share[others].min() < 0.9 * share[others].max()


def _first(truth: Truth) -> Truth:
    """Of the first sentence alone."""
    return Truth(truth.iou[:1], truth.video_of[:1], truth.cells, truth.overlap[:1, :1])


def _first_near(near: Positives) -> Positives:
    assert near.share is not None
    return Positives(near.real[:1], near.chosen[:1], near.share[:1])


def test_pairs_that_are_taken_out_are_no_negatives() -> None:
    """The first sentence and one that is a negative only may be answered in the second video, too."""
    truth, taken = _truth(), {(0, 1), (5, 1)}
    pairs = torch.ones(len(SENTENCES), VIDEOS, dtype=torch.bool)
    for pair in taken:
        pairs[pair] = False
    keep = Keep.of_pairs(pairs, truth.video_of)
    found = mutual_matching(SENTENCES, CONTENT, truth, RULE, keep, _near(truth))
    positives = [(one, cell) for one in range(len(VIDEO_OF)) for cell in _positives(truth, one)]
    for which, loss in enumerate((_of_moment, _of_sentence)):
        expected = sum(loss(truth, *pair, taken) for pair in positives) / len(positives)
        assert found[which].item() == pytest.approx(expected, rel=1e-4)
        assert expected < sum(loss(truth, *pair) for pair in positives) / len(positives)


def test_the_players_are_the_positive_and_the_nearest_negatives_of_its_video() -> None:
    truth = _truth()
    players, there = game_players(truth, _near(truth), RULE, PLAYERS)
    for sentence, video in enumerate(VIDEO_OF):
        for place, cell in enumerate(_positives(truth, sentence)):
            far = [at for at in range(REAL[video]) if truth.iou[sentence, at] < RULE.negative_iou]
            negatives = [at for at in far if at not in _positives(truth, sentence)]
            share = _share(video, cell)
            expected = sorted(negatives, key=lambda at, share=share: (share[at], at))[: PLAYERS - 1]  # type: ignore[misc]
            found = players[sentence, place][there[sentence, place]].tolist()
            assert found[0] == cell
            assert sorted(share[at] for at in found[1:]) == pytest.approx([share[at] for at in expected])
            assert set(found[1:]) <= set(negatives)


def test_the_interaction_loss_is_the_cross_entropy_of_the_games() -> None:
    truth = _truth()
    near = _near(truth)
    players, there = game_players(truth, near, RULE, PLAYERS)
    losses = []
    for sentence, video in enumerate(VIDEO_OF):
        for place in range(2):
            real = there[sentence, place]
            moments = CONTENT[video, players[sentence, place][real]][None]
            query = SENTENCES[sentence][None]
            found = shapley_interactions(query, moments, torch.ones(1, int(real.sum()), dtype=torch.bool))[0]
            shares = [math.exp(one / RULE.sentence_temperature) for one in found.tolist()]
            losses.append(-math.log(shares[0] / sum(shares)))
    found = interaction_loss(SENTENCES, CONTENT, truth, near, RULE, PLAYERS)
    assert found.item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_a_true_moment_that_matches_its_sentence_better_has_a_lower_interaction_loss() -> None:
    truth = _truth()
    near = _near(truth)
    matched = SENTENCES.clone()
    matched[: len(VIDEO_OF)] = CONTENT[truth.video_of, near.chosen[:, 0]]
    rule = replace(RULE, positives=1)
    near = _near(truth, rule)
    plain = interaction_loss(SENTENCES, CONTENT, truth, near, rule, PLAYERS)
    assert interaction_loss(matched, CONTENT, truth, near, rule, PLAYERS) < plain


def test_a_video_of_one_cell_has_a_game_of_one_and_no_loss() -> None:
    truth = Truth(torch.ones(1, 1), torch.tensor([0]), torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1))
    cells, sentences = CONTENT[:1, :1].clone().requires_grad_(), SENTENCES[:1]
    near = guided_positives(cells, truth, RULE.positives, NEIGHBOURS)
    loss = interaction_loss(sentences, cells, truth, near, RULE, PLAYERS)
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    both = mutual_matching(sentences, cells, truth, RULE, Keep(), near)
    (gradient,) = torch.autograd.grad(loss + sum(both), cells)
    assert gradient.isfinite().all()


def test_a_sentence_with_fewer_cells_than_positives_counts_only_those_there_are() -> None:
    truth = _truth()
    rule = replace(RULE, positives=6)
    near = _near(truth, rule)
    assert near.real.sum(1).tolist() == [6, 6, 6, 4, 6]
    assert near.mean(near.real.float()).item() == 1.0
    assert all(one.isfinite() for one in mutual_matching(SENTENCES, CONTENT, truth, rule, Keep(), near))
