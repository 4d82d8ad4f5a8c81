"""What a query in one language does on words in another."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from whenabouts.confidence.background import languages as known_languages
from whenabouts.types import number_of
from whenabouts.video.language import SEVERAL, language_among


def note_on_languages(query: str, spoken: Mapping[str, int], foreign: Collection[str]) -> str:
    """What to say of a query in another language than some videos, where no sentence model bridges the two.

    `spoken` is how many videos are in each language, `foreign` are those that the models of the corpus do not
    know. "" where the query is in the language of these videos, or too short to tell.
    """
    strange = {code: count for code, count in spoken.items() if code in foreign}
    candidates = {code for code in spoken if code and code != SEVERAL} | {"en"}
    language = language_among(query, candidates) if strange else ""
    others = {code: count for code, count in strange.items() if code != language}
    if not language or not others:
        return ""
    videos = number_of(sum(spoken.values()), "video")
    counted = " and ".join(f"{count} in {name_of(code)}" for code, count in others.items())
    return (
        f"of {videos} {counted}: the query is in {name_of(language)}, and this corpus's sentence model does "
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


def name_of(code: str) -> str:
    """The English name of a language by its code, or the code.

    >>> name_of("de"), name_of("xx")
    ('German', 'xx')
    """
    language = known_languages().get(code)
    return language.name if language else code
