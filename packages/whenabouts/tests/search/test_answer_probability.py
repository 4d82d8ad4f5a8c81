"""The probability that an answer is right: the same wherever it is stated; copies and long videos."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whenabouts import Corpus, Evidence, Moment, ScoredMoment
from whenabouts.calibration.measuring import results_with_and_without
from whenabouts.calibration.questions import CalibrationQuestion
from whenabouts.confidence.probability import Adjustment, general
from whenabouts.index.records import ClipBlock
from whenabouts.moments.zero_shot import Moments
from whenabouts.search.answer_probability import (
    Spoken,
    features_of,
    most_spoken,
    rivals_of,
    spoken_at,
    with_probabilities,
)
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.search_result import word_of
from whenabouts.search.searcher import Searcher
from whenabouts.search.stored_calibration import MeasuredCorpus, load_calibration
from whenabouts.search.word_units import Rarity

ENGLISH = dict.fromkeys(("film", "talk", "sound_of_the_film"), "en")
"""The language of every video."""


def scored(video: str, score: float, text: str) -> ScoredMoment:
    evidence = {"subtitle": Evidence("subtitle", score, 0.0, 4.0, text)}
    return ScoredMoment(Moment(video, 0.0, 4.0), score, evidence=evidence, text=text)


def test_a_copy_of_a_recording_is_no_rival_of_the_first_moment() -> None:
    first, other = scored("film", 9.0, "the crown jewels"), scored("talk", 5.0, "a jewel")
    copy = replace(first, moment=Moment("sound_of_the_film", 0.0, 4.0))
    rival = scored("talk", 9.0, "the jewels of the crown")
    alone = features_of("crown jewels", [first, other], [None], ENGLISH)
    assert features_of("crown jewels", [first, copy, other], [None], ENGLISH) == alone
    assert features_of("crown jewels", [first, rival, other], [None], ENGLISH) != alone


def test_a_copy_in_other_cues_and_a_translation_are_no_rivals() -> None:
    words = "the thieves took the crown jewels out of the tower by night and nobody saw them leave"
    first, other = scored("film", 9.0, words), scored("talk", 5.0, "a jewel")
    recut = scored("film again", 8.5, words.split(" ", 3)[3] + " through the gate")
    translated = scored("le film", 8.8, "les voleurs ont pris les joyaux de la couronne dans la tour")

    languages = {"film": "en", "film again": "en", "talk": "en", "le film": "fr"}
    assert rivals_of([first, translated, recut, other], languages) == [first, other]
    assert rivals_of([translated, first, recut, other], languages) == [translated]
    # Two talks about one subject share words, and are rivals.
    talk = scored("talk", 8.0, "the crown jewels are kept in the tower, and people queue to see them by day")
    assert rivals_of([first, talk], languages) == [first, talk]


def test_a_film_and_its_sound_are_equally_right(samples_corpus: Path) -> None:
    film, sound = Corpus(samples_corpus).search("the space telescope in a cleanroom").moments[:2]
    assert {film.video_id.split("-")[0], sound.video_id.split("-")[0]} == {"nasa_13013", "nasa_audio_only"}
    assert film.confidence == sound.confidence
    assert film.confidence is not None and film.confidence >= 0.5


@pytest.mark.parametrize("query", ["crown jewels", "who took the jewels", "a huge mirror in space", "zebra"])
def test_a_search_states_what_a_calibration_judges(samples_corpus: Path, query: str) -> None:
    corpus = Corpus(samples_corpus)
    calibration = load_calibration(corpus.store)
    anywhere = Moment(corpus.records()[0].video_id, 0.0, 1.0)
    measured, _ = results_with_and_without(corpus.searcher(), CalibrationQuestion(query, anywhere))
    moments, features = measured.first(MeasuredCorpus(calibration, corpus.store.ledger().language_of))
    stated = general(calibration.adjustment).of_first(
        features[0], has_words=measured.said_at(moments[0]) is not None
    )
    first = corpus.search(query)[0]
    assert first.moment == moments[0].moment
    assert first.confidence == pytest.approx(stated, abs=1e-9)


def test_in_a_longer_video_more_places_compete_unless_it_is_said_as_it_stands() -> None:
    ranked = [scored("talk", 9.0, "a jewel"), scored("film", 5.0, "crowns")]

    def probability(hours: float, *, phrase: bool) -> float:
        there = Spoken(4.0, 2.0, phrase, hours)
        features = features_of("crown jewels", ranked, [there, there], ENGLISH)
        return general().of_first(features[0], has_words=True)

    assert probability(24.0, phrase=False) < probability(1.0, phrase=False)
    assert probability(24.0, phrase=True) == probability(1.0, phrase=True)


def answer_of(stream: str, text: str) -> StreamAnswer:
    """What a stream answers that has one clip, from 0 to 4 s of the film."""
    numbers, row = np.zeros(1), np.zeros(1, np.int64)
    vectors = np.zeros((1, 0), np.float32)
    block = ClipBlock(["film"], np.array([0, 1]), row.astype(np.int32), numbers, numbers + 4, [text], vectors)
    moments = Moments(row, numbers, numbers + 4, numbers, row, row)
    return StreamAnswer(stream, None, None, block, numbers, moments)


def found_by(*streams: str) -> ScoredMoment:
    """The film's first 4 seconds, found by some streams."""
    evidence = {stream: Evidence(stream, 9.0, 0.0, 4.0, "") for stream in streams}
    return ScoredMoment(Moment("film", 0.0, 4.0), 9.0, evidence=evidence)


