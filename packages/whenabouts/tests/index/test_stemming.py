"""Words are found in other forms in the language of the file, and English is as it was."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from whenabouts.index.lookup import query_words, search_words
from whenabouts.index.stemming import has_stems, stemmed


@pytest.mark.parametrize(
    ("language", "forms"),
    [
        ("fr", ["réseau", "réseaux"]),
        ("de", ["haus", "häuser", "hauses"]),
        ("es", ["canción", "canciones"]),
        ("ru", ["книга", "книги", "книгами"]),
        ("tr", ["ev", "evler"]),
    ],
)
def test_forms_of_one_word_have_one_stem(language: str, forms: list[str]) -> None:
    assert len({stemmed(form, language) for form in forms}) == 1


@pytest.mark.parametrize("language", ["", "en", "zh", "ja", "xx", "mul"])
def test_other_languages_are_left_as_they_are(language: str) -> None:
    assert not has_stems(language)
    assert search_words("Mining pools", language) == "mining pools miningpools"


def test_a_text_is_indexed_by_the_stems_that_its_query_has() -> None:
    words, joined = query_words("les réseau", "fr")
    assert search_words("Les réseaux", "fr").split() == words + joined


def test_a_word_without_end_is_left_as_it_is() -> None:
    assert stemmed("x" * 100_000, "de") == "x" * 100_000


def test_threads_get_the_stems_of_their_own_words() -> None:
    words = [f"verwaltung{letter}en" for letter in "abcdefghijklmnopqrstuvwxyz"] * 20
    expected = [stemmed(word, "de") for word in words]
    stemmed.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda word: stemmed(word, "de"), words)) == expected
