"""CandidateVideos of a query, and borders told from all their clips, against plain loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts_systems.models.parts.shared_norm import CandidateVideos, candidates_of, shared_entropies
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch

CLIPS = [4, 7, 2, 5]


def _batch(**more: Any) -> Batch:
    own = torch.tensor([2, 0, 1])
    positives = torch.nn.functional.one_hot(own, 4).bool()
    return Batch(
        QueryBatch(torch.zeros(3, 1, 2), torch.ones(3, 1, dtype=torch.bool)),
        ClipBatch({}, torch.arange(7) < torch.tensor(CLIPS)[:, None]),
        own,
        torch.tensor([[0, 1], [1, 3], [2, 6]]),
        **{"positives": positives, **more},
    )


def _listed(found: CandidateVideos) -> list[list[int]]:
    return [row[there].tolist() for row, there in zip(found.rows, found.exists, strict=True)]


def test_candidates_are_the_own_video_and_the_chosen_ones() -> None:
    chosen = torch.tensor([[0, 3], [1, -1], [-1, -1]])
    assert _listed(candidates_of(_batch(negatives=chosen))) == [[2, 0, 3], [0, 1], [1]]


def test_without_negatives_there_is_the_own_video_alone() -> None:
    assert _listed(candidates_of(_batch())) == [[2], [0], [1]]


def test_a_chosen_video_that_answers_too_is_left_out() -> None:
    positives = torch.tensor([[0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.bool)
    found = candidates_of(_batch(negatives=torch.tensor([[0, 3], [1, 0], [2, 3]]), positives=positives))
    assert _listed(found) == [[2, 0], [0, 1], [1, 2, 3]]


def _random_logits(batch: Batch, found: CandidateVideos) -> Tensor:
    query, place = found.pairs()
    mask = batch.videos.mask[found.rows[query, place]]
    logits = torch.randn(2, *mask.shape, generator=torch.Generator().manual_seed(2))
    return logits.masked_fill(~mask, -1e10)


@pytest.mark.parametrize("own_only", [False, True])
def test_entropies_are_those_of_a_softmax_over_the_clips_of_all_candidates(own_only: bool) -> None:
    batch = _batch(negatives=torch.tensor([[0, 3], [1, -1], [-1, 2]]))
    found = candidates_of(batch)
    logits = _random_logits(batch, found)
    entropies = shared_entropies(logits, found, batch.spans, own_only=own_only)
    pair = 0
    for query, videos in enumerate(_listed(found)):
        scores = [logits[:, pair + at, : CLIPS[video]] for at, video in enumerate(videos)]
        pair += len(videos)
        every = torch.cat(scores[:1] if own_only else scores, dim=1)
        for border in range(2):
            truth = every[border, batch.spans[query, border]].exp() / every[border].exp().sum()
            torch.testing.assert_close(entropies[border, query], -truth.log())
