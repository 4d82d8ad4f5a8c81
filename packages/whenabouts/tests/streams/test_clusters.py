from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

from whenabouts.streams._clusters import clusters


@given(st.integers(2, 60), st.integers(1, 6), st.floats(0.05, 1.5), st.floats(0, 0.95), st.integers(0, 999))
def test_groups_are_those_of_average_linkage_in_scipy(
    count: int, people: int, spread: float, least: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(people, 16))[rng.integers(0, people, count)]
    vectors = vectors + spread * rng.normal(size=(count, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    rows, columns = np.triu_indices(count, 1)
    distance = 1.0 - np.clip(vectors @ vectors.T, -1, 1)[rows, columns]
    theirs = fcluster(linkage(distance, "average"), 1.0 - least, "distance")
    ours = clusters(vectors, least)
    assert len(set(zip(ours.tolist(), theirs.tolist(), strict=True))) == len(set(ours)) == len(set(theirs))


def test_equal_vectors_are_one_person_and_opposite_ones_two() -> None:
    vectors = np.array([[1, 0], [-1, 0], [1, 0], [-1, 0]], np.float32)
    assert clusters(vectors, 0.5).tolist() == [0, 1, 0, 1]
