"""Which unrelated sentences belong to a stream: by the languages of its texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.two_languages import OnlyEnglish, Polyglot

from whenabouts.calibration.banks import Banks, banks_of, note_of
from whenabouts.confidence.background import SENTENCES, languages
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.stream import QueryEncoder

FRENCH = "le moteur de ce bateau demande une eau froide parce que la vapeur chauffe les tuyaux en cuivre"
FINNISH = "häviöfunktio pienenee jokaisella askeleella kunnes opetus pysähtyy lopulta kokonaan ja verkko osaa"


def _store(place: Path, *videos: tuple[str, str], stream: str = "screen_text") -> Store:
    """A store with one text for each language of `videos`."""
    store = Store.open(place / "corpus", create=True)
    store.add_stream(StreamInfo(stream, "letters", "a", 0))
    clips = [{stream: ClipColumns(np.zeros(1), np.ones(1), [text])} for _, text in videos]
    records = [
        VideoRecord(f"film{number}", "/film.mp4", streams={stream: "a"}, metadata={"language": language})
        for number, (language, _) in enumerate(videos)
    ]
    store.put_videos(zip(records, clips, strict=True))
    return store


def _banks(place: Path, *videos: tuple[str, str], encoder: QueryEncoder | None = None) -> Banks:
    encoders = {} if encoder is None else {"screen_text": encoder}
    return banks_of(_store(place, *videos), encoders)["screen_text"]


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("电LE 二", "en"),
        ("你好，今天我们去公园散步吧", "zh"),
        ("你好今天我", "en"),
        ("你好今天我们", "zh"),
        (FRENCH, "fr"),
    ],
)
def test_a_sign_or_two_read_in_a_picture_is_no_language_of_a_stream(
    tmp_path: Path, text: str, group: str
) -> None:
    assert list(_banks(tmp_path, ("", text)).groups) == [group]


def test_a_language_with_sentences_is_a_group_and_any_other_joins_what_its_words_look_like(
    tmp_path: Path,
) -> None:
    videos = [
        ("fr", "x"),
        ("fr", "y"),
        ("en", "z"),
        ("br", FRENCH),
        ("fi", FINNISH),
        ("mul", FINNISH),
        ("", "a"),
    ]
    banks = _banks(tmp_path, *videos)
    assert banks.of_language == {"fr": "fr", "en": "en", "br": "fr", "fi": "fi", "mul": "fr", "": "fr"}
    assert banks.main == "fr", "the group with most videos has those without a language"
    assert list(banks.groups) == ["fr", "en", "fi"]


@pytest.mark.slow
def test_the_main_group_is_one_with_sentences_if_there_is_any(tmp_path: Path) -> None:
    assert _banks(tmp_path / "a", ("fi", FINNISH), ("fi", FINNISH), ("de", "x")).main == "de"
    assert _banks(tmp_path / "b", ("fi", FINNISH), ("", "a")).main == "fi"
    assert _banks(tmp_path / "c", ("", "a")).main == "en"


def test_sentences_are_in_the_language_of_the_group_or_in_english_with_the_reason(tmp_path: Path) -> None:
    groups = _banks(tmp_path, ("en", "x"), ("fr", "y"), ("fi", FINNISH)).groups
    assert groups["en"].sentences == SENTENCES
    assert groups["fr"].sentences == languages()["fr"].sentences[:40]
    assert groups["fi"].sentences == SENTENCES[:40]
    assert [bool(groups[group].withheld) for group in ("en", "fr", "fi")] == [False, False, True]
    assert "no unrelated sentences in the language of these words (fi)" in groups["fi"].withheld


@pytest.mark.parametrize(
    ("encoder", "foreign"), [(OnlyEnglish(), ["fr", "de"]), (Polyglot(), []), (None, [])]
)
def test_a_language_that_the_encoder_does_not_know_is_foreign_and_noted(
    tmp_path: Path, encoder: QueryEncoder | None, foreign: list[str]
) -> None:
    banks = _banks(tmp_path, ("en", "x"), ("fr", "y"), ("de", "z"), ("fi", FINNISH), encoder=encoder)
    assert [group for group, bank in banks.groups.items() if bank.foreign] == foreign
    note, noted = note_of({"screen_text": banks})
    assert noted == tuple(foreign)
    if foreign:
        assert "does not know French and German: what is said in them" in note
        only = Banks({"fr": banks.groups["fr"]})
        assert "does not know French: what is said in it" in note_of({"screen_text": only})[0]
    else:
        assert note == ""


def test_streams_without_words_use_english_and_those_that_no_words_search_have_no_bank(
    tmp_path: Path,
) -> None:
    store = _store(tmp_path, ("fr", ""), stream="vision")
    store.add_stream(StreamInfo("speaker", "voices", "a", 4))
    banks = banks_of(store, {})
    assert list(banks) == ["vision"]
    assert (list(banks["vision"].groups), banks["vision"].of_language) == (["en"], {})
