from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts import formats
from whenabouts.formats.annotations import AnnotationBuilder, Annotations
from whenabouts.research.relevance.ranked import BANDS, RankedSet, rank_moments, write_ranked
from whenabouts.types import UsageError


@pytest.fixture
def judged(queries: Any) -> Annotations:
    collector = AnnotationBuilder("made")
    for number, query in enumerate(queries):
        collector.add_video(f"v{number % 30}", 30.0)
        collector.add_query(query.id, query.text)
        collector.judge(query.id, f"v{number % 30}", number % 7, number % 7 + 5)
    return collector.annotations()


def similarities(judged: Annotations, encoder: Any) -> Any:
    vectors = encoder.encode_text([query.text for query in judged.queries])
    return np.clip(vectors @ vectors.T, 0, 1)


def test_each_query_gets_its_most_similar_moments_best_first(judged: Any, encoder: Any) -> None:
    ranked = rank_moments(judged, encoder, 7)
    cosines = similarities(judged, encoder)
    assert np.bincount(ranked.query).tolist() == [7] * 90
    for query in range(90):
        mine = ranked.similarity[ranked.query == query]
        np.testing.assert_allclose(mine, np.sort(cosines[query])[::-1][:7], atol=2e-6)
        moments = ranked.moment[ranked.query == query]
        assert len(set(moments.tolist())) == 7
        np.testing.assert_allclose(cosines[query][judged.query[moments]], mine, atol=2e-6)


def test_a_querys_own_moment_comes_first_also_among_equal_captions(judged: Any, encoder: Any) -> None:
    ranked = rank_moments(judged, encoder, 1)
    assert (judged.query[ranked.moment] == ranked.query).all()
    np.testing.assert_allclose(ranked.similarity, 1, atol=1e-6)


def test_a_shorter_list_is_the_beginning_of_a_longer_one(judged: Any, encoder: Any) -> None:
    long, short = (rank_moments(judged, encoder, top) for top in (20, 5))
    np.testing.assert_array_equal(long.moment.reshape(90, 20)[:, :5], short.moment.reshape(90, 5))


def test_more_moments_than_there_are_gives_all_of_them(judged: Any, encoder: Any) -> None:
    assert len(rank_moments(judged, encoder, 500)) == 90 * 90


def test_queries_that_are_asked_elsewhere_are_left_out_and_counted(judged: Any, encoder: Any) -> None:
    text = judged.queries[3].text
    same = sum(query.text == text for query in judged.queries)
    ranked = rank_moments(judged, encoder, 90, asked_elsewhere=[f"  {text.upper()} ."])
    assert ranked.removed == same >= 1
    assert 3 not in ranked.query and set(ranked.moment.tolist()) == set(range(90))


def test_queries_that_are_asked_elsewhere_alone_are_ranked_against_all_moments(
    judged: Any, encoder: Any
) -> None:
    text = judged.queries[3].text
    rest = rank_moments(judged, encoder, 90, asked_elsewhere=[text])
    alone = rank_moments(judged, encoder, 90, asked_in=[f"  {text.upper()} ."])
    assert set(alone.query.tolist()) == set(range(90)) - set(rest.query.tolist())
    assert 3 in alone.query and set(alone.moment.tolist()) == set(range(90))
    with pytest.raises(UsageError, match="no queries left"):
        rank_moments(judged, encoder, 90, asked_elsewhere=[text], asked_in=[text])


def test_moments_without_length_and_of_grade_zero_are_not_ranked(encoder: Any) -> None:
    collector = AnnotationBuilder("made")
    for number, (start, end, grade) in enumerate([(0, 5, 1), (3, 3, 1), (1, 4, 0)]):
        collector.add_query(f"q{number}", "man opens door")
        collector.judge(f"q{number}", "v", start, end, grade)
    ranked = rank_moments(collector.annotations(), encoder, 3)
    assert ranked.moment.tolist() == [0, 0, 0] and ranked.query.tolist() == [0, 1, 2]


def test_grades_begin_at_their_bands() -> None:
    values = np.array([0, *BANDS, 1, BANDS[0] - 0.01], np.float32)
    nothing = np.zeros(len(values), np.int64)
    ranked = RankedSet(Annotations.from_qrels({}), nothing, nothing, values, "x")
    assert ranked.grades().tolist() == [0, 1, 2, 3, 4, 4, 0]


@pytest.mark.parametrize("graded", [False, True])
def test_what_is_written_is_read_as_judgements(
    graded: bool, judged: Any, encoder: Any, tmp_path: Path
) -> None:
    ranked = rank_moments(judged, encoder, 6)
    write_ranked(ranked, tmp_path / "top6.jsonl", graded=graded)
    found = formats.read_annotations(tmp_path / "top6.jsonl")
    assert len(found.queries) == 90 and len(found.query) == 540
    assert {query.id: query.text for query in found.queries} == {
        query.id: query.text for query in judged.queries
    }
    assert all(video.duration == 30 for video in found.videos)
    expected = ranked.grades() if graded else ranked.similarity
    np.testing.assert_allclose(found.relevance, expected, atol=1e-6)


def test_the_first_line_says_that_nobody_judged_and_what_made_it(
    judged: Any, encoder: Any, tmp_path: Path
) -> None:
    write_ranked(rank_moments(judged, encoder, 2), tmp_path / "x.jsonl", graded=True)
    first, second = (json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()[:2])
    assert first["about"] == {
        "pseudo": True, "made_by": "words:1", "from": "made", "grades begin at a similarity of": list(BANDS),
    }  # fmt: skip
    assert "about" not in second and {"caption", "similarity"} <= second.keys()


def test_nothing_to_rank_is_an_error(judged: Any, encoder: Any) -> None:
    with pytest.raises(UsageError, match="top 0"):
        rank_moments(judged, encoder, 0)
    with pytest.raises(UsageError, match="made: there are no moments, or no queries left"):
        rank_moments(judged, encoder, 1, asked_elsewhere=[query.text for query in judged.queries])


def test_a_moment_with_several_captions_comes_once_by_its_nearest(encoder: Any) -> None:
    collector = AnnotationBuilder("made")
    texts = ["a man opens a door", "a man opens the door", "a dog eats", "a woman laughs"]
    for number, text in enumerate(texts):
        collector.add_query(f"q{number}", text)
    for number, (video, start) in enumerate([("v", 0), ("w", 2), ("w", 2), ("x", 1)]):
        collector.judge(f"q{number}", video, start, start + 5)
    ranked = rank_moments(collector.annotations(), encoder, 10)
    assert ranked.query.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert ranked.moment[:2].tolist() == [0, 1]  # w has two captions: the nearer one counts
    assert ranked.moment[6] == 2  # a query's own caption stands for its own moment
    assert (
        len(
            {
                (query, ranked.annotations.video[m])
                for query, m in zip(ranked.query, ranked.moment, strict=True)
            }
        )
        == 12
    )
