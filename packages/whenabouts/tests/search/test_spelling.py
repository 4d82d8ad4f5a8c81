"""Words that a corpus lacks are spelt as it spells them; others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whenabouts import Corpus
from whenabouts.search.spelling import words_by_video

SAID = """WEBVTT

00:00.000 --> 00:08.000
Good morning, today we have Randall and Kowalski from Brno with us.

00:20.000 --> 00:28.000
The oxygen tank is nearly empty, says Katherine, while we wait for tomorrow.

00:40.000 --> 00:48.000
We talk about the mountains and how the Müller glacier melts.
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("said")
    (folder / "talk.vtt").write_text(SAID, encoding="utf-8")
    corpus = Corpus(folder / "corpus", create=True)
    corpus.add(folder / "talk.vtt", processes=1)
    return corpus


@pytest.mark.parametrize(
    ("query", "spelling"),
    [
        ("oxigen tank", "oxygen tank"),
        ("Rindell", "Randall"),
        ("Kovalsky and Katharyn", "Kowalski and Katherine"),
        ('"oxigen tank"', '"oxygen tank"'),
        ("the first time somebody says tomorow", "the first time somebody says tomorrow"),
        ("the Muler glacier", "the Müller glacier"),
    ],
)
def test_a_missing_word_is_spelt_as_the_corpus_spells_it(corpus: Corpus, query: str, spelling: str) -> None:
    assert corpus.search(query).spelling == spelling
    assert corpus.search(query).to_json()["spelling"] == spelling


@pytest.mark.parametrize(
    "query",
    ["oxygen tank", "mountain", "whale", "fountain", "tunk", "2024", "酸素", "!?", "zyzzyva quux"],
)
def test_other_words_are_left_alone(corpus: Corpus, query: str) -> None:
    """Those that are there, that the sentence encoder knows, that are short, or that are like nothing."""
    found = corpus.search(query)
    assert found.spelling == ""
    assert "spelling" not in found.to_json()


def test_the_words_are_read_anew_after_a_change(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    (tmp_path / "talk.vtt").write_text(SAID, encoding="utf-8")
    corpus.add(tmp_path / "talk.vtt", processes=1)
    assert corpus.search("Aquarious").spelling == ""
    (tmp_path / "more.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:05.000\nAquarius, Houston.\n", "utf-8")
    corpus.add(tmp_path / "more.vtt", processes=1)
    assert corpus.search("Aquarious").spelling == "Aquarius"


def test_words_are_read_once_for_all_handles_and_only_if_one_is_missing(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin, reads = corpus.beside(), list[object]()

    def read(*given: Any) -> Iterator[list[str]]:
        reads.append(given)
        return words_by_video(*given)

    monkeypatch.setattr("whenabouts.search.spelling.words_by_video", read)
    corpus.drop_kept()
    corpus.search("oxygen tank")
    assert not reads
    assert corpus.search("oxigen").spelling == twin.search("oxigen").spelling == "oxygen"
    assert len(reads) == 1
