"""False negatives of random pools and cohesion of positives, against plain counting and by hand."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest
from tests.relevance.conftest import WordEncoder
from tests.relevance.made_pools import GivenSimilarity, annotated, household

from whenabouts_bench.relevance.pool_evidence import (
    THRESHOLDS,
    cohesiveness,
    draw_evidence,
    random_pools,
    random_pools_of,
)
from whenabouts_bench.relevance.pools import PoolSettings, build_pools, described_by
from whenabouts_bench.relevance.similarity import VectorSimilarity


def videos_of(sentences: dict[str, list[str]]) -> dict[str, object]:
    """Videos of 30 s with sentences at second 0, 5, 10, ..."""
    return {
        name: {
            "duration": 30.0,
            "timestamps": [[5.0 * n, 5.0 * n + 4] for n in range(len(own))],
            "sentences": own,
        }
        for name, own in sentences.items()
    }


@pytest.mark.parametrize("size", [2, 3, 5, 9])
def test_the_share_of_spoiled_random_pools_is_that_of_counting_all_pools(size: int) -> None:
    draw = np.random.default_rng(size)
    made = annotated(videos_of({f"v{n}": [f"says {n} {k}" for k in range(1 + n % 3)] for n in range(9)}))
    matrix = draw.random((len(made.queries), len(made.queries))).astype(np.float32)
    own = [[int(video)] for video in made.video]
    described = described_by(made)
    found = random_pools(GivenSimilarity(matrix), described, own, size, (0.5, 0.9))
    for number, threshold in enumerate((0.5, 0.9)):
        expected, near_videos = [], []
        for query in range(len(made.queries)):
            near = {
                int(made.video[q])
                for q in range(len(made.queries))
                if matrix[query, q] >= threshold and made.video[q] != made.video[query]
            }
            near_videos.append(len(near))
            expected.append(1 - comb(8 - len(near), size - 1) / comb(8, size - 1))
        assert found.spoiled[number] == pytest.approx(np.mean(expected), abs=1e-12)
        assert found.near[number] == pytest.approx(np.mean(near_videos))
        assert found.any_near[number] == pytest.approx(np.mean(np.array(near_videos) > 0))
        assert found.error[number] == pytest.approx(np.std(expected) / len(expected) ** 0.5)
    assert found.spoiled[0] > found.spoiled[1]


def test_a_pool_of_all_videos_is_spoiled_wherever_any_other_video_answers() -> None:
    pools = build_pools(
        household(), VectorSimilarity.of(household().queries, WordEncoder()), PoolSettings(6, 3, negative=0.8)
    )
    similarity = VectorSimilarity.of(pools.source.queries, WordEncoder())
    every = random_pools(
        similarity, pools.described, [[int(video)] for video in pools.source.video], 24, THRESHOLDS
    )
    assert every.spoiled == pytest.approx(every.any_near)
    few = random_pools_of(pools, similarity)
    assert few.size == 6 and few.queries == 28 and few.spoiled[-2] < 1
    table = list(few.lines())
    assert len(table) == 2 + len(THRESHOLDS) and "among 5 random others" in table[0]


def test_words_of_positives_stand_together_more_often_than_those_of_negatives() -> None:
    """By hand: two positives share both words; of the three negatives two share one of two words."""
    made = annotated(
        videos_of(
            {
                "a": ["a cat sleeps"],
                "b": ["the cat sleeps"],
                "c": ["dog runs"],
                "d": ["dog barks"],
                "e": ["bird sings"],
            }
        )
    )
    matrix = np.where(np.add.outer(np.arange(5) < 2, np.arange(5) < 2) == 1, 0.1, 0.95).astype(np.float32)
    matrix[:2, :2], matrix[2:, 2:] = 0.95, np.eye(3) * 0.85 + 0.1
    pools = build_pools(made, GivenSimilarity(matrix), PoolSettings(5, 2))
    found = cohesiveness(pools, GivenSimilarity(matrix))
    # Queries a and b: positives a, b: four words, each in the other; negatives c, d, e: dog twice in one of
    # two others, four words in none. Queries c, d, e have no other positive; their negatives are the rest.
    assert found.positives.tolist() == [1.0] * 8
    of_a = [0.5, 0.0, 0.5, 0.0, 0.0, 0.0]
    assert sorted(found.negatives[:6].tolist()) == sorted(of_a)
    told = list(found.lines())
    assert told[0].startswith("positives: a word of a video's sentence occurs in 100.0%")


def test_a_sentence_of_a_video_that_holds_the_word_is_enough_whichever_it_is() -> None:
    made = annotated(
        videos_of({"a": ["cat sleeps", "dog runs"], "b": ["dog runs", "cat sleeps"], "c": ["x y"]})
    )
    matrix = np.full((5, 5), 0.1, np.float32)
    for left, right in ((0, 3), (1, 2)):
        matrix[left, right] = matrix[right, left] = 0.95
    np.fill_diagonal(matrix, 1.0)
    pools = build_pools(made, GivenSimilarity(matrix), PoolSettings(3, 2))
    assert cohesiveness(pools, GivenSimilarity(matrix)).positives.tolist() == [1.0] * 16


@pytest.mark.slow
def test_the_evidence_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pools = build_pools(
        household(), VectorSimilarity.of(household().queries, WordEncoder()), PoolSettings(6, 3, negative=0.8)
    )
    similarity = VectorSimilarity.of(pools.source.queries, WordEncoder())
    files = draw_evidence(
        random_pools_of(pools, similarity), cohesiveness(pools, similarity), 0.9, tmp_path / "evidence"
    )
    assert [file.name for file in files] == ["evidence.svg", "evidence.png"]
    assert "queries with a false negative" in files[0].read_text()
