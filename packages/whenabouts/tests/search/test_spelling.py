"""Words that a corpus lacks are spelt as it spells them, and those that stand in titles are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whenabouts import Corpus, Evidence
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.spelling import MISHEARD, words_by_video

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


def test_a_name_that_is_not_found_among_recognised_words_may_have_been_misheard(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert corpus.search("Wojciech Szymborski").answer == "no_match"
    assert MISHEARD not in corpus.search("Wojciech Szymborski").notes
    written = StreamAnswer.evidence

    def recognised(self: StreamAnswer, row: int, best: int) -> Evidence:
        return replace(written(self, row, best), recognised=0.8)

    monkeypatch.setattr(StreamAnswer, "evidence", recognised)
    assert MISHEARD in corpus.search("Wojciech Szymborski").notes
    assert MISHEARD not in corpus.search("how the glacier melts").notes


def test_a_part_of_a_compound_is_no_word_that_the_corpus_has(tmp_path: Path) -> None:
    """German compounds are searched by their parts, and "barnbow" by "barn" and "bow"."""
    (tmp_path / "talk.de.vtt").write_text(
        "WEBVTT\n\n00:00.000 --> 00:05.000\nDie Autobahn führt nach Barnbo und in das Tal der Bergleute.\n"
        "\n00:05.000 --> 00:09.000\nDas war im Winter, und wir hatten wenig Licht und keine Kohle mehr.\n",
        encoding="utf-8",
    )
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(tmp_path / "talk.de.vtt", processes=1)
    assert corpus.search("Barnbow").spelling == "Barnbo"
    assert corpus.search("Bahn").spelling == corpus.search("Bergleuten").spelling == ""
    assert corpus.search("wir hatten in Barnbow wenig Kohle im Winter").spelling == ""


def test_videos_with_the_words_in_their_title_or_name_are_told(tmp_path: Path) -> None:
    for name in ("Okafor, Emmanuel.vtt", "tape_7.vtt"):
        (tmp_path / name).write_text(SAID.replace("oxygen", name[:4]), encoding="utf-8")
    (tmp_path / "meta.jsonl").write_text(
        '{"path": "tape_7.vtt", "title": "Walter Penrose, tin miner"}\n', "utf-8"
    )
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(tmp_path, metadata_file=tmp_path / "meta.jsonl", processes=1)

    def titled(query: str, **options: Any) -> list[str]:
        return [record.file_name for record in corpus.search(query, **options).titled]

    assert titled("Okafor") == titled("emmanuel okafor") == ["Okafor, Emmanuel.vtt"]
    assert titled("the tin miners") == ["tape_7.vtt"] == corpus.search("Penrose").to_json()["titled"]
    assert titled("Penrose in the mountains") == titled("the") == titled("Okafor", within="tape_7.vtt") == []