@pytest.mark.parametrize(("query", "is_phrase"), [("RE16 TGK", True), ("E16T", True), ("RE16 boat", False)])
def test_what_is_written_in_the_picture_counts_as_what_is_said(query: str, is_phrase: bool) -> None:
    answers = [
        answer_of("subtitle", "we are at the harbour"),
        replace(answer_of("screen_text", "RE16 TGK"), parts_of_words=True),
    ]
    rarity = {answer.stream: Rarity.in_texts(answer.block.text) for answer in answers}
    both, said = found_by("subtitle", "screen_text"), found_by("subtitle")
    there = most_spoken(spoken_at(query, [both], answers, rarity)[0], both)
    alone = most_spoken(spoken_at(query, [said], answers, rarity)[0], said)
    assert there is not None and there.spoken > 0 and there.phrase == is_phrase
    assert alone is not None and alone.spoken == 0 and not alone.phrase


def test_words_that_are_said_beside_a_sound_are_no_evidence_of_the_sound() -> None:
    answers = [answer_of("subtitle", "glass breaks on the floor"), answer_of("sound", "")]
    rarity = {"subtitle": Rarity.in_texts(answers[0].block.text)}
    words, sound = found_by("subtitle"), found_by("sound")
    by_stream, beside = spoken_at("glass breaks", [sound, words], answers, rarity)
    assert by_stream == beside
    assert most_spoken(by_stream, words) == by_stream["subtitle"]
    assert most_spoken(by_stream, sound) is None


def test_a_sound_in_a_list_of_all_streams_is_as_sure_as_by_itself() -> None:
    answers = [answer_of("subtitle", "we are at the harbour"), answer_of("sound", "")]
    rarity = {"subtitle": Rarity.in_texts(answers[0].block.text)}
    sound = [replace(found_by("sound"), chance_percentile=0.99)]
    in_all = with_probabilities("glass breaks", sound, answers, rarity, general(), ENGLISH)
    alone = with_probabilities("glass breaks", sound, answers[1:], {}, general(), ENGLISH)
    assert in_all.moments[0].confidence == alone.moments[0].confidence


@pytest.mark.parametrize(
    ("topic", "is_as_sure"), [("cooking with garlic", False), ("growing tomatoes", True)]
)
def test_the_same_greeting_before_another_topic_is_not_as_sure(topic: str, is_as_sure: bool) -> None:
    greeting = "hello and welcome to the weekly show from our small studio where today we talk about"
    texts = [f"{greeting} growing tomatoes", f"{greeting} {topic}"]
    starts, rows = np.zeros(2), np.arange(2)
    block = ClipBlock(
        ["film", "talk"], np.array([0, 1, 2]), np.zeros(2, np.int32), starts, starts + 4, texts,
        np.zeros((2, 0), np.float32),
    )  # fmt: skip
    answer = StreamAnswer(
        "subtitle", None, None, block, starts, Moments(rows, starts, starts + 4, starts, rows, rows)
    )
    ranked = [
        replace(scored(video, score, text), chance_percentile=0.99)
        for video, score, text in zip(block.video_ids, (11.0, 2.0), texts, strict=True)
    ]
    rarity = {"subtitle": Rarity.in_texts([*texts, "other words of a long talk"])}
    first, second = with_probabilities(
        "growing tomatoes", ranked, [answer], rarity, general(), ENGLISH
    ).moments
    assert first.confidence is not None and second.confidence is not None
    assert (second.confidence == first.confidence) is is_as_sure
    assert is_as_sure or second.confidence < 0.5 < first.confidence


@pytest.mark.slow
def test_a_query_in_another_language_is_judged_by_what_was_learned_of_such(samples_corpus: Path) -> None:
    corpus = Corpus(samples_corpus)
    model = corpus.store.streams["subtitle"].encoder
    calibration = load_calibration(corpus.store)
    curves = general(calibration.adjustment)
    moved = replace(curves, across={model: Adjustment(1.0, 0.5)})
    encoders = corpus.encoders.for_queries()
    within, across = (Searcher(corpus.store, encoders, calibration, own) for own in (curves, moved))
    for query, is_other in (("who took the jewels", False), ("qui a volé les bijoux de la couronne", True)):
        before, after = (searcher.search(query).moments[0].confidence for searcher in (within, across))
        assert (before != after) is is_other, query


def test_what_stands_in_a_later_moment_is_called_so() -> None:
    later = replace(scored("talk", 5.0, "the crown jewels"), confidence=0.25, says_query=True)
    assert word_of("match", later, is_first=False) == "said here"
    assert word_of("unsure", later, is_first=False) == "maybe"
    assert word_of("match", replace(later, says_query=False), is_first=False) == "maybe"


def test_what_the_first_moment_says_speaks_for_no_later_one(samples_corpus: Path) -> None:
    first, *later = Corpus(samples_corpus).search("crown jewels", k=4).moments
    assert first.says_query and first.confidence is not None and first.confidence >= 0.75
    beside = [scored for scored in later if scored.video_id == first.video_id]
    assert beside and not any(scored.says_query for scored in beside)
    assert all(scored.confidence is not None and scored.confidence < 0.3 for scored in beside)
