from __future__ import annotations

import socket
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from whenabouts_bench.relevance.phrases import PhraseExtractor, Phrases, PhrasesUnavailable, open_phrases

pytest.importorskip("HanTa", reason="the phrases of `chunks` need the package HanTa")


@cache
def _chunks() -> PhraseExtractor:
    return open_phrases("chunks")


def phrases(text: str) -> Phrases:
    return _chunks().phrases([text])[0]


def test_the_papers_example_gives_the_papers_phrases() -> None:
    found = phrases("man and woman start dancing")
    assert found.verb == ("start dancing", "dancing")
    assert found.noun == ("man and woman",)
    assert found.clauses == ("man start dancing", "woman start dancing")


@pytest.mark.slow
def test_a_word_without_end_is_a_word_and_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    extractor = open_phrases("chunks")
    tagger = extractor._tagger  # type: ignore[attr-defined]
    tag = tagger.tag_sent

    def noted(words: list[str]) -> Any:
        asked.extend(words)
        return tag(words)

    monkeypatch.setattr(tagger, "tag_sent", noted)
    word = "x" * 20_000
    assert extractor.phrases([f"a man opens {word}."])[0].verb == (f"opens {word}",)
    assert max(map(len, asked)) == 45


CASES = [
    ("the girl opens the drawer and takes out the knife.", ["opens the drawer", "takes out the knife"],
     ["girl opens the drawer", "girl takes out the knife"]),
    ("elephant raises trunk then puts it back down", ["raises trunk", "puts it back down"],
     ["elephant raises trunk", "elephant puts it back down"]),
    ("The man cuts the cucumber and the woman peels an egg.", ["cuts the cucumber", "peels an egg"],
     ["man cuts the cucumber", "woman peels an egg"]),
    ("A man holding a guitar walks away.", ["holding a guitar", "walks away"],
     ["man holding a guitar", "man walks away"]),
    ("a man in red hat, suspenders, and pants makes an appearance.", ["makes an appearance"],
     ["man makes an appearance"]),
    ("Penny finds Sheldon flipping through a book.",
     ["finds sheldon flipping through a book", "flipping through a book"],
     ["penny finds sheldon flipping through a book", "sheldon flipping through a book"]),
    ("a person is lying on a bed watching television.",
     ["lying on a bed watching television", "watching television"],
     ["person lying on a bed watching television", "person watching television"]),
    ("The man removes the herbs that have clung to the knife.", ["removes the herbs", "clung to the knife"],
     ["man removes the herbs", "herbs clung to the knife"]),
    ("Discard lime slices", ["discard lime slices"], ["discard lime slices"]),
    ("Joey takes Ross's coat.", ["takes ross's coat"], ["joey takes ross's coat"]),
    ("person close the lid.", ["close the lid"], ["person close the lid"]),
    ("person they sit down.", ["sit down"], ["person sit down"]),
    ("The camera pans around the area.", ["pans around the area"], ["camera pans around the area"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verb", "clauses"), CASES, ids=[case[0] for case in CASES])
def test_phrases_of_captions(text: str, verb: list[str], clauses: list[str]) -> None:
    found = phrases(text)
    assert list(found.verb) == verb
    assert list(found.clauses) == clauses


@pytest.mark.parametrize("text", ["", "   ", "...", "?!", "a", "the cat", "/ / /", "🙂", "and and and", "'s"])
def test_what_holds_no_action_gives_no_verb_phrase(text: str) -> None:
    assert phrases(text).verb == ()


def test_an_auxiliary_alone_is_no_phrase() -> None:
    assert phrases("a person is opens the door").verb == ("opens the door",)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert open_phrases("chunks").phrases(["a dog sits"])[0].verb == ("sits",)


def test_a_model_file_in_the_working_directory_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "morphmodel_en.pgz").write_bytes(b"no model")
    monkeypatch.chdir(tmp_path)
    assert open_phrases("chunks").phrases(["a dog sits"])[0].verb == ("sits",)


def test_a_model_is_refused() -> None:
    with pytest.raises(PhrasesUnavailable, match="chunks takes no model"):
        open_phrases("chunks:big")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PhrasesUnavailable, match="need the package HanTa: pip install"):
        open_phrases("chunks")
