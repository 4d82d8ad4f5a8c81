"""The probability that an answer is right, where one recording is there twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whenabouts import Corpus, Evidence, Moment, ScoredMoment
from whenabouts.product.answer_probability import features_of


def scored(video: str, score: float, text: str) -> ScoredMoment:
    evidence = {"subtitle": Evidence("subtitle", score, 0.0, 4.0, text)}
    return ScoredMoment(Moment(video, 0.0, 4.0), score, evidence=evidence)


def test_a_copy_of_a_recording_is_no_rival_of_the_first_moment() -> None:
    first, other = scored("film", 9.0, "the crown jewels"), scored("talk", 5.0, "a jewel")
    copy = replace(first, moment=Moment("sound_of_the_film", 0.0, 4.0))
    rival = scored("talk", 9.0, "the jewels of the crown")
    alone = features_of("crown jewels", [first, other], lambda _: None)
    assert features_of("crown jewels", [first, copy, other], lambda _: None) == alone
    assert features_of("crown jewels", [first, rival, other], lambda _: None) != alone


def test_a_film_and_its_sound_are_equally_right(samples_corpus: Path) -> None:
    film, sound = Corpus(samples_corpus).search("the space telescope in a cleanroom").moments[:2]
    assert {film.video_id.split("-")[0], sound.video_id.split("-")[0]} == {"nasa_13013", "nasa_audio_only"}
    assert film.confidence == sound.confidence
    assert film.confidence is not None and film.confidence >= 0.5
