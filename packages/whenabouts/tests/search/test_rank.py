"""One list of several streams: the rank of moments of words among pictures and sounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from whenabouts import Corpus, Evidence, Moment, ScoredMoment
from whenabouts.confidence.probability import Chance
from whenabouts.search.rank import ranked

SAID, SEEN = Moment("talk", 0.0, 30.0), Moment("film", 10.0, 12.0)


def found(stream: str, moment: Moment, score: float) -> ScoredMoment:
    evidence = {stream: Evidence(stream, score, moment.start, moment.end, "")}
    return ScoredMoment(moment, score, evidence=evidence)


def chance(stream: str, video_id: str) -> Chance:
    return Chance(0.0, 1.0)


def test_words_that_say_nothing_of_the_query_stand_behind_a_picture_that_surprises_a_little_less() -> None:
    both = [found("subtitle", SAID, 4.0), found("vision", SEEN, 3.0)]
    for unsaid, first in ((0.0, SAID), (0.4, SAID), (0.6, SEEN), (1.0, SEEN)):
        order = ranked(both, chance, 2, {"subtitle": {SAID: unsaid}})
        assert order[0].moment == first
        assert [one.score for one in order] == sorted((one.score for one in order), reverse=True)
    # The share of unrelated sentences that score as high does not depend on the words that are said.
    percentiles = {one.moment: one.chance_percentile for one in ranked(both, chance, 2)}
    assert {one.moment: one.chance_percentile for one in order} == percentiles


def test_moments_that_were_not_looked_at_count_as_saying_nothing() -> None:
    later = Moment("talk", 600.0, 630.0)
    words = [found("subtitle", SAID, 4.0), found("subtitle", later, 3.9)]
    order = ranked([*words, found("vision", SEEN, 3.0)], chance, 2, {"subtitle": {SAID: 0.0}})
    assert [one.moment for one in order] == [SAID, SEEN, later]


def test_a_moment_that_is_said_and_seen_is_worth_both() -> None:
    seen_there = Moment("talk", 2.0, 28.0)
    both = [found("subtitle", SAID, 4.0), found("vision", seen_there, 3.0), found("vision", SEEN, 3.5)]
    first, second = ranked(both, chance, 2, {"subtitle": {SAID: 1.0}})
    assert (first.moment, set(first.evidence)) == (seen_there, {"subtitle", "vision"})
    assert first.score == pytest.approx(chance("", "").surprise(3.0) + chance("", "").surprise(4.0) - 2.0)
    assert second.moment == SEEN


def test_what_is_not_said_counts_beside_other_streams_and_in_the_language_of_the_words(
    samples_corpus: Path,
) -> None:
    searcher = Corpus(samples_corpus).searcher()

    def unsaid(query: str, count: int = 1, *, parts: bool = False) -> list[float]:
        (answer,) = searcher.find_all(query)
        answer = replace(answer, parts_of_words=parts)
        by_stream = searcher.ranking.unsaid(query, [answer] * count)
        assert not by_stream or next(iter(by_stream["subtitle"])) == answer.moment(0)
        return [*by_stream.get("subtitle", {}).values()]

    shares = unsaid("somebody stole the crown jewels", 2)
    assert 0 <= shares[0] < 0.5 < max(shares) <= 1
    assert unsaid("somebody stole the crown jewels") == []
    assert unsaid("somebody stole the crown jewels", parts=True)[0] < shares[0]  # "stole" in "stolen"
    assert unsaid("quelqu'un a volé les joyaux de la couronne pendant la nuit", 2) == []
    # The second look does not count parts of words.
    assert unsaid("rown jewe", parts=True)[0] == 0.0 < unsaid("rown jewe", 2)[0]
