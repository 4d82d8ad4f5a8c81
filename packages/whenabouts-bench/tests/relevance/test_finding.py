from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.types import UsageError
from whenabouts_bench.relevance import finding
from whenabouts_bench.relevance.finding import listed_pairs, reached_captions, vector_pairs
from whenabouts_bench.relevance.pairs import PairSettings
from whenabouts_bench.relevance.units import DETECTORS, Units, detector_of, units_of


def settings_of(detector: str, threshold: float) -> PairSettings:
    return PairSettings(detector, threshold, "words", "words:1", "pairs:1")


def by_definition(units: Units, threshold: float) -> dict[tuple[str, str], float]:
    """Equations 7 and 8 in loops over queries and parts."""

    def cosine(one: int, other: int) -> float:
        return float(units.vectors[one] @ units.vectors[other])

    found = {}
    parts = [units.units[a:b].tolist() for a, b in zip(units.starts, units.starts[1:], strict=False)]
    for (i, first), (j, second) in product(enumerate(units.query_ids), repeat=2):
        mine, theirs = parts[units.caption_of[i]], parts[units.caption_of[j]]
        if i != j and max(cosine(a, b) for a, b in product(mine, theirs)) >= threshold - 1e-6:
            found[first, second] = max(0.0, cosine(mine[0], theirs[0]))
    return found


@pytest.mark.parametrize("detector", sorted(DETECTORS))
@pytest.mark.parametrize("threshold", [0.35, 0.6, 0.9])
def test_both_ways_of_keeping_give_what_the_equations_say(
    detector: str, threshold: float, queries: Any, encoder: Any, extractor: Any
) -> None:
    units = units_of(queries, detector_of(detector), extractor, encoder)
    expected = np.zeros((len(queries), len(queries)), np.float32)
    for (first, second), confidence in by_definition(units, threshold).items():
        expected[int(first[1:]), int(second[1:])] = confidence
    assert 0 < (expected > 0).mean() < 1
    rows = np.random.default_rng(1).permutation(len(queries))
    for make in (listed_pairs, vector_pairs):
        block = make(units, settings_of(detector, threshold)).block(rows)
        np.testing.assert_allclose(block, expected[np.ix_(rows, rows)], atol=6e-4)


def test_a_detector_with_more_parts_finds_no_fewer_pairs(queries: Any, encoder: Any, extractor: Any) -> None:
    found = {}
    for name in ("sent", "vp"):
        pairs = listed_pairs(units_of(queries, detector_of(name), extractor, encoder), settings_of(name, 0.7))
        found[name] = pairs.block(range(len(queries))) > 0
    assert (found["vp"] >= found["sent"]).all() and found["vp"].sum() > found["sent"].sum()


def test_blocks_of_every_size_give_the_same(
    monkeypatch: pytest.MonkeyPatch, queries: Any, encoder: Any, extractor: Any
) -> None:
    units = units_of(queries, detector_of("vp"), extractor, encoder)
    whole = listed_pairs(units, settings_of("vp", 0.5)).block(range(90))
    for rows, columns, captions in ((8, 7, 16), (13, 50, 8), (1, 1, 24)):
        monkeypatch.setattr(finding, "_ROWS", rows)
        monkeypatch.setattr(finding, "_COLUMNS", columns)
        monkeypatch.setattr(finding, "_CAPTIONS", captions)
        np.testing.assert_array_equal(listed_pairs(units, settings_of("vp", 0.5)).block(range(90)), whole)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(0, 2**16), st.floats(-1, 1))
def test_relevance_is_mutual_and_everything_is_relevant_to_itself(
    captions: int, seed: int, threshold: float
) -> None:
    draw = np.random.default_rng(seed)
    counts = draw.integers(1, 4, captions)
    starts = np.concatenate([[0], np.cumsum(counts)])
    vectors = draw.normal(size=(8, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    units = draw.integers(0, 8, int(starts[-1])).astype(np.int32)
    texts = tuple(map(str, range(8)))
    parts = Units((), np.zeros(0, np.int32), ("caption",) * captions, starts, units, texts, vectors)
    bits = reached_captions(parts, threshold)
    matrix = np.unpackbits(bits, axis=1)
    assert not matrix[:, captions:].any()
    matrix = matrix[:, :captions]
    assert (matrix == matrix.T).all() and matrix.diagonal().all()


def test_the_threshold_itself_is_reached(encoder: Any, extractor: Any, queries: Any) -> None:
    units = units_of(queries, detector_of("sent"), None, encoder)
    cosines = units.vectors @ units.vectors.T
    value = float(np.sort(cosines[np.triu_indices(len(cosines), 1)])[-3])
    pairs = listed_pairs(units, settings_of("sent", value))
    assert len(pairs.kept.arrays()["columns"]) == 3


def test_too_many_pairs_are_refused_with_their_number_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch, queries: Any, encoder: Any
) -> None:
    monkeypatch.setattr(finding, "MOST_PAIRS", 10)
    units = units_of(queries, detector_of("sent"), None, encoder)
    with pytest.raises(
        UsageError, match=r"pairs of captions are relevant \(.* %\), and at most 10 are listed.*--as vectors"
    ):
        listed_pairs(units, settings_of("sent", 0.1))


def test_too_many_captions_are_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, queries: Any, encoder: Any
) -> None:
    monkeypatch.setattr(finding, "MOST_CAPTIONS", 5)
    units = units_of(queries, detector_of("sent"), None, encoder)
    with pytest.raises(UsageError, match="captions are too many to compare all with all"):
        listed_pairs(units, settings_of("sent", 0.5))
