"""Which unrelated sentences each stream of a corpus is asked: those in the language of its words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from whenabouts.confidence.background import Language, language_of, languages
from whenabouts.product.index.store import Store
from whenabouts.product.query_language import ALIGNED, understands
from whenabouts.product.streams import stream as stream_named
from whenabouts.product.streams.protocol import QueryEncoder
from whenabouts.video.language import LEAST_LETTERS

# Videos whose language is looked at.
_VIDEOS = 60
# A language that so large a share of the videos is in is asked as well.
_LEAST_SHARE = 0.1
LEANING = 3.0
"""How much less a cosine counts where the encoder does not know the language."""


@dataclass(frozen=True, slots=True)
class Bank:
    """The unrelated sentences of one stream, in `languages` (codes, such as "fr" or "en fr").

    `foreign` are those of them that the stream's encoder does not know. `withheld` says why there are none;
    then English ones stand in, that measure the encoder and nothing else. `note` is what users should know.
    """

    languages: str
    sentences: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    withheld: str = ""
    note: str = ""


def banks_of(store: Store, encoders: Mapping[str, QueryEncoder]) -> dict[str, Bank]:
    """The bank of each stream that words can be asked; pictures have no language and are asked in English."""
    by_words = [name for name in store.streams if "text" in stream_named(name).meets]
    return {name: _bank(store, name, encoders.get(name)) for name in by_words}


def _bank(store: Store, stream: str, encoder: QueryEncoder | None) -> Bank:
    english = languages()["en"]
    spoken = [] if stream_named(stream).has_words is False else _languages(store, stream)
    if not spoken:
        return Bank("en", english.sentences)
    if spoken == [None]:
        return Bank(
            "",
            english.sentences,
            withheld="how sure an answer is cannot be said: whenabouts has no unrelated sentences in the "
            "language of this corpus to compare with",
        )
    own = [language for language in spoken if language is not None]
    if own == [english]:
        return Bank("en", english.sentences)
    foreign = [] if encoder is None else [language for language in own if not understands(encoder, language)]
    return Bank(
        " ".join(language.code for language in own),
        tuple(sentence for language in own for sentence in language.sentences[:ALIGNED]),
        foreign=tuple(language.code for language in foreign),
        note=_note(foreign),
    )


def _note(foreign: list[Language]) -> str:
    if not foreign:
        return ""
    names = " and ".join(language.name for language in foreign)
    it = "it" if len(foreign) == 1 else "them"
    return f"the sentence model does not know {names}: what is said in {it} is found by words, not meaning"


def _languages(store: Store, stream: str) -> list[Language | None]:
    """The languages of a stream's videos, most frequent first; [None] where most are in another one."""
    ids = [record.video_id for record in store.videos() if stream in record.streams]
    block = store.clips_of(stream, ids[:: max(1, math.ceil(len(ids) / _VIDEOS))], vectors=False)
    counts: Counter[str] = Counter()
    for number in range(len(block.video_ids)):
        rows = block.rows(number)
        texts = block.text[rows.start : rows.stop]
        if sum(map(str.isalpha, "".join(texts))) >= LEAST_LETTERS:
            language = language_of(texts)
            counts["" if language is None else language.code] += 1
    frequent = [code for code, count in counts.most_common() if count >= _LEAST_SHARE * counts.total()]
    if counts[""] > counts.total() / 2:
        return [None]
    return [languages()[code] for code in frequent if code]
