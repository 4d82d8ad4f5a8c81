"""The language of words: what a tag says, else what they look like."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from whenabouts.confidence.background import languages
from whenabouts.video import language
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack, read_cue_file
from whenabouts.video.language import (
    SEVERAL,
    language_among,
    language_of_texts,
    language_of_track,
    load_in_background,
    sure_language,
)


def track_of(*texts: str, language: str | None = None) -> CueTrack:
    cues = tuple(Cue(float(row), row + 1.0, text) for row, text in enumerate(texts))
    return CueTrack(cues, "sidecar:a.srt", language)


def test_a_tag_is_believed_and_shortened() -> None:
    assert language_of_track(track_of("whatever this may be", language="ger")) == "de"
    assert language_of_track(track_of("whatever this may be", language="pt-BR")) == "pt"


@pytest.mark.parametrize("tag", [None, "und", "zxx", "not a tag"])
def test_without_a_tag_words_are_looked_at(tag: str | None) -> None:
    assert language_of_track(track_of(*languages()["fr"].sentences, language=tag)) == "fr"


@pytest.mark.parametrize("code", sorted(languages()))
def test_forty_sentences_name_each_language_that_there_are_unrelated_ones_of(code: str) -> None:
    assert language_of_texts(languages()[code].sentences[:40]) == code


def test_captions_in_thirty_languages_are_in_several() -> None:
    mixed = [
        sentence
        for row in range(40)
        for code in languages()
        for sentence in [languages()[code].sentences[row]]
    ]
    assert language_of_texts(mixed) == SEVERAL
    one_after_the_other = [text for code in languages() for text in languages()[code].sentences[:40]]
    assert language_of_texts(one_after_the_other) == SEVERAL


@pytest.mark.parametrize(
    "texts", [[], [""], ["♪ ♪", "…"], ["12:30"], ["PyTorch"], ["\ud800"], ["a\x00"], ["电LE", "二"]]
)
def test_what_is_too_little_has_no_language(texts: list[str]) -> None:
    assert language_of_texts(texts) == ""


def test_a_short_caption_is_named_only_where_it_is_hardly_another_language() -> None:
    assert sure_language("Das Haus steht auf dem Hügel über der Stadt") == "de"
    assert sure_language("OK") == ""


def test_among_two_languages_a_short_query_is_told_apart() -> None:
    assert language_among("the weather in the mountains", {"en", "de"}) == "en"
    assert language_among("künstliche neuronale Netze", {"en", "de"}) == "de"
    assert language_among("PyTorch", set()) == ""
    assert language_among("!!", {"en", "de"}) == ""


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("WEBVTT\nKind: captions\nLanguage: fr\n\n", "fr"),
        ("WEBVTT - title\r\nLanguage: pt-BR\r\n\r\n", "pt-br"),
        ("WEBVTT\n\nNOTE\nLanguage: fr\n\n", None),
        ("WEBVTT\nLanguage: a long sentence\n\n", None),
        ("WEBVTT\n\n", None),
    ],
)
def test_the_header_of_a_webvtt_file_names_its_language(
    header: str, language: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "talk.vtt"
    file.write_text(f"{header}00:01.000 --> 00:02.000\nLanguage: de\n", newline="")
    assert read_cue_file(file).language == language


def test_the_recogniser_is_loaded_once_and_a_failure_is_left_to_its_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads: list[str] = []

    def load() -> object:
        loads.append(threading.current_thread().name)
        raise MemoryError

    def loaded() -> None:
        load_in_background()
        while any(thread.name == "whenabouts-language" for thread in threading.enumerate()):
            time.sleep(0.01)

    monkeypatch.setattr(language, "_loaded", load)
    loaded()
    assert loads == ["whenabouts-language"]
    with pytest.raises(MemoryError):
        sure_language("Apprentissage supervisé et réseaux de neurones")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    load_in_background()
    assert len(loads) == 2
