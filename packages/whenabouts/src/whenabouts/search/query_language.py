"""Queries in one language on words in another: what still matches, and notes for the user."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from whenabouts.confidence.background import Language
from whenabouts.confidence.background import languages as known_languages
from whenabouts.index.stream import QueryEncoder
from whenabouts.types import number_of
from whenabouts.video.language import SEVERAL, language_among

ALIGNED = 40
"""The first unrelated sentences of each language, this many, are translations of each other."""
# An encoder that matches this share of them with their English translation knows the language. MiniLM: 47 %
# of Spanish and French, 3 % of Russian; a multilingual one nearly all.
_UNDERSTOOD = 0.7


def note_on_languages(query: str, spoken: Mapping[str, int], foreign: Collection[str]) -> str:
    """A note on a query in another language than some videos that no sentence model bridges; "" if none.

    `spoken`: number of videos by language; `foreign`: languages that the corpus's models do not know. No note
    if the query is in the language of these videos, or too short to tell. The query's language is named only
    if it is clear: "bonjour" is more like English than Chinese, but is neither.
    """
    strange = {code: count for code, count in spoken.items() if code in foreign}
    candidates = {code for code in spoken if code and code != SEVERAL} | {"en"}
    language = language_among(query, candidates) if strange else ""
    unbridged = {code: count for code, count in strange.items() if code != language}
    if not language or not unbridged:
        return ""
    videos = number_of(sum(spoken.values()), "video")
    counted = " and ".join(f"{count} in {name_of(code)}" for code, count in unbridged.items())
    is_sure = language_among(query, {*known_languages(), *candidates}) == language
    of_query = f"the query is in {name_of(language)}, and " if is_sure else ""
    return (
        f"of {videos} {counted}: {of_query}this corpus's sentence model does not know "
        f"{' and '.join(map(name_of, unbridged))}. There only words with a similar spelling are found, not "
        "meaning; index into a new corpus with --text multilingual-e5"
    )


def language_apart(query: str, spoken: Collection[str]) -> str:
    """The language of a query if it is clear and not among the spoken ones; else "".

    >>> language_apart("Comment les réseaux apprennent", ["en"]), language_apart("PyTorch", ["en"])
    ('fr', '')
    """
    if not {*spoken} - {"", SEVERAL}:
        return ""
    language = language_among(query, {*known_languages(), *spoken} - {"", SEVERAL})
    return "" if language in spoken else language


def strange_language(query: str, spoken: Mapping[str, int]) -> Language | None:
    """The language of a query if no video is in it (`spoken`: number of videos by language), else None.

    Capitalised words are names, which tell no language, but in German.
    """
    code = language_apart(query, spoken)
    is_name = code != "de" and all(word[:1].isupper() for word in query.split())
    return None if SEVERAL in spoken or is_name else known_languages().get(code)


def note_on_strange(language: Language, spoken: Mapping[str, int]) -> str:
    """A note on a query in a language that no video is in and no sentence model here knows."""
    names = " and ".join(name_of(code) for code in spoken if code)
    return (
        f"the query is in {language.name}, the words here are in {names}, and no sentence model of this "
        f"corpus knows {language.name}: only words with a similar spelling are found, not meaning; ask in "
        f"{names}, or index into a new corpus with --text multilingual-e5"
    )


def name_of(code: str) -> str:
    """The English name of a language by its code, or the code.

    >>> name_of("de"), name_of("xx")
    ('German', 'xx')
    """
    language = known_languages().get(code)
    return language.name if language else code


def understands(encoder: QueryEncoder, language: Language) -> bool:
    """Whether an encoder places sentences of a language near their English translations."""
    english = known_languages()["en"]
    if language is english:
        return True
    vectors = encoder.encode_text(language.sentences[:ALIGNED])
    in_english = encoder.encode_text(english.sentences[:ALIGNED])
    if float(np.mean((vectors @ in_english.T).argmax(axis=1) == np.arange(len(vectors)))) >= _UNDERSTOOD:
        return True
    # An encoder made only for this language separates its sentences better than the English ones.
    return float(np.mean(vectors @ vectors.T)) < float(np.mean(in_english @ in_english.T))
