"""All pairs of captions of a file of relevant pairs: the same however the file keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts_bench.relevance.pairs import (
    ListedPairs,
    PairSettings,
    PairsOfCaptions,
    RelevantPairs,
    VectorPairs,
)
from whenabouts_systems.training import labels
from whenabouts_systems.training.labels import similar_captions


def relevant(kept: PairsOfCaptions) -> RelevantPairs:
    captions = ("open a door", "opens the door", "cook rice", "run", "cooks rice")
    ids = tuple(f"q{row}" for row in range(5))
    settings = PairSettings("sent", 0.9, "made", "made")
    return RelevantPairs(ids, np.arange(5, dtype=np.int32), captions, settings, kept)


def found(kept: PairsOfCaptions) -> list[tuple[int, int]]:
    one, other = similar_captions(relevant(kept))
    return sorted(zip(one.tolist(), other.tolist(), strict=True))


def listed(confidence: float = 0.95) -> PairsOfCaptions:
    """0 with 1, and 2 with 4."""
    values = np.array([confidence, 0.95], np.float16)
    return ListedPairs(np.array([0, 1, 1, 2, 2, 2]), np.array([1, 4], np.int32), values)


def test_a_list_gives_every_pair_both_ways() -> None:
    assert found(listed()) == [(0, 1), (1, 0), (2, 4), (4, 2)]


def test_a_pair_of_confidence_0_is_none() -> None:
    assert found(listed(0.0)) == [(2, 4), (4, 2)]


@pytest.mark.parametrize("block", [2, 3, 1024])
def test_vectors_give_the_pairs_of_the_list_whatever_the_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "_BLOCK", block)
    vectors = np.eye(5, dtype=np.float32)
    near = np.sqrt(1 - 0.95**2)
    vectors[1] = [0.95, near, 0, 0, 0]
    vectors[4] = [0, 0, 0.95, 0, near]
    kept = VectorPairs(np.arange(6), np.arange(5, dtype=np.int32), vectors, 0.9)
    assert found(kept) == found(listed())
