"""What a query in one language does on words in another."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from whenabouts.confidence.background import Language
from whenabouts.confidence.background import languages as known_languages
from whenabouts.index.stream import QueryEncoder
from whenabouts.types import number_of
from whenabouts.video.language import SEVERAL, language_among

ALIGNED = 40
"""The first so many unrelated sentences say the same in every language."""
# An encoder that finds so many of them by their English sense knows the language. MiniLM: 47 % of Spanish and
# French, 3 % of Russian; a multilingual one nearly all.
_UNDERSTOOD = 0.7


def note_on_languages(query: str, spoken: Mapping[str, int], foreign: Collection[str]) -> str:
    """What to say of a query in another language than some videos, where no sentence model bridges the two.

    `spoken` is how many videos are in each language, `foreign` are those that the models of the corpus do not
    know. "" where the query is in the language of these videos, or too short to tell. Its language is named
    only where it is hardly any other one: "bonjour" is more like English than like Chinese, and is neither.
    """
    strange = {code: count for code, count in spoken.items() if code in foreign}
    candidates = {code for code in spoken if code and code != SEVERAL} | {"en"}
    language = language_among(query, candidates) if strange else ""
    others = {code: count for code, count in strange.items() if code != language}
    if not language or not others:
        return ""
    videos = number_of(sum(spoken.values()), "video")
    counted = " and ".join(f"{count} in {name_of(code)}" for code, count in others.items())
    is_sure = language_among(query, {*known_languages(), *candidates}) == language
    of_query = f"the query is in {name_of(language)}, and " if is_sure else ""
    return (
        f"of {videos} {counted}: {of_query}this corpus's sentence model does "
        f"not know {' and '.join(map(name_of, others))}. There words are found that are written alike, and "
        "meaning is not; index into a new corpus with --text multilingual-e5"
    )


def language_apart(query: str, spoken: Collection[str]) -> str:
    """The language that a query is surely in, where it is none of those that are spoken; else "".

    >>> language_apart("Comment les réseaux apprennent", ["en"]), language_apart("PyTorch", ["en"])
    ('fr', '')
    """
    if not {*spoken} - {"", SEVERAL}:
        return ""
    language = language_among(query, {*known_languages(), *spoken} - {"", SEVERAL})
    return "" if language in spoken else language


def strange_language(query: str, spoken: Mapping[str, int]) -> Language | None:
    """The language of a query that no video is in; None where one is or may be, or the query does not tell.

    `spoken` is how many videos are in each language.
    """
    return None if SEVERAL in spoken else known_languages().get(language_apart(query, spoken))


def note_on_strange(language: Language, spoken: Mapping[str, int]) -> str:
    """What to say of a query in a language that no video is in and no sentence model here knows."""
    names = " and ".join(name_of(code) for code in spoken if code)
    return (
        f"the query is in {language.name}, what is said here in {names}, and no sentence model of this "
        f"corpus knows {language.name}: words are found that are written alike, and meaning is not; ask in "
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
    """Whether an encoder places sentences of a language where their English sense is."""
    english = known_languages()["en"]
    if language is english:
        return True
    own = encoder.encode_text(language.sentences[:ALIGNED])
    sense = encoder.encode_text(english.sentences[:ALIGNED])
    if float(np.mean((own @ sense.T).argmax(axis=1) == np.arange(len(own)))) >= _UNDERSTOOD:
        return True
    # Made for this language and not for English: it tells its sentences apart better than the English ones.
    return float(np.mean(own @ own.T)) < float(np.mean(sense @ sense.T))
