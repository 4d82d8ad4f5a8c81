"""Words found by parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from whenabouts.index.parts import parts_of
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store

SIGNS = StreamInfo("signs", "letters", "letters", 0, {"parts_of_words": True})
TEXTS = (
    "RE16 TGK",
    "a telescope\nin the harbour",
    "E16 bus stop",
    "Ver. 2.10.3",
    "nothing",
    "gate 7 harbour",
)


@pytest.fixture(params=[True, False], ids=["with parts", "without"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "corpus", create=True)
    store.add_stream(replace(SIGNS, settings={"parts_of_words": request.param}))
    start = np.arange(len(TEXTS), dtype=np.float64)
    clips = ClipColumns(start, start + 1, TEXTS)
    store.put_video(VideoRecord("film", "/film.mp4", streams={"signs": "letters"}), {"signs": clips})
    return store


def texts(store: Store, query: str, *, parts: bool = True) -> list[str]:
    hits = store.match_text("signs", query, 10, parts=parts)
    return [TEXTS[row] for row in hits.index.tolist()]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("RE16", "RE16 TGK"),
        ("e16t", "RE16 TGK"),
        ("lescop", TEXTS[1]),
        ("ver 2.10", "Ver. 2.10.3"),
        ("10.3x", None),
        ("xre16", None),
    ],
)
def test_a_part_finds_the_line_that_holds_it(store: Store, query: str, expected: str | None) -> None:
    has_parts = bool(store.stream("signs").settings["parts_of_words"])
    found_before = texts(store, query, parts=False)
    answers = texts(store, query)
    assert answers == ([expected] if expected and has_parts and not found_before else found_before)


def test_what_stands_as_a_word_is_left_to_the_search_of_words(store: Store) -> None:
    for query in ("harbour", "E16", "bus E16", "gate 7", "the harbour telescope"):
        by_word = store.match_text("signs", query, 10)
        both = store.match_text("signs", query, 10, parts=True)
        assert both.index.tolist() == by_word.index.tolist() and both.score.tolist() == by_word.score.tolist()


def test_lines_are_not_read_on_into_the_next(store: Store) -> None:
    assert texts(store, "peint") == []


def test_a_filter_holds_for_parts_too(store: Store) -> None:
    assert len(store.match_text("signs", "lescop", 10, video_ids=["other"], parts=True)) == 0
    assert len(store.match_text("signs", "lescop", 10, video_ids=[], parts=True)) == 0


@pytest.mark.parametrize("query", ["", "ab", "'; DROP TABLE", "x" * 500, "1" * 23 + " " + "2" * 23, "\0\0\0"])
def test_any_text_is_a_query(store: Store, query: str) -> None:
    assert len(store.match_text("signs", query, 10, parts=True)) <= len(TEXTS)


def test_parts_are_codes_and_the_whole_query() -> None:
    assert parts_of("a sentence that nobody would write on a sign") == {}
    assert list(parts_of("Flight BA2490")) == ["flightba2490", "ba2490"]
    assert parts_of("ab") == {}


def spoken(folder: Path, language: str, lines: Sequence[str]) -> Store:
    store = Store.open(folder / language, create=True)
    store.add_stream(replace(SIGNS, settings={}))
    record = VideoRecord(
        "film", "/film.mp4", words="x", streams={"signs": "letters"}, metadata={"language": language}
    )
    start = np.arange(len(lines), dtype=np.float64)
    store.put_video(record, {"signs": ClipColumns(start, start + 1, lines)})
    return store


def test_a_word_finds_the_compounds_that_begin_or_end_with_it(tmp_path: Path) -> None:
    lines = ["Die Donaudampfschifffahrt ruht.", "Schifffahrtsrecht", "Eine Schifffahrt.", "Schiffe", "nichts"]
    found = {
        language: sorted(
            spoken(tmp_path, language, lines).match_text("signs", "Schifffahrt", 10).index.tolist()
        )
        for language in ("de", "fr")
    }
    assert found == {"de": [0, 1, 2], "fr": [2]}


def test_a_compound_that_is_said_nowhere_finds_its_parts_in_one_place(tmp_path: Path) -> None:
    lines = [
        "Die Erkennung von Bildern",
        "Bilder allein",
        "die Erkennung",
        "ein Markt für Arbeit",
        "Arbeitslosigkeit",
    ]
    store = spoken(tmp_path, "de", lines)
    found = {
        word: store.match_text("signs", word, 10).index.tolist()
        for word in ("Bilderkennung", "Arbeitsmarkt", "Marktarbeiten", "Losverkäufer")
    }
    assert found == {"Bilderkennung": [0], "Arbeitsmarkt": [3], "Marktarbeiten": [3], "Losverkäufer": []}


def test_a_compound_that_is_said_is_left_to_the_search_of_words(tmp_path: Path) -> None:
    store = spoken(tmp_path, "de", ["Die Erkennung von Bildern", "Bilderkennung", "nichts"])
    assert store.match_text("signs", "Bilderkennung", 10).index.tolist() == [1]
