"""Contrast, triplets and diversity of partially relevant videos, each against a plain computation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from whenabouts_systems.models.parts.partial_relevance import (
    contrast,
    query_diversity,
    square_contrast,
    square_triplets,
    triplets,
)

OWN = [0, 1, 1, 2]
HARDEST = (1, 1)
MARGIN = 0.2


def _scores(rows: int = 4, columns: int = 5) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))


def _known() -> Tensor:
    """Query 0 is also answered by video 1; video 3 and 4 are nobody's."""
    known = torch.zeros(4, 5, dtype=torch.bool)
    known[range(4), OWN] = True
    known[0, 1] = True
    return known


def _log_sum(values: list[float]) -> float:
    return math.log(sum(map(math.exp, values)))


def test_contrast_compares_own_pairs_with_negatives_of_query_and_of_video() -> None:
    scores, known = _scores(), _known()
    told = scores.tolist()
    of_queries = [
        _log_sum([told[q][v] for v in range(5) if v == OWN[q] or not known[q, v]]) - told[q][OWN[q]]
        for q in range(4)
    ]
    of_videos = [
        _log_sum([told[q][v] for q in range(4)]) - _log_sum([told[q][v] for q in range(4) if known[q, v]])
        for v in range(3)
    ]
    expected = sum(of_queries) / 4 + sum(of_videos) / 3
    assert math.isclose(contrast(scores, torch.tensor(OWN), known).item(), expected, rel_tol=1e-5)


def test_triplets_take_the_hardest_that_is_no_known_answer() -> None:
    scores, known = _scores(), _known()
    told = scores.tolist()
    of_queries = [
        max(0.0, MARGIN + max(told[q][v] for v in range(5) if not known[q, v]) - told[q][OWN[q]])
        for q in range(4)
    ]
    of_videos = []
    for v in range(3):
        own = [told[q][v] for q in range(4) if OWN[q] == v]
        hardest = max(told[q][v] for q in range(4) if not known[q, v])
        of_videos.append(max(0.0, MARGIN + hardest - sum(own) / len(own)))
    expected = sum(of_queries) / 4 + sum(of_videos) / 3
    found = triplets(scores, torch.tensor(OWN), known, MARGIN, HARDEST)
    assert math.isclose(found.item(), expected, rel_tol=1e-5)


def test_a_known_answer_has_no_part_as_a_negative() -> None:
    """However high query 0 scores with video 1, which is known to answer it."""
    scores, own = _scores(), torch.tensor(OWN)
    higher = scores.clone()
    higher[0, 1] = 50
    one, other = (triplets(some, own, _known(), MARGIN, HARDEST) for some in (scores, higher))
    assert one == other
    assert triplets(higher, own, torch.zeros_like(_known()), MARGIN, HARDEST) > one + 1


def _square() -> tuple[Tensor, Tensor]:
    """Queries 1 and 2 are of one video."""
    own = torch.tensor(OWN)
    return _scores(4, 4), own[:, None] == own


def test_square_contrast_leaves_out_queries_of_the_same_video() -> None:
    scores, known = _square()
    told = scores.tolist()
    expected = []
    for i in range(4):
        others = [j for j in range(4) if not known[i, j]]
        row, column = [told[i][j] for j in others], [told[j][i] for j in others]
        expected.append(_log_sum([told[i][i], *row, *column]) - told[i][i])
    assert math.isclose(square_contrast(scores, known).item(), sum(expected) / 4, rel_tol=1e-5)


def test_square_contrast_as_released_counts_the_own_pair_twice() -> None:
    scores, itself = _scores(4, 4), torch.eye(4, dtype=torch.bool)
    told = scores.tolist()
    expected = [_log_sum([*told[i], *(told[j][i] for j in range(4))]) - told[i][i] for i in range(4)]
    found = square_contrast(scores, itself, count_own_twice=True)
    assert math.isclose(found.item(), sum(expected) / 4, rel_tol=1e-5)


def test_square_triplets_take_the_hardest_of_row_and_of_column() -> None:
    scores, known = _square()
    told = scores.tolist()
    expected = 0.0
    for i in range(4):
        others = [j for j in range(4) if not known[i, j]]
        for hardest in (max(told[i][j] for j in others), max(told[j][i] for j in others)):
            expected += max(0.0, MARGIN + hardest - told[i][i]) / 4
    assert math.isclose(square_triplets(scores, known, MARGIN, 1).item(), expected, rel_tol=1e-5)


def test_diversity_grows_where_queries_of_a_video_are_alike_and_others_have_no_part() -> None:
    vectors = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    cosine = torch.nn.functional.cosine_similarity(vectors[1], vectors[2], dim=0).item()
    expected = 2 * math.log(1 + math.exp(3 * (cosine + 0.1))) / 4
    found = query_diversity(vectors, torch.tensor(OWN), 0.1, 3.0)
    assert math.isclose(found.item(), expected, rel_tol=1e-5)
    assert query_diversity(vectors, torch.arange(4), 0.1, 3.0) == 0


def test_terms_and_gradients_are_finite_where_there_is_no_negative() -> None:
    scores = _scores(1, 1).requires_grad_()
    every, own = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, dtype=torch.int64)
    total = (
        contrast(scores, own, every)
        + triplets(scores, own, every, MARGIN, (None, None))
        + square_contrast(scores, every)
        + square_triplets(scores, every, MARGIN, None)
        + query_diversity(scores, own, MARGIN, 32.0)
    )
    (gradient,) = torch.autograd.grad(total, scores)
    assert total.item() == 0
    assert gradient.isfinite().all()
