"""The card's numbers, against sums done by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts_bench.datasets.card import fingerprint_of, numbers_of
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations


def two_videos() -> AnnotationBuilder:
    """A video of 20 s, one of 40 s, and one of unknown length."""
    collector = AnnotationBuilder("made by hand")
    collector.add_video("short", 20.0)
    collector.add_video("long", 40.0)
    collector.add_video("unknown")
    return collector


def judged() -> Annotations:
    """Queries of one word with two moments, of three words with an empty one, of two words with none."""
    collector = two_videos()
    collector.add_query("a", "runs")
    collector.judge("a", "short", 0.0, 5.0)
    collector.judge("a", "long", 10.0, 20.0, 0.0)
    collector.add_query("b", "a dog  runs")
    collector.judge("b", "long", 3.0, 3.0)
    collector.add_query("c", "dogs bark")
    return collector.annotations()


def test_counts_and_means_are_over_what_they_say() -> None:
    numbers = numbers_of(judged())
    assert (numbers.videos, numbers.queries, numbers.judgements) == (3, 3, 3)
    assert numbers.judged_videos == 2
    assert numbers.full_pools is None
    assert numbers.video_seconds == 30.0, "over the videos whose length is known"
    assert numbers.moment_seconds == 7.5, "without the moment that has no length"
    assert numbers.moment_share == 0.25
    assert numbers.words_per_query == 2.0
    assert numbers.relevant_per_query == pytest.approx(2 / 3), "grade 0 is not relevant"


def test_where_there_are_pools_means_are_over_the_queries_with_a_full_one() -> None:
    collector = two_videos()
    for query_id, text, pool, end in (
        ("a", "one", ("short", "long"), 4.0),
        ("b", "one two three", ("short",), 10.0),
    ):
        collector.add_query(query_id, text)
        collector.judge(query_id, "short", 0.0, end)
        collector.set_pool(query_id, pool)
    collector.judge("a", "long", 0.0, 8.0)
    numbers = numbers_of(collector.annotations(), pool_size=2)
    assert (numbers.queries, numbers.full_pools, numbers.judgements) == (2, 1, 3)
    assert numbers.words_per_query == 1.0
    assert numbers.moment_seconds == 6.0
    assert numbers.relevant_per_query == 2.0


def test_without_answers_there_are_no_means_over_them() -> None:
    collector = two_videos()
    collector.add_query("a", "one two")
    numbers = numbers_of(collector.annotations())
    assert (numbers.judgements, numbers.judged_videos) == (0, 0)
    assert numbers.moment_seconds is None
    assert numbers.moment_share is None
    assert numbers.relevant_per_query is None
    assert numbers.words_per_query == 2.0


def test_a_split_without_anything_is_no_error() -> None:
    numbers = numbers_of(AnnotationBuilder("empty").annotations())
    assert (numbers.videos, numbers.queries, numbers.words_per_query) == (0, 0, None)


def test_a_fingerprint_is_of_the_unpacked_bytes(tmp_path: Path) -> None:
    import gzip

    plain, packed = tmp_path / "a", tmp_path / "a.gz"
    plain.write_bytes(b"abc")
    packed.write_bytes(gzip.compress(b"abc"))
    # The first 16 digits of the example of FIPS 180-2.
    assert fingerprint_of(plain) == fingerprint_of(packed) == "ba7816bf8f01cfea"
