from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relevance.conftest import made_queries

from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.relevance.ranked import BANDS, RankedSet, rank_moments, write_ranked


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
    assert replace(ranked, bands=(0.99,)).grades().tolist() == [0, 0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", ["top6.jsonl", "top6.json", "top6.json.gz", "ours"])
def test_what_is_written_is_read_as_judgements(
    name: str, graded: bool, judged: Any, encoder: Any, tmp_path: Path
) -> None:
    if name == "ours":
        (tmp_path / name).mkdir()
    ranked = rank_moments(judged, encoder, 6)
    write_ranked(ranked, tmp_path / name, graded=graded)
    found = formats.read_annotations(tmp_path / name)
    assert len(found.queries) == 90 and len(found.query) == 540
    assert {query.id: query.text for query in found.queries} == {
        query.id: query.text for query in judged.queries
    }
    assert all(video.duration == 30 for video in found.videos)
    assert found.relevance.tolist() == (ranked.grades().tolist() if graded else [1.0] * 540)
    assert found.similarity is not None and found.captions is not None
    np.testing.assert_allclose(found.similarity, ranked.similarity, atol=1e-6)
    assert found.captions == tuple(judged.queries[judged.query[row]].text for row in ranked.moment)


def test_the_released_training_program_finds_what_it_reads(judged: Any, encoder: Any, tmp_path: Path) -> None:
    write_ranked(rank_moments(judged, encoder, 3), tmp_path / "train_top03.json")
    entries = json.loads((tmp_path / "train_top03.json").read_text())
    assert len(entries) == 90 and entries[0]["about"]["pseudo"]
    for entry in entries:
        assert {"query_id", "query", "relevant_moment"} <= entry.keys()
        for pair in entry["relevant_moment"]:
            assert pair.keys() == {"pair_id", "video_name", "timestamp", "duration", "caption", "similarity"}


def test_the_first_moments_of_a_longer_set_are_the_shorter_set(judged: Any, encoder: Any) -> None:
    long, short = (rank_moments(judged, encoder, top) for top in (20, 5))
    np.testing.assert_array_equal(long.first(5).moment, short.moment)
    np.testing.assert_array_equal(long.first(5).query, short.query)
    assert len(long.first(100)) == len(long)


def plain_ranking(judged: Annotations, vectors: Any, top: int) -> list[tuple[int, int]]:
    """(query, judgement), all moments of each query sorted: own first, then by similarity, then in order."""
    moments: dict[tuple[str, float, float], list[int]] = {}
    for row in np.flatnonzero((judged.start < judged.end) & (judged.relevance > 0)).tolist():
        key = (judged.videos[judged.video[row]].id, float(judged.start[row]), float(judged.end[row]))
        moments.setdefault(key, []).append(row)
    chosen = []
    for query in range(len(judged.queries)):
        cosine = {
            row: round(float(np.clip(vectors[query] @ vectors[judged.query[row]], 0, 1)), 5)
            for rows in moments.values()
            for row in rows
        }
        own = {key for key, rows in moments.items() if any(judged.query[row] == query for row in rows)}
        order = sorted(
            moments, key=lambda k: (k not in own, 0 if k in own else -max(cosine[r] for r in moments[k]), k)
        )
        for key in order[:top]:
            rows = [r for r in moments[key] if judged.query[r] == query] if key in own else moments[key]
            chosen.append((query, max(rows, key=lambda r: (cosine[r], -r))))
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_the_ranking_is_that_of_a_plain_sort(
    seed: int, encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moments with several captions, queries with several moments, equal captions, blocks of few captions."""
    monkeypatch.setattr("whenabouts_bench.relevance.ranked._CAPTIONS", 7)
    draw = np.random.default_rng(seed)
    made = AnnotationBuilder("made")
    for number, query in enumerate(made_queries(60, seed)):
        made.add_query(query.id, query.text)
        for _ in range(1 + number % 2):
            start = float(draw.integers(4))
            made.judge(query.id, f"v{draw.integers(9)}", start, start + 2)
    judged = made.annotations()
    vectors = encoder.encode_text([query.text for query in judged.queries])
    ranked = rank_moments(judged, encoder, 9)
    assert list(zip(ranked.query.tolist(), ranked.moment.tolist(), strict=True)) == plain_ranking(
        judged, vectors, 9
    )


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
    assert ranked.moment[:2].tolist() == [0, 1]  # w has two captions; the more similar counts
    assert ranked.moment[6] == 2  # a query's own caption represents its moment
    assert (
        len(
            {
                (query, ranked.annotations.video[m])
                for query, m in zip(ranked.query, ranked.moment, strict=True)
            }
        )
        == 12
    )
