"""Words of a corpus that sound like a query: what is found, what is left alone, and what is lacking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts import Corpus
from whenabouts.checkers import CheckerError
from whenabouts.search import sounds_alike
from whenabouts.search.sounds_alike import SoundsAlike, edits_to_ends

HEARD = """WEBVTT

00:00.000 --> 00:08.000
Good morning, today we have Randall and a return list with us.

00:20.000 --> 00:28.000
I am excited to have Chris Tof as our guest, and podcasts are fun.

00:40.000 --> 00:48.000
We talk about the weather in the mountains and how the snow melts.
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("heard")
    (folder / "talk.vtt").write_text(HEARD, encoding="utf-8")
    other = "WEBVTT\n\n00:00.000 --> 00:05.000\nA ran down the hill.\n"
    (folder / "other.vtt").write_text(other, encoding="utf-8")
    corpus = Corpus(folder / "corpus", create=True)
    corpus.add(folder / "talk.vtt", folder / "other.vtt", processes=1)
    return corpus


@pytest.mark.parametrize(
    ("query", "alike"),
    [
        ("Rindell", "randall"),
        ("Christoph", "chris tof"),
        ("returngast", "return list"),
        ("to have Christoph as", "to have chris tof as"),
    ],
)
def test_a_word_that_the_corpus_lacks_is_sought_by_its_sound(corpus: Corpus, query: str, alike: str) -> None:
    (found,) = SoundsAlike(corpus.store).rewritten(query, 1.0)
    assert found.startswith(alike) or alike.startswith(found)


@pytest.mark.parametrize("query", ["randall", "podcast", "snow melt", "zyzzyva quux", "xy", ""])
def test_known_words_and_those_like_nothing_are_left_alone(corpus: Corpus, query: str) -> None:
    with pytest.raises(CheckerError, match=r"has all of its words|nothing in the corpus sounds like it"):
        SoundsAlike(corpus.store).rewritten(query, 1.0)


@pytest.mark.parametrize("query", ["", " !? ", "🎉", "日本語", "Йод", "a" * 10_000])
def test_a_query_without_words_of_the_corpus_or_of_english_sounds_like_nothing(
    corpus: Corpus, query: str
) -> None:
    with pytest.raises(CheckerError, match="nothing in the corpus sounds like it"):
        SoundsAlike(corpus.store).rewritten(query, 1.0)


@pytest.mark.slow
def test_words_of_two_videos_are_not_joined(tmp_path: Path) -> None:
    for name, words in (("a", "You say mer"), ("b", "kit pie")):
        text = f"WEBVTT\n\n00:00.000 --> 00:05.000\n{words}\n"
        (tmp_path / f"{name}.vtt").write_text(text, encoding="utf-8")
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(tmp_path, processes=1)
    with pytest.raises(CheckerError, match="nothing in the corpus sounds like it"):
        SoundsAlike(corpus.store).rewritten("Merkit", 1.0)


def test_a_search_by_sound_finds_the_moment_and_says_how(corpus: Corpus) -> None:
    result = corpus.search("Rindell", rewrite="sound")
    assert result.rewrite is not None
    assert result.rewrite.line == "also searched (sound): randall"
    assert Path(result.moments[0].path).name == "talk.vtt"
    assert result.moments[0].moment.start == 0.0
    plain = corpus.search("snow", rewrite="sound")
    assert any("the corpus has all of its words" in note for note in plain.notes)


def test_a_corpus_without_spoken_words_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckerError, match="no spoken words"):
        SoundsAlike(Corpus(tmp_path / "empty", create=True).store).rewritten("Rindell", 1.0)


def test_a_corpus_of_too_many_words_says_so(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sounds_alike, "MOST_WORDS", 10)
    with pytest.raises(CheckerError, match="more than 10 spoken words"):
        SoundsAlike(corpus.store).rewritten("Rindell", 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_edits_are_those_of_the_plain_recurrence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, text = (rng.integers(0, 3, size).astype(np.uint8) for size in (6, 30))
    for anywhere in (True, False):
        row = [0 if anywhere else at for at in range(len(text) + 1)]
        for number, sound in enumerate(query, 1):
            before, row = row, [number]
            for at, other in enumerate(text, 1):
                row.append(min(before[at] + 1, row[at - 1] + 1, before[at - 1] + int(sound != other)))
        assert edits_to_ends(query, text, anywhere=anywhere).tolist() == row


@pytest.mark.slow
def test_each_handle_listens_to_the_corpus_as_it_reads_it(tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text(HEARD, encoding="utf-8")
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(tmp_path / "talk.vtt", processes=1)
    assert corpus.beside().search("Rindell", rewrite="sound").rewrite is not None
    late = "WEBVTT\n\n00:00.000 --> 00:05.000\nProfessor Zimmermann explains it.\n"
    (tmp_path / "late.vtt").write_text(late, encoding="utf-8")
    Corpus(tmp_path / "corpus").add(tmp_path / "late.vtt", processes=1)
    found = corpus.search("Simmerman", rewrite="sound")
    assert found.rewrite is not None and "zimmermann" in found.rewrite.line
